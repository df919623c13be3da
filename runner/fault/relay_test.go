package fault

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// echo answers every connection with what it gets.
func echo(t *testing.T, l net.Listener) {
	t.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	group.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, nc)
			mu.Unlock()
			group.Go(func() {
				_, _ = io.Copy(nc, nc)
				_ = nc.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, nc := range open {
			_ = nc.Close()
		}
		mu.Unlock()
		group.Wait()
	})
}

func relayTo(t *testing.T, addr string) *Relay {
	t.Helper()
	r, err := NewRelay("127.0.0.1", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return r
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return nc
}

// Every byte arrives, in order, whatever the delay is meanwhile, and none before its time; what is sent together is late
// together.
func TestRelay(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	echo(t, l)
	r := relayTo(t, l.Addr().String())
	nc := dial(t, r.Addr())
	want := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(want)
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; i < len(want); i += 1 << 18 {
			r.Delay(time.Duration(i>>18%3) * time.Millisecond)
			if _, err := nc.Write(want[i : i+1<<18]); err != nil {
				t.Error(err)
			}
		}
	})
	got := make([]byte, len(want))
	if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("what came back is not what was sent: %v", err)
	}
	writer.Wait()

	const delay = 20 * time.Millisecond
	r.Delay(delay)
	start := time.Now()
	if _, err := nc.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, got[:1]); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 2*delay {
		t.Errorf("an answer took %v, want %v at least", took, 2*delay)
	}
}

// What one side sent before it ended arrives before the end does, and the other side's end is passed on.
func TestRelayEnds(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	defer l.Close()
	r := relayTo(t, l.Addr().String())
	r.Delay(time.Millisecond)
	from := dial(t, r.Addr())
	to, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.Write([]byte("the last word")); err != nil {
		t.Fatal(err)
	}
	_ = from.Close()
	if got, err := io.ReadAll(to); err != nil || string(got) != "the last word" {
		t.Errorf("%q, %v", got, err)
	}
	_ = to.Close()
	from = dial(t, r.Addr())
	if to, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	_ = to.Close()
	if _, err := from.Read(make([]byte, 1)); err == nil {
		t.Error("a connection whose other side has ended gives something to read")
	}
	if to, from = nil, dial(t, r.Addr()); r.Close() != nil {
		t.Error("the relay does not close")
	}
	if _, err := from.Read(make([]byte, 1)); err == nil {
		t.Error("a connection of a closed relay gives something to read")
	}
}

// A connection to a node that is not up yet is held until it is.
func TestRelayToSomebodyLate(t *testing.T) {
	t.Parallel()
	var nc net.Conn
	for late := net.Listener(nil); late == nil; { // until nobody else takes the port meanwhile
		l := listen(t, "127.0.0.1:0")
		addr := l.Addr().String()
		_ = l.Close()
		nc = dial(t, relayTo(t, addr).Addr())
		if _, err := nc.Write([]byte("early")); err != nil {
			t.Fatal(err)
		}
		var err error
		if late, err = net.Listen("tcp", addr); err == nil {
			echo(t, late)
		}
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != "early" {
		t.Errorf("%q, %v", got, err)
	}
}
