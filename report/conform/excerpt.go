package conform

import (
	"fmt"
	"slices"
	"strings"
)

// Limits of an excerpt, in lines.
const (
	excerptAround = 12  // kept before and after what is marked
	excerptTail   = 60  // kept of a transcript that marks nothing: where it ended is where it went wrong
	excerptGap    = 4   // fewer left out are kept
	excerptLines  = 400 // at most
)

// Excerpt is the part of a transcript that shows what is wrong: the first lines, the lines around those that are marked with
// "!", and how many are left out between. A transcript of thousands of packets does not belong into a report.
func Excerpt(transcript string) string {
	lines := strings.Split(strings.TrimRight(transcript, "\n"), "\n")
	keep := make([]bool, len(lines))
	mark := func(from, to int) {
		for i := max(from, 0); i < min(to, len(lines)); i++ {
			keep[i] = true
		}
	}
	mark(0, excerptAround)
	marked := false
	for i, line := range lines {
		if strings.HasPrefix(line, "!") {
			marked = true
			mark(i-excerptAround, i+excerptAround+1)
		}
	}
	if !marked {
		mark(len(lines)-excerptTail, len(lines))
	}
	for i := 0; i < len(keep); i++ { // a few lines are not worth a gap
		if next := slices.Index(keep[i:], true); next > 0 && next < excerptGap {
			mark(i, i+next)
		} else if next > 0 {
			i += next - 1
		}
	}
	var out []string
	for i := 0; i < len(lines); i++ {
		if keep[i] && len(out) < excerptLines {
			out = append(out, lines[i])
			continue
		}
		n := 1
		if next := slices.Index(keep[i:], true); next > 0 {
			n = next
		} else if next < 0 || len(out) >= excerptLines {
			n = len(lines) - i
		}
		out = append(out, fmt.Sprintf("  ... %d lines", n))
		i += n - 1
	}
	return strings.Join(out, "\n") + "\n"
}
