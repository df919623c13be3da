package scenarios

import "fmt"

// Closest returns the candidate that word was probably meant to be, or "" when none is near: within two changes
// (a letter more, less, replaced, or two neighbours swapped), and fewer than half of the word.
func Closest(word string, candidates []string) string {
	best, bestDistance := "", 3
	for _, candidate := range candidates {
		d := distance(word, candidate)
		if d < bestDistance && 2*d <= max(len(word), len(candidate)) {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// DidYouMean is the end of an error message about an unknown word: the closest candidate as a question, or nothing.
func DidYouMean(word string, candidates []string) string {
	if c := Closest(word, candidates); c != "" {
		return fmt.Sprintf(": did you mean %q?", c)
	}
	return ""
}

// distance is the optimal string alignment distance of a and b.
func distance(a, b string) int {
	const limit = 64 // longer words are no typing errors, and the cost is quadratic
	if len(a) > limit || len(b) > limit {
		return limit
	}
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
