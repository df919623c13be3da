package stat

import (
	"math"
	"strings"
	"testing"

	"inflight/runner/result"
)

// climbing is the samples of one run of a ramp from 1,000/s by 1,000/s each second, against a broker that takes limit/s.
func climbing(at, limit int64) (samples []result.Sample) {
	var due, published float64
	for i := range int64(51) {
		samples = append(samples, result.Sample{AtNS: at + i*1e8, Due: int64(due), Published: int64(published)})
		rate := 1000 + float64(i)*100 + 50
		due += rate / 10
		published = min(due, published+float64(limit)/10)
	}
	return samples
}

func TestPacesTellWhereARampFellBehind(t *testing.T) {
	cell := result.Cell{Arm: "A", Pass: 1, QoS: 1, Window: 10, Connections: 1, Payload: 256, RatePerS: 3500, Ramp: "1000..6000", ThroughputPerS: 2500, Messages: 1000}
	cell.Samples = append(climbing(0, 3000), climbing(9e9, 3000)...)
	for i := range 20 { // after the end of the schedule
		last := cell.Samples[len(cell.Samples)-1]
		last.AtNS += int64(i+1) * 1e8
		cell.Samples = append(cell.Samples, last)
	}
	runs := Paces(&cell)
	if len(runs) != 2 || len(runs[0]) != 50 || len(runs[1]) != 50 {
		t.Fatalf("%d runs, want two of 50 moments", len(runs))
	}
	if first, last := runs[0][0], runs[0][49]; math.Abs(first.Asked-1050) > 10 || math.Abs(last.Asked-5950) > 10 || math.Abs(last.Reached-3000) > 10 || last.Behind < 4000 {
		t.Errorf("first %+v, last %+v", first, last)
	}
	r := &result.Result{Arms: []result.Arm{{Name: "A"}}, Cells: []result.Cell{cell}}
	rate, ok := fellBehind(r, "A", PointOf(&cell))
	if !ok || rate < 3000 || rate > 3300 {
		t.Errorf("fell behind at %g/s, %v; it takes 3000/s", rate, ok)
	}
	var said []string
	rates(r, func(_, format string, args ...any) { said = append(said, format) })
	if len(said) != 1 || !strings.Contains(said[0], "was not reached") {
		t.Errorf("warnings %q", said)
	}
	cell.Samples = climbing(0, 9000)
	if rate, ok := fellBehind(&result.Result{Cells: []result.Cell{cell}}, "A", PointOf(&cell)); ok {
		t.Errorf("a broker that keeps up fell behind at %g/s", rate)
	}
	cell.RatePerS = 0
	if Paces(&cell) != nil {
		t.Error("a closed loop has no pace")
	}
}

// Points of an open loop are told apart by their ramp, points of the same mean by their distribution.
func TestPointsDifferByShape(t *testing.T) {
	a := result.Cell{Payload: 640, RatePerS: 2000}
	b, c := a, a
	b.Ramp, c.Sizes = "1000..3000", "256*9+4096*1"
	if PointOf(&a) == PointOf(&b) || PointOf(&a) == PointOf(&c) || PointOf(&b) == PointOf(&c) {
		t.Error("points of different loads are the same")
	}
	k := result.Comparison{Payload: 640, RatePerS: 2000, Ramp: b.Ramp}
	if PointOfComparison(&k) != PointOf(&b) {
		t.Error("a comparison belongs to another point than its cells")
	}
}
