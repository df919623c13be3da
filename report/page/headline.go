package page

import (
	"fmt"
	"strings"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// measured is the state of a run that compares nothing.
const measured = "measured"

// headline says in sentences what the run found, the gravest first, one set of sentences per group.
func (m *Model) headline(r *result.Result) {
	if r.Partial {
		first, rest, _ := strings.Cut(r.Trouble, "\n")
		first = strings.TrimRight(human.Clean(first), ": ")
		if first == "" {
			first = "the run did not end"
		}
		m.Headline = append(m.Headline, "Partial result: "+first+".")
		for line := range strings.Lines(rest) {
			m.Trouble = append(m.Trouble, strings.TrimSpace(human.Clean(line)))
		}
	}
	m.State = measured
	if len(m.Groups) == 0 {
		m.Headline = append(m.Headline, "Nothing was measured.")
		return
	}
	found := map[string]bool{}
	for _, g := range m.Groups {
		prefix := ""
		if len(m.Groups) > 1 {
			prefix = g.Heading + ": "
		}
		if !m.Compared {
			for _, s := range alone(r, g) {
				m.Headline = append(m.Headline, prefix+s)
			}
			if anyIncorrect(g) {
				found[stat.Incorrect] = true
			}
			continue
		}
		for _, verdict := range []string{stat.Incorrect, stat.Better, stat.Worse, stat.Same, stat.Inconclusive} {
			if s := m.sentence(r, g, verdict); s != "" {
				found[verdict] = true
				m.Headline = append(m.Headline, prefix+s)
			}
		}
	}
	for _, verdict := range []string{stat.Incorrect, stat.Worse, stat.Better, stat.Inconclusive, stat.Same} {
		if found[verdict] {
			m.State = verdict
			break
		}
	}
}

func anyIncorrect(g Group) bool {
	for _, row := range g.Rows {
		if row.Incorrect() {
			return true
		}
	}
	return false
}

// sentence covers the points of a group with one verdict on the throughput; empty when there are none.
func (m *Model) sentence(r *result.Result, g Group, verdict string) string {
	var windows []string
	low, high, bounded := 0.0, 0.0, true
	for _, row := range g.Rows {
		for i := range r.Comparisons {
			c := &r.Comparisons[i]
			if c.Metric != stat.Throughput || stat.PointOfComparison(c) != row.Point || c.Verdict != verdict {
				continue
			}
			windows = append(windows, row.InFlight)
			bounded = bounded && c.Low != nil
			if low == 0 || c.Ratio < low {
				low = c.Ratio
			}
			high = max(high, c.Ratio)
		}
	}
	if len(windows) == 0 {
		return ""
	}
	a, b := m.Arms[0].Name, m.Arms[1].Name
	at := "at " + human.List(windows) + " in flight"
	ratios := human.Ratio(low)
	if human.Ratio(high) != ratios {
		ratios += " to " + human.Ratio(high)
	}
	switch verdict {
	case stat.Incorrect:
		return fmt.Sprintf("Incorrect %s: a broker broke its contract there, and its numbers are struck out.", at)
	case stat.Better:
		return fmt.Sprintf("%s is faster than %s %s: %s times the throughput.", b, a, at, ratios)
	case stat.Worse:
		return fmt.Sprintf("%s is slower than %s %s: %s times the throughput.", b, a, at, ratios)
	case stat.Same:
		return fmt.Sprintf("The same throughput %s, within %.0f %%.", at, 100*stat.Margin(r.Control))
	default:
		why := "not told apart from noise"
		if !bounded {
			why = "from too few blocks for an interval"
		}
		return fmt.Sprintf("Inconclusive %s: %s times the throughput, %s.", at, ratios, why)
	}
}

// alone says what a single arm reached.
func alone(r *result.Result, g Group) []string {
	var out []string
	for _, a := range r.Arms {
		var best *stat.Summary
		for _, row := range g.Rows {
			s := stat.Summarise(r, a.Name, row.Point)
			if s == nil {
				continue
			}
			if s.Incorrect {
				out = append(out, fmt.Sprintf("Incorrect at %s in flight: the broker broke its contract there, and its numbers are struck out.", row.InFlight))
				continue
			}
			if s.Throughput != nil && (best == nil || s.Throughput.Value > best.Throughput.Value) {
				best = s
			}
		}
		if best == nil {
			continue
		}
		text := fmt.Sprintf("%s reaches %s messages per second at %s in flight", human.Clean(a.Name), human.Rate(best.Throughput.Value), human.Count(int64(best.Point.Window)))
		if best.P99 != nil {
			text += ", with a p99 of " + human.Latency(best.P99.Value)
		}
		out = append(out, text+".")
	}
	return out
}
