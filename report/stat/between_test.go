package stat_test

import (
	"slices"
	"strings"
	"testing"

	"inflight/report/internal/synth"
	"inflight/report/stat"
	"inflight/runner/result"
)

// What can be said of two runs that are not paired, and what cannot.
func TestBetweenRuns(t *testing.T) {
	t.Parallel()
	one := func(seed uint64, target, name string, rate float64, control bool) *result.Result {
		r := synth.Run{
			Seed: seed, Windows: []int{20}, Passes: 2, Blocks: 4, Noise: 0.02, Control: control,
			Arms: []synth.Arm{{Target: target, Rate: func(qos, _ int) float64 { return rate }}, {Target: target, Rate: func(int, int) float64 { return rate }}},
		}.Result()
		r.Arms = r.Arms[:1]
		r.Cells = slices.DeleteFunc(r.Cells, func(c result.Cell) bool { return c.Arm != "A" })
		r.Arms[0].Name = name
		for i := range r.Cells {
			r.Cells[i].Arm = name
		}
		return r
	}
	none := func(*result.Result) {}
	far := func(r *result.Result) { r.Environment.Cores = 64 }
	for _, test := range []struct {
		why    string
		target string
		rate   float64
		before bool // the control of the earlier run
		edit   func(later *result.Result)
		want   string
		ratio  float64 // about; 0: none
	}{
		{"the same again", "x@1", 1000, true, none, "no more than the runs differ at QoS 0", 1},
		{"twice as fast", "x@2", 2000, true, none, "more than the runs differ at QoS 0 (", 2},
		{"half as fast", "x@2", 500, true, none, "more than the runs differ at QoS 0 (", 0.5},
		{"without a control", "x@2", 2000, false, none, "without a QoS 0 control in both", 2},
		{"another broker", "y", 2000, true, none, "two different brokers share no path", 2},
		{"another machine", "x@2", 2000, true, far, "another share of its own QoS 0 rate", 2},
		{"another machine without a control", "x@2", 2000, false, far, "one of the runs has no QoS 0 control", 0},
		{"another machine and broker", "y", 2000, true, far, "no path to divide by", 0},
		{"an incorrect cell", "x@2", 2000, true, func(r *result.Result) { r.Cells[0].Order.Violations = 1 }, "a broker broke its contract", 0},
	} {
		earlier, later := one(1, "x@1", "old", 1000, test.before), one(2, test.target, "new", test.rate, true)
		test.edit(later)
		both := &result.Result{SideBySide: true, Arms: append(earlier.Arms, later.Arms...), Cells: append(earlier.Cells, later.Cells...), Runs: []result.Run{
			{Environment: earlier.Environment, Arms: []string{"old"}, OwnNames: []string{"A"}},
			{Environment: later.Environment, Arms: []string{"new"}, OwnNames: []string{"A"}},
		}}
		all := stat.BetweenRuns(both)
		if len(all) != 1 || all[0].Base != "old" || all[0].Arm != "new" || !strings.HasPrefix(all[0].Says, test.want) && !strings.Contains(all[0].Says, ", and "+test.want) && !strings.Contains(all[0].Says, test.want) {
			t.Errorf("%s: %+v, want %q", test.why, all, test.want)
			continue
		}
		if strings.HasPrefix(test.want, "more") && !strings.HasPrefix(all[0].Says, "more") {
			t.Errorf("%s: %q", test.why, all[0].Says)
		}
		switch r := all[0].Ratio; {
		case test.ratio == 0 && r != nil, test.ratio > 0 && r == nil:
			t.Errorf("%s: ratio %v", test.why, r)
		case r != nil && (r.Ratio < test.ratio*0.9 || r.Ratio > test.ratio*1.1):
			t.Errorf("%s: ratio %v, want about %v", test.why, r.Ratio, test.ratio)
		}
	}
}

// Arms are compared with what they are most alike.
func TestBetweenRunsPairs(t *testing.T) {
	t.Parallel()
	both := &result.Result{SideBySide: true, Runs: []result.Run{
		{Arms: []string{"1A", "1B"}, OwnNames: []string{"A", "B"}},
		{Arms: []string{"2A", "2B", "2C"}, OwnNames: []string{"A", "B", "C"}},
	}}
	for _, a := range [][2]string{{"1A", "x@1"}, {"1B", "x@2"}, {"2A", "x@2"}, {"2B", "y"}, {"2C", "z"}} {
		both.Arms = append(both.Arms, result.Arm{Name: a[0], Target: a[1]})
		both.Cells = append(both.Cells, result.Cell{Arm: a[0], QoS: 2, Window: 1, Connections: 1})
	}
	var got []string
	for _, b := range stat.BetweenRuns(both) {
		got = append(got, b.Arm+"/"+b.Base)
	}
	if want := []string{"2A/1B", "2B/1B", "2C/1A"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v: the same target, then the same name, then the first", got, want)
	}
}
