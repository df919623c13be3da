package conform

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"inflight/report/internal/human"
	"inflight/runner/result"
)

// Table writes the check for people, in lines of about width columns, with color if the terminal has it.
func Table(w io.Writer, c *result.Check, width int, color bool) error {
	out := bufio.NewWriter(w)
	width = max(width, 60)
	fmt.Fprintf(out, "%s", human.Clean(c.Target))
	if c.Version != "" {
		fmt.Fprintf(out, " (%s)", human.Clean(c.Version))
	}
	fmt.Fprintln(out)
	for _, v := range c.Speaks {
		wrap(out, "", "  ", "MQTT "+v.MQTT+": "+abilities(v), width)
	}
	fmt.Fprintln(out)
	groups(out, c, paint(color))
	for _, section := range []struct{ title, outcome string }{
		{"violated", result.CheckViolated}, {"inconclusive", result.CheckInconclusive},
	} {
		rows := withOutcome(c, section.outcome)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s\n", paint(color).outcome(section.outcome, section.title))
		for _, r := range rows {
			detail(out, r, width)
		}
	}
	notApplicable(out, c, width)
	fmt.Fprintln(out)
	fmt.Fprintln(out, Summary(c))
	if c.Partial {
		fmt.Fprintf(out, "! cut off: %s\n", human.Clean(c.Trouble))
	}
	return out.Flush()
}

// Summary is the check in one line.
func Summary(c *result.Check) string {
	n := c.Counts
	parts := []string{fmt.Sprintf("%d ok", n.OK)}
	for _, p := range []struct {
		n    int
		text string
	}{
		{n.ViolatedMust, "must violated"},
		{n.ViolatedContract, "contract violated"},
		{n.ViolatedInfo, "info violated"},
		{n.Inconclusive, "inconclusive"},
		{n.NotApplicable, "not applicable"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.text))
		}
	}
	took := time.Duration(c.TookNs).Round(100 * time.Millisecond)
	return fmt.Sprintf("%s; %d rows in %v, seed %d", strings.Join(parts, ", "), len(c.Rows), took, c.Seed)
}

// abilities is what a broker can do in one version.
func abilities(v result.CheckVersion) string {
	if !v.Spoken {
		return "not spoken: " + v.Why
	}
	has := v.Capabilities
	parts := []string{"QoS up to " + has["max_qos"], "Receive Maximum " + has["receive_maximum"]}
	if m := has["method"]; m != "" {
		parts = append(parts, map[string]string{"A": "delivers at PUBREL", "B": "delivers at PUBLISH"}[m])
	}
	order := "acknowledgements out of order"
	if has["in_order"] == "true" {
		order = "acknowledgements in order"
	}
	if has["ordered_acks"] == "true" {
		order += " (declared)"
	}
	parts = append(parts, order)
	for _, f := range []struct{ key, no string }{
		{"delivers", "no deliveries"}, {"retain", "no retained messages"}, {"wildcards", "no wildcards"}, {"shared", "no shared subscriptions"},
	} {
		if has[f.key] != "true" {
			parts = append(parts, f.no)
		}
	}
	return strings.Join(parts, ", ")
}

// paint colors words, if it is true.
type paint bool

// outcome is a text in the color of an outcome, which changes nothing about its width on the screen.
func (p paint) outcome(outcome, text string) string {
	code := map[string]string{result.CheckViolated: "1;31", result.CheckInconclusive: "1;33"}[outcome]
	if !p || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// groups is a line for each group, with a column for each version.
func groups(out io.Writer, c *result.Check, p paint) {
	type cell struct{ ok, bad, unsure, none int }
	cells := map[[2]string]*cell{}
	var names, versions []string
	for i := range c.Rows {
		r := &c.Rows[i]
		key := [2]string{r.Group, r.MQTT}
		if cells[key] == nil {
			cells[key] = &cell{}
		}
		if !slices.Contains(names, r.Group) {
			names = append(names, r.Group)
		}
		if !slices.Contains(versions, r.MQTT) {
			versions = append(versions, r.MQTT)
		}
		switch n := cells[key]; r.Outcome {
		case result.CheckOK:
			n.ok++
		case result.CheckViolated:
			n.bad++
		case result.CheckInconclusive:
			n.unsure++
		default:
			n.none++
		}
	}
	slices.Sort(versions)
	text := func(n *cell) string {
		if n == nil {
			return "-"
		}
		t := fmt.Sprintf("%d ok", n.ok)
		for _, p := range []struct {
			n    int
			what string
		}{{n.bad, "violated"}, {n.unsure, "inconclusive"}, {n.none, "n/a"}} {
			if p.n > 0 {
				t += fmt.Sprintf(", %d %s", p.n, p.what)
			}
		}
		return t
	}
	wide := len("MQTT 3.1.1")
	for _, n := range cells {
		wide = max(wide, len(text(n)))
	}
	line := fmt.Sprintf("%-6s", "group")
	for _, v := range versions {
		line += fmt.Sprintf("| %-*s ", wide, "MQTT "+v)
	}
	fmt.Fprintln(out, strings.TrimRight(line, " "))
	for _, g := range names {
		line := fmt.Sprintf("%-6s", g)
		for _, v := range versions {
			n := cells[[2]string{g, v}]
			t, outcome := text(n), ""
			switch {
			case n != nil && n.bad > 0:
				outcome = result.CheckViolated
			case n != nil && n.unsure > 0:
				outcome = result.CheckInconclusive
			}
			line += "| " + p.outcome(outcome, t) + strings.Repeat(" ", wide-len(t)+1)
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
}

func withOutcome(c *result.Check, outcome string) []*result.CheckRow {
	var rows []*result.CheckRow
	for i := range c.Rows {
		if c.Rows[i].Outcome == outcome {
			rows = append(rows, &c.Rows[i])
		}
	}
	slices.SortStableFunc(rows, func(a, b *result.CheckRow) int {
		return cmp.Compare(severity(b.ViolatedLevel), severity(a.ViolatedLevel))
	})
	return rows
}

func severity(level string) int {
	return slices.Index([]string{result.LevelInfo, result.LevelContract, result.LevelMust}, level)
}

// shownFindings is how many of a row's findings are printed.
const shownFindings = 3

func detail(out io.Writer, r *result.CheckRow, width int) {
	level := r.ViolatedLevel
	if level == "" {
		level = r.Level
	}
	head := fmt.Sprintf("  %-8s %-5s %-8s ", r.ID, r.MQTT, level)
	wrap(out, head, strings.Repeat(" ", len(head)), r.Title, width)
	pad := strings.Repeat(" ", 11)
	if len(r.Statements) > 0 {
		wrap(out, pad, pad, strings.Join(r.Statements, ", "), width)
	}
	if r.Why != "" {
		wrap(out, pad, pad, r.Why, width)
	}
	if r.Rounds > 1 && r.Violated > 0 {
		fmt.Fprintf(out, "%sin %d of %d rounds\n", pad, r.Violated, r.Rounds)
	}
	for _, f := range r.Findings[:min(len(r.Findings), shownFindings)] {
		text := f.Text
		if f.Level != level {
			text += " (" + f.Level + ")"
		}
		wrap(out, pad+"- ", pad+"  ", text, width)
	}
	if n := len(r.Findings) - shownFindings; n > 0 {
		fmt.Fprintf(out, "%s- and %d more\n", pad, n)
	}
	if len(r.Evidence) > 0 {
		fmt.Fprintf(out, "%s%s\n", pad, strings.TrimSuffix(r.Evidence[0], path.Ext(r.Evidence[0]))+".txt .md .pcapng")
	}
}

// notApplicable is a line for each reason.
func notApplicable(out io.Writer, c *result.Check, width int) {
	why := map[string][]string{}
	var order []string
	for _, r := range withOutcome(c, result.CheckNotApplicable) {
		if why[r.Why] == nil {
			order = append(order, r.Why)
		}
		name := r.ID
		if !slices.Contains(why[r.Why], name) {
			why[r.Why] = append(why[r.Why], name)
		}
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintf(out, "\nnot applicable\n")
	for _, w := range order {
		wrap(out, "  ", "    ", w+": "+strings.Join(why[w], " "), width)
	}
}

// wrap writes a text in lines of at most width columns, where its words allow; the first begins with first, the others
// with rest.
func wrap(out io.Writer, first, rest, text string, width int) {
	line, used := first, utf8.RuneCountInString(first)
	empty := true
	for _, word := range strings.Fields(human.Clean(text)) {
		n := utf8.RuneCountInString(word)
		if !empty && used+1+n > width {
			fmt.Fprintln(out, line)
			line, used, empty = rest, utf8.RuneCountInString(rest), true
		}
		if !empty {
			line, used = line+" ", used+1
		}
		line, used, empty = line+word, used+n, false
	}
	fmt.Fprintln(out, strings.TrimRight(line, " "))
}

// JSON writes the check as check.json has it.
func JSON(w io.Writer, c *result.Check) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(c)
}
