package main

import (
	"runtime"
	"testing"
	"time"
)

func TestHeadroom(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, test := range []struct {
		live uint64
		want int
		why  string
	}{
		{0, 100, "nothing was collected yet"},
		{5 * mib, 100, "an idle broker"},
		{24 * mib, 100, "no backlog"},
		{25 * mib, 100, "steps of five, rounded up"},
		{30 * mib, 80, "24 MiB of head room"},
		{48 * mib, 50, "24 MiB of head room"},
		{500 * mib, 50, "half of what is in use"},
	} {
		if got := headroomPercent(test.live); got != test.want {
			t.Errorf("%d MiB: %d %%, want %d (%s)", test.live/mib, got, test.want, test.why)
		}
	}
	before := -1
	for live := uint64(0); live < 200*mib; live += mib / 4 {
		head := int(live) * headroomPercent(live) / 100
		if head < before-int(live)/20 { // a step
			t.Fatalf("%d KiB in use have %d KiB of head room, fewer had %d", live>>10, head>>10, before>>10)
		}
		before = max(before, head)
	}
}

// Each collection calls, until it is told not to.
func TestAfterCollections(t *testing.T) {
	t.Parallel()
	calls := make(chan uint64)
	n := 0
	afterCollections(func() bool {
		calls <- heapInUse()
		n++
		return n < 3
	})
	for i := range 3 {
		for called := false; !called; {
			runtime.GC()
			select {
			case live := <-calls:
				if called = true; live == 0 {
					t.Errorf("call %d: nothing is in use", i+1)
				}
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	runtime.GC()
	select {
	case <-calls:
		t.Error("called after it was told not to")
	case <-time.After(50 * time.Millisecond):
	}
}
