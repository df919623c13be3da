package conform

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"inflight/report/internal/human"
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

// The elements of JUnit XML as CI systems read them.
type (
	suites struct {
		XMLName  xml.Name `xml:"testsuites"`
		Name     string   `xml:"name,attr"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Skipped  int      `xml:"skipped,attr"`
		Errors   int      `xml:"errors,attr"`
		Time     string   `xml:"time,attr"`
		Suites   []*suite `xml:"testsuite"`
	}
	suite struct {
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Errors   int        `xml:"errors,attr"`
		Time     string     `xml:"time,attr"`
		Cases    []testCase `xml:"testcase"`

		took time.Duration
	}
	testCase struct {
		Class   string    `xml:"classname,attr"`
		Name    string    `xml:"name,attr"`
		Time    string    `xml:"time,attr"`
		Failure *message  `xml:"failure"`
		Error   *message  `xml:"error"`
		Skipped *message  `xml:"skipped"`
		Output  *cdataOut `xml:"system-out"`
	}
	message struct {
		Type string `xml:"type,attr,omitempty"`
		Text string `xml:"message,attr"`
		Body string `xml:",chardata"`
	}
	cdataOut struct {
		Text string `xml:",chardata"`
	}
)

// JUnit writes the check as JUnit XML: a suite for each version and group, a case for each row. A violation of one of the
// levels in fail is a failure with an excerpt of its transcript, an inconclusive row an error, a row that is not applicable
// skipped; what else was violated stands in the case's output. transcript reads a file of evidence, "" if it cannot be
// read; nil leaves transcripts out.
func JUnit(w io.Writer, c *result.Check, transcript func(path string) string, fail ...string) error {
	all := &suites{Name: "inflight check " + c.Target, Time: seconds(time.Duration(c.TookNs))}
	byName := map[string]*suite{}
	for i := range c.Rows {
		r := &c.Rows[i]
		name := fmt.Sprintf("MQTT %s %s", r.MQTT, r.Group)
		s := byName[name]
		if s == nil {
			s = &suite{Name: name}
			byName[name] = s
			all.Suites = append(all.Suites, s)
		}
		s.add(r, transcript, fail)
	}
	for _, s := range all.Suites {
		s.Time = seconds(s.took)
		all.Tests, all.Failures, all.Skipped, all.Errors = all.Tests+s.Tests, all.Failures+s.Failures, all.Skipped+s.Skipped, all.Errors+s.Errors
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *suite) add(r *result.CheckRow, transcript func(string) string, fail []string) {
	t := testCase{Class: "mqtt." + r.MQTT + "." + r.Group, Name: r.ID + ": " + r.Title, Time: seconds(time.Duration(r.TookNs))}
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, f.Level+": "+f.Text)
	}
	lines = append(append(lines, r.Notes...), r.Evidence...)
	body := strings.Join(lines, "\n")
	switch r.Outcome {
	case result.CheckViolated:
		if slices.Contains(fail, r.ViolatedLevel) {
			s.Failures++
			if transcript != nil && len(r.Evidence) > 0 {
				if text := transcript(r.Evidence[0]); text != "" {
					body += "\n\n" + Excerpt(text)
				}
			}
			t.Failure = &message{Type: r.ViolatedLevel, Text: r.Findings[0].Text, Body: body}
			body = ""
		}
	case result.CheckInconclusive:
		s.Errors++
		t.Error = &message{Type: r.Outcome, Text: r.Why}
	case result.CheckNotApplicable:
		s.Skipped++
		t.Skipped = &message{Text: r.Why}
	}
	if body != "" {
		t.Output = &cdataOut{Text: body}
	}
	s.Tests++
	s.took += time.Duration(r.TookNs)
	s.Cases = append(s.Cases, t)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
