package target

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"inflight/scenarios"
)

// Every node of a slot runs on the slot's CPUs, also after it was started again.
func TestSlotCPUs(t *testing.T) {
	t.Parallel()
	var all, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for n := range scenarios.MaxCPU {
		if all.IsSet(n) {
			cpu = n
		}
	}
	want.Set(cpu)
	p, slot := fakeProgram(t, "fake", 20*time.Second)
	slot.CPUs = []int{cpu}
	b, err := p.Start(t.Context(), slot, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop() })
	check := func(when string) {
		t.Helper()
		for i, pid := range b.pids() {
			var got unix.CPUSet
			if err := unix.SchedGetaffinity(pid, &got); err != nil || got != want {
				t.Errorf("%s: node %d may run on %v (%v), want CPU %d alone", when, i+1, got, err, cpu)
			}
		}
	}
	check("at first")
	if err := b.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("started again")

	p, slot = fakeProgram(t, "fake", 20*time.Second)
	slot.CPUs = []int{scenarios.MaxCPU}
	if b, err := p.Start(t.Context(), slot, 1, 0); err == nil {
		t.Errorf("a CPU that is not there is no error: %v", b.Stop())
	}
}
