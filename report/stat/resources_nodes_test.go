package stat

import (
	"testing"

	"inflight/runner/result"
)

// Writes are those of all nodes for each message, and unknown where one node does not tell; the generator's are its peaks.
func TestResourcesOfNodesAndGenerator(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	cell := func(pass int, a, b *int64, threads int64) result.Cell {
		return result.Cell{
			Arm: "A", Pass: pass, QoS: 2, Window: 1, Messages: 100,
			Nodes:     []result.Node{{Name: "n1", WriteCalls: a}, {Name: "n2", WriteCalls: b}},
			Generator: &result.Node{Threads: n(threads), FDs: n(9)},
		}
	}
	r := &result.Result{Arms: []result.Arm{{Name: "A"}}, Cells: []result.Cell{cell(1, n(300), n(100), 7), cell(2, n(200), n(200), 5)}}
	point := PointOf(&r.Cells[0])
	got := ResourcesOf(r, "A", point)
	if got.WritesPerMessage == nil || *got.WritesPerMessage != 4 || *got.GeneratorThreads != 7 || *got.GeneratorFDs != 9 {
		t.Errorf("%+v", got)
	}
	r.Cells[1].Nodes[1].WriteCalls = nil
	if got := ResourcesOf(r, "A", point); got.WritesPerMessage != nil {
		t.Errorf("%v writes a message, of nodes that do not all tell", *got.WritesPerMessage)
	}
}
