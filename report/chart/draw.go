package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"inflight/report/internal/human"
	"inflight/runner/result"
)

// Sizes in points, chosen so that the text is still legible when the chart is as wide as a telephone.
const (
	loneWidth, loneHeight   = vg.Length(500), vg.Length(300)
	panelWidth, panelHeight = vg.Length(330), vg.Length(225)
	margin                  = vg.Length(12)
	titleSize               = vg.Length(14)
	textSize                = vg.Length(11)
	noteSize                = vg.Length(9)
	lineFactor              = 1.3 // of the font size
	pngDPI                  = 144
)

var (
	ink  = color.NRGBA{R: 0x22, G: 0x22, B: 0x22, A: 0xff}
	grey = color.NRGBA{R: 0x55, G: 0x55, B: 0x55, A: 0xff}
	pale = color.NRGBA{R: 0xe2, G: 0xe2, B: 0xe2, A: 0xff}
)

// PNG draws the same picture as SVG, at 144 dots per inch.
func PNG(r *result.Result, m Metric) ([]byte, error) {
	f := figureOf(r, m)
	l := layout(f)
	c := vgimg.NewWith(vgimg.UseWH(l.width, l.height), vgimg.UseDPI(pngDPI), vgimg.UseBackgroundColor(color.White))
	f.draw(draw.New(c), l)
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&b); err != nil {
		return nil, fmt.Errorf("drawing the chart: %w", err)
	}
	return b.Bytes(), nil
}

// page is where everything goes.
type page struct {
	width, height vg.Length
	columns, rows int
	panel         vg.Point // size of one panel
	title, notes  []string // broken into lines
}

func layout(f figure) page {
	l := page{columns: 1, rows: 1, panel: vg.Point{X: loneWidth, Y: loneHeight}}
	if n := len(f.panels); n > 1 {
		l.columns, l.rows = 2, (n+1)/2
		l.panel = vg.Point{X: panelWidth, Y: panelHeight}
	}
	l.width = vg.Length(l.columns)*l.panel.X + 2*margin
	l.title = wrap(f.title, bold(titleSize), l.width-2*margin)
	for _, note := range f.notes {
		l.notes = append(l.notes, wrap(note, plain(noteSize, grey), l.width-2*margin)...)
	}
	l.height = l.headHeight(f) + vg.Length(l.rows)*l.panel.Y + vg.Length(len(l.notes))*noteSize*lineFactor + 2*margin
	return l
}

// headHeight is the height of the title and the legend, which stand above the axes, where no data is.
func (l page) headHeight(f figure) vg.Length {
	h := vg.Length(len(l.title)) * titleSize * lineFactor
	if f.subtitle != "" {
		h += textSize * lineFactor
	}
	return h + textSize*lineFactor*vg.Length(len(f.legend)) + textSize
}

func (f figure) draw(c draw.Canvas, l page) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	y := c.Max.Y - margin
	row := func(sty text.Style, x vg.Length, s string) {
		c.FillText(sty, vg.Point{X: c.Min.X + margin + x, Y: y}, s)
		y -= sty.Font.Size * lineFactor
	}
	for _, s := range l.title {
		row(bold(titleSize), 0, s)
	}
	if f.subtitle != "" {
		row(plain(textSize, grey), 0, f.subtitle)
	}
	y -= textSize / 3
	for i, s := range f.legend {
		sty := styleOf(i)
		middle := y - textSize*0.75
		c.StrokeLine2(sty.line(), c.Min.X+margin, middle, c.Min.X+margin+sampleWidth, middle)
		sty.mark(&c, vg.Point{X: c.Min.X + margin + sampleWidth/2, Y: middle}, false)
		row(plain(textSize, ink), sampleWidth+6, fit(s, plain(textSize, ink), l.width-2*margin-sampleWidth-6))
	}
	top := c.Max.Y - margin - l.headHeight(f)
	for i, p := range f.panels {
		left := c.Min.X + margin + vg.Length(i%l.columns)*l.panel.X
		upper := top - vg.Length(i/l.columns)*l.panel.Y
		f.drawPanel(draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left, Y: upper - l.panel.Y},
			Max: vg.Point{X: left + l.panel.X, Y: upper},
		}}, p)
	}
	y = c.Min.Y + margin + vg.Length(len(l.notes))*noteSize*lineFactor
	for _, s := range l.notes {
		row(plain(noteSize, grey), 0, s)
	}
}

// drawPanel draws one set of axes and what is in it.
func (f figure) drawPanel(c draw.Canvas, p panel) {
	c = draw.Crop(c, 0, -margin/2, margin/2, 0)
	if p.heading != "" {
		c.FillText(bold(textSize), vg.Point{X: c.Min.X, Y: c.Max.Y}, fit(p.heading, bold(textSize), c.Max.X-c.Min.X))
		c.Max.Y -= textSize * 1.6
	}
	low, high, ok := p.yRange()
	if !ok {
		c.FillText(plain(textSize, grey), vg.Point{X: c.Min.X, Y: c.Center().Y}, "nothing to draw: not measured, or too few samples")
		return
	}
	plt := plot.New()
	plt.BackgroundColor = nil
	left, right := xRange(p.xs)
	// The axes hold logarithms: gonum/plot's own logarithmic scale reserves room for the axis label in the wrong place.
	plt.X.Min, plt.X.Max = math.Log10(left), math.Log10(right)
	plt.Y.Min, plt.Y.Max = math.Log10(low), math.Log10(high)
	label := shortRate
	if f.metric == P99 {
		label = shortTime
	}
	yt := yTicks(low, high, label, c.Max.Y-c.Min.Y)
	plt.X.Tick.Marker, plt.Y.Tick.Marker = xTicks(p.xs), yt
	plt.X.Label.Text, plt.Y.Label.Text = f.xLabel, f.metric.label()
	for _, a := range []*plot.Axis{&plt.X, &plt.Y} {
		a.Padding = 0
		a.LineStyle.Color, a.Tick.LineStyle.Color = grey, grey
		a.Label.Padding = 3
		restyle(&a.Label.TextStyle, textSize)
		restyle(&a.Tick.Label, textSize)
	}
	plt.Add(grid{ys: yt, xs: p.xs})
	for i := range p.series {
		plt.Add(curve{series: p.series[i], shift: float64(i) - float64(len(p.series)-1)/2})
	}
	plt.Draw(c)
}

// grid draws pale lines at the ticks.
type grid struct {
	ys plot.ConstantTicks
	xs []float64
}

func (g grid) Plot(c draw.Canvas, plt *plot.Plot) {
	x, y := plt.Transforms(&c)
	sty := draw.LineStyle{Color: pale, Width: 0.6}
	for _, t := range g.ys {
		if t.Label != "" {
			c.StrokeLine2(sty, c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
	}
	for _, v := range g.xs {
		at := x(math.Log10(v))
		c.StrokeLine2(sty, at, c.Min.Y, at, c.Max.Y)
	}
}

// dodge keeps the bars of two arms with the same values apart.
const dodge = vg.Length(2.5)

// curve draws a series: its line, its bars, and its markers on top.
type curve struct {
	series
	shift float64 // in dodges
}

func (s curve) Plot(c draw.Canvas, plt *plot.Plot) {
	x, y := plt.Transforms(&c)
	sty := styleOf(s.arm)
	var line []vg.Point
	for _, pt := range s.points {
		at := vg.Point{X: x(math.Log10(pt.x)) + dodge*vg.Length(s.shift), Y: y(math.Log10(pt.y))}
		line = append(line, at)
		if pt.low == nil || pt.high == nil {
			continue
		}
		for _, end := range []float64{math.Log10(*pt.low), math.Log10(*pt.high)} {
			tip := y(math.Min(math.Max(end, plt.Y.Min), plt.Y.Max))
			c.StrokeLine2(sty.bar(), at.X, at.Y, at.X, tip)
			if end >= plt.Y.Min && end <= plt.Y.Max {
				c.StrokeLine2(sty.bar(), at.X-capWidth, tip, at.X+capWidth, tip)
			}
		}
	}
	if len(line) > 1 {
		c.StrokeLines(sty.line(), line)
	}
	for i, at := range line {
		sty.mark(&c, at, s.points[i].incorrect)
	}
}

func face(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

func plain(size vg.Length, ink color.Color) text.Style {
	return text.Style{Color: ink, Font: face(size), YAlign: draw.YTop, Handler: plot.DefaultTextHandler}
}

func bold(size vg.Length) text.Style {
	sty := plain(size, ink)
	sty.Font.Weight = xfont.WeightBold
	return sty
}

// restyle keeps the alignment that an axis gives its text.
func restyle(sty *text.Style, size vg.Length) {
	sty.Font, sty.Color = face(size), ink
}

// fit shortens s in the middle until it is no wider than width.
func fit(s string, sty text.Style, width vg.Length) string {
	for n := len([]rune(s)); n > 3 && sty.Width(s) > width; {
		n--
		s = human.Cut(s, n)
	}
	return s
}

// wrap breaks s into lines no wider than width, at spaces.
func wrap(s string, sty text.Style, width vg.Length) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		longer := strings.TrimSpace(line + " " + word)
		if line != "" && sty.Width(longer) > width {
			lines = append(lines, line)
			longer = word
		}
		line = fit(longer, sty, width)
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
