package chart

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// Room around the data on a logarithmic axis.
const (
	minSpanY    = 4    // a flat line is not blown up into noise
	barsBeyond  = 4    // how far a bar may reach beyond the data before it is cut off
	lonelyX     = 2    // to either side of a single x value
	marginX     = 0.06 // of the axis, to either side
	labelApartX = 0.05 // of the axis, between two tick labels
	labelRoom   = 17   // points between two tick labels; with less, only the powers of ten have one
)

// yRange returns the limits of the y axis, which are ticks. ok is false when there is nothing to draw.
func (p panel) yRange() (low, high float64, ok bool) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range p.series {
		for _, pt := range s.points {
			low, high = min(low, pt.y), max(high, pt.y)
		}
	}
	if math.IsInf(low, 1) {
		return 0, 0, false
	}
	floor, ceiling := low/barsBeyond, high*barsBeyond
	for _, s := range p.series {
		for _, pt := range s.points {
			if pt.low != nil && pt.high != nil {
				low, high = min(low, max(*pt.low, floor)), max(high, min(*pt.high, ceiling))
			}
		}
	}
	if high/low < minSpanY {
		middle := math.Sqrt(low * high)
		low, high = middle/math.Sqrt(minSpanY), middle*math.Sqrt(minSpanY)
	}
	return niceBelow(low), niceAbove(high), true
}

// nice numbers are 1, 2 and 5 times a power of ten.
func nice(exponent, step int) float64 {
	return []float64{1, 2, 5}[step] * math.Pow(10, float64(exponent))
}

// slack lets a value that is a tick but for rounding be one.
const slack = 1e-9

func niceBelow(v float64) float64 {
	exponent := int(math.Floor(math.Log10(v))) - 1
	best := nice(exponent, 0)
	for e := exponent; e <= exponent+2; e++ {
		for step := range 3 {
			if n := nice(e, step); n <= v*(1+slack) {
				best = n
			}
		}
	}
	return best
}

func niceAbove(v float64) float64 {
	for e := int(math.Floor(math.Log10(v))) - 1; ; e++ {
		for step := range 3 {
			if n := nice(e, step); n >= v*(1-slack) {
				return n
			}
		}
	}
}

// yTicks marks 1, 2 and 5 in every decade, at their logarithms, on an axis that is about that high.
func yTicks(low, high float64, label func(float64) string, height vg.Length) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	wide := 3*math.Log10(high/low)*labelRoom > height.Points()
	for e := int(math.Floor(math.Log10(low))) - 1; e <= int(math.Ceil(math.Log10(high))); e++ {
		for step := range 3 {
			n := nice(e, step)
			if n < low*(1-slack) || n > high*(1+slack) {
				continue
			}
			tick := plot.Tick{Value: math.Log10(n)}
			if !wide || step == 0 {
				tick.Label = label(n)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// xRange returns the limits of the x axis, with a margin.
func xRange(values []float64) (low, high float64) {
	low, high = values[0], values[len(values)-1]
	if low == high {
		return low / lonelyX, high * lonelyX
	}
	margin := math.Pow(high/low, marginX)
	return low / margin, high * margin
}

// xTicks marks the real values, sorted, at their logarithms, and labels those that have room: the first and the last always.
func xTicks(values []float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	first, last := values[0], values[len(values)-1]
	apart := labelApartX * math.Log10(last/first)
	labelled := math.Inf(-1)
	for i, v := range values {
		at := math.Log10(v)
		tick := plot.Tick{Value: at}
		if i == 0 || i == len(values)-1 || (at-labelled >= apart && math.Log10(last)-at >= apart) {
			tick.Label = strconv.FormatFloat(v, 'f', 0, 64)
			labelled = at
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// shortRate labels a tick: 500, 2k, 1M.
func shortRate(v float64) string {
	switch {
	case v >= 1e6:
		return short(v/1e6) + "M"
	case v >= 1e3:
		return short(v/1e3) + "k"
	default:
		return short(v)
	}
}

// shortTime labels a tick: 500 µs, 2 ms, 1 s.
func shortTime(ns float64) string {
	switch {
	case ns >= 1e9*(1-slack):
		return short(ns/1e9) + " s"
	case ns >= 1e6*(1-slack):
		return short(ns/1e6) + " ms"
	case ns >= 1e3*(1-slack):
		return short(ns/1e3) + " µs"
	default:
		return short(ns) + " ns"
	}
}

func short(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
