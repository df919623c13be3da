package stat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"inflight/report/internal/synth"
	"inflight/runner/result"
)

// at is a comparison of the throughput with that ratio and the bounds of its interval, of two builds of one broker and
// a control at 1.00.
func at(ratio, low, high float64) *comparison {
	c := &comparison{versus: &versus{base: &result.Arm{Name: "A"}, arm: &result.Arm{Name: "B"}, alike: true}, metric: metrics()[0]}
	c.effect = effect{mean: math.Log(ratio), se: math.Log(high/low) / 2 / tQuantile(4, confidence), df: 4}
	c.Ratio, c.Low, c.High, c.Passes = ratio, &low, &high, []float64{ratio, ratio}
	c.PHolm = c.effect.p()
	return c
}

func withControl(c *comparison, samples ...float64) *comparison {
	var all []sample
	for i, v := range samples {
		all = append(all, sample{pass: 1 + i%2, value: math.Log(v)})
	}
	c.versus.control = estimateOf(all)
	c.fill()
	return c
}

func TestVerdict(t *testing.T) {
	p := func(c *comparison, v float64) *comparison { c.PHolm = &v; return c }
	p99 := func(c *comparison) *comparison { c.metric = metrics()[1]; return c }
	passes := func(c *comparison, r ...float64) *comparison { c.Passes = r; return c }
	incorrect := func(c *comparison) *comparison { c.incorrect = true; return c }
	unbounded := at(2, 1.5, 3)
	unbounded.Low, unbounded.High = nil, nil
	other := func(c *comparison) *comparison { c.versus.alike = false; return c }
	tests := []struct {
		name string
		c    *comparison
		want string
	}{
		{"far above", at(2.5, 2, 3), Better},
		{"far below", at(0.4, 0.3, 0.5), Worse},
		{"a higher p99 is worse", p99(at(2.5, 2, 3)), Worse},
		{"a lower p99 is better", p99(at(0.4, 0.3, 0.5)), Better},
		{"straddles 1 widely", at(1.02, 0.8, 1.3), Inconclusive},
		{"within 5 %", at(1, 0.96, 1.04), Same},
		{"sure, but within 5 %", at(1.03, 1.02, 1.04), Same},
		{"just above 5 %", at(1.055, 1.03, 1.08), Better},
		{"excludes 1, but among many comparisons that is chance", p(at(1.2, 1.03, 1.4), 0.08), Inconclusive},
		{"no interval", unbounded, Inconclusive},
		{"incorrect wins over fast", incorrect(at(25, 20, 30)), Incorrect},
		{"the passes differ, and both are far above", passes(at(4, 3.7, 4.3), 3.5, 4.6), Better},
		{"one pass says faster, the other slower", passes(at(1.15, 1.1, 1.2), 1.4, 0.94), Inconclusive},
		{"the passes differ by chance", passes(at(1.15, 1.03, 1.29), 1.24, 1.06), Better},
		{"a noisy control at 1.00 is no margin: the blocks have shown their own noise", withControl(at(0.9, 0.87, 0.93), 0.8, 1.2, 1.25, 0.84), Worse},
		{"two builds, and the control shows the same difference", withControl(at(0.9, 0.87, 0.93), 0.9, 0.91, 0.9, 0.89), Inconclusive},
		{"two builds, and the effect is beyond that of the control", withControl(at(0.5, 0.47, 0.53), 0.9, 0.91, 0.9, 0.89), Worse},
		{"two brokers, and their QoS 0 paths differ: 2.16 [2.00, 2.32] beside 0.51", other(withControl(at(2.16, 2, 2.32), 0.5, 0.52, 0.51, 0.5)), Better},
		{"the same between two builds", withControl(at(2.16, 2, 2.32), 2, 2.2, 2.1, 2.3), Inconclusive},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.c.verdict(); got != test.want {
				t.Errorf("%s, want %s: %+v", got, test.want, test.c.Comparison)
			}
		})
	}
}

func TestSameKind(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"nats-server@v2.14.10", "nats-server@v2.15.3?nodes=3", true},
		{"reference?store=staged&pipeline=off", "reference", true},
		{"reference", "nats-server@v2.15.3", false},
		{"tcp://a:1883", "tcp://a:1883", true},
		{"tcp://a:1883", "tcp://b:1883", false},
	}
	for _, test := range tests {
		if got := SameKind(test.a, test.b); got != test.want {
			t.Errorf("%s and %s: %v", test.a, test.b, got)
		}
	}
}

// Holm's own example has equal weights; with unequal ones the first step is that of Bonferroni in proportion.
func TestHolm(t *testing.T) {
	tests := []struct {
		name       string
		p, weights []float64
		want       []float64
	}{
		{"one test is left alone", []float64{0.03}, []float64{7}, []float64{0.03}},
		{"equal weights", []float64{0.01, 0.04, 0.03, 0.005}, []float64{1, 1, 1, 1}, []float64{0.03, 0.06, 0.06, 0.02}},
		{"never above 1, never falling", []float64{0.9, 0.8}, []float64{1, 1}, []float64{1, 1}},
		{"half for the first", []float64{0.02, 0.02, 0.5}, []float64{2, 1, 1}, []float64{0.04, 0.04, 0.5}},
		{"an exact zero", []float64{0, 0.04}, []float64{1, 1}, []float64{0, 0.04}},
	}
	for _, test := range tests {
		var all []*hypothesis
		for i := range test.p {
			all = append(all, &hypothesis{p: test.p[i], weight: test.weights[i]})
		}
		holm(all)
		for i, h := range all {
			if math.Abs(h.holm-test.want[i]) > 1e-12 {
				t.Errorf("%s: adjusted %v, want %v at %d", test.name, h.holm, test.want[i], i)
			}
		}
	}
}

// A simulated run is four points of two passes, in the noise that was seen on a quiet two-core machine: adjacent runs of
// 1 s with three nodes differ with a standard deviation of 0.085 to 0.123 of the log rate, which makes 0.060 to 0.087 for
// a block of four. The p99 has twice the noise of the rate.
type simulation struct {
	ratio  float64 // of the throughput, at every point
	blocks int     // per pass
	slot   float64 // log
}

var blockNoise = []float64{0.087, 0.075, 0.075, 0.06}

func (s simulation) run(rng *rand.Rand) []*comparison {
	v := &versus{base: &result.Arm{Name: "A"}, arm: &result.Arm{Name: "B"}, alike: true}
	draw := func(effect, noise float64) estimate {
		var samples []sample
		for pass := 1; pass <= 2; pass++ {
			slot := s.slot
			if pass == 2 {
				slot = -slot
			}
			for range s.blocks {
				samples = append(samples, sample{pass: pass, value: effect + slot + noise*rng.NormFloat64()})
			}
		}
		return estimateOf(samples)
	}
	v.control = draw(0, 0.087/2) // of four points together
	var all, throughputs []*comparison
	for _, noise := range blockNoise {
		for _, m := range metrics() {
			effect := math.Log(s.ratio)
			if m.lowerIsBetter {
				effect, noise = -effect, 2*noise
			}
			e := draw(effect, noise)
			c := &comparison{versus: v, metric: m, effect: e.effect()}
			c.Passes = e.ratios()
			c.fill()
			all = append(all, c)
			if m.name == Throughput {
				throughputs = append(throughputs, c)
			}
		}
	}
	all = append(all, v.overall(throughputs))
	decide(all)
	return all
}

// found counts the runs in which anything gets one of the verdicts, and those in which the overall ratio does.
func (s simulation) found(runs int, verdicts ...string) (anywhere, overall int) {
	rng := rand.New(rand.NewPCG(40_000, 1))
	for range runs {
		any, all := false, false
		for _, c := range s.run(rng) {
			hit := slices.Contains(verdicts, c.Verdict)
			any = any || hit
			all = all || hit && c.overall
		}
		if any {
			anywhere++
		}
		if all {
			overall++
		}
	}
	return anywhere, overall
}

// A run of a build with itself may say better or worse, anywhere and about anything, in one of twenty runs.
func TestFalseFindings(t *testing.T) {
	const runs = 1_000
	for _, s := range []simulation{{1, 2, 0}, {1, 3, 0}, {1, 3, 0.1}, {1, 6, 0.03}} {
		anywhere, _ := s.found(runs, Better, Worse)
		t.Logf("%d blocks a pass, slot effect %.2f: %d of %d runs of a build with itself found a difference", s.blocks, s.slot, anywhere, runs)
		if anywhere > runs/20 {
			t.Errorf("%d blocks a pass, slot effect %.2f: %d of %d", s.blocks, s.slot, anywhere, runs)
		}
	}
}

// A slow-down of the acknowledged path is found at the noise of a quiet machine: 10 % in 8 default runs of 10, 40 % always.
func TestPower(t *testing.T) {
	const runs = 500
	for _, test := range []struct {
		slower float64
		least  int
	}{{0.10, runs * 8 / 10}, {0.40, runs}} {
		_, overall := simulation{1 / (1 + test.slower), 3, 0.02}.found(runs, Worse)
		t.Logf("%.0f %% slower: called worse in %d of %d runs", 100*test.slower, overall, runs)
		if overall < test.least {
			t.Errorf("%.0f %% slower: called worse in %d of %d runs, want %d", 100*test.slower, overall, runs, test.least)
		}
	}
}

// What a run calls its smallest effect is found about four times in five by a run like it.
func TestSmallestEffect(t *testing.T) {
	const runs = 500
	rng := rand.New(rand.NewPCG(50_000, 1))
	var logs float64
	for range runs {
		all := simulation{1, 3, 0}.run(rng)
		logs += math.Log(*all[len(all)-1].SmallestEffect) / runs
	}
	_, overall := simulation{math.Exp(logs), 3, 0}.found(runs, Better)
	share := float64(overall) / runs
	t.Logf("smallest effect %.3f on average; found in %.0f %%", math.Exp(logs), 100*share)
	if share < 0.7 || share > 0.9 {
		t.Errorf("an effect of %.3f was found in %.2f of the runs, want about 0.8", math.Exp(logs), share)
	}
}

func TestCorrected(t *testing.T) {
	run := twoArms(2)
	run.Noise = 0.02
	r := run.Result()
	for i := range r.Cells { // B's QoS 0 path is 20 % faster
		if c := &r.Cells[i]; c.Control && c.Arm == "B" {
			for j := range c.Blocks {
				c.Blocks[j].ThroughputPerS *= 1.2
			}
		}
	}
	Judge(r)
	c := throughput(t, r)
	if c.Corrected == nil || !near(c.Ratio, 2, 0.05) || !near(c.Corrected.Ratio, c.Ratio/r.Control.Ratio, 1e-9) {
		t.Fatalf("raw %v, control %v, corrected %+v", c.Ratio, r.Control.Ratio, c.Corrected)
	}
	if width := *c.Corrected.High / *c.Corrected.Low; width <= *c.High / *c.Low {
		t.Error("the corrected interval does not have the control's error in it")
	}
	run.Control = false
	if c := throughput(t, judged(run)); c.Corrected != nil {
		t.Errorf("corrected without a control: %+v", c.Corrected)
	}
}

func TestThreeArms(t *testing.T) {
	run := twoArms(1)
	run.Windows, run.Noise, run.Passes = []int{1, 10, 20, 256}, 0.02, 3
	run.Arms = append(run.Arms, synth.Arm{Target: "another", Rate: rate(12_000)})
	r := run.Result()
	for i := range r.Cells { // rotated: each arm is in each slot once
		c := &r.Cells[i]
		c.Slot = 1 + (int(c.Arm[0]-'A')+c.Pass)%3
	}
	Judge(r)
	got := map[string]string{}
	for _, c := range r.Comparisons {
		if c.Metric == Throughput {
			got[c.Arm+"/"+c.Base] += c.Verdict + " "
		}
		if len(c.Warnings) > 0 {
			t.Errorf("%s over %s: %v", c.Arm, c.Base, c.Warnings)
		}
	}
	if want := map[string]string{"B/A": strings.Repeat("same ", 4), "C/A": strings.Repeat("better ", 4)}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("verdicts %v, want %v", got, want)
	}
	if len(r.Overall) != 2 || len(r.Controls) != 2 || r.Controls[1].Arm != "C" || r.Control.Arm != "B" {
		t.Errorf("overall %+v, controls %+v", r.Overall, r.Controls)
	}
}

func TestTrend(t *testing.T) {
	slow := func(by float64) []sample {
		var all []sample
		for pass := 1; pass <= 2; pass++ {
			for block := range 5 {
				wobble := 0.004 * float64((7*block+3*pass)%5-2)
				all = append(all, sample{pass: pass, block: 10*pass + block, value: 0.3*float64(pass) + by*float64(block) + wobble})
			}
		}
		return all
	}
	if got := trend(slow(-0.05)); len(got) != 1 || got[0].Code != CodeTrend || !strings.Contains(got[0].Text, "factor of 0.8") {
		t.Errorf("a ratio that falls by 5 %% in each block: %v", got)
	}
	if got := trend(slow(0)); got != nil {
		t.Errorf("no trend: %v", got)
	}
	if got := trend(slow(0.004)); got != nil {
		t.Errorf("a trend that nobody minds: %v", got)
	}
	if got := trend(slow(-0.05)[:4]); got != nil {
		t.Errorf("too few blocks: %v", got)
	}
}
