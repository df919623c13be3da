package figure

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Size of every figure in its own units, which are pixels where a figure is as wide as a telephone.
const (
	width, height               = 480.0, 300.0
	left, right, top, bottom    = 58.0, 22.0, 28.0, 44.0
	rowHeight, forestLeft       = 24.0, 150.0
	markRadius, hitRadius       = 4.0, 11.0
	minYSpanLog, minRatioReach  = 4.0, 1.25
	plotWidth, plotHeight       = width - left - right, height - top - bottom
	labelGapX, labelGapY        = 6.0, 13.0
	letterWidth                 = 7.5
	maxCoordinate               = 1e6
	dodge                       = 3.0
	forestBottom, forestHeading = 40.0, 24.0
	forestGap                   = 36.0
)

// Scale is how an axis maps values.
type Scale int

// The scales.
const (
	Linear Scale = iota // from 0
	Log
	Tail // percentiles: each further nine has the same room; values are fractions below 1
)

// Tick is a mark on an axis.
type Tick struct {
	At    float64
	Label string
}

// Axis of a chart. Ticks are chosen when none are given.
type Axis struct {
	Label string
	Scale Scale
	Ticks []Tick
	Write func(float64) string // labels of chosen ticks
}

// Point of a series. Text is what hovering shows.
type Point struct {
	X, Y      float64
	Low, High *float64
	Text      string
	Struck    bool // the number does not count
}

// Series is what belongs to one arm.
type Series struct {
	Arm    int
	Points []Point
	Loose  bool // no line between the points
	Plain  bool // no markers: too many points; only every so many can be hovered
	Dashed bool // a line alone, dashed: what was wanted, beside what came of it
}

// Band is a pale area between two lines.
type Band struct {
	X, Low, High []float64
	Text         string
}

// Chart is one set of axes.
type Chart struct {
	Alt    string
	X, Y   Axis
	Series []Series
	Band   *Band
	Marks  []Mark
}

// Mark is a vertical line where something happened to a series.
type Mark struct {
	Arm  int
	X    float64
	Text string
}

// SVG draws the chart; empty when no series has a point.
func (c *Chart) SVG() string {
	x, y, ok := c.frame()
	if !ok {
		return ""
	}
	var b strings.Builder
	open(&b, c.Alt, height)
	x.ticks(&b, c.X, true)
	y.ticks(&b, c.Y, false)
	fmt.Fprintf(&b, `<path class="axis" d="M%s %sV%sH%s"/>`, n(left), n(top), n(height-bottom), n(width-right))
	fmt.Fprintf(&b, `<text class="label" x="4" y="13">%s</text>`, html.EscapeString(c.Y.Label))
	fmt.Fprintf(&b, `<text class="label" x="%s" y="%s" text-anchor="middle">%s</text>`, n(left+plotWidth/2), n(height-8), html.EscapeString(c.X.Label))
	if c.Band != nil {
		c.Band.draw(&b, x, y)
	}
	for _, m := range c.Marks {
		fmt.Fprintf(&b, `<g class="s a%d"><path class="change" d="M%s %sV%s"><title>%s</title></path></g>`,
			m.Arm, n(x.at(m.X)), n(top), n(height-bottom), html.EscapeString(m.Text))
	}
	for i := range c.Series {
		shift := dodge * (float64(i) - float64(len(c.Series)-1)/2)
		if c.Series[i].Loose || c.Series[i].Plain || c.Series[i].Dashed || c.X.Scale == Tail {
			shift = 0
		}
		c.Series[i].draw(&b, x, y, shift)
	}
	b.WriteString("</svg>")
	return b.String()
}

func open(b *strings.Builder, alt string, height float64) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %s %s" role="img" tabindex="0" aria-label="%s">`, n(width), n(height), html.EscapeString(alt))
}

// n writes a coordinate.
func n(v float64) string {
	v = math.Max(-maxCoordinate, math.Min(maxCoordinate, v))
	s := strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.1f", v), "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

// frame finds the ranges of both axes.
func (c *Chart) frame() (x, y span, ok bool) {
	x, y = newSpan(c.X.Scale, left, width-right), newSpan(c.Y.Scale, height-bottom, top)
	for i := range c.Series {
		for _, p := range c.Series[i].Points {
			x.take(p.X)
			y.take(p.Y)
		}
	}
	if x.empty() || y.empty() {
		return x, y, false
	}
	low, high := y.low, y.high
	const beyond = 4 // an interval is cut off that far outside the points
	for i := range c.Series {
		for _, p := range c.Series[i].Points {
			if p.Low == nil || p.High == nil {
				continue
			}
			if c.Y.Scale == Log {
				y.take(math.Max(*p.Low, low/beyond))
			}
			y.take(math.Min(*p.High, high*beyond))
		}
	}
	if c.Band != nil && c.Y.Scale == Log {
		for k := range c.Band.X {
			y.take(math.Max(c.Band.Low[k], low/beyond))
			y.take(math.Min(c.Band.High[k], high*beyond))
		}
	}
	for _, t := range c.X.Ticks {
		x.take(t.At)
	}
	x.widen()
	y.nice()
	return x, y, true
}

func (s *Series) draw(b *strings.Builder, x, y span, shift float64) {
	points := make([]Point, 0, len(s.Points))
	for _, p := range s.Points {
		if x.can(p.X) && y.can(p.Y) {
			points = append(points, p)
		}
	}
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(b, `<g class="s a%d">`, s.Arm)
	if !s.Loose && len(points) > 1 {
		class := "line"
		if s.Dashed {
			class = "line dashed"
		}
		b.WriteString(`<path class="` + class + `" d="`)
		for i, p := range points {
			command := "L"
			if i == 0 {
				command = "M"
			}
			fmt.Fprintf(b, "%s%s %s", command, n(x.at(p.X)+shift), n(y.at(p.Y)))
		}
		b.WriteString(`"/>`)
	}
	if s.Dashed {
		b.WriteString("</g>")
		return
	}
	every := 1
	if s.Plain {
		const most = 40
		every = max(1, (len(points)+most-1)/most)
	}
	for i, p := range points {
		if i%every != 0 && i != len(points)-1 {
			continue
		}
		at, h := x.at(p.X)+shift, y.at(p.Y)
		fmt.Fprintf(b, `<g class="p" data-t="%s"><title>%s</title>`, html.EscapeString(p.Text), html.EscapeString(p.Text))
		if p.Low != nil && p.High != nil {
			from, to := y.clamp(y.at(*p.Low)), y.clamp(y.at(*p.High))
			fmt.Fprintf(b, `<path class="bar" d="M%s %sV%sM%s %sh6M%s %sh6"/>`, n(at), n(from), n(to), n(at-3), n(from), n(at-3), n(to))
		}
		fmt.Fprintf(b, `<circle class="hit" cx="%s" cy="%s" r="%s"/>`, n(at), n(h), n(hitRadius))
		if !s.Plain {
			b.WriteString(marker(s.Arm, at, h, p.Struck))
		} else {
			fmt.Fprintf(b, `<circle class="dot" cx="%s" cy="%s" r="3"/>`, n(at), n(h))
		}
		b.WriteString("</g>")
	}
	b.WriteString("</g>")
}

// marker tells the arms apart without colour; one that does not count is hollow and crossed out.
func marker(arm int, x, y float64, struck bool) string {
	const r = markRadius
	shapes := []string{
		fmt.Sprintf("M%s %sa%s %s 0 1 0 %s 0a%s %s 0 1 0 %s 0Z", n(x-r), n(y), n(r), n(r), n(2*r), n(r), n(r), n(-2*r)),
		fmt.Sprintf("M%s %sh%sv%sh%sZ", n(x-r), n(y-r), n(2*r), n(2*r), n(-2*r)),
		fmt.Sprintf("M%s %sl%s %sh%sZ", n(x), n(y-r*1.3), n(r*1.25), n(r*2.2), n(-r*2.5)),
		fmt.Sprintf("M%s %sl%s %sl%s %sl%s %sZ", n(x), n(y-r*1.4), n(r*1.4), n(r*1.4), n(-r*1.4), n(r*1.4), n(-r*1.4), n(-r*1.4)),
		fmt.Sprintf("M%s %sl%s %sh%sZ", n(x), n(y+r*1.3), n(r*1.25), n(-r*2.2), n(-r*2.5)),
		fmt.Sprintf("M%s %sl%s %sl%s %sh%sl%s %sZ", n(x), n(y-r*1.3), n(r*1.3), n(r), n(-r*0.5), n(r*1.5), n(-r*1.6), n(-r*0.5), n(-r*1.5)),
	}
	path := shapes[arm%len(shapes)]
	if !struck {
		return `<path class="mark" d="` + path + `"/>`
	}
	const d = r * 1.9
	return fmt.Sprintf(`<path class="mark struck" d="%s"/><path class="cross" d="M%s %sl%s %sM%s %sl%s %s"/>`,
		path, n(x-d), n(y-d), n(2*d), n(2*d), n(x-d), n(y+d), n(2*d), n(-2*d))
}

func (band *Band) draw(b *strings.Builder, x, y span) {
	if len(band.X) < 1 {
		return
	}
	var there, back strings.Builder
	for i, v := range band.X {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&there, "%s%s %s", command, n(x.at(v)), n(y.clamp(y.at(band.High[i]))))
		k := len(band.X) - 1 - i
		fmt.Fprintf(&back, "L%s %s", n(x.at(band.X[k])), n(y.clamp(y.at(band.Low[k]))))
	}
	fmt.Fprintf(b, `<path class="band" d="%s%sZ"><title>%s</title></path>`, there.String(), back.String(), html.EscapeString(band.Text))
}
