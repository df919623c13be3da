package track

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inflight/runner/result"
)

const sample = `
schema: inflight.track-record/1
targets:
  broker@v1:
    - { rule: A-01, mqtt: ["3.1.1", "5.0"], expect: violated, note: it does }
    - { rule: A-02, mqtt: ["5.0"], expect: racy, seen: 3 of 20, report: https://example.org/1, note: it may }
    - { rule: A-03, mqtt: ["5.0"], expect: ok, note: it was mended }
    - { rule: A-04, mqtt: ["5.0"], expect: violated, full: true, note: it takes long }
`

func row(id, mqtt, outcome, level string) result.CheckRow {
	r := result.CheckRow{ID: id, MQTT: mqtt, Outcome: outcome, ViolatedLevel: level}
	if outcome == result.CheckViolated {
		r.Findings = []result.CheckFinding{{Level: level, Text: "what it does"}}
	}
	return r
}

func TestCompare(t *testing.T) {
	record, err := Parse("sample", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	ok, violated, unsure := result.CheckOK, result.CheckViolated, result.CheckInconclusive
	for _, tt := range []struct {
		why   string
		quick bool
		row   result.CheckRow
		want  string // in the difference, "" for none
	}{
		{"known", false, row("A-01", "3.1.1", violated, "must"), ""},
		{"known, not found", false, row("A-01", "5.0", ok, ""), "ok, and the record says that it is violated: it does"},
		{"known, not decided", false, row("A-01", "5.0", unsure, ""), "inconclusive, and"},
		{"racy, found", false, row("A-02", "5.0", violated, "must"), ""},
		{"racy, not found", false, row("A-02", "5.0", ok, ""), ""},
		{"another version", false, row("A-02", "3.1.1", violated, "must"), "the record does not know it: what it does"},
		{"mended", false, row("A-03", "5.0", ok, ""), ""},
		{"there again", false, row("A-03", "5.0", violated, "must"), "the record says that it is ok"},
		{"not looked for", true, row("A-04", "5.0", ok, ""), ""},
		{"looked for", false, row("A-04", "5.0", ok, ""), "is violated: it takes long"},
		{"new", false, row("B-01", "5.0", violated, "contract"), "does not know it"},
		{"an observation", false, row("B-01", "5.0", violated, "info"), ""},
		{"nothing", false, row("B-01", "5.0", ok, ""), ""},
	} {
		got, err := record.Compare(&result.Check{Target: "broker@v1", Quick: tt.quick, Rows: []result.CheckRow{tt.row}})
		switch {
		case err != nil:
			t.Fatal(err)
		case tt.want == "" && len(got) > 0:
			t.Errorf("%s: %v", tt.why, got)
		case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0].String(), tt.want)):
			t.Errorf("%s: %v, want %q", tt.why, got, tt.want)
		case len(got) == 1 && got[0].New != (tt.row.Outcome == violated):
			t.Errorf("%s: new is %v", tt.why, got[0].New)
		}
	}
	several := &Record{Targets: map[string][]Entry{"b": {{Rule: "1", Expect: Racy, MQTT: []string{"5.0"}}, {Rule: "2", Expect: Racy, MQTT: []string{"5.0"}}, {Rule: "3", Expect: Racy, MQTT: []string{"5.0"}}}}}
	c := &result.Check{Target: "b", Rows: []result.CheckRow{row("1", "5.0", ok, ""), row("2", "5.0", ok, ""), row("3", "5.0", ok, "")}}
	if got, err := several.Compare(c); err != nil || len(got) != 1 || !strings.Contains(got[0].String(), "none of the 3 racy faults") {
		t.Errorf("no racy fault: %v, %v", got, err)
	}
	c.Rows[1] = row("2", "5.0", violated, "must")
	if got, err := several.Compare(c); err != nil || len(got) != 0 {
		t.Errorf("one racy fault: %v, %v", got, err)
	}
	if _, err := record.Compare(&result.Check{Target: "broker@v2"}); err == nil || !strings.Contains(err.Error(), "it knows broker@v1") {
		t.Errorf("an unknown target: %v", err)
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct{ why, old, new, want string }{
		{"a key that is not known", "note: it may", "note: it may, colour: red", "colour"},
		{"another schema", "record/1", "record/2", `schema is "inflight.track-record/2"`},
		{"no rule", "rule: A-03, ", "", "rule is missing"},
		{"no version", `mqtt: ["3.1.1", "5.0"], `, "", "mqtt is missing"},
		{"an unknown version", `"3.1.1", `, `"3.1", `, `unknown version "3.1"`},
		{"twice", "A-02", "A-01", "there twice for MQTT 5.0"},
		{"an unknown expectation", "expect: ok", "expect: fine", `expect is "fine"`},
		{"racy, how often", "seen: 3 of 20, ", "", "how often"},
		{"not racy, how often", "expect: ok", "expect: ok, seen: 1 of 2", "how often"},
		{"no note", ", note: it was mended", "", "note is missing"},
		{"no YAML", "targets:", "targets: [", "sample"},
	} {
		if _, err := Parse("sample", []byte(strings.Replace(sample, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.why, err, tt.want)
		}
	}
	if _, err := Parse("empty", []byte("schema: inflight.track-record/1\n")); err == nil || !strings.Contains(err.Error(), "there are none") {
		t.Errorf("an empty record: %v", err)
	}
	if _, err := Parse("large", make([]byte, maxFile+1)); err == nil {
		t.Error("a large file was read")
	}
	path := filepath.Join(t.TempDir(), "record.yaml")
	if _, err := Load(path); err == nil {
		t.Error("no file was read")
	}
	if err := os.WriteFile(path, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err != nil {
		t.Error(err)
	}
}
