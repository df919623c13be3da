package chart

import (
	"image/color"
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// style tells an arm apart three times over: by colour, by marker and by dashes.
type style struct {
	color  color.NRGBA
	marker marker
	dashes []vg.Length
}

// marker is a regular polygon or a circle around the point.
type marker struct {
	corners int     // 0: a circle
	turn    float64 // of the first corner, radians from the right
	size    float64 // of the radius, so that all look equally large
}

// The colours are those of Okabe and Ito, which stay apart under every common colour blindness, dark ones first.
var styles = [...]style{
	{color.NRGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, marker{0, 0, 1}, nil},
	{color.NRGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}, marker{4, math.Pi / 4, 1.25}, []vg.Length{7, 3}},
	{color.NRGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}, marker{3, math.Pi / 2, 1.35}, []vg.Length{2, 2.5}},
	{color.NRGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, marker{4, 0, 1.35}, []vg.Length{9, 3, 2, 3}},
	{color.NRGBA{R: 0x33, G: 0x33, B: 0x33, A: 0xff}, marker{3, -math.Pi / 2, 1.35}, []vg.Length{12, 4}},
	{color.NRGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, marker{5, math.Pi / 2, 1.2}, []vg.Length{5, 2, 2, 2, 2, 2}},
}

func styleOf(arm int) style { return styles[arm%len(styles)] }

const (
	lineWidth   = vg.Length(1.6)
	barWidth    = vg.Length(1.1)
	capWidth    = vg.Length(3.5) // half of it
	markRadius  = vg.Length(3.6)
	sampleWidth = vg.Length(34) // of the line in the legend
)

func (s style) line() draw.LineStyle {
	return draw.LineStyle{Color: s.color, Width: lineWidth, Dashes: s.dashes}
}

func (s style) bar() draw.LineStyle { return draw.LineStyle{Color: s.color, Width: barWidth} }

// mark draws the marker at a point: filled, or hollow and crossed out when the number does not count.
func (s style) mark(c *draw.Canvas, at vg.Point, incorrect bool) {
	radius := markRadius * vg.Length(s.marker.size)
	if incorrect {
		radius *= 1.5
	}
	outline := s.marker.path(at, radius)
	if !incorrect {
		// A white edge keeps markers apart that lie on top of each other.
		c.SetLineStyle(draw.LineStyle{Color: color.White, Width: 1})
		c.Stroke(outline)
		c.SetColor(s.color)
		c.Fill(outline)
		return
	}
	c.SetColor(color.White)
	c.Fill(outline)
	c.SetLineStyle(draw.LineStyle{Color: s.color, Width: lineWidth})
	c.Stroke(outline)
	d := markRadius * 1.9
	c.StrokeLine2(draw.LineStyle{Color: s.color, Width: lineWidth}, at.X-d, at.Y-d, at.X+d, at.Y+d)
	c.StrokeLine2(draw.LineStyle{Color: s.color, Width: lineWidth}, at.X-d, at.Y+d, at.X+d, at.Y-d)
}

func (m marker) path(at vg.Point, radius vg.Length) vg.Path {
	var p vg.Path
	if m.corners == 0 {
		p.Move(vg.Point{X: at.X + radius, Y: at.Y})
		p.Arc(at, radius, 0, 2*math.Pi)
		p.Close()
		return p
	}
	for i := range m.corners {
		sin, cos := math.Sincos(m.turn + 2*math.Pi*float64(i)/float64(m.corners))
		corner := vg.Point{X: at.X + radius*vg.Length(cos), Y: at.Y + radius*vg.Length(sin)}
		if i == 0 {
			p.Move(corner)
		} else {
			p.Line(corner)
		}
	}
	p.Close()
	return p
}
