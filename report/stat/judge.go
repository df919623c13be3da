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

// sameMargin is the difference that nobody would choose a broker for.
const sameMargin = 0.05

// Judge fills Comparisons, Control and Warnings of r from its cells, and may be called again. Arm B is compared with
// arm A, the first two of the run; a run of one arm has neither comparisons nor a control. Warnings with codes that
// this package does not know are kept.
func Judge(r *result.Result) {
	r.Comparisons, r.Control = nil, nil
	if len(r.Arms) >= 2 {
		a, b := r.Arms[0].Name, r.Arms[1].Name
		r.Control = controlOf(r, a, b)
		spread := Spread(r.Control)
		for _, point := range Points(r) {
			pairs := pairsOf(r, a, b, func(c *result.Cell) bool { return !c.Control && PointOf(c) == point })
			for _, m := range metrics() {
				if m.name == P99 && point.QoS == 0 {
					continue // nothing is acknowledged: the blocks hold the time of their fences
				}
				if c := compare(m, point, pairs, spread); c != nil {
					r.Comparisons = append(r.Comparisons, *c)
				}
			}
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

// Margin is the difference up to which arms are called the same, as a fraction: 0.05, or the control's spread if larger.
func Margin(c *result.Control) float64 {
	return max(sameMargin, math.Expm1(Spread(c)))
}

func controlOf(r *result.Result, a, b string) *result.Control {
	m := metrics()[0]
	pairs := pairsOf(r, a, b, func(c *result.Cell) bool { return c.Control })
	samples, _ := m.ratiosOf(pairs)
	if len(samples) == 0 {
		samples = m.totalsOf(pairs)
	}
	e := estimateOf(samples)
	if len(e.passes) == 0 || !positive(math.Exp(e.mean)) {
		return nil
	}
	c := &result.Control{Ratio: math.Exp(e.mean), Blocks: e.n, Passes: e.ratios()}
	c.Low, c.High = e.interval()
	return c
}

// compare returns nil when one of the arms has no such value at the point.
func compare(m metric, point Point, pairs []pair, spread float64) *result.Comparison {
	samples, blocks := m.ratiosOf(pairs)
	e, totals := estimateOf(samples), false
	if e.df < minDF && (m.name == P99 || e.n == 0) {
		if t := estimateOf(m.totalsOf(pairs)); len(t.passes) > 0 && len(t.passes) >= len(e.passes) {
			// Its passes are no blocks: there is nothing to take an interval from.
			t.n, t.df, t.sd = 0, 0, 0
			e, totals = t, true
		}
	}
	ratio := math.Exp(e.mean)
	if len(e.passes) == 0 || !positive(ratio) {
		return nil
	}
	c := &result.Comparison{
		QoS: point.QoS, Window: point.Window, Connections: point.Connections, Payload: point.Payload, RatePerS: float64(point.Rate),
		Metric: m.name, Ratio: ratio, Passes: e.ratios(), Blocks: e.n,
	}
	c.Low, c.High = e.interval()
	swapped := e.slotEffect(pairs)
	c.SlotEffect = swapped
	incorrect := false
	for _, p := range pairs {
		incorrect = incorrect || p.a.Incorrect() || p.b.Incorrect()
	}
	c.Verdict = verdict(m, c, incorrect, spread)
	c.Warnings = e.reservations(blocks, totals, swapped != nil)
	return c
}

// slotEffect is exp of half the difference between the passes in which A has the lower slot and those in which it has
// the higher one; nil unless there are both.
func (e estimate) slotEffect(pairs []pair) *float64 {
	var plain, swapped []float64
	for _, p := range e.passes {
		for _, q := range pairs {
			if q.pass != p.pass {
				continue
			}
			switch {
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

func verdict(m metric, c *result.Comparison, incorrect bool, spread float64) string {
	switch {
	case incorrect:
		return Incorrect
	case c.Low == nil || c.High == nil:
		return Inconclusive
	}
	low, high := math.Log(*c.Low), math.Log(*c.High)
	margin := max(math.Log1p(sameMargin), spread)
	switch {
	case low >= -margin && high <= margin:
		return Same
	case low > spread && m.lowerIsBetter, high < -spread && !m.lowerIsBetter:
		return Worse
	case low > spread, high < -spread:
		return Better
	default:
		return Inconclusive
	}
}
