package target

import (
	"bytes"
	"os"
	"strconv"
	"testing"
	"time"
)

// state is that of a process: R, S, D, T for stopped; 0 when it is gone.
func state(t *testing.T, pid int) byte {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	_, after, _ := bytes.Cut(stat, []byte(") ")) // behind the name
	return after[0]
}

// A broker with the parameter slow is stopped again and again while it is asked to be slow, and never afterwards.
func TestSlow(t *testing.T) {
	t.Parallel()
	p, slot := fakeProgram(t, "fake?slow=100", 20*time.Second)
	b, err := p.Start(t.Context(), slot, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop() })
	pid := b.pids()[0]
	for round := range 2 {
		back := b.Slow()
		for _, stopped := range []bool{true, false, true} {
			for (state(t, pid) == 'T') != stopped {
				if t.Context().Err() != nil || state(t, pid) == 0 {
					t.Fatalf("round %d: the broker is in state %q, stopped is to be %v", round, state(t, pid), stopped)
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
		back()
		back()
		if err := b.ready(t.Context(), 20*time.Second); err != nil || state(t, pid) == 'T' {
			t.Fatalf("round %d: afterwards: %v, state %q", round, err, state(t, pid))
		}
	}
	select {
	case <-b.Died():
		t.Errorf("a stopped broker counts as dead: %v", b.Err())
	default:
	}
	back := b.Slow()
	if err := b.Stop(); err != nil {
		t.Errorf("stop a slow broker: %v", err)
	}
	back()
}
