package target

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
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

// Relays lie between the nodes of a cluster that was started with them, and nowhere else.
func TestRelays(t *testing.T) {
	t.Parallel()
	p, slot := fakeProgram(t, "fake", 20*time.Second)
	p.options.Relayed = true
	b, err := p.launch(slot, 2, 1) // not Start: the fakes know nothing of each other
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	for i := range b.data {
		conf, err := os.ReadFile(b.data[i].Node.root + "/fake.conf")
		if err != nil {
			t.Fatal(err)
		}
		own, other := b.data[i].Node, b.data[1-i].Node
		at := func(n *node) string { addr, _ := n.address("health"); return addr }
		for _, part := range []string{at(own), other.Relay} {
			if !strings.Contains(string(conf), part) {
				t.Errorf("%q does not name %s", conf, part)
			}
		}
		if strings.Contains(string(conf), at(other)) {
			t.Errorf("%q names the other node itself", conf)
		}
		for status := 0; status != http.StatusOK; { // it is not well at once
			res, err := http.Get("http://" + own.Relay + "/healthz")
			if err != nil {
				t.Fatalf("over the relay: %v", err)
			}
			status = res.StatusCode
			_ = res.Body.Close()
		}
	}
	if err := errors.Join(b.SlowStore(), b.FastStore()); err != nil {
		t.Error(err)
	}
	alone, _ := startFake(t, "fake", 1)
	if err := alone.SlowStore(); err == nil || !strings.Contains(err.Error(), "no relay between its nodes") {
		t.Errorf("a node alone: %v", err)
	}
	for target, want := range map[string]bool{
		"reference?nodes=3": true, "reference": false, "reference?nodes=3&replicas=1": false, "nats-server@v2.15.3?nodes=3": true,
		"mosquitto": false, "tcp://127.0.0.1:1": false,
	} {
		spec, err := Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Relays(0, 0) != want {
			t.Errorf("%s can be made slow: %v, want %v", target, !want, want)
		}
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
