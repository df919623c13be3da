package chart

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"inflight/runner/result"
)

// SVG draws the chart of a metric. Its text is in Liberation Sans where the viewer has it, and otherwise in another
// font, squeezed to the same widths, so that nothing is cut off or overlaps.
func SVG(r *result.Result, m Metric) ([]byte, error) {
	f := figureOf(r, m)
	l := layout(f)
	c := &svgCanvas{Canvas: vgsvg.New(l.width, l.height)}
	f.draw(draw.NewCanvas(c, l.width, l.height), l)
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("drawing the chart: %w", err)
	}
	return []byte(c.finish(b.String(), Alt(r, m))), nil
}

// svgCanvas remembers how wide each text is, which gonum/plot does not write down.
type svgCanvas struct {
	*vgsvg.Canvas
	widths []vg.Length
}

func (c *svgCanvas) FillString(f font.Face, at vg.Point, s string) {
	c.widths = append(c.widths, f.Width(s))
	c.Canvas.FillString(f, at, s)
}

var textElement = regexp.MustCompile(`<text `)

// finish adds to the document the widths of its texts, fonts to fall back on, and what it shows in words.
func (c *svgCanvas) finish(svg, alt string) string {
	i := -1
	svg = textElement.ReplaceAllStringFunc(svg, func(string) string {
		if i++; i >= len(c.widths) || c.widths[i] <= 0 {
			return "<text "
		}
		return fmt.Sprintf(`<text textLength="%.5g" lengthAdjust="spacingAndGlyphs" `, c.widths[i].Points())
	})
	return strings.NewReplacer(
		"font-family:Liberation Sans;", "font-family:'Liberation Sans',Arimo,Arial,Helvetica,sans-serif;",
		"font-variant:none;", "",
		"<svg ", fmt.Sprintf(`<svg role="img" aria-label="%s" `, html.EscapeString(alt)),
	).Replace(svg)
}
