package chart

import (
	"fmt"
	"slices"
	"strings"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// Metric is what a chart shows on its y axis.
type Metric int

// The charts of a result.
const (
	Throughput Metric = iota
	P99
)

func (m Metric) label() string {
	if m == P99 {
		return "p99 of the acknowledgement time"
	}
	return "messages per second"
}

func (m Metric) of(s *stat.Summary) *stat.Measure {
	if m == P99 {
		return s.P99
	}
	return s.Throughput
}

// write is the value with its unit, as in a table.
func (m Metric) write(v float64) string {
	if m == P99 {
		return human.Latency(v)
	}
	return human.Rate(v) + "/s"
}

// figure is a chart before it is drawn.
type figure struct {
	metric   Metric
	title    string
	subtitle string
	xLabel   string
	legend   []string // one per arm
	panels   []panel
	notes    []string // below the panels
}

// panel is one set of axes.
type panel struct {
	heading string    // what tells it apart from the others; empty when it is alone
	xs      []float64 // what was swept, sorted, whether or not there is a point
	series  []series
}

// series is one arm in one panel.
type series struct {
	arm    int // index of its style
	points []point
}

type point struct {
	x         float64
	y         float64
	low, high *float64
	incorrect bool
}

// maxPanels keeps a chart legible; the tables have all the points.
const maxPanels = 12

// figureOf gathers what is to be drawn.
func figureOf(r *result.Result, m Metric) figure {
	points := stat.Points(r)
	axis := axisOf(points)
	f := figure{metric: m, title: title(r, m), subtitle: m.label(), xLabel: axis.label}
	for _, arm := range r.Arms {
		f.legend = append(f.legend, legend(arm))
	}
	groups := axis.groups(points)
	if len(groups) == 1 {
		f.subtitle += ", " + axis.describe(groups[0][0])
	}
	bars, incorrect := false, false
	missing := make([]int, len(r.Arms))
	for _, group := range groups[:min(len(groups), maxPanels)] {
		p := panel{}
		for _, at := range group {
			p.xs = append(p.xs, float64(axis.x(at)))
		}
		slices.Sort(p.xs)
		p.xs = slices.Compact(p.xs)
		if len(groups) > 1 {
			p.heading = axis.describe(group[0])
		}
		for i, arm := range r.Arms {
			s := series{arm: i}
			for _, at := range group {
				summary := stat.Summarise(r, arm.Name, at)
				if summary == nil {
					continue
				}
				measure := m.of(summary)
				if measure == nil {
					missing[i]++
					continue
				}
				bars = bars || measure.Low != nil
				incorrect = incorrect || summary.Incorrect
				s.points = append(s.points, point{
					x: float64(axis.x(at)), y: measure.Value, low: measure.Low, high: measure.High, incorrect: summary.Incorrect,
				})
			}
			slices.SortFunc(s.points, func(a, b point) int { return int(a.x - b.x) })
			p.series = append(p.series, s)
		}
		f.panels = append(f.panels, p)
	}
	var absent []string
	for i, n := range missing {
		if n > 0 {
			absent = append(absent, fmt.Sprintf("%s at %s", human.Clean(r.Arms[i].Name), human.Plural(int64(n), "point")))
		}
	}
	f.notes = notes(bars, incorrect, absent, len(groups))
	return f
}

func notes(bars, incorrect bool, absent []string, groups int) []string {
	var out []string
	if bars {
		out = append(out, "Points: geometric mean of the passes. Bars: 95 % interval from the arm's own blocks (Student's t, within passes).")
	} else {
		out = append(out, "Points: geometric mean of the passes. No bars: too few blocks for an interval.")
	}
	if incorrect {
		out = append(out, "Hollow, crossed markers: the broker broke its contract there; the number does not count.")
	}
	if len(absent) > 0 {
		out = append(out, "Absent, for too few samples: "+human.List(absent)+".")
	}
	if groups > maxPanels {
		out = append(out, fmt.Sprintf("The first %d of %d combinations; the tables have all of them.", maxPanels, groups))
	}
	return out
}

func title(r *result.Result, m Metric) string {
	if q := human.Clean(r.Scenario.Question); q != "" {
		return q
	}
	if m == P99 {
		return "How long does an acknowledgement take as more is in flight?"
	}
	return "Does throughput rise with what is in flight?"
}

func legend(a result.Arm) string {
	text := human.Clean(a.Label())
	if a.Name != "" {
		text = human.Clean(a.Name) + ": " + text
	}
	if a.Version != "" && !strings.Contains(a.Target, a.Version) {
		text += " (" + human.Clean(a.Version) + ")"
	}
	return text
}

// axis says which swept value is on the x axis.
type axis struct {
	label string
	x     func(stat.Point) int
	// fixed returns the point without the value that is on the axis: what a panel has in common.
	fixed func(stat.Point) stat.Point
}

func axisOf(points []stat.Point) axis {
	windows, connections := map[int]bool{}, map[int]bool{}
	for _, p := range points {
		windows[p.Window] = true
		connections[p.Connections] = true
	}
	if len(windows) <= 1 && len(connections) > 1 {
		return axis{
			label: "connections",
			x:     func(p stat.Point) int { return p.Connections },
			fixed: func(p stat.Point) stat.Point { p.Connections = 0; return p },
		}
	}
	return axis{
		label: "in flight: exchanges outstanding per connection",
		x:     func(p stat.Point) int { return p.Window },
		fixed: func(p stat.Point) stat.Point { p.Window = 0; return p },
	}
}

// groups splits the points by what they have in common beside the axis, in their order.
func (a axis) groups(points []stat.Point) [][]stat.Point {
	var groups [][]stat.Point
	index := map[stat.Point]int{}
	for _, p := range points {
		if a.x(p) < 1 {
			continue // has no place on a logarithmic axis
		}
		i, ok := index[a.fixed(p)]
		if !ok {
			i = len(groups)
			index[a.fixed(p)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

func (a axis) describe(p stat.Point) string {
	p = a.fixed(p)
	parts := []string{fmt.Sprintf("QoS %d", p.QoS)}
	if p.Window > 0 {
		parts = append(parts, human.Count(int64(p.Window))+" in flight")
	}
	if p.Connections > 0 {
		parts = append(parts, human.Plural(int64(p.Connections), "connection"))
	}
	if p.Payload > 0 {
		parts = append(parts, human.Count(int64(p.Payload))+"-byte payloads")
	}
	if p.Rate > 0 {
		parts = append(parts, "paced at "+human.Count(int64(p.Rate))+"/s")
	}
	return strings.Join(parts, ", ")
}

// Alt describes the chart in words, for those who cannot see it.
func Alt(r *result.Result, m Metric) string {
	f := figureOf(r, m)
	var b strings.Builder
	fmt.Fprintf(&b, "Line chart of %s against %s, both axes logarithmic.", m.label(), f.xLabel)
	for _, p := range f.panels {
		if p.heading != "" {
			fmt.Fprintf(&b, " %s:", p.heading)
		}
		for _, s := range p.series {
			if len(s.points) == 0 {
				continue
			}
			var at []string
			for _, pt := range s.points {
				text := fmt.Sprintf("%s at %s", m.write(pt.y), human.Count(int64(pt.x)))
				if pt.incorrect {
					text += " (incorrect)"
				}
				at = append(at, text)
			}
			fmt.Fprintf(&b, " %s: %s.", human.Clean(r.Arms[s.arm].Name), strings.Join(at, ", "))
		}
	}
	return b.String()
}
