package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"

	"inflight/report/internal/synth"
	"inflight/runner/result"
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
	r := synth.Fixtures()["two-arms"]
	for pass := range 6 {
		r.Searches = append(r.Searches, search("A", pass+1, 1_000+pass), search("B", pass+1, 2_000+pass))
	}
	var text bytes.Buffer
	if err := GoBench(&text, r); err != nil {
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
	for _, want := range []string{
		"FindMaxQoS2/window=20/connections=1/payload=256/limit=p99<20ms", "holds-msg/s", "breaks-msg/s", "+99.75% (p=0.002 n=6)",
		"│ A reference?store=staged&pipeline=off │", "msg/s   ", "vs base", "scenario: qos2-pipeline", "QoS2/window=256/connections=1/payload=256", "(p=0.000 n=12)", "p99-sec/ack",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("benchstat does not print %q:\n%s", want, out)
		}
	}
}

// search is one that a pass of an arm made at a point of the fixtures.
func search(arm string, pass, low int) result.Search {
	high, value := 2*low, int64(7_000_000)
	return result.Search{
		Arm: arm, Pass: pass, QoS: 2, Window: 20, Connections: 1, Payload: 256, Limit: "p99<20ms", Percentile: 99, LimitNS: 20_000_000,
		Low: &low, High: &high, End: "found",
		Trials: []result.Trial{
			{RatePerS: high, ReachedPerS: float64(low) + 0.5, DurationNS: 1e9, Due: int64(high), Late: 9, Missed: 8},
			{RatePerS: low, ReachedPerS: float64(low), DurationNS: 2e9, Due: int64(low), ValueNS: &value, Held: true},
		},
	}
}

// A search is one line of the benchmark text, with the rates alone that it found; one whose cell is incorrect is none.
func TestGoBenchSearches(t *testing.T) {
	t.Parallel()
	r := synth.Fixtures()["two-arms"]
	r.Searches = []result.Search{search("A", 1, 1_000), search("A", 2, 1_500), search("B", 1, 3_000)}
	r.Searches[1].High = nil
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Arm == "B" && c.Pass == 1 && !c.Control {
			c.Order.Violations = 1
		}
	}
	var text bytes.Buffer
	if err := GoBench(&text, r); err != nil {
		t.Fatal(err)
	}
	var got []string
	reader := benchfmt.NewReader(&text, "x")
	for reader.Scan() {
		rec, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			if bad, is := reader.Result().(*benchfmt.SyntaxError); is {
				t.Errorf("a line that cannot be read: %v", bad)
			}
			continue
		}
		if strings.HasPrefix(string(rec.Name), "FindMax") {
			holds, _ := rec.Value("holds-msg/s")
			breaks, _ := rec.Value("breaks-msg/s")
			got = append(got, fmt.Sprintf("%.1s %s %d %v %v", rec.GetConfig("arm"), rec.Name, rec.Iters, holds, breaks))
		}
	}
	name := "FindMaxQoS2/window=20/connections=1/payload=256/limit=p99<20ms"
	if want := []string{"A " + name + " 2 1000 2000", "A " + name + " 2 1500 0"}; !slices.Equal(got, want) {
		t.Errorf("searches %q, want %q", got, want)
	}
	if u := reader.Units(); u.GetBetter("holds-msg/s") <= 0 {
		t.Error("a higher rate that holds is not better")
	}
}

// Every process of a cell has its columns, and every trial of a search its row.
func TestCSVOfProcessesAndSearches(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	r := synth.Fixtures()["two-arms"]
	r.Cells[1].Nodes = []result.Node{{Name: "n1", RSSPeak: n(11)}, {Name: "n2", RSSGrowth: n(12), WriteCalls: n(13), FDs: n(14)}}
	r.Cells[2].Nodes = []result.Node{{Name: "x1"}}
	r.Cells[2].Generator = &result.Node{Threads: n(15)}
	r.Searches = []result.Search{search("B", 2, 1_000)}
	var b bytes.Buffer
	if err := CSV(&b, r); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll() // which refuses rows of unlike length
	if err != nil {
		t.Fatal(err)
	}
	cells := len(r.Cells)
	if len(rows) != 1+cells+3 {
		t.Fatalf("%d rows, want a head, %d cells, two trials and a search", len(rows), cells)
	}
	for _, want := range []struct {
		row           int
		column, value string
	}{
		{2, "record", "cell"},
		{2, "node1_name", "n1"},
		{2, "node1_rss_peak_bytes", "11"},
		{2, "node2_rss_growth_bytes", "12"},
		{2, "node2_write_calls", "13"},
		{2, "node2_fds", "14"},
		{2, "generator_process_threads", ""},
		{3, "node1_name", "x1"},
		{3, "node2_name", ""},
		{3, "generator_process_threads", "15"},
		{cells + 1, "record", "trial"},
		{cells + 1, "target", r.Arms[1].Target},
		{cells + 1, "rate_per_s", "2000"},
		{cells + 1, "throughput_per_s", "1000.5"},
		{cells + 1, "missed", "8"},
		{cells + 1, "held", "false"},
		{cells + 1, "limit_value_ns", ""},
		{cells + 2, "held", "true"},
		{cells + 2, "limit_value_ns", "7000000"},
		{cells + 3, "record", "search"},
		{cells + 3, "limit", "p99<20ms"},
		{cells + 3, "low_per_s", "1000"},
		{cells + 3, "high_per_s", "2000"},
		{cells + 3, "end", "found"},
		{cells + 3, "messages", ""},
	} {
		i := slices.Index(rows[0], want.column)
		if i < 0 || rows[want.row][i] != want.value {
			t.Errorf("row %d: %s is not %q: %q", want.row, want.column, want.value, rows[want.row])
		}
	}
}

// What is known of a process is in the Prometheus text, under its name.
func TestPrometheusProcesses(t *testing.T) {
	t.Parallel()
	n, f := int64(12), 0.25
	r := synth.Fixtures()["two-arms"]
	r.Cells[0].Nodes = []result.Node{{Name: "n2", RSSSlope: &f, WriteCalls: &n}}
	r.Cells[0].Generator = &result.Node{Name: "generator", BytesPerInFlight: &f}
	var text bytes.Buffer
	if err := Prometheus(&text, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`inflight_process_rss_slope_bytes_per_second{.*process="n2".*} 0.25`, `inflight_process_write_calls{.*process="n2".*} 12`,
		`inflight_process_bytes_per_in_flight{.*process="generator".*} 0.25`,
	} {
		if !regexp.MustCompile(want).MatchString(text.String()) {
			t.Errorf("no %s in:\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "process_threads") {
		t.Error("a number of threads that nobody measured")
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
