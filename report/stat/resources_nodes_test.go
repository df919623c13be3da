package stat

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inflight/runner/result"
)

// Writes are those of all nodes for each message, and unknown where one node does not tell. Each process is told apart over the
// passes.
func TestResourcesOfNodesAndGenerator(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	f := func(v float64) *float64 { return &v }
	cell := func(pass int, a, b *int64, threads int64) result.Cell {
		return result.Cell{
			Arm: "A", Pass: pass, QoS: 2, Window: 1, Messages: 100,
			Nodes:     []result.Node{{Name: "n1", WriteCalls: a, RSSSlope: f(float64(pass)), CPUSeconds: f(0.5)}, {Name: "n2", WriteCalls: b, BytesPerInFlight: f(100)}},
			Generator: &result.Node{Threads: n(threads), FDs: n(9)}, GeneratorCPU: f(1),
		}
	}
	r := &result.Result{Arms: []result.Arm{{Name: "A"}}, Cells: []result.Cell{cell(1, n(300), n(100), 7), cell(2, n(200), n(200), 5)}}
	point := PointOf(&r.Cells[0])
	got := ResourcesOf(r, "A", point)
	if got.WritesPerMessage == nil || *got.WritesPerMessage != 4 {
		t.Errorf("%+v", got)
	}
	want := []Process{
		{Name: "n1", RSSSlope: f(2), CPUPer1000: f(5), WritesPerMessage: f(2.5)},
		{Name: "n2", BytesPerInFlight: f(100), WritesPerMessage: f(1.5)},
		{Name: "generator", CPUPer1000: f(10), Threads: n(7), FDs: n(9)},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	if diff := cmp.Diff(want, ProcessesOf(r, "A", point), near); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	r.Cells[1].Nodes[1].WriteCalls = nil
	if got := ResourcesOf(r, "A", point); got.WritesPerMessage != nil {
		t.Errorf("%v writes a message, of nodes that do not all tell", *got.WritesPerMessage)
	}
}
