package gate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inflight/report/internal/synth"
	"inflight/report/stat"
	"inflight/runner/result"
)

var update = flag.Bool("update", false, "rewrite the golden files under testdata/report/gate; look at them before committing")

// twoArms is a crossover whose second arm is slower than the first by a factor.
func twoArms(seed uint64, factor, noise float64) *result.Result {
	rate := func(f float64) func(int, int) float64 {
		return func(_, window int) float64 { return f * 20_000 * float64(window) / (float64(window) + 25) }
	}
	return synth.Run{
		Name: "ci", Seed: seed, Windows: []int{1, 20, 256}, Passes: 2, Blocks: 3, Noise: noise, Slot: 0.05, Control: true,
		Arms: []synth.Arm{{Target: "x?build=base", Rate: rate(1)}, {Target: "x?build=head", Rate: rate(factor)}},
	}.Result()
}

func judged(t *testing.T, in Input) *Report {
	t.Helper()
	for _, r := range []*result.Result{in.Result, in.Baseline} {
		if r != nil {
			stat.Judge(r)
		}
	}
	rep, err := Judge(in)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// A ratio of two clients is not judged as one of brokers; what is no ratio is judged all the same.
func TestUnlikeClients(t *testing.T) {
	head := twoArms(1, 1, 0.01)
	head.Arms[1].Client = "paho"
	base := twoArms(2, 1, 0.01)
	for _, test := range []struct {
		why  string
		in   Input
		want string // "": it is judged
	}{
		{"the default rule", Input{Result: head}, "B is loaded through client paho and A through wire"},
		{"a ratio", Input{Result: head, Rules: []string{"rss <= 2x"}}, "compares clients, not brokers"},
		{"no ratio", Input{Result: head, Rules: []string{"exactly-once", "throughput >= 1000/s"}}, ""},
		{"against a run through another client", Input{Result: head, Baseline: base}, "B is loaded through client paho and B through wire"},
		{"the same clients", Input{Result: base}, ""},
	} {
		stat.Judge(test.in.Result)
		if _, err := Judge(test.in); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.why, err, test.want)
		}
	}
}

// A build against itself must not fail, and one that is 40 % slower must, at the noise of a busy machine.
func TestDefaultsTellARegressionFromNoise(t *testing.T) {
	inconclusive := 0
	for seed := range uint64(50) {
		same := judged(t, Input{Result: twoArms(seed, 1, 0.08)})
		if same.Outcome == Fail {
			t.Errorf("seed %d: a build against itself: %s", seed, same.Summary())
		}
		if same.Outcome == Inconclusive {
			inconclusive++
		}
		if slow := judged(t, Input{Result: twoArms(seed, 0.6, 0.08)}); slow.Outcome != Fail || slow.Broken {
			t.Errorf("seed %d: 40 %% slower: %s: %s", seed, slow.Outcome, slow.Summary())
		}
	}
	if inconclusive > 10 {
		t.Errorf("%d of 50 against itself are inconclusive", inconclusive)
	}
}

func TestTheFailingLineSaysWhatWhereAndHowMuch(t *testing.T) {
	rep := judged(t, Input{Result: twoArms(1, 0.5, 0.02)})
	line := rep.Summary()
	for _, want := range []string{"throughput at QoS 2, ", " in flight, 1 connection", "B is 0.", "x [0.", "] of A (", " against ", " % below the limit of 1x", "; 3 more places fail"} {
		if !strings.Contains(line, want) || strings.Contains(line, "\n") {
			t.Errorf("no %q in %q", want, line)
		}
	}
}

func TestRules(t *testing.T) {
	plain := func(r *result.Result) {}
	for _, test := range []struct {
		why    string
		rule   string
		factor float64
		edit   func(*result.Result)
		want   Outcome
		broken bool
	}{
		{"an absolute rate that is reached", "throughput >= 1000/s at window=256", 1, plain, Pass, false},
		{"one that is not", "throughput >= 900000/s", 1, plain, Fail, false},
		{"a time in bounds", "p99 <= 10s", 1, plain, Pass, false},
		{"a time out of bounds", "p99 <= 1us at window=256", 1, plain, Fail, false},
		{"a latency ratio, lower is better", "p99 <= 1.1x at window=256", 0.5, plain, Fail, false},
		{"and the other way round", "p99 <= 1.1x at window=256", 2, plain, Pass, false},
		{"passes stand in for blocks", "ack-service.p50 <= 1.3x", 0.5, plain, Fail, false},
		{"memory", "rss <= 1.1x", 1, plain, Pass, false},
		{"memory, absolute", "rss <= 1MiB", 1, plain, Fail, false},
		{"CPU per message grows as the rate falls", "cpu <= 1.3x at window=256", 0.5, plain, Fail, false},
		{"a loss below the effect passes", "throughput >= 1x effect 20%", 0.9, plain, Pass, false},
		{"the same loss fails a strict rule", "throughput >= 1x", 0.8, plain, Fail, false},
		{"no blocks, no verdict", "throughput >= 1x", 1, func(r *result.Result) {
			for i := range r.Comparisons {
				r.Comparisons[i].Low, r.Comparisons[i].High = nil, nil
			}
		}, Inconclusive, false},
		{"a control that is all over the place", "throughput >= 1x", 0.8, func(r *result.Result) {
			low, high := 0.5, 2.0
			r.Control.Low, r.Control.High = &low, &high
		}, Inconclusive, false},
		{"the same between two addresses, which a gate takes for builds of one broker", "throughput >= 1x", 0.8, func(r *result.Result) {
			low, high := 0.5, 2.0
			r.Control.Low, r.Control.High = &low, &high
			r.Arms[0].Target, r.Arms[1].Target = "tcp://127.0.0.1:1883", "tcp://127.0.0.1:2883"
		}, Inconclusive, false},
		{"and between two brokers, where the control says nothing", "throughput >= 1x", 0.8, func(r *result.Result) {
			low, high := 0.5, 2.0
			r.Control.Low, r.Control.High = &low, &high
			r.Arms[0].Target, r.Arms[1].Target = "nats-server@v2.15.3", "reference"
		}, Fail, false},
		{"what the Holm correction takes back", "throughput >= 1x", 0.8, func(r *result.Result) {
			p := 0.2
			for i := range r.Comparisons {
				r.Comparisons[i].PHolm = &p
			}
			for i := range r.Overall {
				r.Overall[i].PHolm = &p
			}
		}, Inconclusive, false},
		{"a double delivery is not made good by speed", "throughput >= 1x", 2, func(r *result.Result) { last(r, "B").Ledger.Duplicated = 1 }, Fail, true},
		{"a double delivery", "exactly-once", 1, func(r *result.Result) { last(r, "B").Ledger.Duplicated = 1 }, Fail, true},
		{"a double delivery at another place is seen all the same", "throughput >= 1x effect 20% at window=1", 1, func(r *result.Result) { last(r, "B").Ledger.Duplicated = 1 }, Fail, true},
		{"order", "ordering", 1, func(r *result.Result) { last(r, "B").Order.Violations = 1 }, Fail, true},
		{"a base that is broken is no yardstick", "throughput >= 1x effect 20% at window=256", 1, func(r *result.Result) { last(r, "A").Ledger.Lost = 1 }, Inconclusive, false},
		{"nothing verified", "exactly-once", 1, func(r *result.Result) {
			for i := range r.Cells {
				r.Cells[i].Ledger = nil
			}
		}, Inconclusive, false},
		{"a run that did not end", "throughput >= 0.1x", 1, func(r *result.Result) { r.Partial = true }, Inconclusive, false},
	} {
		r := twoArms(7, test.factor, 0.02)
		stat.Judge(r)
		test.edit(r)
		rep, err := Judge(Input{Result: r, Rules: []string{test.rule}})
		if err != nil {
			t.Errorf("%s: %v", test.why, err)
			continue
		}
		if rep.Outcome != test.want || rep.Broken != test.broken {
			t.Errorf("%s: %s (broken %v), want %s (%v): %s", test.why, rep.Outcome, rep.Broken, test.want, test.broken, rep.Summary())
		}
	}
}

// last is the last measured cell of an arm.
func last(r *result.Result, arm string) *result.Cell {
	for i := len(r.Cells) - 1; ; i-- {
		if c := &r.Cells[i]; c.Arm == arm && !c.Control {
			return c
		}
	}
}

func TestWhatMatchesNothingIsAnError(t *testing.T) {
	two := twoArms(1, 1, 0.02)
	one := synth.Fixtures()["one-arm"]
	empty := &result.Result{Arms: one.Arms}
	for _, test := range []struct {
		in   Input
		want string
	}{
		{Input{Result: two, Rules: []string{"throughput >= 1x at window=7"}}, "matches nothing: throughput was not measured at such a place; the result has QoS 2 window 1"},
		{Input{Result: two, Rules: []string{"end-to-end.p99 <= 1s"}}, "end-to-end.p99 was not measured"},
		{Input{Result: one, Rules: []string{"throughput >= 1x"}}, "a ratio needs a second arm, or a baseline"},
		{Input{Result: two, Rules: []string{"conformance must"}}, "there is no conformance check"},
		{Input{Result: two, Rules: []string{"sped >= 1x", "p99"}}, "p99 needs a limit"},
		{Input{Result: empty}, "nothing was measured"},
		{Input{Result: two, Baseline: synth.Fixtures()["many-points"], Rules: []string{"throughput >= 1x at window=256"}}, ""},
		{Input{Result: two, Baseline: synth.Run{Windows: []int{7}, Passes: 1, Blocks: 1, Arms: []synth.Arm{{Target: "x", Rate: func(int, int) float64 { return 9 }}}}.Result()}, "no cell in common"},
		{Input{Check: &result.Check{}, Rules: []string{"conformance must"}}, "judged no rule of level must"},
		{Input{Check: &result.Check{}, Rules: []string{"ordering"}}, "no result of a run"},
	} {
		if test.in.Result != nil {
			stat.Judge(test.in.Result)
		}
		rep, err := Judge(test.in)
		if test.want == "" {
			if err != nil {
				t.Errorf("%v", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, %v; want an error with %q", test.in.Rules, rep, err, test.want)
		}
	}
}

// Percentiles that result.json does not keep come from the histograms, pass by pass.
func TestPercentilesFromHistograms(t *testing.T) {
	plain := func(f float64) Percentile { // of arm B f times that of A
		return func(c *result.Cell, latency string, q float64) (int64, bool, error) {
			if latency != "ack_service" || q != 0.995 {
				t.Errorf("asked for %s at %v", latency, q)
			}
			ns := 1e6 * (1 + 0.01*float64(c.Pass))
			if c.Arm == "B" {
				ns *= f
			}
			return int64(ns), true, nil
		}
	}
	few := func(c *result.Cell, _ string, _ float64) (int64, bool, error) { return 1e6, c.Arm == "A", nil }
	gone := func(*result.Cell, string, float64) (int64, bool, error) {
		return 0, false, errors.New("x.hlog is missing")
	}
	for _, test := range []struct {
		why, rule  string
		percentile Percentile
		want       Outcome
		text       string // of the summary, or of the error
	}{
		{"in bounds", "p99.5 <= 1.5x", plain(1.2), Pass, ""},
		{"out of bounds", "p99.5 <= 1.5x", plain(2), Fail, "ack-service.p99.5 at QoS 2, 1 in flight, 1 connection, 256-byte payloads: B is 2.00x [2.00, 2.00] of A (2.03 ms against 1.01 ms): 33 % above the limit of 1.5x"},
		{"an absolute limit", "p99.5 <= 1ms", plain(2), Fail, "B has 2.03 ms [2.02 ms, 2.04 ms]"},
		{"too few samples", "p99.5 <= 1.5x", few, Inconclusive, "B has too few samples for a p99.5"},
		{"too few samples, absolute", "p99.5 <= 1s", few, Inconclusive, "B has too few samples for a p99.5"},
		{"no histogram", "p99.5 <= 1.5x", gone, "", `rule "ack-service.p99.5 <= 1.5x": ack-service.p99.5 is read from the histograms of the run, and x.hlog is missing; result.json itself has p50`},
		{"none at all", "p99.5 <= 1s", nil, "", "there are no histograms"},
		{"a latency that was not recorded", "end-to-end.p99.5 <= 1s", gone, "", "end-to-end.p99.5 was not measured"},
	} {
		r := twoArms(7, 1, 0.02)
		stat.Judge(r)
		rep, err := Judge(Input{Result: r, Rules: []string{test.rule}, Percentile: test.percentile})
		switch {
		case test.want == "":
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: %v, want an error with %q", test.why, err, test.text)
			}
		case err != nil:
			t.Errorf("%s: %v", test.why, err)
		case rep.Outcome != test.want || !strings.Contains(rep.Summary(), test.text):
			t.Errorf("%s: %s, want %s with %q: %s", test.why, rep.Outcome, test.want, test.text, rep.Summary())
		}
	}
	// The baseline has histograms of its own.
	now, before := twoArms(7, 1, 0.02), twoArms(8, 1, 0.02)
	rep := judged(t, Input{Result: now, Baseline: before, Rules: []string{"p99.5 <= 1.5x"}, Percentile: plain(3), BaselinePercentile: plain(1)})
	if rep.Outcome != Fail || rep.Verdicts[0].Count(Fail) != 3 {
		t.Errorf("against a baseline: %s: %s", rep.Outcome, rep.Summary())
	}
	// A percentile of result.json that is absent is open, not nowhere.
	for i := range now.Cells {
		if d := now.Cells[i].Latency.AckService; d != nil {
			d.P999 = nil
		}
	}
	if rep := judged(t, Input{Result: now, Rules: []string{"p999 <= 2x"}}); rep.Outcome != Inconclusive || !strings.Contains(rep.Summary(), "too few samples for a p999 (") {
		t.Errorf("an absent p999: %s: %s", rep.Outcome, rep.Summary())
	}
}

func TestBaseline(t *testing.T) {
	for _, test := range []struct {
		why    string
		factor float64
		edit   func(old *result.Result)
		rules  []string
		want   Outcome
		note   string
	}{
		{"the same again", 1, func(*result.Result) {}, nil, Pass, "a machine like this one"},
		{"slower", 0.5, func(*result.Result) {}, nil, Fail, ""},
		{"slower, on a machine that is as much slower", 0.5, func(old *result.Result) {
			old.Environment.CPU = "Other CPU"
			faster(old, 2)
		}, nil, Fail, "only throughputs divided by their own QoS 0 control"},
		{"as fast as its machine lets it be", 1, func(old *result.Result) {
			old.Environment.CPU = "Other CPU"
			faster(old, 2)
		}, nil, Pass, "processor Other CPU"},
		{"a latency has no control", 1, func(old *result.Result) { old.Environment.Cores = 64 }, []string{"p99 <= 1x effect 50%"}, Inconclusive, "cores 64"},
	} {
		old, now := twoArms(3, 1, 0.02), twoArms(4, test.factor, 0.02)
		test.edit(old)
		rep := judged(t, Input{Result: now, Baseline: old, Rules: test.rules})
		if rep.Outcome != test.want || !strings.Contains(strings.Join(rep.Notes, "\n"), test.note) {
			t.Errorf("%s: %s, want %s: %s\nnotes %q", test.why, rep.Outcome, test.want, rep.Summary(), rep.Notes)
		}
	}
}

// faster makes everything of a result as much faster, as another machine would.
func faster(r *result.Result, factor float64) {
	for i := range r.Cells {
		c := &r.Cells[i]
		c.ThroughputPerS *= factor
		for k := range c.Blocks {
			c.Blocks[k].ThroughputPerS *= factor
		}
	}
}

func TestConformance(t *testing.T) {
	c := &result.Check{Target: "x", Rows: []result.CheckRow{
		{ID: "A", MQTT: "5.0", Level: "must", Outcome: result.CheckOK},
		{ID: "B", MQTT: "5.0", Level: "info", Outcome: result.CheckViolated, ViolatedLevel: "info"},
		{ID: "C", MQTT: "5.0", Level: "contract", Outcome: result.CheckInconclusive, Why: "too slow"},
	}}
	for level, want := range map[string]Outcome{"must": Pass, "contract": Inconclusive, "info": Fail} {
		rep := judged(t, Input{Check: c, Rules: []string{"conformance " + level}})
		if rep.Outcome != want || rep.Broken != (want == Fail) {
			t.Errorf("%s: %s, want %s", level, rep.Outcome, want)
		}
	}
}

// golden compares with a file under testdata/report/gate.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("../../testdata/report/gate", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-golden +got); if that is meant, run go test ./report/gate -update and look at it:\n%s", name, diff)
	}
}

// A report in which everything occurs: failed, broken, inconclusive and passed.
func mixed(t *testing.T) (*Report, *result.Result) {
	r := twoArms(5, 0.5, 0.02)
	last(r, "B").Ledger.Duplicated = 3
	last(r, "B").Ledger.First = "message 412 of <connection> 0 came twice: 50 % | more"
	r.Reruns = []result.Rerun{{Started: time.Unix(0, 0)}}
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Window == 1 {
			c.Blocks = c.Blocks[:2]
		}
	}
	return judged(t, Input{Result: r, Rules: []string{"throughput >= 1x effect 20%", "rss <= 1GiB"}}), r
}

func TestGoldenOutputs(t *testing.T) {
	rep, r := mixed(t)
	bigger, smaller := Benchmarks(r)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"table.txt":       func(b *bytes.Buffer) error { return rep.Table(b) },
		"gate.md":         func(b *bytes.Buffer) error { return rep.Markdown(b) },
		"gate.json":       func(b *bytes.Buffer) error { return rep.JSON(b) },
		"junit.xml":       func(b *bytes.Buffer) error { return rep.JUnit(b, Open) },
		"annotations.txt": func(b *bytes.Buffer) error { return rep.Annotations(b, Open) },
		"badge.svg":       func(b *bytes.Buffer) error { return rep.Badge(b) },
		"bigger.json":     func(b *bytes.Buffer) error { return WriteBenchmarks(b, bigger) },
		"smaller.json":    func(b *bytes.Buffer) error { return WriteBenchmarks(b, smaller) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		golden(t, name, b.Bytes())
		switch filepath.Ext(name) {
		case ".json":
			if !json.Valid(b.Bytes()) {
				t.Errorf("%s is not JSON", name)
			}
		case ".xml", ".svg":
			if err := xml.Unmarshal(b.Bytes(), new(struct{})); err != nil {
				t.Errorf("%s is not XML: %v", name, err)
			}
		}
	}
}

func TestWhatInconclusiveCountsAs(t *testing.T) {
	rep, _ := mixed(t)
	for unsure, want := range map[Unsure]string{Open: `<error type="inconclusive"`, CountsPass: `<skipped type="inconclusive"`, CountsFail: `<failure type="inconclusive"`} {
		var b bytes.Buffer
		if err := rep.JUnit(&b, unsure); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%v: %v, no %s in\n%s", unsure, err, want, b.String())
		}
	}
}

// Infinities that a report computes with never reach JSON.
func TestNoInfinityInJSON(t *testing.T) {
	r := twoArms(2, 1, 0.02)
	last(r, "B").Ledger.Lost = 1
	r.Cells[0].ThroughputPerS = math.Inf(1)
	rep := judged(t, Input{Result: r, Rules: []string{"throughput >= 1x", "cpu <= 1x", "exactly-once"}})
	var b bytes.Buffer
	if err := rep.JSON(&b); err != nil {
		t.Error(err)
	}
}
