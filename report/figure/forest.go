package figure

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Row of a forest plot: one ratio with its interval. A row without a ratio is a heading.
type Row struct {
	Arm       int
	Label     string
	Ratio     float64
	Low, High *float64
	Text      string
	Struck    bool
	Control   *Interval // a pale band behind it; nil: none
}

// Interval is what a control says, and what hovering over its band shows.
type Interval struct {
	Low, High float64 // above 0
	Text      string
}

// Forest compares ratios around 1, each in a row, on a logarithmic axis.
type Forest struct {
	Alt   string
	Label string // of the axis
	Rows  []Row
}

// SVG draws the plot; empty without a ratio.
func (f *Forest) SVG() string {
	x := newSpan(Log, forestLeft, width-right)
	x.take(1)
	ratios := 0
	for _, r := range f.Rows {
		if x.can(r.Ratio) {
			ratios++
			x.take(r.Ratio)
		}
	}
	if ratios == 0 {
		return ""
	}
	low, high := x.low, x.high
	for _, r := range f.Rows {
		if r.Low != nil && r.High != nil {
			x.take(math.Max(*r.Low, low/3))
			x.take(math.Min(*r.High, high*3))
		}
		if c := r.Control; c != nil {
			x.take(math.Max(c.Low, low/3))
			x.take(math.Min(c.High, high*3))
		}
	}
	x.low, x.high = math.Min(x.low, 1/minRatioReach), math.Max(x.high, minRatioReach)
	x.widen()
	bottomAt := forestHeading + rowHeight*float64(len(f.Rows))
	var b strings.Builder
	open(&b, f.Alt, bottomAt+forestBottom)
	fmt.Fprintf(&b, `<text class="label" x="%s" y="13" text-anchor="middle">%s</text>`, n((forestLeft+width-right)/2), html.EscapeString(f.Label))
	f.bands(&b, x)
	f.axis(&b, x, bottomAt)
	for i, r := range f.Rows {
		y := forestHeading + rowHeight*(float64(i)+0.5)
		fmt.Fprintf(&b, `<g class="s a%d">`, r.Arm)
		class := "row"
		if r.Ratio <= 0 {
			class = "row head"
		}
		fmt.Fprintf(&b, `<text class="%s" x="%s" y="%s" text-anchor="end">%s</text>`, class, n(forestLeft-10), n(y+4), html.EscapeString(r.Label))
		if x.can(r.Ratio) {
			fmt.Fprintf(&b, `<g class="p" data-t="%s"><title>%s</title>`, html.EscapeString(r.Text), html.EscapeString(r.Text))
			if r.Low != nil && r.High != nil {
				from, to := x.clamp(x.at(*r.Low)), x.clamp(x.at(*r.High))
				fmt.Fprintf(&b, `<path class="bar" d="M%s %sH%sM%s %sv8M%s %sv8"/>`, n(from), n(y), n(to), n(from), n(y-4), n(to), n(y-4))
			}
			at := x.at(r.Ratio)
			fmt.Fprintf(&b, `<circle class="hit" cx="%s" cy="%s" r="%s"/>%s</g>`, n(at), n(y), n(hitRadius), marker(r.Arm, at, y, r.Struck))
		}
		b.WriteString("</g>")
	}
	b.WriteString("</svg>")
	return b.String()
}

// bands draws each control once behind the rows that follow one another and share it.
func (f *Forest) bands(b *strings.Builder, x span) {
	for from := 0; from < len(f.Rows); {
		c, to := f.Rows[from].Control, from+1
		for to < len(f.Rows) && f.Rows[to].Control == c {
			to++
		}
		if c != nil {
			left, right := x.clamp(x.at(c.Low)), x.clamp(x.at(c.High))
			fmt.Fprintf(b, `<rect class="band" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`,
				n(left), n(forestHeading+rowHeight*float64(from)), n(math.Max(right-left, 1)), n(rowHeight*float64(to-from)), html.EscapeString(c.Text))
		}
		from = to
	}
}

func (f *Forest) axis(b *strings.Builder, x span, bottomAt float64) {
	write := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) + "x" }
	ticks := x.choose(write)
	if x.high/x.low < 4 {
		ticks = nil
		for v := 0.5; v <= 2.0001; v += 0.1 {
			if v >= x.low && v <= x.high {
				ticks = append(ticks, Tick{v, write(math.Round(v*10) / 10)})
			}
		}
	}
	last := math.Inf(-1)
	one := x.at(1)
	for _, t := range ticks {
		at := x.at(t.At)
		fmt.Fprintf(b, `<path class="grid" d="M%s %sV%s"/>`, n(at), n(forestHeading), n(bottomAt))
		near := math.Abs(at-one) < forestGap && math.Abs(t.At-1) > 1e-6
		if at-last >= forestGap && !near {
			fmt.Fprintf(b, `<text x="%s" y="%s" text-anchor="middle">%s</text>`, n(at), n(bottomAt+15), html.EscapeString(t.Label))
			last = at
		}
	}
	fmt.Fprintf(b, `<path class="one" d="M%s %sV%s"/>`, n(one), n(forestHeading), n(bottomAt))
}
