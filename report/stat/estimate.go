package stat

import (
	"maps"
	"math"
	"slices"
)

// minDF is how many degrees of freedom an interval needs; the package comment says why.
const minDF = 2

// sample is one block's log value in one pass.
type sample struct {
	pass  int
	block int // orders the samples of a pass in time
	value float64
}

// estimate is a mean of logs, stratified by pass.
type estimate struct {
	mean   float64
	passes []stratum // by number
	n      int       // samples
	df     int       // n - passes
	sd     float64   // of a sample around the mean of its pass; 0 when df < 1
}

type stratum struct {
	pass int
	mean float64
	n    int
}

// estimateOf pools samples: each pass weighs the same, whatever its number of blocks, because the slot effect only
// cancels between whole passes. Without samples the estimate has no passes.
func estimateOf(samples []sample) estimate {
	byPass := map[int][]float64{}
	for _, s := range samples {
		byPass[s.pass] = append(byPass[s.pass], s.value)
	}
	e := estimate{n: len(samples), df: len(samples) - len(byPass)}
	var squares float64
	for _, pass := range slices.Sorted(maps.Keys(byPass)) { // in order: sums of floats depend on it
		values := byPass[pass]
		m := mean(values)
		e.passes = append(e.passes, stratum{pass: pass, mean: m, n: len(values)})
		for _, v := range values {
			squares += (v - m) * (v - m)
		}
	}
	for _, p := range e.passes {
		e.mean += p.mean / float64(len(e.passes))
	}
	if e.df > 0 {
		e.sd = math.Sqrt(squares / float64(e.df))
	}
	return e
}

// se is the standard error of the pooled mean.
func (e estimate) se() float64 {
	var sum float64
	for _, p := range e.passes {
		sum += 1 / float64(p.n)
	}
	return e.sd * math.Sqrt(sum) / float64(len(e.passes))
}

// effect is the pooled mean as a normal quantity.
func (e estimate) effect() effect {
	if len(e.passes) == 0 {
		return effect{}
	}
	return effect{mean: e.mean, se: e.se(), df: float64(e.df)}
}

// ratios returns exp(mean) of each pass.
func (e estimate) ratios() []float64 {
	var out []float64
	for _, p := range e.passes {
		out = append(out, math.Exp(p.mean))
	}
	return out
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// positive reports whether the logarithm of v is a number.
func positive(v float64) bool { return v > 0 && !math.IsInf(v, 1) }

// usable returns v, or nil when it is no positive, finite number: such a bound is absent, not extreme.
func usable(v float64) *float64 {
	if !positive(v) {
		return nil
	}
	return &v
}
