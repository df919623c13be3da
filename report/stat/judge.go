package stat

import (
	"math"

	"inflight/runner/result"
)

// Verdicts of a Comparison.
const (
	Better       = "better"
	Worse        = "worse"
	Same         = "same"
	Inconclusive = "inconclusive"
	Incorrect    = "incorrect"
)

// SameMargin is the difference, as a fraction, that nobody would choose a broker for.
const SameMargin = 0.05

// Judge fills Comparisons, Overall, Control, Controls, Warnings and the cells' classes of r from its cells, and may be
// called again. Each arm is compared with the first; a run of one arm has neither comparisons nor a control, and nor have the arms of
// several runs side by side. Warnings
// with codes that this package does not know are kept.
func Judge(r *result.Result) {
	r.Comparisons, r.Overall, r.Control, r.Controls = nil, nil, nil, nil
	classify(r)
	var all []*comparison
	for i := 1; i < len(r.Arms) && !r.SideBySide; i++ {
		versus := newVersus(r, &r.Arms[0], &r.Arms[i])
		if c := versus.controlOf(); c != nil && i == 1 {
			r.Control = c
		}
		if c := versus.controlOf(); c != nil && len(r.Arms) > 2 {
			r.Controls = append(r.Controls, *c)
		}
		all = append(all, versus.comparisons()...)
	}
	decide(all)
	for _, c := range all {
		if c.overall {
			r.Overall = append(r.Overall, c.Comparison)
		} else {
			r.Comparisons = append(r.Comparisons, c.Comparison)
		}
	}
	r.Warnings = append(foreign(r.Warnings), warningsOf(r)...)
	if len(r.Warnings) == 0 {
		r.Warnings = nil
	}
}

// Spread is how far the control's interval reaches from 1.00, as a logarithm: the noise floor of the run. Without an
// interval it is what is known, the distance of the ratio itself; without a control it is 0.
func Spread(c *result.Control) float64 {
	if c == nil {
		return 0
	}
	spread := math.Abs(math.Log(c.Ratio))
	if c.Low != nil && c.High != nil {
		spread = max(spread, math.Abs(math.Log(*c.Low)), math.Abs(math.Log(*c.High)))
	}
	return spread
}

// ControlOf is the control of an arm over the first arm of a judged run; nil without one.
func ControlOf(r *result.Result, arm string) *result.Control {
	for i := range r.Controls {
		if c := &r.Controls[i]; c.Arm == arm {
			return c
		}
	}
	if len(r.Arms) > 1 && r.Arms[1].Name == arm {
		return r.Control
	}
	return nil
}

// versus is one arm over the base.
type versus struct {
	r         *result.Result
	base, arm *result.Arm
	control   estimate // without passes if there is none
	alike     bool     // two builds of one broker: the control must be at 1.00
}

func newVersus(r *result.Result, base, arm *result.Arm) *versus {
	v := &versus{r: r, base: base, arm: arm, alike: SameKind(base.Target, arm.Target)}
	m := metrics()[0]
	pairs := pairsOf(r, base.Name, arm.Name, func(c *result.Cell) bool { return c.Control })
	samples, _ := m.ratiosOf(pairs)
	if len(samples) == 0 {
		samples = m.totalsOf(pairs)
	}
	if e := estimateOf(samples); len(e.passes) > 0 && positive(math.Exp(e.mean)) {
		v.control = e
	}
	return v
}

// controlOf is nil without a control.
func (v *versus) controlOf() *result.Control {
	e := v.control
	if len(e.passes) == 0 {
		return nil
	}
	c := &result.Control{Base: v.base.Name, Arm: v.arm.Name, Ratio: math.Exp(e.mean), Blocks: e.n, Passes: e.ratios()}
	c.Low, c.High = e.effect().interval()
	return c
}

// comparison is a result.Comparison on its way to a verdict.
type comparison struct {
	result.Comparison
	versus    *versus
	metric    metric
	effect    effect
	incorrect bool
	overall   bool
	test      *hypothesis // nil when there is no interval
}

// comparisons are those of every point, and the overall one if there is more than one point.
func (v *versus) comparisons() []*comparison {
	var all, throughputs []*comparison
	for _, point := range Points(v.r) {
		pairs := pairsOf(v.r, v.base.Name, v.arm.Name, func(c *result.Cell) bool { return !c.Control && PointOf(c) == point })
		for _, m := range metrics() {
			if m.name == P99 && point.QoS == 0 {
				continue // nothing is acknowledged: the blocks hold the time of their fences
			}
			c := v.compare(m, point, pairs)
			if c == nil {
				continue
			}
			all = append(all, c)
			if m.name == Throughput {
				throughputs = append(throughputs, c)
			}
		}
	}
	if c := v.overall(throughputs); c != nil {
		all = append(all, c)
	}
	return all
}

// compare returns nil when one of the arms has no such value at the point.
func (v *versus) compare(m metric, point Point, pairs []pair) *comparison {
	samples, blocks := m.ratiosOf(pairs)
	e, totals := estimateOf(samples), false
	if e.df < minDF && (m.name == P99 || e.n == 0) {
		if t := estimateOf(m.totalsOf(pairs)); len(t.passes) > 0 && len(t.passes) >= len(e.passes) {
			// Its passes are no blocks: there is nothing to take an interval from.
			t.n, t.df, t.sd = 0, 0, 0
			e, totals = t, true
		}
	}
	if len(e.passes) == 0 || !positive(math.Exp(e.mean)) {
		return nil
	}
	c := &comparison{versus: v, metric: m, effect: e.effect()}
	c.Comparison = result.Comparison{
		QoS: point.QoS, Window: point.Window, Connections: point.Connections, Payload: point.Payload, RatePerS: float64(point.Rate), Ramp: point.Ramp, Sizes: point.Sizes,
		Passes: e.ratios(), Blocks: e.n, SlotEffect: e.slotEffect(pairs),
	}
	for _, p := range pairs {
		c.incorrect = c.incorrect || p.a.Incorrect() || p.b.Incorrect()
	}
	c.fill()
	c.Warnings = append(e.reservations(blocks, totals, pairs), trend(samples)...)
	return c
}

// overall is the throughput over all points together, each with the same weight; nil for less than two. It has no
// point, and no slot effect.
func (v *versus) overall(points []*comparison) *comparison {
	if len(points) < 2 {
		return nil
	}
	c := &comparison{versus: v, metric: metrics()[0], overall: true}
	var effects []effect
	var passes [][]float64
	for _, p := range points {
		effects = append(effects, p.effect)
		passes = append(passes, p.Passes)
		c.Blocks += p.Blocks
		c.incorrect = c.incorrect || p.incorrect
	}
	c.effect = meanOf(effects)
	c.Passes = meanPasses(passes)
	if !positive(math.Exp(c.effect.mean)) {
		return nil
	}
	c.fill()
	return c
}

// meanPasses is the geometric mean of each pass over the points; none when not every point has every pass.
func meanPasses(points [][]float64) []float64 {
	out := make([]float64, len(points[0]))
	for _, p := range points {
		if len(p) != len(out) {
			return nil
		}
		for i, r := range p {
			out[i] += math.Log(r) / float64(len(points))
		}
	}
	for i := range out {
		out[i] = math.Exp(out[i])
	}
	return out
}

// fill sets what follows from the effect alone.
func (c *comparison) fill() {
	c.Base, c.Arm, c.Metric = c.versus.base.Name, c.versus.arm.Name, c.metric.name
	c.Ratio = math.Exp(c.effect.mean)
	c.Low, c.High = c.effect.interval()
	c.P = c.effect.p()
	control := c.versus.control
	if c.metric.name != Throughput || len(control.passes) == 0 {
		return
	}
	corrected := c.effect.without(control.effect())
	if ratio := usable(math.Exp(corrected.mean)); ratio != nil {
		c.Corrected = &result.Corrected{Ratio: *ratio}
		c.Corrected.Low, c.Corrected.High = corrected.interval()
	}
}

// slotEffect is exp of half the difference between the passes in which A has the lower slot and those in which it has
// the higher one; nil unless there are both, and for more than two slots, which have no one effect.
func (e estimate) slotEffect(pairs []pair) *float64 {
	var plain, swapped []float64
	for _, p := range e.passes {
		for _, q := range pairs {
			if q.pass != p.pass {
				continue
			}
			switch {
			case q.a.Slot > 2 || q.b.Slot > 2:
				return nil
			case q.a.Slot < q.b.Slot:
				plain = append(plain, p.mean)
			case q.a.Slot > q.b.Slot:
				swapped = append(swapped, p.mean)
			}
			break
		}
	}
	if len(plain) == 0 || len(swapped) == 0 {
		return nil
	}
	return usable(math.Exp((mean(plain) - mean(swapped)) / 2))
}
