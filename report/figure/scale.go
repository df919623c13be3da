package figure

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// span maps the values of an axis to coordinates.
type span struct {
	scale     Scale
	from, to  float64 // coordinates
	low, high float64 // values
}

func newSpan(scale Scale, from, to float64) span {
	return span{scale: scale, from: from, to: to, low: math.Inf(1), high: math.Inf(-1)}
}

func (s *span) take(v float64) {
	if !s.can(v) {
		return
	}
	s.low, s.high = math.Min(s.low, v), math.Max(s.high, v)
}

// can reports whether the axis can show a value at all.
func (s *span) can(v float64) bool {
	switch {
	case math.IsNaN(v) || math.Abs(v) > maxValue:
		return false
	case s.scale == Log:
		return v >= 1/maxValue
	case s.scale == Tail:
		return v >= 0 && v < 1
	}
	return true
}

func (s *span) empty() bool { return s.low > s.high }

func (s *span) value(v float64) float64 {
	switch s.scale {
	case Log:
		return math.Log10(math.Max(v, math.SmallestNonzeroFloat64))
	case Tail:
		const nines = 7
		return math.Min(-math.Log10(math.Max(1-v, 0)), nines)
	}
	return v
}

func (s *span) at(v float64) float64 {
	low, high := s.value(s.low), s.value(s.high)
	if high == low {
		return (s.from + s.to) / 2
	}
	return s.from + (s.to-s.from)*(s.value(v)-low)/(high-low)
}

// clamp keeps a coordinate inside the axis.
func (s *span) clamp(at float64) float64 {
	return math.Max(math.Min(s.from, s.to), math.Min(math.Max(s.from, s.to), at))
}

// widen leaves room beside the first and the last value.
func (s *span) widen() {
	switch {
	case s.scale == Log && s.low == s.high:
		s.low, s.high = s.low/2, s.high*2
	case s.scale == Log:
		room := math.Pow(s.high/s.low, 0.05)
		s.low, s.high = s.low/room, s.high*room
	case s.scale == Linear && s.low == s.high:
		s.low, s.high = s.low-0.5, s.high+0.5
	}
}

// nice ends a vertical axis at round numbers; a linear one begins at 0.
func (s *span) nice() {
	switch s.scale {
	case Log:
		if s.high/s.low < minYSpanLog {
			middle := math.Sqrt(s.low * s.high)
			s.low, s.high = middle/math.Sqrt(minYSpanLog), middle*math.Sqrt(minYSpanLog)
		}
		s.low, s.high = roundDown(s.low), -roundDown(-s.high)
	case Linear:
		s.low = math.Min(s.low, 0)
		if s.high <= s.low {
			s.high = s.low + 1
		}
		s.high = -roundDown(-s.high)
	}
}

// roundDown is the next number below that is 1, 2 or 5 times a power of ten; a negative v stands for rounding -v up.
func roundDown(v float64) float64 {
	up := v < 0
	v = math.Abs(v)
	e := math.Pow(10, math.Floor(math.Log10(v)))
	steps := []float64{1, 2, 5, 10}
	const slack = 1e-9
	if up {
		for _, s := range steps {
			if s*e >= v*(1-slack) {
				return -s * e
			}
		}
		return -10 * e
	}
	best := e
	for _, s := range steps {
		if s*e <= v*(1+slack) {
			best = s * e
		}
	}
	return best
}

// maxValue is more than anything that was ever measured, and its inverse less: an axis does not reach further.
const maxValue = 1e18

// maxTicks is more than an axis ever has.
const maxTicks = 16

// choose marks round numbers.
func (s *span) choose(write func(float64) string) []Tick {
	if write == nil {
		write = func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	}
	var out []Tick
	switch s.scale {
	case Log:
		for e := math.Floor(math.Log10(s.low)); e <= math.Log10(s.high)+1; e++ {
			for _, step := range []float64{1, 2, 5} {
				if v := step * math.Pow(10, e); v >= s.low*(1-1e-9) && v <= s.high*(1+1e-9) {
					out = append(out, Tick{v, write(v)})
				}
			}
		}
	case Tail:
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999} {
			if q >= s.low-1e-9 && q <= s.high+1e-9 {
				out = append(out, Tick{q, strconv.FormatFloat(100*q, 'g', 7, 64) + " %"})
			}
		}
	default:
		step := -roundDown(-(s.high - s.low) / 6)
		first := math.Ceil(s.low/step) * step
		for i := range maxTicks {
			// Not by adding: beside a large number a step is nothing, and there would be no end.
			if v := first + float64(i)*step; v <= s.high*(1+1e-9) {
				out = append(out, Tick{v, write(v)})
			}
		}
	}
	return out
}

// ticks draws the grid and the labels that have room: the first and the last always, powers of ten before others.
func (s *span) ticks(b *strings.Builder, a Axis, horizontal bool) {
	list := a.Ticks
	if list == nil {
		list = s.choose(a.Write)
	}
	type label struct{ at, half float64 }
	var labelled []label
	half := func(t Tick) float64 {
		if horizontal {
			return (labelWidth(t.Label) + labelGapX) / 2
		}
		return labelGapY / 2
	}
	room := func(at, half float64) bool {
		for _, l := range labelled {
			if math.Abs(l.at-at) < l.half+half {
				return false
			}
		}
		return true
	}
	show := make([]bool, len(list))
	for _, want := range []func(int) bool{
		func(i int) bool { return i == 0 || i == len(list)-1 },
		func(i int) bool { l := math.Log10(list[i].At); return s.scale == Log && l == math.Trunc(l) },
		func(int) bool { return true },
	} {
		for i, t := range list {
			if at := s.at(t.At); !show[i] && want(i) && room(at, half(t)) {
				show[i] = true
				labelled = append(labelled, label{at, half(t)})
			}
		}
	}
	for i, t := range list {
		at := s.at(t.At)
		if horizontal {
			fmt.Fprintf(b, `<path class="grid" d="M%s %sV%s"/>`, n(at), n(top), n(height-bottom))
			if show[i] {
				fmt.Fprintf(b, `<text x="%s" y="%s" text-anchor="middle">%s</text>`, n(math.Min(at, width-labelWidth(t.Label)/2)), n(height-bottom+15), html.EscapeString(t.Label))
			}
			continue
		}
		fmt.Fprintf(b, `<path class="grid" d="M%s %sH%s"/>`, n(left), n(at), n(width-right))
		if show[i] {
			fmt.Fprintf(b, `<text x="%s" y="%s" text-anchor="end">%s</text>`, n(left-6), n(at+4), html.EscapeString(t.Label))
		}
	}
}

// labelWidth is about how wide a text is, in the size that the page gives it.
func labelWidth(text string) float64 { return letterWidth * float64(utf8.RuneCountInString(text)) }
