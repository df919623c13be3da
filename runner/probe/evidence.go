package probe

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"inflight/runner/check"
	"inflight/runner/history"
	"inflight/runner/result"
)

// Where files go below the directory of a check.
const (
	HistoryDir  = "histories"
	EvidenceDir = "evidence"
)

// maxSaved bounds the histories of one check on disk, in bytes; what a violation needs is kept beyond it.
const maxSaved = 1 << 30

// keep writes a history and returns its path below the directory, "" if there is none.
func (r *runner) keep(h *history.History, name string) string {
	if r.cfg.Dir == "" {
		return ""
	}
	r.mu.Lock()
	full := r.saved > maxSaved
	r.mu.Unlock()
	if full {
		return ""
	}
	path := filepath.Join(HistoryDir, name+".history")
	n, err := writeWith(filepath.Join(r.cfg.Dir, path), func(b *bytes.Buffer) error { return history.Write(b, h) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved += n
	if err != nil {
		r.errs = append(r.errs, err)
		return ""
	}
	return path
}

// writeWith makes a file of what f writes.
func writeWith(path string, f func(*bytes.Buffer) error) (int64, error) {
	var b bytes.Buffer
	if err := f(&b); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, fmt.Errorf("keep the evidence: %w", err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return 0, fmt.Errorf("keep the evidence: %w", err)
	}
	return int64(b.Len()), nil
}

// evidence writes what a maintainer needs: a transcript as text, the same as Markdown for an issue, and a capture.
func (r *runner) evidence(row *result.CheckRow, h *history.History, v check.Verdict) []string {
	if h == nil || r.cfg.Dir == "" {
		return nil
	}
	paths, err := WriteEvidence(r.cfg.Dir, r.c, row, h, v)
	if err != nil {
		r.mu.Lock()
		r.errs = append(r.errs, err)
		r.mu.Unlock()
	}
	return paths
}

// WriteEvidence writes the files for one violation below dir and returns their paths.
func WriteEvidence(dir string, c *result.Check, row *result.CheckRow, h *history.History, v check.Verdict) ([]string, error) {
	var marked []int
	for _, f := range v.Findings {
		marked = append(marked, f.Events...)
	}
	base := filepath.Join(EvidenceDir, fmt.Sprintf("%s-%s", row.ID, row.MQTT))
	var paths []string
	for _, file := range []struct {
		ext   string
		write func(*bytes.Buffer) error
	}{
		{".txt", func(b *bytes.Buffer) error { return history.Transcript(b, h, marked) }},
		{".md", func(b *bytes.Buffer) error { return issue(b, c, row, h, v, marked) }},
		{".pcapng", func(b *bytes.Buffer) error { return history.WritePcapng(b, h) }},
	} {
		if _, err := writeWith(filepath.Join(dir, base+file.ext), file.write); err != nil {
			return paths, err
		}
		paths = append(paths, base+file.ext)
	}
	return paths, nil
}

// issue is a violation as the text of an issue in the broker's tracker.
func issue(b *bytes.Buffer, c *result.Check, row *result.CheckRow, h *history.History, v check.Verdict, marked []int) error {
	fmt.Fprintf(b, "# %s, MQTT %s: %s\n\n", row.ID, row.MQTT, v.Findings[0].Text)
	fmt.Fprintf(b, "Must be: %s.\n\n", row.Title)
	if len(row.Statements) > 0 {
		fmt.Fprintf(b, "Statements: %s.\n\n", strings.Join(row.Statements, ", "))
	}
	fmt.Fprintf(b, "Level: %s. Broker: %s", row.Level, c.Target)
	if c.Version != "" {
		fmt.Fprintf(b, " (%s)", c.Version)
	}
	fmt.Fprintf(b, ". Seed %d, round %d.\n\n## What was found\n\n", h.Seed, h.Round)
	for _, f := range v.Findings[:min(len(v.Findings), maxFindings)] {
		fmt.Fprintf(b, "- %s (%s)\n", f.Text, f.Level)
	}
	if row.Control != nil {
		fmt.Fprintf(b, "\nThe control %s on the same broker: %s.\n", row.Control.ID, row.Control.Outcome)
	}
	fmt.Fprintf(b, "\n## Transcript\n\n`-->` is written to the broker, `<--` came from it; `!` marks what is wrong.\n\n```text\n")
	if err := history.Transcript(b, h, marked); err != nil {
		return err
	}
	b.WriteString("```\n")
	if rule := check.ByID(row.ID); rule != nil && rule.Script != nil {
		fmt.Fprintf(b, "\n## Stimulus\n\n```text\n%s```\n", Explain(rule, h.Version, check.CapsOf(h.Facts)))
	}
	return nil
}

// Explain is the script of a rule for people, a step a line.
func Explain(rule *check.Rule, level byte, caps check.Caps) string {
	if rule.Script == nil {
		return "judged on every connection of every check\n"
	}
	s := check.NewScript(level, caps, true, 1, 1)
	rule.Script(s)
	var b strings.Builder
	for _, step := range s.Steps {
		fmt.Fprintln(&b, step.Text)
	}
	return b.String()
}
