package stat

import (
	"math"
	"strings"

	"inflight/runner/result"
)

// SameKind reports whether two target strings name builds or settings of one broker: what comes before the version and
// the parameters is the same.
func SameKind(a, b string) bool { return kind(a) == kind(b) }

func kind(target string) string {
	if i := strings.IndexAny(target, "@?"); i >= 0 {
		return target[:i]
	}
	return target
}

// decide corrects the p values for how many comparisons there are, and gives the verdicts.
func decide(all []*comparison) {
	counts := map[string]float64{}
	for _, c := range all {
		counts[c.family()]++
	}
	shares := map[string]float64{"overall": shareOverall, Throughput: shareThroughput, P99: shareP99}
	var tests []*hypothesis
	for _, c := range all {
		if c.P == nil {
			continue
		}
		// A comparison without a p value keeps its share: what is left out must not make the others bolder.
		c.test = &hypothesis{p: *c.P, weight: shares[c.family()] / counts[c.family()]}
		tests = append(tests, c.test)
	}
	holm(tests)
	for _, c := range all {
		if c.test != nil {
			c.PHolm = &c.test.holm
			c.SmallestEffect = c.effect.smallest(c.test.level)
		}
		c.Verdict = c.verdict()
	}
}

func (c *comparison) family() string {
	if c.overall {
		return "overall"
	}
	return c.metric.name
}

// verdict follows the package comment.
func (c *comparison) verdict() string {
	switch {
	case c.incorrect:
		return Incorrect
	case c.Low == nil || c.High == nil || c.PHolm == nil:
		return Inconclusive
	}
	margin := math.Log1p(SameMargin)
	switch {
	case math.Log(*c.Low) >= -margin && math.Log(*c.High) <= margin:
		return Same
	case *c.PHolm > alpha, c.passesContradict(), c.controlContradicts():
		return Inconclusive
	case (c.Ratio > 1) == c.metric.lowerIsBetter:
		return Worse
	default:
		return Better
	}
}

// passesContradict reports whether one pass says faster and another slower, and they differ by more than chance: then the
// difference between the slots, or between two starts of a broker, is larger than the effect and may be all there is.
func (c *comparison) passesContradict() bool {
	n := len(c.Passes)
	if n < 2 {
		return false
	}
	lowest, highest := c.Passes[0], c.Passes[0]
	for _, r := range c.Passes {
		lowest, highest = min(lowest, r), max(highest, r)
	}
	apart := math.Log(highest) - math.Log(lowest)
	// The mean of n passes has the error se, so one of them has sqrt(n) of it, and a difference of two sqrt(2n).
	chance := passesFactor(c.effect.df) * c.effect.se * math.Sqrt(2*float64(n))
	return lowest < 1 && highest > 1 && apart > chance
}

// controlContradicts reports whether two builds of one broker differ at QoS 0, and the effect is not beyond that.
func (c *comparison) controlContradicts() bool {
	control := c.versus.controlOf()
	if !c.versus.alike || c.metric.name != Throughput || !controlOff(control) || c.Corrected == nil {
		return false
	}
	low, high := c.Corrected.Low, c.Corrected.High
	if low == nil || high == nil {
		return true
	}
	if c.Ratio > 1 {
		return *low <= 1
	}
	return *high >= 1
}

// controlOff reports whether a control is not at 1.00: far from it, or surely beside it.
func controlOff(c *result.Control) bool {
	if c == nil {
		return false
	}
	off := c.Ratio < controlLow || c.Ratio > controlHigh
	if c.Low != nil && c.High != nil && math.Abs(c.Ratio-1) > controlNear {
		off = off || *c.Low > 1 || *c.High < 1
	}
	return off
}
