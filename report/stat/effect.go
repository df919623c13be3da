package stat

import "math"

// power is how often a run should find the effect that is called its smallest.
const power = 0.8

// effect is a mean of log ratios with its standard error and the degrees of freedom that the error was estimated with.
type effect struct {
	mean, se, df float64
}

// sure reports whether the error is known well enough to say anything: minDF.
func (e effect) sure() bool { return e.df >= minDF && !math.IsNaN(e.se) && !math.IsInf(e.se, 0) }

// interval returns the 95 % bounds of exp(mean), or nils when there are too few blocks for them.
func (e effect) interval() (low, high *float64) {
	if !e.sure() {
		return nil, nil
	}
	half := tQuantile(e.df, confidence) * e.se
	low, high = usable(math.Exp(e.mean-half)), usable(math.Exp(e.mean+half))
	if low == nil || high == nil {
		return nil, nil
	}
	return low, high
}

// p is the two-sided probability of a mean at least as far from 0 if it were 0; nil when there are too few blocks.
func (e effect) p() *float64 {
	if !e.sure() || math.IsNaN(e.mean) || math.IsInf(e.mean, 0) {
		return nil
	}
	v := 1.0
	switch {
	case e.se > 0:
		v = tSurvival(e.df, math.Abs(e.mean)/e.se)
	case e.mean != 0:
		v = 0
	}
	return &v
}

// smallest is the ratio above 1 that a test at this level finds in four runs of five: its logarithm is as many standard
// errors as the critical value and the 80 % quantile together.
func (e effect) smallest(level float64) *float64 {
	if !e.sure() || level <= 0 || level >= 1 {
		return nil
	}
	return usable(math.Exp((tQuantile(e.df, 1-level) + tQuantile(e.df, 2*power-1)) * e.se))
}

// without is the effect with that of a control taken out: the difference of two independent means, with Welch and
// Satterthwaite's degrees of freedom.
func (e effect) without(control effect) effect {
	return sumOf([]effect{e, {mean: -control.mean, se: control.se, df: control.df}})
}

// meanOf is the mean of independent effects, each with the same weight.
func meanOf(effects []effect) effect {
	s, k := sumOf(effects), float64(len(effects))
	return effect{mean: s.mean / k, se: s.se / k, df: s.df}
}

// sumOf adds independent effects. Their errors need not be alike: the degrees of freedom are Satterthwaite's
// (Biometrics Bulletin 2, 1946), between the fewest of one and the total. One effect that is not sure leaves the sum so.
func sumOf(effects []effect) effect {
	var sum effect
	var variance, squares, least float64
	for i, e := range effects {
		sum.mean += e.mean
		v := e.se * e.se
		variance += v
		if e.df > 0 {
			squares += v * v / e.df
		}
		if i == 0 || e.df < least {
			least = e.df
		}
	}
	sum.se = math.Sqrt(variance)
	switch {
	case least < minDF, squares == 0:
		sum.df = least
	default:
		sum.df = variance * variance / squares
	}
	return sum
}
