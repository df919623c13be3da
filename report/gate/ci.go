package gate

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
	"unicode/utf8"

	"inflight/report/internal/human"
	"inflight/report/internal/junit"
	"inflight/report/stat"
	"inflight/runner/result"
)

// Unsure is what an inconclusive outcome counts as.
type Unsure int

// What an inconclusive outcome can count as.
const (
	Open       Unsure = iota // neither
	CountsPass               // as a pass
	CountsFail               // as a failure
)

// JUnit writes the report as JUnit XML: a suite for each rule, a case for each place. What is inconclusive is an error,
// or what it counts as: skipped or a failure.
func (r *Report) JUnit(w io.Writer, unsure Unsure) error {
	all := &junit.Suites{Name: strings.TrimSpace("inflight gate " + r.Scenario)}
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		s := &junit.Suite{Name: v.Rule}
		for k := range v.Places {
			p := &v.Places[k]
			name := "conformance"
			if p.Arm != "" {
				name = p.Arm + ", all points together"
			}
			if p.Window > 0 {
				name = fmt.Sprintf("%s, QoS %d, window %d, connections %d, payload %d", p.Arm, p.QoS, p.Window, p.Connections, p.Payload)
			}
			if p.Sizes != "" {
				name += " (" + p.Sizes + ")"
			}
			switch {
			case p.Ramp != "":
				name += fmt.Sprintf(", rate %s/s", p.Ramp)
			case p.Rate > 0:
				name += fmt.Sprintf(", rate %d/s", p.Rate)
			}
			c := junit.Case{Class: "gate", Name: name}
			message := &junit.Message{Type: string(p.Outcome), Text: p.Text}
			switch {
			case p.Outcome == Fail, p.Outcome == Inconclusive && unsure == CountsFail:
				c.Failure = message
			case p.Outcome == Inconclusive && unsure == CountsPass:
				c.Skipped = message
			case p.Outcome == Inconclusive:
				c.Error = message
			default:
				c.Output = &junit.Output{Text: p.Text}
			}
			s.Cases = append(s.Cases, c)
		}
		all.Suites = append(all.Suites, s)
	}
	return junit.Write(w, all)
}

// maxAnnotations is how many GitHub shows of a step.
const maxAnnotations = 10

// Annotations writes GitHub's workflow commands: an error for what fails, a warning for what is inconclusive, the gravest
// first.
func (r *Report) Annotations(w io.Writer, unsure Unsure) error {
	var b strings.Builder
	n := 0
	for _, o := range []Outcome{Fail, Inconclusive} {
		command := "warning"
		if o == Fail || unsure == CountsFail {
			command = "error"
		}
		for i := range r.Verdicts {
			for k := range r.Verdicts[i].Places {
				p := &r.Verdicts[i].Places[k]
				if p.Outcome != o || n == maxAnnotations {
					continue
				}
				n++
				fmt.Fprintf(&b, "::%s title=%s::%s\n", command, property("inflight gate: "+string(o)), data(p.Text))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func data(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func property(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}

// Bench is one entry of what github-action-benchmark reads as customBiggerIsBetter or customSmallerIsBetter.
type Bench struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	Range string  `json:"range,omitempty"`
	Extra string  `json:"extra,omitempty"`
}

// Benchmarks are the numbers of a result for github-action-benchmark: throughputs, where bigger is better, and the times
// and sizes, where smaller is. Numbers of incorrect cells are left out. Both lists are never nil.
func Benchmarks(r *result.Result) (bigger, smaller []Bench) {
	bigger, smaller = []Bench{}, []Bench{}
	for _, at := range stat.Points(r) {
		for _, a := range r.Arms {
			s := stat.Summarise(r, a.Name, at)
			if s == nil || s.Incorrect {
				continue
			}
			name := human.Clean(a.Name) + ", " + where(at)
			extra := human.Clean(strings.TrimSpace(a.Label() + " " + a.Version))
			if t := s.Throughput; t != nil {
				bigger = append(bigger, Bench{Name: name, Unit: "msg/s", Value: round(t.Value), Range: spreadOf(t), Extra: extra})
			}
			if s.P99 != nil {
				smaller = append(smaller, Bench{Name: name + ", ack-service.p99", Unit: "ms", Value: round(s.P99.Value / 1e6), Extra: extra})
			}
			if s.RSSPeak != nil {
				smaller = append(smaller, Bench{Name: name + ", rss", Unit: "MiB", Value: round(float64(*s.RSSPeak) / (1 << 20)), Extra: extra})
			}
		}
	}
	return bigger, smaller
}

func spreadOf(m *stat.Measure) string {
	if m.Low == nil || m.High == nil {
		return ""
	}
	return "± " + human.Rate((*m.High-*m.Low)/2)
}

// round keeps four decimals, more than mean anything.
func round(v float64) float64 { return float64(int64(v*1e4+0.5)) / 1e4 }

// WriteBenchmarks writes one of the lists of Benchmarks.
func WriteBenchmarks(w io.Writer, list []Bench) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(list)
}

// Badge writes a picture of the outcome, as READMEs have them.
func (r *Report) Badge(w io.Writer) error {
	const label = "inflight gate"
	value, colour := "passed", "#2e7d32"
	switch {
	case r.Broken:
		value, colour = "incorrect", "#b3261e"
	case r.Outcome == Fail:
		value, colour = "failed", "#b3261e"
	case r.Outcome == Inconclusive:
		value, colour = "inconclusive", "#7a5200"
	}
	// Widths of a letter on average, with room; textLength makes it fit whatever font there is.
	const letter, room = 6.6, 12.0
	left := float64(utf8.RuneCountInString(label))*letter + room
	right := float64(utf8.RuneCountInString(value))*letter + room
	alt := html.EscapeString(label + ": " + value)
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="20" viewBox="0 0 %.0f 20" role="img" aria-label="%s">
<title>%s</title>
<clipPath id="r"><rect width="%.0f" height="20" rx="3"/></clipPath>
<g clip-path="url(#r)"><rect width="%.0f" height="20" fill="#404046"/><rect x="%.0f" width="%.0f" height="20" fill="%s"/></g>
<g fill="#fff" font-family="Verdana,'DejaVu Sans',Arial,sans-serif" font-size="11">
<text x="%.0f" y="14" textLength="%.0f">%s</text>
<text x="%.0f" y="14" textLength="%.0f">%s</text>
</g>
</svg>
`, left+right, left+right, alt, alt, left+right, left, left, right, colour,
		room/2, left-room, label, left+room/2, right-room, value)
	return err
}
