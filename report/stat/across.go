package stat

import (
	"math"

	"inflight/runner/result"
)

// Ratio is a ratio with its 95 % interval, which is absent when there are too few blocks for one.
type Ratio struct {
	Ratio     float64
	Low, High *float64
}

// Across compares arm of a later run with base of an earlier one at a point: their blocks are not paired, so the interval
// is Welch's on the logs of both, each stratified by its passes. With normalise each side is first divided by its own
// QoS 0 control of the same window, connections and payload. metric is Throughput or P99; nil is returned when a side, or
// a control that is asked for, has no value.
//
// The interval knows what varies inside the runs. What varies between them it does not: AcrossControl does.
func Across(earlier, later *result.Result, base, arm string, at Point, metric string, normalise bool) *Ratio {
	for _, m := range metrics() {
		if m.name != metric {
			continue
		}
		cell := func(c *result.Cell) bool { return !c.Control && PointOf(c) == at }
		terms := []term{{m.aloneOf(later, arm, cell), 1}, {m.aloneOf(earlier, base, cell), -1}}
		if normalise {
			own := at
			own.QoS, own.Rate, own.Ramp = 0, 0, ""
			control := func(c *result.Cell) bool { return c.Control && PointOf(c) == own }
			terms = append(terms, term{m.aloneOf(later, arm, control), -1}, term{m.aloneOf(earlier, base, control), 1})
		}
		return combine(terms)
	}
	return nil
}

// AcrossControl is the later run's QoS 0 control over the earlier one's, all of their cells that both have: how far two
// runs of the same thing are apart on this machine. It is nil when they have no control in common.
func AcrossControl(earlier, later *result.Result, base, arm string) *result.Control {
	m := metrics()[0]
	points := map[Point]bool{}
	for i := range earlier.Cells {
		if c := &earlier.Cells[i]; c.Control && c.Arm == base {
			points[PointOf(c)] = true
		}
	}
	control := func(c *result.Cell) bool { return c.Control && points[PointOf(c)] }
	e, l := m.aloneOf(earlier, base, control), m.aloneOf(later, arm, control)
	r := combine([]term{{l, 1}, {e, -1}})
	if r == nil {
		return nil
	}
	return &result.Control{Ratio: r.Ratio, Low: r.Low, High: r.High, Blocks: l.n + e.n}
}

// aloneOf estimates the log of a metric of one arm, over the blocks of the cells that selected picks.
func (m metric) aloneOf(r *result.Result, arm string, selected func(*result.Cell) bool) estimate {
	var cells []*result.Cell
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Arm == arm && selected(c) {
			cells = append(cells, c)
		}
	}
	runs := runsPerBlock(r, cells)
	var samples []sample
	stratum := 0
	for _, c := range cells {
		stratum++ // the cells of a control differ in their windows: each is a stratum, as each pass is
		logs, _ := m.logsOf(c, runs)
		for k := range c.Blocks {
			if v, ok := logs[c.Blocks[k].Block]; ok {
				samples = append(samples, sample{pass: stratum, value: v})
				delete(logs, c.Blocks[k].Block)
			}
		}
	}
	return estimateOf(samples)
}

// term is one estimate of a sum, with its sign.
type term struct {
	estimate
	sign float64
}

// combine is exp of the signed sum; nil when a term has no value.
func combine(terms []term) *Ratio {
	var effects []effect
	for _, t := range terms {
		if len(t.passes) == 0 {
			return nil
		}
		e := t.effect()
		e.mean *= t.sign
		effects = append(effects, e)
	}
	sum := sumOf(effects)
	ratio := usable(math.Exp(sum.mean))
	if ratio == nil {
		return nil
	}
	out := &Ratio{Ratio: *ratio}
	out.Low, out.High = sum.interval()
	return out
}
