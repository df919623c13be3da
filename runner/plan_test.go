package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inflight/scenarios"
)

func scenario(change func(*scenarios.Scenario)) scenarios.Scenario {
	s := scenarios.Scenario{
		Name:        "test",
		Arms:        []scenarios.Arm{{Name: "A", Target: "null"}, {Name: "B", Target: "null"}},
		QoS:         []int{2},
		Windows:     []int{1, 10, 20, 256},
		Connections: []int{1},
		Payloads:    []int{256},
		Duration:    800 * time.Millisecond,
		Warmup:      100 * time.Millisecond,
		Control:     400 * time.Millisecond,
		Passes:      2,
		Blocks:      3,
		Nodes:       1,
		Replicas:    1,
		Verify:      500 * time.Millisecond,
		Drain:       20 * time.Second,
	}
	if change != nil {
		change(&s)
	}
	return s
}

func mustPlan(t *testing.T, s scenarios.Scenario) *Plan {
	t.Helper()
	plan, err := NewPlan(s)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// table writes a pass one line a row: a block is "window: letters", a lower-case letter being a control run.
func table(plan *Plan, pass *Pass) []string {
	var lines []string
	var line string
	flush := func() {
		if line != "" {
			lines = append(lines, line)
		}
		line = ""
	}
	for i := range pass.Steps {
		step := &pass.Steps[i]
		letter := plan.Scenario.Arms[step.Arm].Name
		switch step.Action {
		case Measure:
			if step.Position == 1 && (step.Control || plan.Scenario.Control <= 0) {
				flush()
				line = fmt.Sprintf("block %d q%d w%d: ", step.Block, step.Point.QoS, step.Point.Window)
			}
			if step.Control {
				letter = strings.ToLower(letter)
			}
			line += letter
		default:
			flush()
			lines = append(lines, fmt.Sprintf("%v q%d w%d %s", step.Action, step.Point.QoS, step.Point.Window, letter))
		}
	}
	flush()
	return lines
}

func TestPlanOfTheDefault(t *testing.T) {
	plan := mustPlan(t, scenario(nil))
	want := [][]string{
		{
			"settle q2 w256 A", "settle q2 w256 B",
			"block 1 q2 w1: aAbBbBaA", "block 1 q2 w10: bBaAaAbB", "block 1 q2 w20: aAbBbBaA", "block 1 q2 w256: bBaAaAbB",
			"block 2 q2 w256: aAbBbBaA", "block 2 q2 w20: bBaAaAbB", "block 2 q2 w10: aAbBbBaA", "block 2 q2 w1: bBaAaAbB",
			"block 3 q2 w1: aAbBbBaA", "block 3 q2 w10: bBaAaAbB", "block 3 q2 w20: aAbBbBaA", "block 3 q2 w256: bBaAaAbB",
			"verify q2 w1 A", "verify q2 w1 B", "verify q2 w10 A", "verify q2 w10 B",
			"verify q2 w20 A", "verify q2 w20 B", "verify q2 w256 A", "verify q2 w256 B",
		},
		{
			"settle q2 w256 B", "settle q2 w256 A",
			"block 1 q2 w256: aAbBbBaA", "block 1 q2 w20: bBaAaAbB", "block 1 q2 w10: aAbBbBaA", "block 1 q2 w1: bBaAaAbB",
			"block 2 q2 w1: aAbBbBaA", "block 2 q2 w10: bBaAaAbB", "block 2 q2 w20: aAbBbBaA", "block 2 q2 w256: bBaAaAbB",
			"block 3 q2 w256: aAbBbBaA", "block 3 q2 w20: bBaAaAbB", "block 3 q2 w10: aAbBbBaA", "block 3 q2 w1: bBaAaAbB",
			"verify q2 w1 B", "verify q2 w1 A", "verify q2 w10 B", "verify q2 w10 A",
			"verify q2 w20 B", "verify q2 w20 A", "verify q2 w256 B", "verify q2 w256 A",
		},
	}
	for i, pass := range plan.Passes {
		if diff := cmp.Diff(want[i], table(plan, &pass)); diff != "" {
			t.Errorf("pass %d (-want +got):\n%s", pass.Number, diff)
		}
	}
	if diff := cmp.Diff([]int{1, 2}, plan.Passes[0].Slots); diff != "" {
		t.Errorf("slots of pass 1: %s", diff)
	}
	if diff := cmp.Diff([]int{2, 1}, plan.Passes[1].Slots); diff != "" {
		t.Errorf("slots of pass 2: %s", diff)
	}
}

func TestPlanIsBalanced(t *testing.T) {
	for name, change := range map[string]func(*scenarios.Scenario){
		"the default":            nil,
		"an even block count":    func(s *scenarios.Scenario) { s.Blocks = 4 },
		"an odd number of cells": func(s *scenarios.Scenario) { s.Windows = []int{1, 20, 256} },
		"two QoS levels":         func(s *scenarios.Scenario) { s.QoS = []int{1, 2} },
		"no control":             func(s *scenarios.Scenario) { s.Control = -1 },
		"four passes":            func(s *scenarios.Scenario) { s.Passes = 4; s.Blocks = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			plan := mustPlan(t, scenario(change))
			type place struct {
				key      cellKey
				position int
			}
			positions := map[place]int{}
			slots := map[[2]int]int{}
			moments := map[cellKey]int{} // sum over the blocks of the two runs' positions, twice the centre
			for _, pass := range plan.Passes {
				for arm, slot := range pass.Slots {
					slots[[2]int{arm, slot}]++
				}
				for i := range pass.Steps {
					step := &pass.Steps[i]
					if step.Action != Measure {
						continue
					}
					positions[place{step.key(), step.Position}]++
					moments[step.key()] += 2*step.Position - 5
				}
			}
			for arm := range 2 {
				if slots[[2]int{arm, 1}] != slots[[2]int{arm, 2}] {
					t.Errorf("arm %d is not in each slot equally often: %v", arm, slots)
				}
			}
			for p, n := range positions {
				other := p
				other.key.arm = 1 - p.key.arm
				if positions[other] != n {
					t.Errorf("position %d of %+v: one arm %d times, the other %d times", p.position, p.key, n, positions[other])
				}
			}
			for key, moment := range moments {
				if moment != 0 {
					t.Errorf("a linear drift does not cancel in the blocks of %+v: moment %d", key, moment)
				}
			}
		})
	}
}

// TestPlanOfThreeArms: over as many passes and blocks as there are arms each arm is in each slot and begins a block equally
// often, and a drift cancels.
func TestPlanOfThreeArms(t *testing.T) {
	plan := mustPlan(t, scenario(func(s *scenarios.Scenario) {
		s.Arms = append(s.Arms, scenarios.Arm{Name: "C", Target: "null"})
		s.Windows = []int{1, 20}
		s.Passes, s.Blocks, s.Control, s.Verify = 3, 3, -1, -1
	}))
	want := []string{
		"settle q2 w20 A", "settle q2 w20 B", "settle q2 w20 C",
		"block 1 q2 w1: ABCCBA", "block 1 q2 w20: BCAACB",
		"block 2 q2 w20: CABBAC", "block 2 q2 w1: BCAACB",
		"block 3 q2 w1: CABBAC", "block 3 q2 w20: ABCCBA",
	}
	if diff := cmp.Diff(want, table(plan, &plan.Passes[0])); diff != "" {
		t.Errorf("pass 1 (-want +got):\n%s", diff)
	}
	slots := map[[2]int]int{}
	first := map[cellKey]int{}
	moments := map[cellKey]int{}
	for _, pass := range plan.Passes {
		for arm, slot := range pass.Slots {
			slots[[2]int{arm, slot}]++
		}
		for i := range pass.Steps {
			if step := &pass.Steps[i]; step.Action == Measure {
				moments[step.key()] += 2*step.Position - 7
				if step.Position == 1 {
					first[step.key()]++
				}
			}
		}
	}
	if len(slots) != 9 {
		t.Errorf("each arm should be in each slot once: %v", slots)
	}
	for key, moment := range moments {
		if moment != 0 || first[key] != 3 {
			t.Errorf("%+v: moment %d, begins %d blocks, want 0 and 3", key, moment, first[key])
		}
	}
}

func TestPlanNumbersTheBlocksOfACell(t *testing.T) {
	plan := mustPlan(t, scenario(func(s *scenarios.Scenario) { s.QoS = []int{1, 2} }))
	seen := map[cellKey]map[[2]int]bool{}
	last := map[cellKey]int{}
	highest := map[bool]int{}
	for _, pass := range plan.Passes {
		clear(last)
		for i := range pass.Steps {
			step := &pass.Steps[i]
			key := step.key()
			if last[key] > 0 {
				t.Errorf("pass %d: a step of %+v after its last", pass.Number, key)
			}
			if step.Last {
				last[key]++
			}
			if step.Action != Measure {
				continue
			}
			if seen[key] == nil {
				seen[key] = map[[2]int]bool{}
			}
			place := [2]int{step.Number, step.Position}
			if seen[key][place] {
				t.Errorf("cell %+v: block %d, position %d twice", key, step.Number, step.Position)
			}
			seen[key][place] = true
			highest[step.Control] = max(highest[step.Control], step.Number)
		}
		if got, want := len(last), 2*(4*2+4); got != want {
			t.Errorf("pass %d completes %d cells, want %d: 2 arms, 4 windows at 2 QoS levels, 4 controls", pass.Number, got, want)
		}
	}
	if highest[false] != 6 {
		t.Errorf("measured blocks are numbered to %d, want 6", highest[false])
	}
	if highest[true] != 12 {
		t.Errorf("control blocks are numbered to %d, want 12: two QoS levels share a control", highest[true])
	}
}

func TestPlanOfOneArm(t *testing.T) {
	plan := mustPlan(t, scenario(func(s *scenarios.Scenario) {
		s.Arms = s.Arms[:1]
		s.Windows = []int{1, 20}
		s.Blocks = 2
		s.Verify = -1
	}))
	want := []string{"settle q2 w20 A", "block 1 q2 w1: aA", "block 1 q2 w20: aA", "block 2 q2 w20: aA", "block 2 q2 w1: aA"}
	if diff := cmp.Diff(want, table(plan, &plan.Passes[0])); diff != "" {
		t.Errorf("pass 1 (-want +got):\n%s", diff)
	}
	for _, pass := range plan.Passes {
		if diff := cmp.Diff([]int{1}, pass.Slots); diff != "" {
			t.Errorf("pass %d: one arm has no slot to swap with: %s", pass.Number, diff)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*scenarios.Scenario)
		want   string
	}{
		"no arm":        {func(s *scenarios.Scenario) { s.Arms = nil }, "no arm"},
		"many arms":     {func(s *scenarios.Scenario) { s.Arms = slices.Repeat(s.Arms, 4) }, "8 arms; the most is 6"},
		"no window":     {func(s *scenarios.Scenario) { s.Windows = nil }, "no point to measure"},
		"a point twice": {func(s *scenarios.Scenario) { s.Windows = []int{20, 1, 20} }, "window 20, 1 connections, 256 bytes is listed twice"},
		"no pass":       {func(s *scenarios.Scenario) { s.Passes = 0 }, "0 passes"},
		"no block":      {func(s *scenarios.Scenario) { s.Blocks = 0 }, "0 blocks"},
		"no duration":   {func(s *scenarios.Scenario) { s.Duration = 0 }, "above zero"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewPlan(scenario(test.change))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that says %q", err, test.want)
			}
		})
	}
}

func TestForecastLearns(t *testing.T) {
	plan := mustPlan(t, scenario(nil))
	f := newForecast(plan)
	before := f.left()
	if before != plan.Duration() || before < 2*time.Minute || before > 4*time.Minute {
		t.Errorf("the default takes %v by the estimate, want between 2 and 4 minutes", before)
	}
	f.done(phaseStart, estimateStart, estimateStart/2)
	if got, want := f.left(), before-estimateStart-estimateStart/2; got != want {
		t.Errorf("a start took half of its estimate: %v left, want %v, the second start halved too", got, want)
	}
	for _, pass := range plan.Passes {
		for i := range pass.Steps {
			estimate := plan.Estimate(&pass.Steps[i])
			f.done(pass.Steps[i].phase(), estimate, estimate)
		}
		f.done(phaseStart, estimateStart, estimateStart)
		f.done(phaseStop, estimateStop, estimateStop)
	}
	if got := f.left(); got != 0 {
		t.Errorf("everything is done and %v is left", got)
	}
}

func TestDescriptorsAreCounted(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) { s.Connections, s.Subscribers = []int{1, 500}, 50 })
	if err := checkDescriptors(&s, 1, 650); err != nil {
		t.Error(err)
	}
	err := checkDescriptors(&s, 1, 649)
	if err == nil || !strings.Contains(err.Error(), "500 connections and 50 subscribers need 650 open files, and this process may have 649") {
		t.Errorf("got %v", err)
	}
}
