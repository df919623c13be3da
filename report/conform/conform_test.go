package conform

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"inflight/report/internal/junit"
	"inflight/runner/result"
)

// sample is a check with a row of every outcome.
func sample() *result.Check {
	c := &result.Check{
		Schema: result.CheckSchema, Target: "mosquitto", Version: "2.0.11", Seed: 7, TookNs: int64(90 * time.Second), Partial: true, Trouble: "interrupted",
		Speaks: []result.CheckVersion{
			{MQTT: "3.1.1", Spoken: true, Capabilities: map[string]string{
				"max_qos": "2", "receive_maximum": "65535", "method": "A", "in_order": "true", "ordered_acks": "true", "delivers": "true", "retain": "true", "wildcards": "true",
			}},
			{MQTT: "5.0", Why: "p: the CONNECT was refused with 0x01"},
		},
		Rows: []result.CheckRow{
			{ID: "A1-01", Group: "A1", Title: "one PUBACK", MQTT: "3.1.1", Level: "must", Outcome: result.CheckOK, Rounds: 1, TookNs: int64(time.Second), Notes: []string{"seen | noted"}},
			{
				ID: "RES-04", Group: "RES", Title: "cut and resumed", MQTT: "3.1.1", Level: "must", Statements: []string{"MQTT-4.3.3-2"}, Outcome: result.CheckViolated, ViolatedLevel: "must",
				Rounds: 20, Violated: 3, Control: &result.CheckControl{ID: "CTL-QOS2", Outcome: "ok"}, Evidence: []string{"evidence/RES-04-3.1.1.txt"},
				Findings: []result.CheckFinding{{Level: "must", Text: "A came twice"}, {Level: "info", Text: "late"}, {Level: "must", Text: "c"}, {Level: "must", Text: "d"}},
			},
			{ID: "A1-03", Group: "A1", Title: "order", MQTT: "3.1.1", Level: "contract", Outcome: result.CheckViolated, ViolatedLevel: "info", Rounds: 1, Violated: 1, Findings: []result.CheckFinding{{Level: "info", Text: "swapped"}}},
			{ID: "H-10", Group: "H", Title: "will", MQTT: "5.0", Level: "must", Outcome: result.CheckNotApplicable, Why: "needs an announced Maximum QoS below 2"},
			{ID: "H-01", Group: "H", Title: strings.Repeat("long ", 40), MQTT: "3.1.1", Level: "must", Outcome: result.CheckInconclusive, Why: "p: connection refused", Rounds: 1, Unsure: 1},
		},
	}
	c.Rows = append(c.Rows, result.CheckRow{ID: "Q", Group: "Q", MQTT: "3.1.1", Outcome: result.CheckViolated, ViolatedLevel: "contract", Findings: []result.CheckFinding{{Level: "contract", Text: "x"}}})
	c.Count()
	return c
}

func render(t *testing.T, f func(*strings.Builder) error) string {
	t.Helper()
	var b strings.Builder
	if err := f(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func wants(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("no %q in\n%s", p, got)
		}
	}
}

func TestTable(t *testing.T) {
	got := render(t, func(b *strings.Builder) error { return Table(b, sample(), 100, false) })
	wants(t, got,
		"mosquitto (2.0.11)\n", "MQTT 3.1.1: QoS up to 2, Receive Maximum 65535, delivers at PUBREL, acknowledgements in order\n  (declared)", "MQTT 5.0: not spoken: p: the CONNECT",
		"A1    | 1 ok, 1 violated", "H     | 0 ok, 1 inconclusive", "| 0 ok, 1 n/a", "RES-04   3.1.1 must     cut and resumed", "in 3 of 20 rounds", "- A came twice", "- late (info)", "- and 1 more",
		"evidence/RES-04-3.1.1.txt .md .pcapng", "needs an announced Maximum QoS below 2: H-10", "p: connection refused",
		"1 ok, 1 must violated, 1 contract violated, 1 info violated, 1 inconclusive, 1 not applicable; 6 rows in 1m30s, seed 7", "! cut off: interrupted",
	)
	if strings.Index(got, "RES-04") > strings.Index(got, "A1-03") {
		t.Error("the worst violation is not the first")
	}
	for line := range strings.Lines(got) {
		if len([]rune(strings.TrimSuffix(line, "\n"))) > 130 {
			t.Errorf("a line of %d columns: %s", len(line), line)
		}
	}
}

func TestColorChangesNoText(t *testing.T) {
	c := sample()
	c.Version = "2\x1b[31m"
	plain := render(t, func(b *strings.Builder) error { return Table(b, c, 60, false) })
	color := render(t, func(b *strings.Builder) error { return Table(b, c, 60, true) })
	if strings.Contains(plain, "\x1b") {
		t.Errorf("an escape sequence without color:\n%q", plain)
	}
	wants(t, color, "\x1b[1;31mviolated\x1b[0m", "\x1b[1;33minconclusive\x1b[0m", "\x1b[1;31m1 ok, 1 violated")
	bare := strings.NewReplacer("\x1b[1;31m", "", "\x1b[1;33m", "", "\x1b[0m", "").Replace(color)
	trim := func(s string) (all []string) {
		for line := range strings.Lines(s) {
			all = append(all, strings.TrimRight(line, " \n"))
		}
		return all
	}
	if !slices.Equal(trim(bare), trim(plain)) {
		t.Errorf("with color:\n%s\nwithout:\n%s", bare, plain)
	}
}

func TestExcerpt(t *testing.T) {
	var lines []string
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("  line %d", i))
	}
	lines[500] = "! line 500"
	got := Excerpt(strings.Join(lines, "\n") + "\n")
	wants(t, got, "  line 0\n", "  line 11\n  ... 476 lines\n  line 488\n", "! line 500\n", "  line 512\n  ... 487 lines\n")
	if n := strings.Count(got, "\n"); n != 12+1+25+1 {
		t.Errorf("%d lines", n)
	}
	lines[500] = "  line 500"
	got = Excerpt(strings.Join(lines, "\n"))
	wants(t, got, "  line 0\n", "  ... 928 lines\n  line 940\n", "  line 999\n")
	for i := range lines {
		lines[i] = "! wrong"
	}
	if got = Excerpt(strings.Join(lines, "\n")); strings.Count(got, "\n") != excerptLines+1 || !strings.HasSuffix(got, "  ... 600 lines\n") {
		t.Errorf("%d lines, the end is %q", strings.Count(got, "\n"), got[len(got)-30:])
	}
	short := "a\n" + strings.Repeat("b\n", 2*excerptAround+excerptGap-2) + "! c\n"
	if got := Excerpt(short); got != short {
		t.Errorf("a small gap: %q", got)
	}
	if got := Excerpt("b\n" + short); !strings.Contains(got, "  ... 4 lines\n") {
		t.Errorf("a gap: %q", got)
	}
	if got := Excerpt("one\n"); got != "one\n" {
		t.Errorf("%q", got)
	}
}

func TestMarkdown(t *testing.T) {
	got := render(t, func(b *strings.Builder) error { return Markdown(b, sample()) })
	wants(t, got, "# Conformance of mosquitto (2.0.11)", "**Cut off:** interrupted", "| RES-04 | 3.1.1 | must | **violated** (must, 3 of 20 rounds) | cut and resumed | MQTT-4.3.3-2 | A came twice; late; c |", `seen \| noted`)
}

func TestJSON(t *testing.T) {
	got := render(t, func(b *strings.Builder) error { return JSON(b, sample()) })
	var c result.Check
	if err := json.Unmarshal([]byte(got), &c); err != nil || len(c.Rows) != 6 {
		t.Errorf("%v, %d rows", err, len(c.Rows))
	}
}

func TestJUnit(t *testing.T) {
	got := render(t, func(b *strings.Builder) error { return JUnit(b, sample(), nil, "must") })
	var s junit.Suites
	if err := xml.Unmarshal([]byte(got), &s); err != nil {
		t.Fatal(err)
	}
	if s.Tests != 6 || s.Failures != 1 || s.Errors != 1 || s.Skipped != 1 || len(s.Suites) != 5 {
		t.Errorf("%d tests, %d failures, %d errors, %d skipped, %d suites", s.Tests, s.Failures, s.Errors, s.Skipped, len(s.Suites))
	}
	wants(t, got, `<failure type="must" message="A came twice">`, `<skipped message="needs an announced`, `<error type="inconclusive" message="p: connection refused">`, "<system-out>info: swapped</system-out>", `time="90.000"`)
	if got := render(t, func(b *strings.Builder) error { return JUnit(b, sample(), nil, "must", "contract", "info") }); strings.Count(got, "<failure") != 3 {
		t.Error("all levels fail, and there are not three failures")
	}
	got = render(t, func(b *strings.Builder) error {
		return JUnit(b, sample(), func(path string) string { return "!  1 ms <-- " + path + " \x01\n" }, "must")
	})
	if err := xml.Unmarshal([]byte(got), &s); err != nil {
		t.Fatal(err)
	}
	wants(t, got, "must: A came twice", "!  1 ms &lt;-- evidence/RES-04-3.1.1.txt \uFFFD")
	if err := JUnit(failing{}, sample(), nil); err == nil {
		t.Error("a write that failed is no error")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }
