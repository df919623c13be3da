package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
		t.Skipf("needs unshare (util-linux) and the right to mount a tmpfs in a user namespace: %v: %s", err, out)
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
		p := c.login("publisher", len(want) == 2)
		p.send(pub(1, 2, "t", held))
		p.want("PUBREC 1")
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
		p = c.login("publisher", false)
		t.Logf("%s: over after %v", trouble.name, time.Since(ended))
		p.send(dup(2, 2, "t", during), ack(packet.PUBREL, 1))
		p.wantAny("PUBREC 2", "PUBCOMP 1")
		p.send(ack(packet.PUBREL, 2))
		p.want("PUBCOMP 2")
		_ = p.nc.Close()
	}
	r := &receiver{t: t, pending: map[uint16]string{}}
	r.connection(c.login("subscriber", false), 1<<30, time.Now().Add(time.Second))
	if !slices.Equal(r.got, want) {
		t.Errorf("%d messages came, want %d, each once and in order", len(r.got), len(want))
	}
}

// wantAny wants these packets in any order.
func (p *peer) wantAny(sentences ...string) {
	p.t.Helper()
	left := make(map[string]bool)
	for _, s := range sentences {
		left[s] = true
	}
	for range sentences {
		f, err := p.next()
		if err != nil {
			p.t.Fatalf("want %v, got %v", left, err)
		}
		if got := describe(f); !left[got] {
			p.t.Fatalf("want %v, got %s", left, got)
		} else {
			delete(left, got)
		}
	}
}

// The journal of a running cluster is deleted. Sessions go on, nothing is acknowledged that is not kept, and nobody has
// to help.
func TestJournalDeletedUnderACluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	nodes := cluster(t, with(StoreJournal), func(c *Config) { c.StoreTimeout = 2 * time.Second })
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
