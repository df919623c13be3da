package target

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The nodes end and come back where they were; that was asked for, and is no death.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	b, slot := startFake(t, "fake", 1)
	addrs, before := b.Addrs(), b.pids()
	next := func(what string, err error, fresh ...bool) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		now := b.pids()
		for i, want := range fresh {
			if (now[i] != before[i]) != want || !alive(now[i]) {
				t.Errorf("%s: node %d has the process %d, before %d", what, i+1, now[i], before[i])
			}
			if want {
				wantGone(t, before[i])
			}
		}
		if before = now; !slices.Equal(b.Addrs(), addrs) {
			t.Errorf("%s: the addresses are %v, before %v", what, b.Addrs(), addrs)
		}
	}
	next("restart", b.Restart(t.Context()), true)
	next("kill", b.Kill(t.Context()), true)
	if err := b.KillNode(0); err != nil {
		t.Fatal(err)
	}
	wantGone(t, before[0])
	next("start a node", b.StartNode(t.Context(), 0), true)
	if CanFailStore() {
		if err := b.FailStore(); err != nil {
			t.Fatal(err)
		}
		for _, pid := range before {
			wantFileLimit(t, pid, "0")
		}
		next("heal the store", b.HealStore(t.Context()), true)
		wantFileLimit(t, before[0], "unlimited")
	}
	if err := b.KillNode(1); err == nil || !strings.Contains(err.Error(), "there is no node 2") {
		t.Errorf("a node that is not there: %v", err)
	}
	select {
	case <-b.Died():
		t.Errorf("it died: %v", b.Err())
	default:
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	wantGone(t, before...)
	wantEmpty(t, slot.Dir)
	if err := b.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "being stopped") {
		t.Errorf("restart after the end: %v", err)
	}
}

func wantFileLimit(t *testing.T, pid int, want string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(limits)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(line, "Max file size") && f[3] != want {
			t.Errorf("process %d may write files of %s bytes, want %s", pid, f[3], want)
		}
	}
}

// One that dies on its own after a restart has died.
func TestDiesAfterRestart(t *testing.T) {
	t.Parallel()
	b, _ := startFake(t, "fake", 1)
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(b.pids()[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	<-b.Died()
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), "node n1 died") {
		t.Errorf("it died: %v", err)
	}
	if err := (&Broker{program: b.program}).Kill(t.Context()); err == nil || !strings.Contains(err.Error(), "not ours") {
		t.Errorf("a broker without processes: %v", err)
	}
}
