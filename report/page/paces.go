package page

import (
	"fmt"

	"inflight/report/figure"
	"inflight/report/internal/human"
	"inflight/report/stat"
)

// paces draws, for each point of an open loop, the rate that the schedule asked for and the one that was reached, run by run.
func (d *drawer) paces() (out []Figure) {
	for _, p := range stat.Points(d.r) {
		if p.Rate == 0 {
			continue
		}
		c := figure.Chart{
			X: figure.Axis{Label: "seconds since the start of the run"},
			Y: figure.Axis{Label: ratePerS + "; dashed: asked for", Write: shortRate},
		}
		var reached []figure.Series
		for i := range d.r.Arms {
			asked, got := d.pacesOf(i, p)
			c.Series = append(c.Series, asked...)
			reached = append(reached, got...)
		}
		c.Series = append(c.Series, reached...)
		title := describe(p, false) + ", " + human.Count(int64(p.Window)) + " in flight"
		c.Alt = alt("Asked and reached rate over time. "+title, reached)
		out = append(out, newFigure("Asked and reached: "+title, "", c.SVG(), c.Series)...)
		if len(out) == maxFigures {
			break
		}
	}
	return out
}

// pacesOf has a pair of lines for each run of an arm.
func (d *drawer) pacesOf(arm int, p stat.Point) (asked, reached []figure.Series) {
	for i := range d.r.Cells {
		c := &d.r.Cells[i]
		if c.Arm != d.r.Arms[arm].Name || c.Control || stat.PointOf(c) != p {
			continue
		}
		for _, line := range stat.Paces(c) {
			wanted, got := figure.Series{Arm: arm, Dashed: true}, figure.Series{Arm: arm, Plain: true}
			for _, at := range line {
				x := float64(at.AtNS) / 1e9
				wanted.Points = append(wanted.Points, figure.Point{X: x, Y: at.Asked})
				got.Points = append(got.Points, figure.Point{
					X: x, Y: at.Reached,
					Text: fmt.Sprintf("%s, after %.1f s: %s of %s asked for, %s behind", d.name(arm), x,
						perSecond(at.Reached), perSecond(at.Asked), human.Plural(at.Behind, "message")),
				})
			}
			asked, reached = append(asked, wanted), append(reached, got)
		}
	}
	return asked, reached
}
