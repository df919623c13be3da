package pin

import (
	"reflect"
	"strings"
	"testing"
)

// machine makes CPUs numbered as Linux does: the first of every core, then the second.
func machine(cores, threads int) []CPU {
	var all []CPU
	for thread := range threads {
		for core := range cores {
			all = append(all, CPU{Number: thread*cores + core, Core: core})
		}
	}
	return all
}

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		why   string
		cpus  []CPU
		slots int
		want  Plan
	}{
		{"nothing to divide", machine(1, 1), 2, Plan{Auto: true, Note: "not pinned: there is one CPU for generator and brokers"}},
		{
			"two CPUs: brokers share the second",
			machine(2, 1), 2,
			Plan{Auto: true, Generator: []int{0}, Slots: [][]int{{1}, {1}}, Note: "every node of a broker shares CPU 1: rates are lower than without a plan, and steadier"},
		},
		{
			"one core of two threads is divided all the same",
			machine(1, 2), 1,
			Plan{Auto: true, Generator: []int{0}, Slots: [][]int{{1}}, Note: "every node of a broker shares CPU 1: rates are lower than without a plan, and steadier"},
		},
		{"a core stays whole", machine(2, 2), 2, Plan{Auto: true, Generator: []int{0, 2}, Slots: [][]int{{1, 3}, {1, 3}}}},
		{"too few for slots of their own", machine(4, 1), 2, Plan{Auto: true, Generator: []int{0}, Slots: [][]int{{1, 2, 3}, {1, 2, 3}}}},
		{"one slot has all the rest", machine(4, 1), 1, Plan{Auto: true, Generator: []int{0}, Slots: [][]int{{1, 2, 3}}}},
		{"slots of their own, of like size", machine(8, 1), 2, Plan{Auto: true, Generator: []int{0, 1}, Slots: [][]int{{2, 3, 4}, {5, 6, 7}}}},
		{"three arms", machine(8, 1), 3, Plan{Auto: true, Generator: []int{0, 1}, Slots: [][]int{{2, 3}, {4, 5}, {6, 7}}}},
		{
			"a cpuset that leaves gaps",
			[]CPU{{Number: 5, Core: 5}, {Number: 3, Core: 3}},
			2,
			Plan{Auto: true, Generator: []int{3}, Slots: [][]int{{5}, {5}}, Note: "every node of a broker shares CPU 5: rates are lower than without a plan, and steadier"},
		},
	} {
		if got := divide(c.cpus, c.slots); !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.why, *got, c.want)
		}
	}
}

func TestPlanOfList(t *testing.T) {
	p, err := planOf("0/1-2", 2, machine(4, 1))
	if err != nil || !reflect.DeepEqual(p.Slots, [][]int{{1, 2}, {1, 2}}) || p.Note != "" {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = planOf("0/1/0", 2, machine(4, 1))
	if err != nil || p.Note != "the generator and slot 2 share CPU 0" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := planOf("0,9/1,4-5", 2, machine(4, 1)); err == nil || !strings.Contains(err.Error(), "4-5,9 is not among the CPUs that this process may run on, 0-3") {
		t.Errorf("CPUs that are not there: %v", err)
	}
}

func TestFormat(t *testing.T) {
	for want, set := range map[string][]int{"": nil, "0": {0}, "0-1": {0, 1}, "0,2-4,7": {0, 2, 3, 4, 7}} {
		if got := Format(set); got != want {
			t.Errorf("%v: %q, want %q", set, got, want)
		}
	}
}
