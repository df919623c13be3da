package page

import (
	"fmt"
	"strings"

	"inflight/report/figure"
	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// control is that of an arm over the first, where it says something about their ratio: both are builds of one broker.
func (d *drawer) control(arm int) *figure.Interval {
	if arm == 0 || !d.m.Arms[arm].Alike {
		return nil
	}
	c := stat.ControlOf(d.r, d.r.Arms[arm].Name)
	if c == nil || c.Low == nil || c.High == nil {
		return nil
	}
	return &figure.Interval{Low: *c.Low, High: *c.High, Text: "QoS 0 control " + human.Ratio(c.Ratio) + " " + human.Interval(c.Low, c.High)}
}

// controls is what the controls of all arms span; not ok if one of them says nothing.
func (d *drawer) controls() (low, high float64, ok bool) {
	for arm := 1; arm < len(d.r.Arms); arm++ {
		c := d.control(arm)
		if c == nil {
			return 0, 0, false
		}
		if arm == 1 {
			low, high = c.Low, c.High
		}
		low, high = min(low, c.Low), max(high, c.High)
	}
	return low, high, len(d.r.Arms) > 1
}

func (d *drawer) forestText() string {
	text := "Each arm over the first, with 95 % intervals, on a logarithmic axis."
	for arm := range d.r.Arms {
		if d.control(arm) != nil {
			return text + " A pale band is the QoS 0 control."
		}
	}
	return text
}

func (d *drawer) forests() []Figure {
	write, note := d.rowLabels()
	var out []Figure
	for _, metric := range []struct{ name, title, better string }{
		{stat.Throughput, "Throughput, arm over base", "right is faster"},
		{stat.P99, "p99 of the acknowledgement time, arm over base", "left is faster"},
	} {
		f := figure.Forest{Label: "ratio: " + metric.better}
		var series []figure.Series
		said := metric.title + "."
		for arm := 1; arm < len(d.r.Arms); arm++ {
			rows := d.armRows(metric.name, arm, write)
			if len(rows) == 0 {
				continue
			}
			if len(d.r.Arms) > 2 {
				f.Rows = append(f.Rows, figure.Row{Arm: arm, Label: human.Cut(d.name(arm)+" over "+d.name(0), maxRowLabel)})
			}
			f.Rows = append(f.Rows, rows...)
			series = append(series, figure.Series{Arm: arm, Points: []figure.Point{{}}})
			for i := range rows {
				said += " " + rows[i].Text + "."
			}
		}
		f.Alt = said
		out = append(out, newFigure(metric.title, note, f.SVG(), series)...)
	}
	return out
}

// maxRowLabel is how many characters stand before a row of a forest plot.
const maxRowLabel = 24

// armRows are an arm's ratios over the first arm, point by point and over all points together.
func (d *drawer) armRows(metric string, arm int, write func(stat.Point) string) []figure.Row {
	var rows []figure.Row
	add := func(c *result.Comparison, label, where string) {
		row := figure.Row{
			Arm: arm, Label: human.Cut(label, maxRowLabel), Ratio: c.Ratio, Low: c.Low, High: c.High, Struck: c.Verdict == stat.Incorrect,
			Text: fmt.Sprintf("%s over %s, %s: %s %s, %s", human.Clean(c.Arm), human.Clean(c.Base), where, human.Ratio(c.Ratio), human.Interval(c.Low, c.High), c.Verdict),
		}
		rows = append(rows, row)
	}
	for i := range d.r.Comparisons {
		if c := &d.r.Comparisons[i]; c.Metric == metric && c.Arm == d.r.Arms[arm].Name {
			p := stat.PointOfComparison(c)
			add(c, write(p), describe(p, false)+", "+human.Count(int64(p.Window))+" in flight")
		}
	}
	for i := range d.r.Overall {
		if c := &d.r.Overall[i]; c.Metric == metric && c.Arm == d.r.Arms[arm].Name {
			add(c, "all points together", "all points together")
		}
	}
	if control := d.control(arm); control != nil && metric == stat.Throughput {
		for i := range rows {
			rows[i].Control = control // one, so that its band is drawn once
		}
	}
	return rows
}

// rowLabels returns what tells the points apart in a few letters, and what these letters mean where that is not plain.
func (d *drawer) rowLabels() (write func(stat.Point) string, note string) {
	parts := []struct {
		name string
		of   func(stat.Point) string
	}{
		{"QoS", func(p stat.Point) string { return fmt.Sprintf("QoS %d", p.QoS) }},
		{"connections", func(p stat.Point) string { return human.Count(int64(p.Connections)) }},
		{"payload", func(p stat.Point) string {
			if p.Sizes != "" {
				return human.Clean(p.Sizes)
			}
			return human.Bytes(int64(p.Payload))
		}},
		{"rate", func(p stat.Point) string {
			switch {
			case p.Rate == 0:
				return "max"
			case p.Ramp != "":
				return human.Clean(p.Ramp) + "/s"
			}
			return human.Count(int64(p.Rate)) + "/s"
		}},
		{"in flight", func(p stat.Point) string { return human.Count(int64(p.Window)) }},
	}
	points := stat.Points(d.r)
	var names []string
	var of []func(stat.Point) string
	for _, part := range parts {
		for _, p := range points {
			if part.of(p) != part.of(points[0]) {
				names, of = append(names, part.name), append(of, part.of)
				break
			}
		}
	}
	if len(of) == 0 || len(of) == 1 && names[0] == "in flight" {
		return func(p stat.Point) string { return human.Count(int64(p.Window)) + " in flight" }, ""
	}
	return func(p stat.Point) string {
		var words []string
		for _, f := range of {
			words = append(words, f(p))
		}
		return strings.Join(words, " · ")
	}, "Rows: " + strings.Join(names, " · ") + "."
}
