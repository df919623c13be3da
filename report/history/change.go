package history

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Method names how change points are found, for whoever reads them.
const Method = "E-divisive (Matteson and James 2014), 499 permutations, level 5 %"

const (
	minSide      = 3 // values on either side of a change
	permutations = 499
	level        = 0.05
	seed         = 2014
)

// changes returns the indexes at which values, all positive, begin to be others; sorted.
func changes(values []float64) []int {
	logs := make([]float64, len(values))
	for i, v := range values {
		logs[i] = math.Log(v)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(len(values))))
	var found []int
	var split func(from, to int)
	split = func(from, to int) {
		segment := logs[from:to]
		at, energy := bestSplit(segment)
		if energy <= 0 || !significant(segment, energy, rng) {
			return
		}
		found = append(found, from+at)
		split(from, from+at)
		split(from+at, to)
	}
	split(0, len(logs))
	slices.Sort(found)
	return found
}

// significant asks how often a shuffled segment has a split as good.
func significant(segment []float64, energy float64, rng *rand.Rand) bool {
	shuffled := slices.Clone(segment)
	asGood := 0
	for range permutations {
		rng.Shuffle(len(shuffled), func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
		if _, e := bestSplit(shuffled); e >= energy*(1-1e-12) {
			asGood++
		}
	}
	return float64(asGood+1)/float64(permutations+1) <= level
}

// bestSplit returns where the scaled energy distance of both sides is largest, and that distance; 0 when a split is not
// possible. The sums of distances are moved along with the split, so that all splits cost n squared together.
func bestSplit(x []float64) (at int, energy float64) {
	n := len(x)
	if n < 2*minSide {
		return 0, 0
	}
	var left, right, between float64 // sums of distances within and between the sides
	for i := range x {
		for k := range i {
			right += math.Abs(x[i] - x[k])
		}
	}
	for split := 1; split < n; split++ {
		moved := x[split-1]
		var toLeft, toRight float64
		for _, v := range x[:split-1] {
			toLeft += math.Abs(moved - v)
		}
		for _, v := range x[split:] {
			toRight += math.Abs(moved - v)
		}
		left += toLeft
		right -= toRight
		between += toRight - toLeft
		if split < minSide || n-split < minSide {
			continue
		}
		a, b := float64(split), float64(n-split)
		distance := 2*between/(a*b) - 2*left/(a*(a-1)) - 2*right/(b*(b-1))
		if q := a * b / (a + b) * distance; q > energy {
			at, energy = split, q
		}
	}
	return at, energy
}
