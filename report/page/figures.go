package page

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"inflight/report/figure"
	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// Curve is a latency of an arm at a point, over all its passes.
type Curve struct {
	Arm     string
	Point   stat.Point
	Latency string // as result.json names it
	At      []Quantile
	Struck  bool // the cell is incorrect
}

// Quantile is one point of a Curve: the share Q of all was answered within NS nanoseconds.
type Quantile struct {
	Q  float64
	NS int64
}

// Quantiles are those that a curve is drawn through.
func Quantiles() []float64 {
	return []float64{0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99995, 0.99999}
}

// Section is a heading with its figures.
type Section struct {
	ID, Title, Text string
	Figures         []Figure
}

// Figure is one chart of the page.
type Figure struct {
	Title, Note string
	SVG         template.HTML // drawn by package figure, which escapes what comes from the result
	Arms        []int         // that have something in it, for its legend
}

// maxFigures of one kind keep a page with many points from growing without end; the tables have all the points.
const maxFigures = 12

// Draw makes the page's sections of figures. curves may be empty: then those of the result's own percentiles are drawn.
func (m *Model) Draw(r *result.Result, curves []Curve) {
	d := &drawer{m: m, r: r, arm: map[string]int{}}
	for i, a := range r.Arms {
		d.arm[a.Name] = i
	}
	for _, s := range []Section{
		{ID: "charts", Title: "Throughput and p99 against the window", Figures: d.sweep()},
		{ID: "ratios", Title: "Ratios", Text: d.forestText(), Figures: d.forests()},
		{ID: "percentiles", Title: "Latency percentiles", Text: "How many acknowledgements had come after how long: each step to the right is one nine more.", Figures: d.percentiles(curves)},
		{ID: "time", Title: "Time lines", Figures: d.timeLines()},
		{ID: "memory", Title: "Memory", Figures: d.memory()},
	} {
		if len(s.Figures) > 0 {
			m.Sections = append(m.Sections, s)
		}
	}
}

type drawer struct {
	m   *Model
	r   *result.Result
	arm map[string]int
}

// figure is nil when there is nothing in the chart.
func newFigure(title, note, svg string, series []figure.Series) []Figure {
	if svg == "" {
		return nil
	}
	f := Figure{Title: title, Note: note, SVG: template.HTML(svg)}
	for _, s := range series {
		if len(s.Points) > 0 && !slices.Contains(f.Arms, s.Arm) {
			f.Arms = append(f.Arms, s.Arm)
		}
	}
	slices.Sort(f.Arms)
	return []Figure{f}
}

func (d *drawer) name(i int) string { return human.Clean(d.r.Arms[i].Name) }

// line is a group of points on one pair of axes, and what varies along it.
func (d *drawer) lines() (lines [][]stat.Point, byConnections bool) {
	points := stat.Points(d.r)
	windows, connections := map[int]bool{}, map[int]bool{}
	for _, p := range points {
		windows[p.Window], connections[p.Connections] = true, true
	}
	byConnections = len(windows) == 1 && len(connections) > 1
	index := map[stat.Point]int{}
	for _, p := range points {
		k := p
		if byConnections {
			k.Connections = 0
		} else {
			k.Window = 0
		}
		i, ok := index[k]
		if !ok {
			i = len(lines)
			index[k] = i
			lines = append(lines, nil)
		}
		lines[i] = append(lines[i], p)
	}
	for _, l := range lines {
		slices.SortStableFunc(l, func(a, b stat.Point) int {
			return cmp.Or(cmp.Compare(a.Window, b.Window), cmp.Compare(a.Connections, b.Connections))
		})
	}
	return lines[:min(len(lines), maxFigures)], byConnections
}

func along(p stat.Point, byConnections bool) (float64, string) {
	if byConnections {
		return float64(p.Connections), human.Plural(int64(p.Connections), "connection")
	}
	return float64(p.Window), human.Count(int64(p.Window)) + " in flight"
}

// describe is what the points of a line have in common.
func describe(p stat.Point, byConnections bool) string {
	parts := []string{fmt.Sprintf("QoS %d", p.QoS)}
	if byConnections {
		parts = append(parts, human.Count(int64(p.Window))+" in flight")
	} else {
		parts = append(parts, human.Plural(int64(p.Connections), "connection"))
	}
	parts = append(parts, human.Payload(p.Payload, p.Sizes))
	if pace := human.Pace(p.Rate, p.Ramp); pace != "" {
		parts = append(parts, pace)
	}
	return strings.Join(parts, ", ")
}

// sweep draws throughput and p99 against what was swept.
func (d *drawer) sweep() []Figure {
	var out []Figure
	lines, byConnections := d.lines()
	for _, line := range lines {
		for _, metric := range []struct {
			name  string
			of    func(*stat.Summary) *stat.Measure
			write func(float64) string
			tick  func(float64) string
		}{
			{ratePerS, func(s *stat.Summary) *stat.Measure { return s.Throughput }, perSecond, shortRate},
			{"p99 of the acknowledgement time", func(s *stat.Summary) *stat.Measure { return s.P99 }, human.Latency, shortTime},
		} {
			y := figure.Axis{Label: metric.name, Scale: figure.Log, Write: metric.tick}
			out = append(out, d.swept(line, byConnections, y, metric.of, metric.write)...)
		}
	}
	return out
}

func perSecond(v float64) string { return human.Rate(v) + "/s" }

// swept draws one value of each arm against what was swept; write is for its tips.
func (d *drawer) swept(line []stat.Point, byConnections bool, y figure.Axis, of func(*stat.Summary) *stat.Measure, write func(float64) string) []Figure {
	x := "in flight: exchanges outstanding per connection"
	if byConnections {
		x = "connections"
	}
	c := figure.Chart{X: figure.Axis{Label: x, Scale: figure.Log}, Y: y}
	for i := range d.r.Arms {
		s := figure.Series{Arm: i}
		for _, p := range line {
			summary := stat.Summarise(d.r, d.r.Arms[i].Name, p)
			if summary == nil {
				continue
			}
			v := of(summary)
			if v == nil {
				continue
			}
			at, label := along(p, byConnections)
			text := fmt.Sprintf("%s, %s: %s", d.name(i), label, write(v.Value))
			if v.Low != nil && v.High != nil {
				text += fmt.Sprintf(" [%s, %s]", write(*v.Low), write(*v.High))
			}
			if summary.Incorrect {
				text += ", incorrect: does not count"
			}
			s.Points = append(s.Points, figure.Point{X: at, Y: v.Value, Low: v.Low, High: v.High, Text: text, Struck: summary.Incorrect})
		}
		c.Series = append(c.Series, s)
	}
	for _, p := range line {
		at, _ := along(p, byConnections)
		c.X.Ticks = append(c.X.Ticks, figure.Tick{At: at, Label: human.Count(int64(at))})
	}
	note := ""
	if low, high, ok := d.controls(); ok && y.Label == ratePerS && line[0].QoS > 0 && len(c.Series[0].Points) > 0 {
		c.Band = &figure.Band{Text: fmt.Sprintf("%s times the QoS 0 control, %s", d.name(0), human.Interval(&low, &high))}
		for _, p := range c.Series[0].Points {
			c.Band.X = append(c.Band.X, p.X)
			c.Band.Low = append(c.Band.Low, p.Y*low)
			c.Band.High = append(c.Band.High, p.Y*high)
		}
		note = "Pale band: where " + d.name(0) + " would be if it differed only as the QoS 0 control does."
	}
	title := describe(line[0], byConnections)
	c.Alt = alt(y.Label+" against "+x+". "+title, c.Series)
	return newFigure(title, note, c.SVG(), c.Series)
}

// ratePerS labels the axis of throughputs.
const ratePerS = "messages per second"

// shortRate labels a tick: 500, 2k, 1M.
func shortRate(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + "M"
	case v >= 1e3:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// shortTime labels a tick: 500 µs, 2 ms, 1 s.
func shortTime(ns float64) string {
	const slack = 1 - 1e-9
	for _, u := range []struct {
		name string
		ns   float64
	}{{" s", 1e9}, {" ms", 1e6}, {" µs", 1e3}} {
		if ns >= u.ns*slack {
			return strconv.FormatFloat(ns/u.ns, 'g', 4, 64) + u.name
		}
	}
	return strconv.FormatFloat(ns, 'g', 4, 64) + " ns"
}

// mebibyte is how charts of memory are scaled.
const mebibyte = 1 << 20

// maxAltPoints of a series are told to those who cannot see the chart; the tables hold all numbers.
const maxAltPoints = 12

func alt(what string, series []figure.Series) string {
	var b strings.Builder
	b.WriteString(what + ".")
	for _, s := range series {
		if n := len(s.Points); n > maxAltPoints {
			fmt.Fprintf(&b, " %d points of one series, from %s to %s.", n, s.Points[0].Text, s.Points[n-1].Text)
			continue
		}
		for _, p := range s.Points {
			b.WriteString(" " + p.Text + ".")
		}
	}
	return b.String()
}

// latencyNames are the curves that are drawn, in words.
var latencyNames = []struct{ key, text string }{
	{"ack_service", "PUBLISH sent to acknowledgement"},
	{"ack_response", "intended instant to acknowledgement"},
	{"end_to_end", "PUBLISH sent to delivery"},
}

func (d *drawer) percentiles(curves []Curve) []Figure {
	for _, own := range d.ownPercentiles() {
		if !slices.ContainsFunc(curves, func(c Curve) bool { return c.Arm == own.Arm && c.Point == own.Point && c.Latency == own.Latency }) {
			curves = append(curves, own)
		}
	}
	var out []Figure
	for _, p := range stat.Points(d.r) {
		for _, l := range latencyNames {
			c := figure.Chart{
				X: figure.Axis{Label: "share of all, in per cent", Scale: figure.Tail},
				Y: figure.Axis{Label: l.text, Scale: figure.Log, Write: shortTime},
			}
			for i := range curves {
				k := &curves[i]
				if k.Point != p || k.Latency != l.key {
					continue
				}
				s := figure.Series{Arm: d.arm[k.Arm]}
				for _, q := range k.At {
					text := fmt.Sprintf("%s, %.5g %%: %s", human.Clean(k.Arm), 100*q.Q, human.Latency(float64(q.NS)))
					if k.Struck {
						text += ", incorrect: does not count"
					}
					s.Points = append(s.Points, figure.Point{X: q.Q, Y: float64(q.NS), Text: text, Struck: k.Struck})
				}
				c.Series = append(c.Series, s)
			}
			title := describe(p, false) + ", " + human.Count(int64(p.Window)) + " in flight"
			c.Alt = alt("Percentiles of the time from "+l.text+". "+title, c.Series)
			out = append(out, newFigure(title, "", c.SVG(), c.Series)...)
			if len(out) == maxFigures {
				return out
			}
		}
	}
	return out
}

// ownPercentiles are curves of what the result itself keeps: the mean of the passes.
func (d *drawer) ownPercentiles() []Curve {
	var out []Curve
	for _, p := range stat.Points(d.r) {
		for _, a := range d.r.Arms {
			for _, l := range latencyNames {
				k := Curve{Arm: a.Name, Point: p, Latency: l.key}
				for _, q := range []struct {
					q  float64
					of func(*result.Distribution) *int64
				}{
					{0.5, func(d *result.Distribution) *int64 { return d.P50 }},
					{0.9, func(d *result.Distribution) *int64 { return d.P90 }},
					{0.99, func(d *result.Distribution) *int64 { return d.P99 }},
					{0.999, func(d *result.Distribution) *int64 { return d.P999 }},
				} {
					var sum, cells int64
					for i := range d.r.Cells {
						c := &d.r.Cells[i]
						if c.Arm != a.Name || c.Control || stat.PointOf(c) != p {
							continue
						}
						k.Struck = k.Struck || c.Incorrect()
						if dist := distribution(&c.Latency, l.key); dist != nil && q.of(dist) != nil {
							sum += *q.of(dist)
							cells++
						}
					}
					if cells > 0 {
						k.At = append(k.At, Quantile{q.q, sum / cells})
					}
				}
				if len(k.At) > 1 {
					out = append(out, k)
				}
			}
		}
	}
	return out
}

func distribution(l *result.Latency, key string) *result.Distribution {
	switch key {
	case "ack_response":
		return l.AckResponse
	case "end_to_end":
		return l.EndToEnd
	}
	return l.AckService
}

// timeLines draws the throughput of every run in the order in which they were made, and memory over time where it was
// sampled.
func (d *drawer) timeLines() []Figure {
	runs := figure.Chart{X: figure.Axis{Label: "seconds since the start of the run"}, Y: figure.Axis{Label: "messages per second, each run of an arm", Scale: figure.Log, Write: shortRate}}
	memory := figure.Chart{X: figure.Axis{Label: "seconds since the start of the run"}, Y: figure.Axis{Label: "RSS of all nodes, MiB"}}
	for i, a := range d.r.Arms {
		s, m := figure.Series{Arm: i, Loose: true}, figure.Series{Arm: i, Plain: true}
		for k := range d.r.Cells {
			c := &d.r.Cells[k]
			if c.Arm != a.Name || c.Control {
				continue
			}
			for _, b := range c.Blocks {
				if b.ThroughputPerS > 0 {
					s.Points = append(s.Points, figure.Point{
						X: float64(b.StartedNS) / 1e9, Y: b.ThroughputPerS, Struck: c.Incorrect(),
						Text: fmt.Sprintf("%s, QoS %d, %d in flight, pass %d, block %d, after %.1f s: %s", d.name(i), c.QoS, c.Window, c.Pass, b.Block, float64(b.StartedNS)/1e9, perSecond(b.ThroughputPerS)),
					})
				}
			}
			for _, at := range c.Samples {
				if at.RSS != nil {
					m.Points = append(m.Points, figure.Point{
						X: float64(at.AtNS) / 1e9, Y: float64(*at.RSS) / mebibyte,
						Text: fmt.Sprintf("%s, QoS %d, %d in flight, after %.1f s: %s", d.name(i), c.QoS, c.Window, float64(at.AtNS)/1e9, size(float64(*at.RSS))),
					})
				}
			}
		}
		for _, points := range [][]figure.Point{s.Points, m.Points} {
			slices.SortStableFunc(points, func(a, b figure.Point) int { return cmp.Compare(a.X, b.X) })
		}
		runs.Series, memory.Series = append(runs.Series, s), append(memory.Series, m)
	}
	runs.Alt = alt("Throughput of every run over time", runs.Series)
	memory.Alt = alt("Memory of the broker over time", memory.Series)
	drift := "A drift or a jump here is the machine's, if all arms show it."
	if len(d.r.Arms) < 2 {
		drift = ""
	}
	out := newFigure("Every run, in the order in which they were made", drift, runs.SVG(), runs.Series)
	out = append(out, d.paces()...)
	return append(out, newFigure("Memory over time", "", memory.SVG(), memory.Series)...)
}

func size(v float64) string { return human.Bytes(int64(v)) }

// memory draws the peak RSS against what was swept.
func (d *drawer) memory() []Figure {
	var out []Figure
	lines, byConnections := d.lines()
	for _, line := range lines {
		of := func(s *stat.Summary) *stat.Measure {
			if s.RSSPeak == nil {
				return nil
			}
			return &stat.Measure{Value: float64(*s.RSSPeak) / mebibyte}
		}
		write := func(v float64) string { return size(v * mebibyte) }
		out = append(out, d.swept(line, byConnections, figure.Axis{Label: "peak RSS of a node, MiB"}, of, write)...)
	}
	return out
}
