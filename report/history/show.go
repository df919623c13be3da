package history

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"inflight/report/figure"
	"inflight/report/internal/human"
)

// The metrics that a history can be shown by.
const (
	Throughput = "throughput"
	P99        = "p99"
	RSS        = "rss"
)

// Metrics lists them.
func Metrics() []string { return []string{Throughput, P99, RSS} }

// Series is one arm at one point over time, in the order of the runs.
type Series struct {
	Name    string
	Points  []Point
	Changes []int // indexes of Points at which it became another
}

// Point is one run of a series. Incorrect ones are in it, and left out of the search for changes.
type Point struct {
	Commit    string
	Value     float64
	Incorrect bool
}

// SeriesOf groups entries, in the order in which the series begin, and finds the changes.
func SeriesOf(entries []Entry, metric string) []Series {
	sorted := slices.Clone(entries)
	slices.SortStableFunc(sorted, func(a, b Entry) int { return a.Started.Compare(b.Started) })
	index := map[string]int{}
	var out []Series
	for i := range sorted {
		e := &sorted[i]
		v, ok := e.value(metric)
		if !ok {
			continue
		}
		name := e.series()
		k, seen := index[name]
		if !seen {
			k = len(out)
			index[name] = k
			out = append(out, Series{Name: name})
		}
		out[k].Points = append(out[k].Points, Point{Commit: human.Clean(e.Commit), Value: v, Incorrect: e.Incorrect})
	}
	for i := range out {
		out[i].find()
	}
	return out
}

func (e *Entry) value(metric string) (float64, bool) {
	var v float64
	switch {
	case metric == Throughput && e.Throughput != nil:
		v = *e.Throughput
	case metric == P99 && e.P99 != nil:
		v = *e.P99
	case metric == RSS && e.RSSPeak != nil:
		v = float64(*e.RSSPeak)
	}
	return v, v > 0 && !math.IsInf(v, 0)
}

func (e *Entry) series() string {
	name := fmt.Sprintf("%s, arm %s, QoS %d, %d in flight, %s, %s", human.Clean(e.Scenario), human.Clean(e.Arm), e.QoS, e.Window,
		human.Plural(int64(e.Connections), "connection"), human.Payload(e.Payload, e.Sizes))
	if pace := human.Pace(e.Rate, e.Ramp); pace != "" {
		name += ", " + pace
	}
	return name + " (" + human.Clean(e.Machine) + ")"
}

func (s *Series) find() {
	var values []float64
	var at []int
	for i, p := range s.Points {
		if !p.Incorrect {
			values = append(values, p.Value)
			at = append(at, i)
		}
	}
	for _, c := range changes(values) {
		s.Changes = append(s.Changes, at[c])
	}
}

func write(metric string, v float64) string {
	switch metric {
	case P99:
		return human.Latency(v)
	case RSS:
		return human.Bytes(int64(v))
	}
	return human.Rate(v) + "/s"
}

// level is the median of the correct values of the segment that begins at index from.
func (s *Series) level(from int) float64 {
	to := len(s.Points)
	for _, c := range s.Changes {
		if c > from {
			to = c
			break
		}
	}
	var values []float64
	for _, p := range s.Points[from:to] {
		if !p.Incorrect {
			values = append(values, p.Value)
		}
	}
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// note says what changed at a point; empty when nothing did.
func (s *Series) note(i int) string {
	k := slices.Index(s.Changes, i)
	if k < 0 {
		return ""
	}
	before := 0
	if k > 0 {
		before = s.Changes[k-1]
	}
	return fmt.Sprintf("change: %+.0f %%", 100*(s.level(i)/s.level(before)-1))
}

// Table writes the last values of every series; most is how many, 0 all.
func Table(w io.Writer, series []Series, metric string, most int) error {
	var b strings.Builder
	for i := range series {
		s := &series[i]
		fmt.Fprintf(&b, "%s\n", s.Name)
		from := 0
		if most > 0 {
			from = max(0, len(s.Points)-most)
		}
		width := 0
		for _, p := range s.Points[from:] {
			width = max(width, utf8.RuneCountInString(cut(p.Commit)))
		}
		for k := from; k < len(s.Points); k++ {
			p := s.Points[k]
			text := write(metric, p.Value)
			note := s.note(k)
			if p.Incorrect {
				text, note = "~~"+text+"~~", "INCORRECT"
			}
			fmt.Fprintf(&b, "  %s%s  %12s  %s\n", cut(p.Commit), strings.Repeat(" ", width-utf8.RuneCountInString(cut(p.Commit))), text, note)
		}
		if len(s.Points) < 2*minSide {
			fmt.Fprintf(&b, "  fewer than %d runs: no change can be found yet\n", 2*minSide)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "Changes by %s.\n", Method)
	// No blanks at the end of lines.
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}

// cut shortens a commit as Git does.
func cut(commit string) string {
	const short = 12
	if r := []rune(commit); len(r) > short {
		return string(r[:short])
	}
	return commit
}

// labels of the axes.
var labels = map[string]string{Throughput: "messages per second", P99: "p99 of the acknowledgement time", RSS: "peak RSS of a node"}

// ticks name some of the commits: there is room for a few.
func ticks(points []Point) []figure.Tick {
	const most, short = 6, 7
	var out []figure.Tick
	for i := range min(len(points), most) {
		k := 0
		if n := min(len(points), most); n > 1 {
			k = i * (len(points) - 1) / (n - 1)
		}
		commit := []rune(points[k].Commit)
		out = append(out, figure.Tick{At: float64(k + 1), Label: string(commit[:min(len(commit), short)])})
	}
	return out
}

// Chart draws series over the runs as a picture that stands alone; empty without a point.
func Chart(series []Series, metric string) []byte {
	c := figure.Chart{
		X: figure.Axis{Label: "commits, in the order of their runs"},
		Y: figure.Axis{Label: labels[metric], Scale: figure.Log, Write: func(v float64) string { return strings.TrimSuffix(write(metric, v), "/s") }},
	}
	longest := 0
	var alt strings.Builder
	for i := range series {
		s := &series[i]
		line := figure.Series{Arm: i}
		for k, p := range s.Points {
			text := fmt.Sprintf("%s, %s: %s", s.Name, cut(p.Commit), write(metric, p.Value))
			if note := s.note(k); note != "" {
				text += ", " + note
				fmt.Fprintf(&alt, " %s.", text)
				c.Marks = append(c.Marks, figure.Mark{Arm: i, X: float64(k + 1), Text: text})
			}
			if p.Incorrect {
				text += ", incorrect: does not count"
			}
			line.Points = append(line.Points, figure.Point{X: float64(k + 1), Y: p.Value, Text: text, Struck: p.Incorrect})
		}
		if len(s.Points) > longest {
			longest = len(s.Points)
			c.X.Ticks = ticks(s.Points)
		}
		c.Series = append(c.Series, line)
	}
	c.Alt = fmt.Sprintf("%s of %d series over %d runs.%s", metric, len(series), longest, alt.String())
	var names []string
	for i := range series {
		names = append(names, human.Cut(series[i].Name, 90))
	}
	return figure.Alone(c.SVG(), names)
}
