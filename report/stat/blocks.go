package stat

import (
	"math"

	"inflight/runner/result"
)

// Point is one combination of the swept values.
type Point struct {
	QoS, Window, Connections, Payload int
	Rate                              int // messages per second that an open loop was asked for, of a ramp their mean; 0: closed loop

	Ramp, Sizes string // as in result.Cell: "" for a constant rate, and for payloads of one size
}

// PointOf returns the point that a cell belongs to. A control cell belongs to the cell with its window, connections and
// payload, at whatever QoS that one has; its own QoS is 0.
func PointOf(c *result.Cell) Point {
	return Point{QoS: c.QoS, Window: c.Window, Connections: c.Connections, Payload: c.Payload, Rate: int(c.RatePerS), Ramp: c.Ramp, Sizes: c.Sizes}
}

// PointOfComparison returns the point that a comparison is of.
func PointOfComparison(c *result.Comparison) Point {
	return Point{QoS: c.QoS, Window: c.Window, Connections: c.Connections, Payload: c.Payload, Rate: int(c.RatePerS), Ramp: c.Ramp, Sizes: c.Sizes}
}

// Points returns the points that were measured, without the controls, in the order of the cells.
func Points(r *result.Result) []Point {
	var points []Point
	seen := map[Point]bool{}
	for i := range r.Cells {
		c := &r.Cells[i]
		if p := PointOf(c); !c.Control && !seen[p] {
			seen[p] = true
			points = append(points, p)
		}
	}
	return points
}

// pair is the two arms at one point in one pass.
type pair struct {
	pass int
	a, b *result.Cell
}

// pairsOf matches the cells of two arms that selected picks. Cells of the same arm, pass and point (the controls of two
// QoS levels) are matched in the order in which they stand.
func pairsOf(r *result.Result, a, b string, selected func(*result.Cell) bool) []pair {
	type key struct {
		pass  int
		point Point
	}
	waiting := map[key][]*result.Cell{}
	var pairs []pair
	for i := range r.Cells {
		c := &r.Cells[i]
		if !selected(c) || (c.Arm != a && c.Arm != b) {
			continue
		}
		k := key{c.Pass, PointOf(c)}
		if w := waiting[k]; len(w) > 0 && w[0].Arm != c.Arm {
			other := w[0]
			waiting[k] = w[1:]
			if c.Arm == a {
				c, other = other, c
			}
			pairs = append(pairs, pair{pass: c.Pass, a: other, b: c})
			continue
		}
		waiting[k] = append(waiting[k], c)
	}
	return pairs
}

// metric is one quantity of a run that the arms are compared on.
type metric struct {
	name          string
	lowerIsBetter bool
	ofBlock       func(*result.Block) float64 // 0 when absent
	ofCell        func(*result.Cell) float64
}

// Metrics of a Comparison.
const (
	Throughput = "throughput"
	P99        = "ack_service_p99"
)

func metrics() []metric {
	return []metric{
		{
			name:    Throughput,
			ofBlock: func(b *result.Block) float64 { return b.ThroughputPerS },
			ofCell:  func(c *result.Cell) float64 { return c.ThroughputPerS },
		},
		{
			name:          P99,
			lowerIsBetter: true,
			ofBlock:       func(b *result.Block) float64 { return nanoseconds(b.P99) },
			ofCell: func(c *result.Cell) float64 {
				if c.Latency.AckService == nil {
					return 0
				}
				return nanoseconds(c.Latency.AckService.P99)
			},
		},
	}
}

func nanoseconds(ns *int64) float64 {
	if ns == nil {
		return 0
	}
	return float64(*ns)
}

// pairedRuns is how often each arm runs in a block A B B A.
const pairedRuns = 2

// logsOf returns the mean log of the metric in each complete block of a cell, by block number, and how many blocks the
// cell has in all. A block is incomplete when it has fewer runs of the arm than it should, because the whole run ended
// inside it, or when one of its runs has no such value.
func (m metric) logsOf(c *result.Cell, runsPerBlock int) (logs map[int]float64, blocks int) {
	runs := map[int][]float64{}
	for i := range c.Blocks {
		b := &c.Blocks[i]
		runs[b.Block] = append(runs[b.Block], m.ofBlock(b))
	}
	logs = map[int]float64{}
next:
	for number, values := range runs {
		if len(values) != runsPerBlock {
			continue
		}
		var sum float64
		for _, v := range values {
			if !positive(v) {
				continue next
			}
			sum += math.Log(v)
		}
		logs[number] = sum / float64(runsPerBlock)
	}
	return logs, len(runs)
}

// ratiosOf returns log(B/A) of every block that is complete in both arms, and how many blocks there are in all.
func (m metric) ratiosOf(pairs []pair) (samples []sample, blocks int) {
	for _, p := range pairs {
		a, inA := m.logsOf(p.a, pairedRuns)
		b, inB := m.logsOf(p.b, pairedRuns)
		blocks += max(inA, inB)
		for i := range p.a.Blocks { // the order of the file, once per block
			number := p.a.Blocks[i].Block
			la, okA := a[number]
			lb, okB := b[number]
			if okA && okB {
				samples = append(samples, sample{pass: p.pass, block: number, value: lb - la})
				delete(a, number)
			}
		}
	}
	return samples, blocks
}

// totalsOf returns log(B/A) of the whole cells, one sample per pass: what is left when the blocks do not have the metric.
func (m metric) totalsOf(pairs []pair) []sample {
	var samples []sample
	for _, p := range pairs {
		a, b := m.ofCell(p.a), m.ofCell(p.b)
		if positive(a) && positive(b) {
			samples = append(samples, sample{pass: p.pass, value: math.Log(b) - math.Log(a)})
		}
	}
	return samples
}
