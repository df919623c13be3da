package runner

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"inflight/scenarios"
)

// lastCPU is one that this process may run on.
func lastCPU(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for n := scenarios.MaxCPU; n >= 0; n-- {
		if set.IsSet(n) {
			return n
		}
	}
	t.Fatal("no CPU")
	return 0
}

// The generator keeps to its CPUs as long as the run lasts, and both the result and the user are told the plan. That the
// brokers keep to theirs is package target's.
func TestRunPinned(t *testing.T) {
	cpu := lastCPU(t)
	processors := runtime.GOMAXPROCS(0)
	cfg := against(t, func(s *scenarios.Scenario) {
		s.Windows, s.Passes, s.Control, s.Verify = []int{20}, 1, scenarios.None, scenarios.None
		s.Pin = fmt.Sprintf("%d/%d", cpu, cpu)
	})
	said := ""
	cfg.Progress = func(e Event) {
		if e.Kind == Talk {
			said += e.Text + "\n"
		}
	}
	res, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if p := res.Environment.Pinning; p == nil || p.Auto || p.Generator != fmt.Sprint(cpu) || len(p.Slots) != 2 || p.Slots[1] != p.Generator || p.Note == "" {
		t.Errorf("pinning %+v", p)
	}
	if n := res.Environment.GOMAXPROCS; os.Getenv("GOMAXPROCS") == "" && n != 1 {
		t.Errorf("Go used %d processors on one CPU", n)
	}
	if want := fmt.Sprintf("pinned: the generator to CPU %d, every slot to CPU %d (the generator and slot 1 share CPU %d)", cpu, cpu, cpu); !strings.Contains(said, want) {
		t.Errorf("the user was told %q, want %q", said, want)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil || set.Count() < 1 || runtime.GOMAXPROCS(0) != processors {
		t.Errorf("after the run: %d CPUs (%v), Go uses %d processors, %d before", set.Count(), err, runtime.GOMAXPROCS(0), processors)
	}
}

// A list that asks for what is not there is refused before anything is started; of an automatic plan a run can do without.
func TestRunPinnedImpossible(t *testing.T) {
	cfg := against(t, func(s *scenarios.Scenario) { s.Pin = "0/1023" })
	if res, err := Run(t.Context(), cfg); res != nil || err == nil || !strings.Contains(err.Error(), "1023 is not among the CPUs") {
		t.Errorf("%v, %v", res, err)
	}
}
