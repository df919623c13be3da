//go:build unix

package target

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fakeProgram prepares the fake broker.
func fakeProgram(t *testing.T, target string, ready time.Duration) (*Program, Slot) {
	t.Helper()
	spec, err := fakes().parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Prepare(t.Context(), spec, Options{Self: os.Args[0], LogDir: t.TempDir(), ReadyTimeout: ready, Talk: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	return p, Slot{Number: 2, Dir: filepath.Join(t.TempDir(), "slot")}
}

func startFake(t *testing.T, target string, nodes int) (*Broker, Slot) {
	t.Helper()
	p, slot := fakeProgram(t, target, 20*time.Second)
	b, err := p.Start(t.Context(), slot, nodes, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b, slot
}

// alive reports whether there is a process of that id that is not a zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func wantGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		for deadline := time.Now().Add(2 * time.Minute); alive(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("process %d is still there", pid)
				syscall.Kill(pid, syscall.SIGKILL)
				break
			}
		}
	}
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left below the slot's directory: %v (%v)", left, err)
	}
}

func TestBrokerFromStartToStop(t *testing.T) {
	b, slot := startFake(t, "fake", 1)
	if !b.Managed() || !b.Delivers() || b.Version() != "v1.2.3" || b.Nodes() != 1 || len(b.Addrs()) != 1 || b.Durability() != "file" {
		t.Errorf("got managed %v, delivers %v, version %q, nodes %d, addresses %v, durability %q",
			b.Managed(), b.Delivers(), b.Version(), b.Nodes(), b.Addrs(), b.Durability())
	}
	if c := strings.Join(b.Command(), " "); !strings.Contains(c, "--listen="+b.Addrs()[0]) {
		t.Errorf("command %q does not have the address %v", c, b.Addrs())
	}
	u := b.Usage()
	if len(u) != 1 || u[0].Name != "n1" {
		t.Fatalf("usage: got %v, want that of n1", u)
	}
	if measured := runtime.GOOS == "linux"; (u[0].RSSPeak != nil) != measured || (u[0].CPUSeconds != nil) != measured {
		t.Errorf("usage: got %v, want figures exactly where the system has them", u[0])
	} else if measured && (*u[0].RSSPeak < 1<<20 || *u[0].CPUSeconds < 0) {
		t.Errorf("usage: peak RSS %d bytes, %v s", *u[0].RSSPeak, *u[0].CPUSeconds)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	wantGone(t, b.pids()...)
	wantEmpty(t, slot.Dir)
	if b.Err() != nil {
		t.Errorf("stopped, and yet: %v", b.Err())
	}
	select {
	case <-b.Died():
		t.Error("a stopped broker has not died")
	default:
	}
	if u := b.Usage(); (u[0].RSSPeak != nil) != (runtime.GOOS == "linux") {
		t.Error("the usage is lost by stopping")
	}
	log, err := os.ReadFile(b.processes[0].logPath)
	if err != nil || !strings.Contains(string(log), "node n1 of 1") {
		t.Errorf("the log is not kept: %q, %v", log, err)
	}
	if name := filepath.Base(b.processes[0].logPath); name != "2-fake-n1.log" {
		t.Errorf("log %s is not named by slot, kind and node", name)
	}
}

func TestStartFails(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for brokers that do not come; run without -short")
	}
	for _, tt := range []struct {
		name, target string
		nodes        int
		ready        time.Duration
		dead         bool
		want         []string
	}{
		{
			"dies at once", "fake?mode=dies", 1, time.Minute, true,
			[]string{"fake?mode=dies: node n1 died: exit status 3", "\n    line 19\n    fatal: no luck", "2-fake-n1.log"},
		},
		{
			"accepts and never answers", "fake?mode=silent", 1, 4 * time.Second, false,
			[]string{"node n1: not ready after 4s: no CONNACK", "node n1 of 1", "2-fake-n1.log"},
		},
		{
			"says that it is not well", "fake?mode=sick", 1, 4 * time.Second, false,
			[]string{"node n1: not ready after 4s: http://127.0.0.1:", "says 503 Service Unavailable: no leader"},
		},
		{
			"acknowledges and never delivers", "fake?mode=mute", 1, 4 * time.Second, false,
			[]string{"not ready after 4s: the delivery: no PUBLISH"},
		},
		{
			"refuses every client, which no waiting mends", "fake?mode=refuses", 1, time.Minute, false,
			[]string{"node n1: it refuses the connection: not authorized (CONNACK return code 5)", "2-fake-n1.log"},
		},
		{
			"nodes that do not know each other", "fake", 3, 8 * time.Second, false,
			[]string{"node n3: a message published on node n1 does not arrive here: not ready after 8s"},
		},
		{
			"a port is taken each time", "fake?mode=taken", 1, time.Minute, true,
			[]string{"address already in use"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, slot := fakeProgram(t, tt.target, tt.ready)
			b, err := p.Start(t.Context(), slot, tt.nodes, 0)
			if err == nil {
				b.Stop()
				t.Fatal("started")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("got %q\nwant %q in it", err, w)
				}
			}
			if n := strings.Count(err.Error(), "\n"); n > errorLines {
				t.Errorf("%d lines of log in the error, want at most %d", n, errorLines)
			}
			var dead *DeadError
			if errors.As(err, &dead) != tt.dead {
				t.Errorf("a DeadError: %v, want %v", !tt.dead, tt.dead)
			}
			wantEmpty(t, slot.Dir)
		})
	}
}

func TestStartChoosesPortsAgain(t *testing.T) {
	t.Setenv("FAKE_MARKS", t.TempDir())
	b, _ := startFake(t, "fake?mode=once", 1)
	if b.Err() != nil {
		t.Error(b.Err())
	}
}

func TestFixedPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	p, slot := fakeProgram(t, "fake?port="+port, time.Minute)
	_, err = p.Start(t.Context(), slot, 1, 0)
	if want := "port " + port + ", for node n1, is in use"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	wantEmpty(t, slot.Dir)
	l.Close()
	b, err := p.Start(t.Context(), slot, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	if b.Addrs()[0] != "127.0.0.1:"+port {
		t.Errorf("got %v, want port %s", b.Addrs(), port)
	}
}

func TestStartCancelled(t *testing.T) {
	p, slot := fakeProgram(t, "fake?mode=silent", time.Minute)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("interrupted")
	time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
	if _, err := p.Start(ctx, slot, 1, 0); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause %v", err, stop)
	}
	wantEmpty(t, slot.Dir)
}

func TestDiesInTheMiddle(t *testing.T) {
	b, _ := startFake(t, "fake", 1)
	syscall.Kill(b.pids()[0], syscall.SIGKILL)
	select {
	case <-b.Died():
	case <-time.After(2 * time.Minute):
		t.Fatal("its death is not reported")
	}
	var dead *DeadError
	if !errors.As(b.Err(), &dead) || dead.Node != "n1" || dead.Status != "signal: killed" || len(dead.LastLines) == 0 || dead.LogPath == "" {
		t.Errorf("got %+v", b.Err())
	}
}

func TestStopInsists(t *testing.T) {
	b, slot := startFake(t, "fake?mode=stubborn", 1)
	p := b.processes[0]
	if err := p.stop(20 * time.Millisecond); err != nil { // not the 5 s that users wait for
		t.Error(err)
	}
	if p.status != "signal: killed" {
		t.Errorf("ended with %q, want it killed after it ignored SIGTERM", p.status)
	}
	b.Stop()
	wantGone(t, b.pids()...)
	wantEmpty(t, slot.Dir)
}

// childOf reads the id of the child that a fake broker says it has started.
func childOf(t *testing.T, b *Broker) int {
	t.Helper()
	for _, line := range b.processes[0].lastLines() {
		if _, id, ok := strings.Cut(line, "child "); ok {
			pid, err := strconv.Atoi(id)
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("the broker did not say which child it started")
	return 0
}

func TestStopEndsTheWholeGroup(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: elsewhere a group is only ended together with its leader")
	}
	b, _ := startFake(t, "fake?mode=parent", 1)
	child := childOf(t, b) // ignores SIGTERM and outlives its parent
	if !alive(child) {
		t.Fatal("there is no child to end")
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	wantGone(t, append(b.pids(), child)...)
}

func TestConcurrentStops(t *testing.T) {
	b, _ := startFake(t, "fake", 1)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := b.Stop(); err != nil {
				t.Error(err)
			}
			if alive(b.pids()[0]) {
				t.Error("returned before the process had ended")
			}
		})
	}
	all.Wait()
}

// The kernel kills a child with the thread that forked it: the end of other threads must not count.
func TestChildrenOutliveThreads(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: only there children are tied to threads")
	}
	started := make(chan *Broker)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		b, _ := startFake(t, "fake", 1)
		started <- b
	}()
	b := <-started
	var all sync.WaitGroup
	for range 8 {
		all.Go(runtime.LockOSThread)
	}
	all.Wait()
	select {
	case <-b.Died():
		t.Error(b.Err())
	case <-time.After(200 * time.Millisecond):
	}
}

func TestNoOrphansOfAKilledHarness(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: only there children can be tied to the harness")
	}
	harness := exec.Command(os.Args[0], "harness", t.TempDir())
	out, err := harness.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	said := lines(out)
	for range 2 {
		line := <-said
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatalf("the harness says %q, want a process id", line)
		}
		if !alive(pid) {
			t.Errorf("process %d is not there before the harness is killed", pid)
		}
		pids = append(pids, pid)
	}
	harness.Process.Kill()
	for range said { // until the pipe is closed
	}
	harness.Wait()
	wantGone(t, pids...)
}

func TestAddress(t *testing.T) {
	b, _ := startFake(t, "fake", 1)
	spec, err := Parse("tcp://" + b.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	p, err := Prepare(t.Context(), spec, Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.Start(t.Context(), Slot{}, 3, 3)
	if err != nil {
		t.Fatal(err)
	}
	if a.Managed() || !a.Delivers() || a.Nodes() != 1 || a.Version() != unknownVersion || a.Usage() != nil || a.Command() != nil || a.Durability() != "" {
		t.Errorf("got managed %v, delivers %v, nodes %d, version %q, usage %v, command %v, durability %q",
			a.Managed(), a.Delivers(), a.Nodes(), a.Version(), a.Usage(), a.Command(), a.Durability())
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if !alive(b.pids()[0]) {
		t.Error("a broker that was not started was stopped")
	}
	b.Stop()
	_, err = p.Start(t.Context(), Slot{}, 1, 1)
	var notReady *NotReadyError
	if want := "is an MQTT 3.1.1 broker listening there?"; !errors.As(err, &notReady) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want a NotReadyError with the hint %q", err, want)
	}
}
