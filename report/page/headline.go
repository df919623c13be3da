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
	whole := map[int]string{} // arms with one verdict at every point
	for arm := 1; arm < len(m.Arms) && m.Compared && len(m.Groups) > 1; arm++ {
		if v := verdictOf(r, m.Arms[arm].Name); v != "" {
			whole[arm], found[v] = v, true
			m.Headline = append(m.Headline, m.sentence(r, m.rows(), arm, v))
		}
	}
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
			for arm := 1; arm < len(m.Arms); arm++ {
				if s := m.sentence(r, g.Rows, arm, verdict); s != "" && whole[arm] == "" {
					found[verdict] = true
					m.Headline = append(m.Headline, prefix+s)
				}
			}
		}
	}
	for i := range m.Overall {
		if s := m.Overall[i].sentence(r); s != "" {
			found[m.Overall[i].Verdict] = true
			m.Headline = append(m.Headline, s)
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

// verdictOf is the verdict on the throughput of an arm at all of its points; empty where they differ.
func verdictOf(r *result.Result, arm string) (verdict string) {
	for i := range r.Comparisons {
		switch c := &r.Comparisons[i]; {
		case c.Metric != stat.Throughput || human.Clean(c.Arm) != arm:
		case verdict == "":
			verdict = c.Verdict
		case verdict != c.Verdict:
			return ""
		}
	}
	return verdict
}

func (m *Model) rows() (all []Row) {
	for _, g := range m.Groups {
		all = append(all, g.Rows...)
	}
	return all
}

// sentence covers those of some points with one verdict on the throughput of an arm; empty when there are none.
func (m *Model) sentence(r *result.Result, rows []Row, arm int, verdict string) string {
	var windows []string
	low, high, bounded := 0.0, 0.0, true
	for _, row := range rows {
		for i := range r.Comparisons {
			c := &r.Comparisons[i]
			if c.Metric != stat.Throughput || human.Clean(c.Arm) != m.Arms[arm].Name || stat.PointOfComparison(c) != row.Point || c.Verdict != verdict {
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
	a, b := m.Arms[0].Name, m.Arms[arm].Name
	if stat.UnlikeClients(&r.Arms[0], &r.Arms[arm]) {
		a += " (client " + human.Clean(stat.ClientName(&r.Arms[0])) + ")"
		b += " (client " + human.Clean(stat.ClientName(&r.Arms[arm])) + ")"
	}
	at := "at " + human.List(windows) + " in flight"
	if len(m.Groups) > 1 && len(rows) == len(m.rows()) {
		at = fmt.Sprintf("at all of the %d points", len(rows))
	}
	says := func(format string, args ...any) string {
		text := fmt.Sprintf(format, args...)
		if len(m.Arms) > 2 { // of two arms it need not be said
			text = b + " over " + a + ": " + strings.ToLower(text[:1]) + text[1:]
		}
		return text
	}
	ratios := human.Ratio(low)
	if human.Ratio(high) != ratios {
		ratios += " to " + human.Ratio(high)
	}
	switch verdict {
	case stat.Incorrect:
		return says("Incorrect %s: a broker broke its contract there, and its numbers are struck out.", at)
	case stat.Better:
		return fmt.Sprintf("%s is faster than %s %s: %s times the throughput.", b, a, at, ratios)
	case stat.Worse:
		return fmt.Sprintf("%s is slower than %s %s: %s times the throughput.", b, a, at, ratios)
	case stat.Same:
		return says("The same throughput %s, within %.0f %%.", at, 100*stat.SameMargin)
	default:
		why := "not told apart from noise"
		if !bounded {
			why = "from too few blocks for an interval"
		}
		return says("Inconclusive %s: %s times the throughput, %s.", at, ratios, why)
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
			if used := stat.ResourcesOf(r, a.Name, best.Point); used != nil && used.Open {
				text += " from sending"
				if used.Response99 != nil {
					text += " and " + human.Latency(*used.Response99) + " from the intended instant, each"
				}
				text += " to the acknowledgement"
			}
		}
		out = append(out, text+".")
	}
	return out
}

// sentence says what the points together show and none of them alone; empty when there is nothing like that.
func (o *Overall) sentence(r *result.Result) string {
	word := map[string]string{stat.Better: "faster", stat.Worse: "slower"}[o.Verdict]
	if word == "" {
		return ""
	}
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		if c.Metric == stat.Throughput && human.Clean(c.Arm) == o.Arm && c.Verdict == o.Verdict {
			return ""
		}
	}
	return fmt.Sprintf("%s is %s than %s over all points together: %s times the throughput, %s.", o.Arm, word, o.Base, o.Ratio, o.Interval)
}
