package broker

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inflight/broker/packet"
)

// A journal is full of what a session that is away still has to get. Its publisher, which does not stop by itself, is
// stopped by TCP: nothing is refused, no connection ends, and the process takes no memory for what it is offered. When the
// session is back all goes on, and each message comes.
func TestFullJournalPushesBack(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program and starts it; run without -short")
	}
	const (
		size   = 4096      // of a payload
		offer  = 256 << 20 // payload bytes that the publisher has for the broker
		most   = 64 << 20  // that may leave it while the journal is full: what the sockets' buffers have room for, and some
		memory = 160 << 20 // of the process at any time
	)
	all, program := processes(t, StoreJournal, 1)
	all[0].args = append(all[0].args, "--journal-bytes", "8MiB", "--store-timeout", "10m")
	c := startCrashed(t, all, program)
	s := c.login("subscriber", true)
	s.subscribe("t", 1)
	_ = s.nc.Close()

	p := c.login("publisher", true)
	var sent, acknowledged, until atomic.Int64 // until: how many the publisher sends
	until.Store(offer / size)
	var publishing sync.WaitGroup
	publishing.Go(func() {
		payload := make([]byte, size)
		for n := int64(0); n < until.Load(); n++ {
			copy(payload, fmt.Sprintf("%08d", n))
			if _, err := p.nc.Write(pub(uint16(n%math.MaxUint16)+1, 1, "t", string(payload))); err != nil {
				t.Errorf("message %d: %v", n, err)
				return
			}
			sent.Add(1)
		}
	})
	publishing.Go(func() {
		for n := int64(0); n < until.Load(); n++ {
			_ = p.nc.SetReadDeadline(c.end)
			f, err := p.rd.Next()
			if err != nil {
				t.Errorf("%d acknowledged: %v", n, err)
				return
			}
			if want := fmt.Sprintf("PUBACK %d", n%math.MaxUint16+1); describe(f) != want {
				t.Errorf("want %s, got %s", want, describe(f))
				return
			}
			acknowledged.Add(1)
		}
	})

	// It stands still once nothing has moved for a second. On a slow machine that may be said too early, and then what
	// follows is only easier.
	for at, since := int64(-1), time.Now(); time.Since(since) < time.Second && time.Now().Before(c.end); time.Sleep(20 * time.Millisecond) {
		if now := sent.Load() + acknowledged.Load(); now != at {
			at, since = now, time.Now()
		}
	}
	stuck := sent.Load()
	t.Logf("%d messages of %d bytes have left the publisher, %d are acknowledged", stuck, size, acknowledged.Load())
	if stuck*size > most || acknowledged.Load() == 0 {
		t.Errorf("%d messages have left the publisher and %d are acknowledged; want it stopped at a full journal", stuck, acknowledged.Load())
	}

	began := time.Now()
	until.Store(sent.Load() + 500)
	s = c.login("subscriber", false)
	for n := int64(0); n < until.Load() && !t.Failed(); n++ {
		_ = s.nc.SetReadDeadline(c.end)
		f, err := s.rd.Next()
		if err != nil {
			t.Fatalf("%d messages of %d came: %v", n, until.Load(), err)
		}
		m, err := packet.ParsePublish(f)
		if err != nil || !strings.HasPrefix(string(m.Payload), fmt.Sprintf("%08d", n)) { // with DUP if a connection before was too slow
			t.Fatalf("want message %d, got %.60s, %v", n, describe(f), err)
		}
		s.send(ack(packet.PUBACK, m.ID))
	}
	if t.Failed() {
		_ = p.nc.Close()
	}
	publishing.Wait()
	if peak := peakRSS(t, all[0]); peak > memory {
		t.Errorf("the process took %d MiB, want at most %d", peak>>20, memory>>20)
	} else {
		t.Logf("%d messages came in %v, the process took %d MiB at most", until.Load(), time.Since(began), peak>>20)
	}
	_ = p.nc.Close()
}

// peakRSS is the largest resident set of a process in its life.
func peakRSS(t *testing.T, p *brokerProcess) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	line, _, _ := bytes.Cut(rest, []byte("kB"))
	kib, err := strconv.Atoi(string(bytes.TrimSpace(line)))
	if err != nil {
		t.Fatalf("VmHWM: %v", err)
	}
	return kib << 10
}
