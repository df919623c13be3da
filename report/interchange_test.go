package report

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"

	"inflight/report/internal/synth"
)

// What benchstat's own reader makes of the text is what was written, and its statistics find the ratio that was planted.
func TestGoBench(t *testing.T) {
	r := synth.Fixtures()["incorrect"]
	var text bytes.Buffer
	if err := GoBench(&text, r); err != nil {
		t.Fatal(err)
	}
	rates, arms, runs := map[string][]float64{}, map[string]bool{}, 0
	reader := benchfmt.NewReader(bytes.NewReader(text.Bytes()), "x")
	for reader.Scan() {
		switch rec := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Errorf("a line that cannot be read: %v", rec)
		case *benchfmt.Result:
			runs++
			arm := rec.GetConfig("arm")
			arms[arm] = true
			rate, ok := rec.Value("msg/s")
			perMessage, okToo := rec.Value("sec/op") // tidied from ns/op
			if !ok || !okToo || math.Abs(rate*perMessage-1) > 0.01 {
				t.Errorf("%s: %v msg/s and %v sec/op", rec.Name, rate, perMessage)
			}
			rates[arm[:1]+string(rec.Name)] = append(rates[arm[:1]+string(rec.Name)], rate)
		}
	}
	if err := reader.Err(); err != nil {
		t.Fatal(err)
	}
	if u := reader.Units(); u.GetBetter("msg/s") <= 0 {
		t.Error("more messages per second are not better")
	}
	if !arms["A reference?store=staged&pipeline=off"] || !arms["B reference?store=staged"] || len(arms) != 2 {
		t.Errorf("arms %v", arms)
	}
	wanted := 0
	for i := range r.Cells {
		if !r.Cells[i].Incorrect() {
			wanted += len(r.Cells[i].Blocks)
		}
	}
	if runs != wanted {
		t.Errorf("%d runs, want the %d of correct cells", runs, wanted)
	}
	name := "QoS2/window=20/connections=1/payload=256"
	thresholds := benchmath.DefaultThresholds
	a, b := benchmath.NewSample(rates["A"+name], &thresholds), benchmath.NewSample(rates["B"+name], &thresholds)
	if len(a.Values) != 12 || len(b.Values) != 12 {
		t.Fatalf("%d and %d samples, want 12 each", len(a.Values), len(b.Values))
	}
	found := benchmath.AssumeNothing.Compare(a, b)
	ratio := benchmath.AssumeNothing.Summary(b, 0.95).Center / benchmath.AssumeNothing.Summary(a, 0.95).Center
	if found.P > found.Alpha || ratio < 10 || ratio > 13 {
		t.Errorf("benchmath: p %v, ratio of the medians %v; the run says 11.6", found.P, ratio)
	}
}

// The program itself compares the arms with the keys that the documentation gives.
func TestBenchstatReadsIt(t *testing.T) {
	if testing.Short() {
		t.Skip("builds benchstat; run without -short")
	}
	var text bytes.Buffer
	if err := GoBench(&text, synth.Fixtures()["two-arms"]); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run.txt")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "tool", "benchstat", "-col", "arm", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"│ A reference?store=staged&pipeline=off │", "msg/s   ", "vs base", "scenario: qos2-pipeline", "QoS2/window=256/connections=1/payload=256", "(p=0.000 n=12)", "p99-sec/ack"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("benchstat does not print %q:\n%s", want, out)
		}
	}
}

func TestPrometheus(t *testing.T) {
	for name, r := range synth.Fixtures() {
		var text bytes.Buffer
		if err := Prometheus(&text, r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text.Bytes()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		measured, written := 0, 0
		for i := range r.Cells {
			if !r.Cells[i].Control {
				measured++
			}
		}
		for _, m := range families["inflight_cell_throughput_messages_per_second"].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "control" && l.GetValue() == "false" {
					written++
				}
			}
		}
		if measured != written {
			t.Errorf("%s: throughputs of %d cells, want %d", name, written, measured)
		}
		compared := families["inflight_comparison_verdict"].GetMetric()
		if (len(r.Arms) > 1) != (len(compared) > 0) {
			t.Errorf("%s: %d comparisons of %d arms", name, len(compared), len(r.Arms))
		}
	}
	var text bytes.Buffer
	if err := Prometheus(&text, synth.Fixtures()["incorrect"]); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# TYPE inflight_cell_throughput_messages_per_second gauge\n",
		`inflight_comparison_verdict{arm="B",base="A",connections="1",metric="throughput",payload="256",payload_sizes="",qos="2",rate="0",rate_ramp="",verdict="incorrect",window="256"} 1`,
		`inflight_cell_ledger_messages{account="duplicated",arm="B",`,
		"inflight_run_partial 1\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%.3000s", want, &text)
		}
	}
}
