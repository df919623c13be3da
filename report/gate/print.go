package gate

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"inflight/report/internal/human"
)

// title of a report, for people.
func (r *Report) title() string {
	word := map[Outcome]string{Pass: "passed", Fail: "failed", Inconclusive: "inconclusive"}[r.Outcome]
	if r.Broken {
		word = "failed: conformance violated"
	}
	return "Gate " + word
}

// Table writes the report for a terminal: a line for each rule, and one for each of its places that did not pass.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.title())
	width := 0
	for i := range r.Verdicts {
		width = max(width, len(r.Verdicts[i].Rule))
	}
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		fmt.Fprintf(&b, "  %-12s  %-*s  %s\n", shout(v.Outcome), width, v.Rule, v.tally())
		for k := range v.Places {
			if p := &v.Places[k]; p.Outcome != Pass {
				fmt.Fprintf(&b, "      %s\n", p.Text)
			}
		}
	}
	if r.Reruns > 0 {
		fmt.Fprintf(&b, "  what was inconclusive was measured again: %s\n", times(r.Reruns))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "! %s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func shout(o Outcome) string {
	if o == Fail {
		return "FAIL"
	}
	return string(o)
}

func (v *Verdict) tally() string {
	if len(v.Places) == 1 {
		if v.Outcome == Pass {
			return v.Places[0].Text
		}
		return ""
	}
	var parts []string
	for _, o := range []Outcome{Fail, Inconclusive, Pass} {
		if n := v.Count(o); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ") + " of " + human.Plural(int64(len(v.Places)), "place")
}

// Markdown writes the report for a pull request or a step summary.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	icon := map[Outcome]string{Pass: "✅", Fail: "❌", Inconclusive: "❔"}
	fmt.Fprintf(&b, "## %s %s", icon[r.Outcome], r.title())
	if r.Scenario != "" {
		fmt.Fprintf(&b, ": %s", escape(r.Scenario))
	}
	fmt.Fprintf(&b, "\n\n%s\n\n| verdict | rule | what was found |\n|---|---|---|\n", escape(r.Summary()))
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		text := v.tally()
		if v.Outcome != Pass || text == "" {
			text = v.Worst().Text
			if n := v.Count(v.Outcome) - 1; n > 0 {
				text += fmt.Sprintf(" (and %d more)", n)
			}
		}
		fmt.Fprintf(&b, "| %s %s | %s | %s |\n", icon[v.Outcome], shout(v.Outcome), escape(v.Rule), escape(text))
	}
	b.WriteString("\n")
	if r.Reruns > 0 {
		fmt.Fprintf(&b, "What was inconclusive was measured again: %s.\n\n", times(r.Reruns))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "> %s\n\n", escape(n))
	}
	places := 0
	for i := range r.Verdicts {
		places += len(r.Verdicts[i].Places)
	}
	if places > len(r.Verdicts) {
		b.WriteString("<details><summary>Every place</summary>\n\n| verdict | what, where and by how much |\n|---|---|\n")
		for i := range r.Verdicts {
			for k := range r.Verdicts[i].Places {
				p := &r.Verdicts[i].Places[k]
				fmt.Fprintf(&b, "| %s %s | %s |\n", icon[p.Outcome], shout(p.Outcome), escape(p.Text))
			}
		}
		b.WriteString("\n</details>\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// escape keeps text from being taken for Markdown or HTML.
func escape(s string) string {
	var b strings.Builder
	for _, c := range s {
		if strings.ContainsRune("\\`*_[]<|~&", c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// JSON writes the report as one object.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
