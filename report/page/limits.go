package page

import (
	"strings"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// limits says for each arm what bounded its rate at which windows, group by group; nothing where it is not known.
func (m *Model) limits(r *result.Result) (lines []string) {
	for _, a := range r.Arms {
		var groups []string
		for _, g := range m.Groups {
			if text := limitsOf(r, a.Name, g); text != "" {
				if len(m.Groups) > 1 {
					text = g.Heading + ": " + text
				}
				groups = append(groups, text)
			}
		}
		if len(groups) > 0 {
			lines = append(lines, human.Clean(a.Name)+": "+strings.Join(groups, "; "))
		}
	}
	return lines
}

func limitsOf(r *result.Result, arm string, g Group) string {
	at := map[string][]string{}
	for _, row := range g.Rows {
		if s := stat.Summarise(r, arm, row.Point); s != nil && s.Class != "" {
			at[s.Class] = append(at[s.Class], row.InFlight)
		}
	}
	var parts []string
	for _, class := range []string{result.Stalled, result.GeneratorLimited, result.WindowLimited, result.BrokerLimited, result.RateLimited} {
		if windows := at[class]; len(windows) > 0 {
			parts = append(parts, class+" at "+human.List(windows))
		}
	}
	return strings.Join(parts, ", ")
}
