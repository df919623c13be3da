package stat

import (
	"cmp"
	"slices"
)

// hypothesis is one comparison of a run that could find a difference by chance.
type hypothesis struct {
	p      float64
	weight float64 // its share of the error that the run may make, before any is decided
	level  float64 // out: alpha times the share, the level of its test if nothing else is found
	holm   float64 // out: adjusted p
}

// alpha is the probability that a run without any difference says better or worse anywhere.
const alpha = 0.05

// Shares of alpha. The ratio over all points is the most powerful question that a run can answer, so it gets half. The
// p99 of a closed loop moves with its throughput (Little's law) and needs large effects anyway.
const (
	shareOverall    = 0.5
	shareThroughput = 0.4
	shareP99        = 0.1
)

// holm fills level and holm: Holm's step-down procedure (Scandinavian Journal of Statistics 6, 1979) with weights. The
// probability of any false finding is at most alpha, whatever the dependence between the tests; what one test has spent
// once it has found something is handed to those that are left.
func holm(tests []*hypothesis) {
	var total float64
	for _, t := range tests {
		total += t.weight
	}
	ordered := slices.Clone(tests)
	slices.SortStableFunc(ordered, func(a, b *hypothesis) int { return cmp.Compare(a.p/a.weight, b.p/b.weight) })
	left, highest := total, 0.0
	for _, t := range ordered {
		t.level = alpha * t.weight / total
		highest = max(highest, min(1, t.p*max(left, t.weight)/t.weight)) // rounding must not leave less than the last one's own
		t.holm = highest
		left -= t.weight
	}
}
