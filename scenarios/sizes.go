package scenarios

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// SizesPeriod is how many sizes a distribution of payloads is laid out in. A connection goes through them in turn, over and
// over, so a run of a few thousand messages has the proportions of the distribution, and every run the same sequence.
const SizesPeriod = 4096

// maxWeight bounds the sum of the weights of a mix, so that its rarest size is among the sizes that are laid out.
const maxWeight = 1000

// sizes is a distribution of payload sizes. Exactly one of mix and the bounds is set.
type sizes struct {
	low, high int // bytes, both included
	lognormal bool
	mix       []weighted
}

type weighted struct{ bytes, weight int }

// The words of a distribution. The third form is a mix, as 256*9+4096*1.
const (
	uniformWord   = "uniform:"
	lognormalWord = "lognormal:"
	rangeMark     = ".."
)

// isSizes tells a distribution from a single size.
func isSizes(text string) bool {
	return strings.ContainsAny(text, ":*+") || strings.Contains(text, rangeMark)
}

// parseSizes reads 64..4096 or uniform:64..4096, lognormal:64..4096, or 256*9+4096*1, with units as a single size has them.
func parseSizes(text string) (sizes, error) {
	var s sizes
	var problems []error
	size := func(text string) int {
		n, err := parseCount("payload", strings.TrimSpace(text))
		if err == nil {
			if out := outside("payload", n, MinPayload, MaxPayload, payloadWhy); out != "" {
				err = errors.New(out)
			}
		}
		if err != nil {
			problems = append(problems, err)
		}
		return n
	}
	bounds, lognormal := strings.CutPrefix(text, lognormalWord)
	bounds, _ = strings.CutPrefix(bounds, uniformWord)
	if low, high, ok := strings.Cut(bounds, rangeMark); ok {
		s.low, s.high, s.lognormal = size(low), size(high), lognormal
		if len(problems) == 0 && s.low >= s.high {
			problems = append(problems, fmt.Errorf("payload %s: the first size must be below the second", text))
		}
		return s, errors.Join(problems...)
	}
	if bounds != text {
		return s, fmt.Errorf("payload %s: write the smallest and the largest size, as %s64..4KiB", text, strings.TrimSuffix(text, bounds))
	}
	total := 0
	for _, part := range strings.Split(text, "+") {
		bytes, weight, _ := strings.Cut(part, "*")
		w := weighted{size(bytes), 1}
		if weight != "" {
			var err error
			if w.weight, err = strconv.Atoi(strings.TrimSpace(weight)); err != nil || w.weight < 1 || w.weight > maxWeight {
				problems = append(problems, fmt.Errorf("payload %s: a weight is a whole number from 1 to %d, as in 256*9+4096*1", part, maxWeight))
			}
		}
		total += w.weight
		s.mix = append(s.mix, w)
	}
	if len(problems) == 0 && (len(s.mix) < 2 || total > maxWeight) {
		problems = append(problems, fmt.Errorf("payload %s: a mix has two sizes or more, and weights of %d together at most", text, maxWeight))
	}
	return s, errors.Join(problems...)
}

// String is the one spelling of a distribution: bytes without units.
func (s sizes) String() string {
	var parts []string
	for _, w := range s.mix {
		parts = append(parts, fmt.Sprintf("%d*%d", w.bytes, w.weight))
	}
	if parts != nil {
		return strings.Join(parts, "+")
	}
	word := ""
	if s.lognormal {
		word = lognormalWord
	}
	return fmt.Sprintf("%s%d%s%d", word, s.low, rangeMark, s.high)
}

// tails is how many standard deviations the bounds of a log-normal distribution are from its median: 99 % lies between them,
// and what would lie beyond is put on them.
const tails = 2.5758

// quantile is the size, in bytes, that a share q of the messages is not above; 0 < q < 1.
func (s sizes) quantile(q float64) int {
	switch {
	case s.mix != nil:
		total := 0
		for _, w := range s.mix {
			total += w.weight
		}
		left := q * float64(total)
		for _, w := range s.mix {
			if left -= float64(w.weight); left < 0 {
				return w.bytes
			}
		}
		return s.mix[len(s.mix)-1].bytes
	case s.lognormal:
		low, high := math.Log(float64(s.low)), math.Log(float64(s.high))
		z := math.Sqrt2 * math.Erfinv(2*q-1)
		v := math.Exp((low+high)/2 + z*(high-low)/(2*tails))
		return min(max(int(math.Round(v)), s.low), s.high)
	default:
		return s.low + int(q*float64(s.high-s.low+1))
	}
}

// layOut is the sizes of SizesPeriod messages, one from each of so many equally likely parts of the distribution, in an order
// that the seed makes.
func (s sizes) layOut(seed uint64) []int {
	out := make([]int, SizesPeriod)
	for i := range out {
		out[i] = s.quantile((float64(i) + 0.5) / SizesPeriod)
	}
	rand.New(rand.NewPCG(seed, SizesPeriod)).Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out
}

// mean is that of what is laid out, in bytes.
func (s sizes) mean() int {
	sum := 0
	for _, n := range s.layOut(0) {
		sum += n
	}
	return (sum + SizesPeriod/2) / SizesPeriod
}

// SizeTable is the payload sizes of consecutive messages of a connection at a point, bytes; nil if all are p.Payload. The same
// seed makes the same table, in every run and for every arm.
func (p Point) SizeTable(seed uint64) ([]int, error) {
	if p.Sizes == "" {
		return nil, nil
	}
	s, err := parseSizes(p.Sizes)
	if err != nil {
		return nil, err
	}
	return s.layOut(seed), nil
}
