package stat

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"inflight/runner/result"
)

// Limits of the warning about a trend, beside what chance explains at passesConfidence.
const (
	trendNear   = 0.05 // over a whole pass, as a fraction
	trendMinDF  = 3    // beside the slope
	trendBlocks = 3    // in a pass: two of them always lie on a line
)

// trend looks for a ratio that rises or falls inside the passes: ordinary least squares over the blocks, with one slope
// for all passes and a level for each. Such a run has not settled, or one arm grows slower with what it has stored, and
// its mean depends on how long it was.
func trend(samples []sample) []result.Warning {
	passes := map[int][]sample{}
	for _, s := range samples {
		passes[s.pass] = append(passes[s.pass], s)
	}
	var sxx, sxy, syy, span float64
	for _, number := range slices.Sorted(maps.Keys(passes)) { // in order: sums of floats depend on it
		blocks := passes[number]
		if len(blocks) < trendBlocks {
			return nil
		}
		slices.SortFunc(blocks, func(a, b sample) int { return a.block - b.block })
		var values []float64
		for _, b := range blocks {
			values = append(values, b.value)
		}
		m, middle := mean(values), float64(len(values)-1)/2
		for i, v := range values {
			x, y := float64(i)-middle, v-m
			sxx, sxy, syy = sxx+x*x, sxy+x*y, syy+y*y
		}
		span = max(span, 2*middle)
	}
	df := len(samples) - len(passes) - 1
	if df < trendMinDF || sxx == 0 {
		return nil
	}
	slope := sxy / sxx
	over := math.Abs(slope) * span
	chance := tQuantile(float64(df), passesConfidence) * math.Sqrt(max(0, syy-slope*sxy)/float64(df)/sxx) * span
	if over <= chance || over <= math.Log1p(trendNear) {
		return nil
	}
	return []result.Warning{{Code: CodeTrend, Text: fmt.Sprintf(
		"the ratio changes inside the passes, by a factor of %.3g from the first block to the last: the run has not settled, or one arm slows down with what it has stored",
		math.Exp(slope*span))}}
}
