package target

import (
	"fmt"
	"slices"
	"strings"
)

// suggest ends a message about an unknown word: `: did you mean "x"? known: x, y`, or only what is known when nothing is
// near. The words in also are known too but never meant.
func suggest(written string, candidates []string, also ...string) string {
	list := "known: " + strings.Join(slices.Concat(candidates, also), ", ")
	if near := nearest(written, candidates); near != "" {
		return fmt.Sprintf(": did you mean %q? %s", near, list)
	}
	return "; " + list
}

// nearest is the candidate nearest to what was written, "" when none is near.
func nearest(written string, candidates []string) string {
	written = strings.ToLower(written)
	best, distance := "", max(2, len(written)/3)+1
	for _, c := range candidates {
		d := editDistance(written, c)
		if len(written) >= 3 && (strings.HasPrefix(c, written) || strings.HasPrefix(written, c)) {
			d = min(d, 1) // "nats" for nats-server, "nats-server-2.15" too
		}
		if d < distance {
			best, distance = c, d
		}
	}
	if best == "" || distance >= len(written) {
		return ""
	}
	return best
}

// editDistance is Levenshtein's, in bytes: names of targets and parameters are short ASCII.
func editDistance(a, b string) int {
	const limit = 64 // longer input is nobody's typing error
	if len(a) > limit || len(b) > limit {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
