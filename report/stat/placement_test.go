package stat

import (
	"strings"
	"testing"

	"inflight/runner/result"
)

// placed is the placement of an arm in a pass: stream and node in turns.
func placed(arm string, pass int, leaders ...string) result.Placement {
	p := result.Placement{Arm: arm, Pass: pass, Slot: 1, First: "n1"}
	for i := 0; i < len(leaders); i += 2 {
		p.Leaders = append(p.Leaders, result.Leader{Stream: leaders[i], Node: leaders[i+1]})
	}
	return p
}

func TestPlacementWarnings(t *testing.T) {
	moved := placed("B", 1, "s", "n1")
	moved.Moved = []result.Leader{{Stream: "s", Node: "n2"}}
	for _, c := range []struct {
		why  string
		arms []string
		all  []result.Placement
		want string // "": no warning
	}{
		{"nothing is known", []string{"A", "B"}, nil, ""},
		{"of one arm alone it is", []string{"A", "B"}, []result.Placement{placed("A", 1, "s", "n2"), placed("A", 2, "s", "n3")}, ""},
		{"the same nodes", []string{"A", "B"}, []result.Placement{placed("A", 1, "s", "n2", "t", "n1"), placed("B", 1, "s", "n2", "t", "n1")}, ""},
		{
			"the same number near, and not the same streams",
			[]string{"A", "B"},
			[]result.Placement{placed("A", 1, "s", "n2", "t", "n1"), placed("B", 1, "s", "n1", "t", "n2")},
			"the streams of A and B were not led alike, which alone may move rates; led by the node of the first publisher, pass by pass: A 1 of 2; B 1 of 2",
		},
		{
			"leaders drawn anew in each pass",
			[]string{"A", "B"},
			[]result.Placement{placed("A", 1, "s", "n1"), placed("B", 1, "s", "n1"), placed("A", 2, "s", "n1"), placed("B", 2, "s", "n3")},
			"A 1 of 1, 1 of 1; B 1 of 1, 0 of 1",
		},
		{"other streams, near to the same extent", []string{"A", "B"}, []result.Placement{placed("A", 1, "s", "n1"), placed("B", 1, "t", "n1", "u", "n1")}, ""},
		{"other streams, led elsewhere", []string{"A", "B"}, []result.Placement{placed("A", 1, "s", "n1"), placed("B", 1, "t", "n1", "u", "n2")}, "A 1 of 1; B 1 of 2"},
		{"moved inside a pass", []string{"A", "B"}, []result.Placement{placed("A", 1, "s", "n1"), moved}, "B 1 of 1 (1 moved)"},
		{"one arm, alike", []string{"A"}, []result.Placement{placed("A", 1, "s", "n2"), placed("A", 2, "s", "n2")}, ""},
		{"one arm", []string{"A"}, []result.Placement{placed("A", 1, "s", "n2"), placed("A", 2, "s", "n1")}, "the streams of A were not led alike all the time"},
	} {
		r := &result.Result{Placements: c.all}
		for _, name := range c.arms {
			r.Arms = append(r.Arms, result.Arm{Name: name, Target: "x"})
		}
		for range 2 { // a second judgement says it once, too
			Judge(r)
		}
		var said []string
		for _, w := range r.Warnings {
			if w.Code == CodePlacement {
				said = append(said, w.Text)
			}
		}
		if c.want == "" && len(said) > 0 || c.want != "" && (len(said) != 1 || !strings.Contains(said[0], c.want)) {
			t.Errorf("%s: %q, want %q", c.why, said, c.want)
		}
	}
}
