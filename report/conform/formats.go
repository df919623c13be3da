package conform

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"inflight/report/internal/human"
	"inflight/report/internal/junit"
	"inflight/runner/result"
)

// Markdown writes the check as a page.
func Markdown(w io.Writer, c *result.Check) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "# Conformance of %s", c.Target)
	if c.Version != "" {
		fmt.Fprintf(out, " (%s)", c.Version)
	}
	fmt.Fprintf(out, "\n\n%s\n\n", Summary(c))
	if c.Partial {
		fmt.Fprintf(out, "**Cut off:** %s\n\n", cell(c.Trouble))
	}
	for _, v := range c.Speaks {
		fmt.Fprintf(out, "- MQTT %s: %s\n", v.MQTT, abilities(v))
	}
	fmt.Fprintf(out, "\n| id | MQTT | level | outcome | what must be | statements | found |\n|---|---|---|---|---|---|---|\n")
	for i := range c.Rows {
		r := &c.Rows[i]
		outcome := r.Outcome
		if r.Outcome == result.CheckViolated {
			outcome = fmt.Sprintf("**violated** (%s", r.ViolatedLevel)
			if r.Rounds > 1 {
				outcome += fmt.Sprintf(", %d of %d rounds", r.Violated, r.Rounds)
			}
			outcome += ")"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s |\n", r.ID, r.MQTT, r.Level, outcome, cell(r.Title), strings.Join(r.Statements, " "), cell(found(r)))
	}
	return out.Flush()
}

// found is what a row found, in a line.
func found(r *result.CheckRow) string {
	var parts []string
	if r.Why != "" {
		parts = append(parts, r.Why)
	}
	for _, f := range r.Findings[:min(len(r.Findings), shownFindings)] {
		parts = append(parts, f.Text)
	}
	if len(parts) == 0 {
		parts = r.Notes
	}
	return strings.Join(parts, "; ")
}

// cell keeps a text inside a cell of a table.
func cell(s string) string { return strings.ReplaceAll(human.Clean(s), "|", "\\|") }

// JUnit writes the check as JUnit XML: a suite for each version and group, a case for each row. A violation of one of the
// levels in fail is a failure with an excerpt of its transcript, an inconclusive row an error, a row that is not applicable
// skipped; what else was violated stands in the case's output. transcript reads a file of evidence, "" if it cannot be
// read; nil leaves transcripts out.
func JUnit(w io.Writer, c *result.Check, transcript func(path string) string, fail ...string) error {
	all := &junit.Suites{Name: "inflight check " + c.Target, Took: time.Duration(c.TookNs)}
	byName := map[string]*junit.Suite{}
	for i := range c.Rows {
		r := &c.Rows[i]
		name := fmt.Sprintf("MQTT %s %s", r.MQTT, r.Group)
		s := byName[name]
		if s == nil {
			s = &junit.Suite{Name: name}
			byName[name] = s
			all.Suites = append(all.Suites, s)
		}
		s.Cases = append(s.Cases, testCase(r, transcript, fail))
	}
	return junit.Write(w, all)
}

func testCase(r *result.CheckRow, transcript func(string) string, fail []string) junit.Case {
	t := junit.Case{Class: "mqtt." + r.MQTT + "." + r.Group, Name: r.ID + ": " + r.Title, Took: time.Duration(r.TookNs)}
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, f.Level+": "+f.Text)
	}
	lines = append(append(lines, r.Notes...), r.Evidence...)
	body := strings.Join(lines, "\n")
	switch r.Outcome {
	case result.CheckViolated:
		if slices.Contains(fail, r.ViolatedLevel) {
			if transcript != nil && len(r.Evidence) > 0 {
				if text := transcript(r.Evidence[0]); text != "" {
					body += "\n\n" + Excerpt(text)
				}
			}
			first := "violated"
			if len(r.Findings) > 0 { // the file may come from anyone
				first = r.Findings[0].Text
			}
			t.Failure = &junit.Message{Type: r.ViolatedLevel, Text: first, Body: body}
			body = ""
		}
	case result.CheckInconclusive:
		t.Error = &junit.Message{Type: r.Outcome, Text: r.Why}
	case result.CheckNotApplicable:
		t.Skipped = &junit.Message{Text: r.Why}
	}
	if body != "" {
		t.Output = &junit.Output{Text: body}
	}
	return t
}
