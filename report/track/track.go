package track

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"inflight/runner/result"
)

// Schema names the format of a record.
const Schema = "inflight.track-record/1"

// maxFile bounds a record, in bytes.
const maxFile = 1 << 20

// Record is what is known about brokers.
type Record struct {
	Schema  string             `yaml:"schema"`
	Targets map[string][]Entry `yaml:"targets"` // by target string
}

// What an entry expects of its rule.
const (
	OK       = "ok"       // a fault of another version is gone
	Violated = "violated" // always
	Racy     = "racy"     // in some rounds or runs
)

// Entry is what is known about one rule on one target.
type Entry struct {
	Rule   string   `yaml:"rule"`
	MQTT   []string `yaml:"mqtt"`   // 3.1.1, 5.0
	Expect string   `yaml:"expect"` // ok, violated or racy
	Seen   string   `yaml:"seen"`   // of a racy one: in how many rounds or runs, as "3 of 20"
	Full   bool     `yaml:"full"`   // a quick check does not show it
	Report string   `yaml:"report"` // where it is reported in public, if it is
	Note   string   `yaml:"note"`   // what the broker does
}

// Load reads a record from a file. Its errors name the line.
func Load(path string) (*Record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a track record: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a record strictly; name is for errors.
func Parse(name string, data []byte) (*Record, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, maxFile)
	}
	r := &Record{}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(r); err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

var seenForm = regexp.MustCompile(`^[0-9]+ of [0-9]+$`)

// validate reports every problem at once.
func (r *Record) validate() error {
	var problems []error
	if r.Schema != Schema {
		problems = append(problems, fmt.Errorf("schema is %q, want %q", r.Schema, Schema))
	}
	if len(r.Targets) == 0 {
		problems = append(problems, errors.New("targets: there are none"))
	}
	for _, target := range slices.Sorted(maps.Keys(r.Targets)) {
		known := map[string]bool{}
		for i, e := range r.Targets[target] {
			bad := func(format string, args ...any) {
				problems = append(problems, fmt.Errorf("%s: entry %d (%s): %w", target, i+1, e.Rule, fmt.Errorf(format, args...)))
			}
			if e.Rule == "" {
				bad("rule is missing")
			}
			if len(e.MQTT) == 0 {
				bad("mqtt is missing: want [3.1.1], [5.0] or both, as strings")
			}
			for _, v := range e.MQTT {
				if v != "3.1.1" && v != "5.0" {
					bad("mqtt: unknown version %q; known: 3.1.1, 5.0", v)
				}
				if known[e.Rule+v] {
					bad("it is there twice for MQTT %s", v)
				}
				known[e.Rule+v] = true
			}
			if !slices.Contains([]string{OK, Violated, Racy}, e.Expect) {
				bad("expect is %q, want ok, violated or racy", e.Expect)
			}
			if (e.Expect == Racy) != (e.Seen != "") || e.Seen != "" && !seenForm.MatchString(e.Seen) {
				bad("a racy one, and no other, says how often it was seen, as \"3 of 20\"")
			}
			if e.Note == "" {
				bad("note is missing")
			}
		}
	}
	return errors.Join(problems...)
}

// Difference is where a check and the record disagree.
type Difference struct {
	Rule, MQTT string
	New        bool // a violation that the record does not know; otherwise one that it knows and that was not found
	Text       string
}

// String is the difference in a sentence.
func (d Difference) String() string { return d.Rule + " (MQTT " + d.MQTT + "): " + d.Text }

// enoughRacy is how many racy faults of a target must have been looked for before it says something that none was found.
const enoughRacy = 3

// Compare finds the differences between a check and what is known of its target, in the order of the check's rows. Rules
// that the check left out say nothing. A racy fault may be missed, but not all of several. It is an error when nothing is
// known of the target.
func (r *Record) Compare(c *result.Check) ([]Difference, error) {
	entries, ok := r.Targets[c.Target]
	if !ok {
		return nil, fmt.Errorf("the record knows nothing of %s; it knows %s", c.Target, strings.Join(slices.Sorted(maps.Keys(r.Targets)), ", "))
	}
	known := map[string]*Entry{}
	for i := range entries {
		for _, v := range entries[i].MQTT {
			known[entries[i].Rule+" "+v] = &entries[i]
		}
	}
	var all []Difference
	racy, seen := 0, 0
	for i := range c.Rows {
		row := &c.Rows[i]
		if e := known[row.ID+" "+row.MQTT]; e != nil && e.Expect == Racy && !(e.Full && c.Quick) {
			racy++
			if row.Outcome == result.CheckViolated {
				seen++
			}
		}
		if text := differs(known[row.ID+" "+row.MQTT], row, c.Quick); text != "" {
			all = append(all, Difference{Rule: row.ID, MQTT: row.MQTT, New: row.Outcome == result.CheckViolated, Text: text})
		}
	}
	if racy >= enoughRacy && seen == 0 {
		all = append(all, Difference{Rule: "*", MQTT: "any", Text: fmt.Sprintf("none of the %d racy faults was found that the record knows", racy)})
	}
	return all, nil
}

// differs says how a row is not what its entry, nil if it has none, expects; "" if it is.
func differs(e *Entry, row *result.CheckRow, quick bool) string {
	violated := row.Outcome == result.CheckViolated
	switch {
	case e == nil && violated && row.ViolatedLevel != result.LevelInfo:
		return "violated, and the record does not know it" + finding(row)
	case e == nil, e.Expect == Racy, e.Full && quick:
		return ""
	case e.Expect == Violated && !violated:
		return fmt.Sprintf("%s, and the record says that it is violated: %s", outcome(row), e.Note)
	case e.Expect == OK && row.Outcome != result.CheckOK:
		return fmt.Sprintf("%s, and the record says that it is ok: %s", outcome(row), e.Note) + finding(row)
	}
	return ""
}

func outcome(row *result.CheckRow) string {
	if row.Why == "" {
		return row.Outcome
	}
	return row.Outcome + " (" + row.Why + ")"
}

func finding(row *result.CheckRow) string {
	if len(row.Findings) == 0 {
		return ""
	}
	return ": " + row.Findings[0].Text
}
