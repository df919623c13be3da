package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/packet"
)

// onSmallDisks puts the directory of each process on a disk of its own, as a mount that only the process sees.
func onSmallDisks(t *testing.T, all []*brokerProcess, program string) {
	t.Helper()
	const mount = "mount -t tmpfs -o size=40m tmpfs "
	probe := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount+t.TempDir())
	if out, err := probe.CombinedOutput(); err != nil {
		missing := fmt.Sprintf("needs unshare (util-linux) and the right to mount a tmpfs in a user namespace: %v: %s", err, out)
		if os.Getenv("INFLIGHT_REQUIRE_PEERS") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing + " (INFLIGHT_REQUIRE_PEERS=1 makes this a failure)")
	}
	for _, p := range all {
		script := mount + storeDir(p) + ` && exec "$0" "$@"`
		p.args = append([]string{"--user", "--map-root-user", "--mount", "sh", "-c", script, program}, p.args...)
	}
}

// storeDir is a process' --store-dir.
func storeDir(p *brokerProcess) string {
	for i, arg := range p.args {
		if arg == "--store-dir" {
			return p.args[i+1]
		}
	}
	return ""
}

// fill leaves no room on the disk of a process; empty makes some.
func fill(t *testing.T, p *brokerProcess) {
	t.Helper()
	f, err := os.Create(filler(p))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is full
	block := make([]byte, 1<<16)
	for err == nil {
		if _, err = f.Write(block); err != nil && len(block) > 1 {
			block, err = block[:len(block)/2], nil
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

func empty(t *testing.T, p *brokerProcess) {
	t.Helper()
	if err := os.Remove(filler(p)); err != nil {
		t.Fatal(err)
	}
}

func filler(p *brokerProcess) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", p.cmd.Process.Pid), storeDir(p), "filler")
}

// Three processes lose their majority, then the disks of two are full. What cannot be kept is not acknowledged: the
// connections that wait for it are closed, new ones are refused, and when the trouble is over all goes on without a hand.
func TestNothingCanBeKept(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program and starts three of it; run without -short")
	}
	all, program := processes(t, StoreJournal, 3)
	for _, p := range all {
		p.args = append(p.args, "--store-timeout", "1s", "--sync")
	}
	onSmallDisks(t, all, program)
	c := startCrashed(t, all, "unshare")
	both := func(do func(p *brokerProcess)) func() {
		return func() {
			do(all[1])
			do(all[2])
		}
	}
	s := c.login("subscriber", true)
	s.subscribe("t", 2)
	_ = s.nc.Close()
	c.all = all[:1] // clients come to the one that is not touched
	var want []string
	for _, trouble := range []struct {
		name       string
		begin, end func()
	}{
		{
			"no majority",
			both(func(p *brokerProcess) { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }),
			both(func(p *brokerProcess) { _ = p.cmd.Process.Signal(syscall.SIGCONT) }),
		},
		{"full disks", both(func(p *brokerProcess) { fill(t, p) }), both(func(p *brokerProcess) { empty(t, p) })},
	} {
		t.Log(trouble.name)
		held, during := trouble.name+" held", strings.Repeat("x", 100_000)+trouble.name
		want = append(want, held, during)
		p := c.persist(nil, "publisher", len(want) == 2, dup(1, 2, "t", held), "PUBREC 1")
		trouble.begin()
		p.send(pub(2, 2, "t", during), ack(packet.PUBREL, 1))
		if f, err := p.next(); err == nil {
			t.Errorf("%s: %s, want the connection closed without an acknowledgement", trouble.name, describe(f))
		}
		if p, got := c.attempt("another"); p != nil {
			t.Errorf("%s: a new connection gets %s", trouble.name, got)
		}
		trouble.end()
		ended := time.Now()
		p = c.persist(nil, "publisher", false, append(dup(2, 2, "t", during), ack(packet.PUBREL, 1)...), "PUBREC 2", "PUBCOMP 1")
		t.Logf("%s: over after %v", trouble.name, time.Since(ended))
		p = c.persist(p, "publisher", false, ack(packet.PUBREL, 2), "PUBCOMP 2")
		_ = p.nc.Close()
	}
	r := &receiver{t: t, pending: map[uint16]string{}}
	for len(r.got) < len(want) || len(r.pending) > 0 {
		p := c.login("subscriber", false)
		if p == nil {
			t.Fatalf("%d messages came, want %d", len(r.got), len(want))
		}
		r.connection(p, len(want), time.Now().Add(2*time.Second))
	}
	r.connection(c.login("subscriber", false), 1<<30, time.Now().Add(2*quiet)) // and nothing more
	if !slices.Equal(r.got, want) {
		t.Errorf("%d messages came, want %d, each once and in order", len(r.got), len(want))
	}
}

// persist sends b, on p or else on a new connection, until these answers have come on one connection, in any order: a
// broker that is short of time closes a connection without them, and the client sends again.
func (c *crashes) persist(p *peer, id string, first bool, b []byte, answers ...string) *peer {
	c.t.Helper()
	for {
		if p == nil {
			if p = c.login(id, first); p == nil {
				c.t.FailNow()
			}
			first = false
		}
		left := make(map[string]bool)
		for _, a := range answers {
			left[a] = true
		}
		_, err := p.nc.Write(b)
		for err == nil && len(left) > 0 {
			var f packet.Frame
			if f, err = p.next(); err != nil {
				break
			}
			got := describe(f)
			if !left[got] {
				c.t.Fatalf("want %v, got %s", left, got)
			}
			delete(left, got)
		}
		if err == nil {
			return p
		}
		c.t.Logf("closed without %v: %v", left, err)
		_ = p.nc.Close()
		p = nil
	}
}

// The journal of a running cluster is deleted. Sessions go on, nothing is acknowledged that is not kept, and nobody has
// to help.
func TestJournalDeletedUnderACluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	nodes := cluster(t, with(StoreJournal), func(c *Config) { c.StoreTimeout = 5 * time.Second })
	s := connect(t, nodes[1], "s", "keep")
	s.subscribe("t", 2)
	p := connect(t, nodes[0], "p", "keep")
	p.completes(1, "t", "before")
	s.want(`PUBLISH q2 t "before"`)
	s.send(ack(packet.PUBREC, 1))
	s.want("PUBREL 1")
	s.send(ack(packet.PUBCOMP, 1))

	js, err := jetstream.New(nodes[0].nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := js.DeleteStream(ctx, "INF_journal"); err != nil {
		t.Fatal(err)
	}
	// Until there is a journal again this waits, or the connection is closed without an acknowledgement and it is sent again.
	began := time.Now()
	p.send(pub(2, 2, "t", "after"))
	for {
		f, err := p.next()
		if err == nil {
			if got := describe(f); got != "PUBREC 2" {
				t.Fatalf("want PUBREC 2, got %s", got)
			}
			break
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		p = connect(t, nodes[0], "p", "keep", "present")
		p.send(dup(2, 2, "t", "after"))
	}
	t.Logf("over after %v", time.Since(began))
	p.send(ack(packet.PUBREL, 2))
	p.want("PUBCOMP 2")
	_ = s.nc.Close()
	s = connect(t, nodes[2], "s", "keep", "present")
	for { // it may have been sent on the connection before
		got := s.takes(1)[0].text
		if got == `PUBLISH q2 t "after"` || got == `PUBLISH q2 t "after" dup` {
			break
		}
		t.Errorf("got %s, want what was published after", got)
	}
}

// The disks of two of three members are full at the same moment, without sync: they may have confirmed what their disks then
// did not take, so the end of the journal may be lost, and what was acknowledged with it. It must be said where it is. Apart
// from that everything is as it should be: no message comes twice or behind a later one, all members tell the same, and
// once there is room all goes on by itself.
func TestFullDisksWithoutSync(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program and starts three of it; run without -short")
	}
	all, program := processes(t, StoreJournal, 3)
	var ops []string
	for _, p := range all {
		ops = append(ops, fmt.Sprintf("127.0.0.1:%d", openPort(t)))
		p.args = append(p.args, "--store-timeout", "1s", "--ops-listen", ops[len(ops)-1])
	}
	onSmallDisks(t, all, program)
	c := startCrashed(t, all, "unshare")
	const topic = "t"
	for i := range all {
		s := c.login(fmt.Sprint("subscriber ", i), true)
		s.subscribe(topic, 2)
		_ = s.nc.Close()
	}

	u := newUnreliable(t, "publisher", topic, 16, rand.New(rand.NewPCG(c.rng.Uint64(), 1)))
	u.longest = 2 * time.Second
	u.connect = func(first bool) *peer { return c.login(u.id, first) }
	var begun atomic.Int64 // messages
	u.more = func(next int) bool {
		begun.Store(int64(next))
		select {
		case <-c.over:
			return false
		default:
			return true
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		u.run()
	}()
	await := func(what string, n int64) {
		t.Helper()
		for begun.Load() < n {
			select {
			case <-done:
				t.Fatalf("%s: the publisher has given up at message %d", what, begun.Load())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	await("before", 300)
	var full sync.WaitGroup
	for _, p := range all[1:] {
		full.Go(func() { fill(t, p) })
	}
	full.Wait()
	// What the ends of files have room for is still taken. Then there is no majority, and nobody is ready; a moment more lets
	// an election pass that looks the same.
	for since := time.Now(); time.Since(since) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
		if slices.ContainsFunc(ops, isReady) {
			since = time.Now()
		}
		if time.Now().After(c.end) {
			t.Fatal("two disks of three are full, and somebody is ready")
		}
	}
	for _, p := range all[1:] {
		empty(t, p)
	}
	ended, before := time.Now(), begun.Load()
	await("after", before+300)
	t.Logf("goes on after %v", time.Since(ended))
	close(c.over)
	<-done

	var told [3][]string
	for i := range all {
		at := &crashes{t: t, all: all[i : i+1], end: c.end, rng: rand.New(rand.NewPCG(1, 1))}
		r := &receiver{t: t, pending: map[uint16]string{}}
		for len(r.got) == 0 || r.got[len(r.got)-1] != u.message(u.next-1) || len(r.pending) > 0 {
			p := at.login(fmt.Sprint("subscriber ", i), false)
			if p == nil {
				t.Fatalf("subscriber %d has %d messages of %d, and not the last", i, len(r.got), u.next)
			}
			r.connection(p, u.next, time.Now().Add(2*time.Second))
		}
		told[i] = r.got
		if !slices.Equal(told[i], told[0]) {
			t.Errorf("%d messages came from member %d, and %d, or others, from the first", len(told[i]), i+1, len(told[0]))
		}
		if !slices.IsSorted(r.got) || len(slices.Compact(slices.Clone(r.got))) != len(r.got) {
			t.Errorf("messages came from member %d twice or out of order", i+1)
		}
	}
	c.down(all...) // the logs are whole
	said, noticed := 0, 0
	for _, p := range all {
		log := p.log.String()
		if strings.Contains(log, "no space left on device") {
			noticed++
		}
		said += strings.Count(log, "is lost")
	}
	if noticed == 0 {
		t.Error("nobody says anything of a disk")
	}
	if lost := u.next - len(told[0]); lost > 0 && said == 0 {
		t.Errorf("%d of %d acknowledged messages are lost, and nobody says so", lost, u.next)
	} else {
		t.Logf("%d disks were found full, %d of %d acknowledged messages are lost, said %d times", noticed, lost, u.next, said)
	}
}

// isReady asks an operations listener.
func isReady(addr string) bool {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	resp, err := client.Get("http://" + addr + "/readyz")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
