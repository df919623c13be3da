package stat

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inflight/report/internal/synth"
	"inflight/runner/result"
)

func rate(perSecond float64) func(int, int) float64 {
	return func(int, int) float64 { return perSecond }
}

// twoArms is a run in which B is ratio times as fast as A.
func twoArms(ratio float64) synth.Run {
	return synth.Run{
		Seed: 7, Windows: []int{20}, Passes: 2, Blocks: 3, Control: true,
		Arms: []synth.Arm{{Target: "broker@old", Rate: rate(4_000)}, {Target: "broker@new", Rate: rate(4_000 * ratio)}},
	}
}

func judged(run synth.Run) *result.Result {
	r := run.Result()
	Judge(r)
	return r
}

func throughput(t *testing.T, r *result.Result) result.Comparison {
	t.Helper()
	for _, c := range r.Comparisons {
		if c.Metric == Throughput {
			return c
		}
	}
	t.Fatal("no comparison of the throughput")
	return result.Comparison{}
}

func near(got, want, within float64) bool { return math.Abs(got-want) <= within*want }

func TestPlantedEffects(t *testing.T) {
	tests := []struct {
		name   string
		plant  func(*synth.Run)
		ratio  float64
		within float64 // relative
		slot   float64
	}{
		{"nothing but the ratio", func(*synth.Run) {}, 3, 1e-9, 1},
		{"a slot that is 30 % faster cancels between the passes", func(r *synth.Run) { r.Slot = math.Log(1.3) }, 3, 1e-9, 1.3},
		{"a linear drift cancels inside A B B A", func(r *synth.Run) { r.Drift = 0.01 }, 3, 1e-9, 1},
		{"both", func(r *synth.Run) { r.Slot, r.Drift = math.Log(0.8), -0.005 }, 3, 1e-9, 0.8},
		{"noise stays in proportion", func(r *synth.Run) { r.Noise, r.Blocks = 0.02, 10 }, 3, 0.02, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run := twoArms(3)
			test.plant(&run)
			c := throughput(t, judged(run))
			if !near(c.Ratio, test.ratio, test.within) {
				t.Errorf("ratio %v, want %v", c.Ratio, test.ratio)
			}
			if c.SlotEffect == nil || !near(*c.SlotEffect, test.slot, test.within+1e-9) {
				t.Errorf("slot effect %v, want %v", c.SlotEffect, test.slot)
			}
			if len(c.Passes) != 2 || !near(math.Sqrt(c.Passes[0]*c.Passes[1]), c.Ratio, 1e-9) {
				t.Errorf("passes %v do not pool to %v", c.Passes, c.Ratio)
			}
			if c.Blocks != 2*run.Blocks {
				t.Errorf("%d blocks, want %d", c.Blocks, 2*run.Blocks)
			}
			if c.Low == nil || *c.Low > c.Ratio || *c.High < c.Ratio {
				t.Errorf("interval %v %v around %v", c.Low, c.High, c.Ratio)
			}
			if c.Verdict != Better {
				t.Errorf("verdict %q", c.Verdict)
			}
		})
	}
}

// TestDriftNeedsABBA shows that the drift planted above is one that would be taken for a difference in another order.
func TestDriftNeedsABBA(t *testing.T) {
	run := twoArms(1)
	run.Drift = 0.05
	r := run.Result()
	for i := range r.Cells {
		for j := range r.Cells[i].Blocks {
			switch b := &r.Cells[i].Blocks[j]; b.Position {
			case 2: // as if the order had been A A B B: B's first run two later, A's second two earlier
				b.ThroughputPerS *= math.Exp(2 * run.Drift)
			case 4:
				b.ThroughputPerS *= math.Exp(-2 * run.Drift)
			}
		}
	}
	Judge(r)
	if c := throughput(t, r); !near(c.Ratio, math.Exp(2*run.Drift), 1e-9) {
		t.Errorf("ratio %v, want the drift in it, %v", c.Ratio, math.Exp(2*run.Drift))
	}
}

func TestAAIsTheSame(t *testing.T) {
	run := twoArms(1)
	run.Noise, run.Blocks, run.Slot = 0.02, 6, math.Log(1.1)
	for seed := range uint64(20) {
		run.Seed = seed
		if c := throughput(t, judged(run)); c.Verdict != Same {
			t.Errorf("seed %d: A against A is %q: %.3f [%.3f, %.3f]", seed, c.Verdict, c.Ratio, *c.Low, *c.High)
		}
	}
}

// TestCoverage plants a known ratio under noise, a slot effect and a drift, and counts how often the interval holds it.
func TestCoverage(t *testing.T) {
	const trials, want = 1_500, 2.0
	run := twoArms(want)
	run.Control, run.Noise, run.Slot, run.Drift = false, 0.1, 0.2, 0.01
	held := 0
	for seed := range uint64(trials) {
		run.Seed = 1_000 + seed
		c := throughput(t, judged(run))
		if *c.Low <= want && want <= *c.High {
			held++
		}
	}
	share := float64(held) / trials
	t.Logf("the 95 %% interval held the planted ratio in %.1f %% of %d runs", 100*share, trials)
	// Four binomial standard errors on either side.
	if share < 0.927 || share > 0.973 {
		t.Errorf("coverage %.3f, want 0.95", share)
	}
}

func TestP99IsBetterWhenLower(t *testing.T) {
	r := judged(twoArms(3))
	for _, c := range r.Comparisons {
		if c.Metric != P99 {
			continue
		}
		if !near(c.Ratio, 1.0/3, 0.01) || c.Verdict != Better || c.Blocks != 6 {
			t.Errorf("p99: %+v", c)
		}
		return
	}
	t.Error("no comparison of p99")
}

func TestP99FromTotalsWhenBlocksAreTooShort(t *testing.T) {
	run := twoArms(3)
	run.Length = 100 * time.Millisecond // 400 messages in a run of A, too few; 2,400 in its cell
	r := judged(run)
	for _, c := range r.Comparisons {
		if c.Metric != P99 {
			continue
		}
		if !near(c.Ratio, 1.0/3, 0.01) || c.Low != nil || c.Verdict != Inconclusive || len(c.Warnings) == 0 || c.Warnings[0].Code != CodeFromTotals {
			t.Errorf("p99: %+v", c)
		}
		return
	}
	t.Error("no comparison of p99")
}

func TestOneArmHasNoComparisons(t *testing.T) {
	run := twoArms(1)
	run.Arms = run.Arms[:1]
	r := judged(run)
	if r.Comparisons != nil || r.Control != nil || r.Warnings != nil {
		t.Errorf("comparisons %v, control %v, warnings %v", r.Comparisons, r.Control, r.Warnings)
	}
}

// A block of a sweep is a single run, and still tells how steady the arm was.
func TestOneArmHasAnInterval(t *testing.T) {
	run := twoArms(1)
	run.Arms, run.Noise = run.Arms[:1], 0.05
	r := judged(run)
	if n := len(r.Cells[0].Blocks); n != run.Blocks {
		t.Fatalf("%d runs in %d blocks", n, run.Blocks)
	}
	if s := Summarise(r, "A", Points(r)[0]); s.Throughput.Low == nil || s.P99.Low == nil {
		t.Errorf("throughput %+v, p99 %+v; want intervals", s.Throughput, s.P99)
	}
}

// The blocks of a QoS 0 cell hold the p99 of their fences, which is no acknowledgement time.
func TestQoS0HasNoAcknowledgementTime(t *testing.T) {
	run := twoArms(2)
	run.QoS = []int{0}
	r := judged(run)
	if len(r.Comparisons) != 1 || r.Comparisons[0].Metric != Throughput {
		t.Errorf("comparisons %+v, want that of the throughput", r.Comparisons)
	}
	if s := Summarise(r, "A", Points(r)[0]); s.P99 != nil {
		t.Errorf("p99 %+v", s.P99)
	}
}

func TestJudgeIsIdempotent(t *testing.T) {
	run := twoArms(1.4)
	run.Noise = 0.1
	once := judged(run)
	once.Warnings = append(once.Warnings, result.Warning{Code: "someones", Text: "someone else's"})
	Judge(once)
	twice := *once
	Judge(&twice)
	if diff := cmp.Diff(once, &twice); diff != "" {
		t.Errorf("judged again (-once +twice):\n%s", diff)
	}
	if once.Warnings[0].Code != "someones" {
		t.Errorf("a warning of the runner is gone: %v", once.Warnings)
	}
}

func TestResultOfJudgeCanBeWritten(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*result.Result)
	}{
		{"rates that overflow the ratio", func(r *result.Result) {
			for i := range r.Cells {
				v := 1e300
				if r.Cells[i].Arm == "A" {
					v = 1e-300
				}
				r.Cells[i].ThroughputPerS = v
				for j := range r.Cells[i].Blocks {
					r.Cells[i].Blocks[j].ThroughputPerS = v
				}
			}
		}},
		{"no messages at all", func(r *result.Result) {
			for i := range r.Cells {
				r.Cells[i].ThroughputPerS = 0
				for j := range r.Cells[i].Blocks {
					r.Cells[i].Blocks[j].ThroughputPerS = 0
				}
			}
		}},
		{"no blocks", func(r *result.Result) {
			for i := range r.Cells {
				r.Cells[i].Blocks = nil
			}
		}},
		{"no cells", func(r *result.Result) { r.Cells = nil }},
		{"no arms", func(r *result.Result) { r.Arms = nil }},
		{"negative nonsense", func(r *result.Result) { r.Cells[0].Blocks[0].ThroughputPerS = -5 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := twoArms(2).Result()
			test.spoil(r)
			Judge(r)
			if _, err := result.Encode(r); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestControlIsPooledOverTheRun(t *testing.T) {
	run := twoArms(5)
	run.Windows, run.Noise = []int{1, 10, 20, 256}, 0.03
	c := judged(run).Control
	if c == nil || c.Blocks != 2*3*4 || !near(c.Ratio, 1, 0.05) || c.Low == nil || len(c.Passes) != 2 {
		t.Fatalf("control %+v", c)
	}
	if s := Spread(c); s < math.Log(*c.High) || s < -math.Log(*c.Low) {
		t.Errorf("spread %v does not reach the ends of %v %v", s, *c.Low, *c.High)
	}
}

func TestControlsOfTwoQoSLevelsAreBothUsed(t *testing.T) {
	run := twoArms(5)
	run.QoS = []int{1, 2}
	if c := judged(run).Control; c == nil || c.Blocks != 2*3*2 {
		t.Errorf("control %+v, want the blocks of both", c)
	}
}

func codes(warnings []result.Warning) string {
	var out []string
	for _, w := range warnings {
		out = append(out, w.Code)
	}
	return strings.Join(out, " ")
}

func TestWarningsOfTheRun(t *testing.T) {
	edit := func(f func(c *result.Cell)) func(*result.Result) {
		return func(r *result.Result) {
			for i := range r.Cells {
				f(&r.Cells[i])
			}
		}
	}
	scale := func(c *result.Cell, by float64) {
		for j := range c.Blocks {
			c.Blocks[j].ThroughputPerS *= by
		}
	}
	tests := []struct {
		name  string
		spoil func(*result.Result)
		code  string // all of them
		text  string // of the first
	}{
		{"a good run has none", func(*result.Result) {}, "", ""},
		{"partial", func(r *result.Result) { r.Partial, r.Trouble = true, "interrupted" }, CodePartial, "interrupted"},
		{"order", func(r *result.Result) {
			r.Cells[1].Order.Violations, r.Cells[1].Order.First = 3, "PUBREC 9 before 8"
		}, CodeOrder, "B: 3 acknowledgements out of order; first at QoS 2, window 20, pass 1: PUBREC 9 before 8"},
		{"loss", func(r *result.Result) { r.Cells[0].Ledger.Lost = 2 }, CodeLedger, "A: 2 lost, 0 duplicated"},
		{"a duplicate at QoS 1 is legal", func(r *result.Result) {
			for i := range r.Cells {
				if !r.Cells[i].Control {
					r.Cells[i].QoS, r.Cells[i].Ledger.Duplicated = 1, 4
				}
			}
		}, "", ""},
		{"not verified", edit(func(c *result.Cell) { c.Ledger = nil }), CodeUnverified + " " + CodeUnverified, "A: no verification"},
		{"no control", func(r *result.Result) {
			kept := r.Cells[:0]
			for _, c := range r.Cells {
				if !c.Control {
					kept = append(kept, c)
				}
			}
			r.Cells = kept
		}, CodeNoControl, "noise floor"},
		{"control off by 20 %", edit(func(c *result.Cell) {
			if c.Control && c.Arm == "B" {
				scale(c, 1.2)
			}
		}), CodeControlOff, "1.20"},
		{"control surely off by 5 %", edit(func(c *result.Cell) {
			if c.Control && c.Arm == "B" {
				scale(c, 0.95)
			}
		}), CodeControlOff, "0.95"},
		{"control surely off by 1 %: let it be", edit(func(c *result.Cell) {
			if c.Control && c.Arm == "B" {
				scale(c, 1.01)
			}
		}), "", ""},
		{"window not filled", edit(func(c *result.Cell) {
			if c.Arm == "B" {
				c.InFlight.AchievedMean = 7.5
			}
		}), CodeWindowUnused, "B: the window was not kept full (7.5 of 20)"},
		{"two different brokers need not share a QoS 0 path", func(r *result.Result) {
			r.Arms[1].Target = "another?x=1"
			edit(func(c *result.Cell) {
				if c.Control && c.Arm == "B" {
					scale(c, 0.5)
				}
			})(r)
		}, CodeControlApart, "0.50: two different brokers"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := twoArms(2).Result()
			test.spoil(r)
			Judge(r)
			if got := codes(r.Warnings); got != test.code {
				t.Fatalf("warnings %q, want %q: %v", got, test.code, r.Warnings)
			}
			if test.text != "" && !strings.Contains(r.Warnings[0].Text, test.text) {
				t.Errorf("text %q, want %q in it", r.Warnings[0].Text, test.text)
			}
		})
	}
}

func TestWarningsOfAComparison(t *testing.T) {
	tests := []struct {
		name  string
		run   func(*synth.Run)
		spoil func(*result.Result)
		want  string
	}{
		{"none", func(*synth.Run) {}, nil, ""},
		{"one block in each pass", func(r *synth.Run) { r.Blocks = 1 }, nil, CodeFewBlocks},
		{"one pass", func(r *synth.Run) { r.Passes = 1 }, nil, CodeNotSwapped},
		{"three passes", func(r *synth.Run) { r.Passes = 3 }, nil, CodeNotSwapped},
		{"slots far apart", func(r *synth.Run) { r.Slot, r.Noise = 0.3, 0.01 }, nil, CodePassesDisagree},
		{"slots apart by less than the noise", func(r *synth.Run) { r.Slot, r.Noise, r.Blocks = 0.03, 0.2, 10 }, nil, ""},
		{"cut off inside a block", func(*synth.Run) {}, func(r *result.Result) {
			last := len(r.Cells) - 3 // A of pass 2
			r.Cells[last-1].Blocks = r.Cells[last-1].Blocks[:5]
		}, CodeBlocksLeftOut},
		{"a run without a message", func(*synth.Run) {}, func(r *result.Result) { r.Cells[0].Blocks[2].ThroughputPerS = 0 }, CodeBlocksLeftOut},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run := twoArms(2)
			test.run(&run)
			r := run.Result()
			if test.spoil != nil {
				test.spoil(r)
			}
			Judge(r)
			c := throughput(t, r)
			if got := codes(c.Warnings); got != test.want {
				t.Errorf("warnings %q, want %q: %v", got, test.want, c.Warnings)
			}
		})
	}
}

// TestPassesDisagreeRarelyByChance counts false alarms without a slot effect: 1 % is what the limit is made for.
func TestPassesDisagreeRarelyByChance(t *testing.T) {
	const trials = 1_000
	run := twoArms(2)
	run.Control, run.Noise = false, 0.1
	alarms := 0
	for seed := range uint64(trials) {
		run.Seed = seed
		if c := throughput(t, judged(run)); len(c.Warnings) > 0 {
			alarms++
		}
	}
	if alarms > 25 {
		t.Errorf("%d of %d runs were told that their passes disagree", alarms, trials)
	}
}

func TestSerialised(t *testing.T) {
	published := map[string][]float64{ // at windows 1, 10, 20, 256
		"stop-and-wait": {579, 807, 814, 816},
		"pipelined":     {801, 5_827, 8_800, 18_051},
		"2.14.10":       {393, 644, 628, 553},
		"2.15.3":        {774, 3_955, 5_290, 10_015},
		"halfway":       {500, 900, 1_100, 1_500},
	}
	windows := []int{1, 10, 20, 256}
	arm := func(name string) synth.Arm {
		return synth.Arm{Target: name, Rate: func(_, window int) float64 {
			for i, w := range windows {
				if w == window {
					return published[name][i]
				}
			}
			return 0
		}}
	}
	tests := []struct{ a, b, want string }{
		{"stop-and-wait", "pipelined", "A: throughput does not rise with the window (1.4x from 1 to 256, B rises 22.5x): this path is serialised"},
		{"2.14.10", "2.15.3", "A: throughput does not rise with the window (1.4x"},
		{"pipelined", "stop-and-wait", "B: throughput does not rise"},
		{"stop-and-wait", "stop-and-wait", ""}, // nothing shows that it could rise
		{"pipelined", "2.15.3", ""},
		{"halfway", "pipelined", ""},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s against %s", test.a, test.b), func(t *testing.T) {
			run := synth.Run{Windows: windows, Passes: 2, Blocks: 2, Control: true, Arms: []synth.Arm{arm(test.a), arm(test.b)}}
			var got string
			for _, w := range judged(run).Warnings {
				if w.Code == CodeSerialised {
					got += w.Text
				}
			}
			if !strings.HasPrefix(got, test.want) || (test.want == "") != (got == "") {
				t.Errorf("finding %q, want %q", got, test.want)
			}
		})
	}
}

func TestSummarise(t *testing.T) {
	run := twoArms(2)
	run.Slot, run.Noise = 0.2, 0.05
	r := judged(run)
	a, b := Summarise(r, "A", Points(r)[0]), Summarise(r, "B", Points(r)[0])
	if c := throughput(t, r); !near(b.Throughput.Value/a.Throughput.Value, c.Ratio, 0.01) {
		t.Errorf("the shown rates give %v, the comparison %v", b.Throughput.Value/a.Throughput.Value, c.Ratio)
	}
	if a.Throughput.Low == nil || *a.Throughput.Low >= a.Throughput.Value || *a.Throughput.High <= a.Throughput.Value {
		t.Errorf("throughput %+v", a.Throughput)
	}
	if a.Ledger == nil || a.Ledger.Published == 0 || a.P99 == nil || a.P50 == nil || a.RSSPeak == nil || a.Incorrect {
		t.Errorf("summary %+v", a)
	}
	if got := Summarise(r, "A", Point{QoS: 1}); got != nil {
		t.Errorf("a point that was not measured: %+v", got)
	}
}
