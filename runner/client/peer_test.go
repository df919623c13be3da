package client

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"inflight/broker/packet"
	"inflight/runner/null"
)

// patience is how long a test waits for what must come; it says nothing about speed.
const patience = 2 * time.Minute

// quiet is how long a test listens for what must not come.
const quiet = 30 * time.Millisecond

// listen returns a listener that is closed with the test.
func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// broker runs a script for each connection of a listener, in this process. The scripts end before the test does.
func broker(t testing.TB, script func(p *peer)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			p := &peer{TB: t, nc: nc, r: packet.NewReader(nc, 4096, 0)}
			script(p)
			_ = nc.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("the broker's script does not end")
		}
	})
	return l.Addr().String()
}

// nullBroker serves in this process; tune is called for each accepted connection.
func nullBroker(t testing.TB, c null.Config, tune func(*net.TCPConn)) (addr string) {
	t.Helper()
	l := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- null.Serve(ctx, tuned{l, tune}, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

type tuned struct {
	net.Listener
	tune func(*net.TCPConn)
}

func (l tuned) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err == nil && l.tune != nil {
		l.tune(nc.(*net.TCPConn))
	}
	return nc, err
}

// peer is the broker's end of a connection, for scripts. Its failures are reported with Errorf, as scripts do not run on
// the test's goroutine; a script should return when a method says false.
type peer struct {
	testing.TB
	nc net.Conn
	r  *packet.Reader
}

func (p *peer) send(b []byte) {
	// The client may be gone already; then it is its error that counts.
	_ = p.nc.SetWriteDeadline(time.Now().Add(patience))
	_, _ = p.nc.Write(b)
}

func (p *peer) ack(t packet.Type, ids ...uint16) {
	var b []byte
	for _, id := range ids {
		b = packet.AppendAck(b, t, id)
	}
	p.send(b)
}

// accept takes the CONNECT and accepts it.
func (p *peer) accept() bool {
	f, ok := p.next("CONNECT", packet.CONNECT)
	if ok {
		if _, err := packet.ParseConnect(f); err != nil {
			p.Errorf("CONNECT: %v", err)
			return false
		}
		p.send(packet.AppendConnack(nil, false, packet.Accepted))
	}
	return ok
}

// next reads a packet, which must be of that type.
func (p *peer) next(why string, want packet.Type) (packet.Frame, bool) {
	p.Helper()
	_ = p.nc.SetReadDeadline(time.Now().Add(patience))
	f, err := p.r.Next()
	if err != nil {
		p.Errorf("%s: want %v, got error %v", why, want, err)
		return f, false
	}
	if f.Type() != want {
		p.Errorf("%s: want %v, got %v", why, want, f.Type())
		return f, false
	}
	return f, true
}

// publishes reads n PUBLISHes and returns their identifiers.
func (p *peer) publishes(why string, n int) (ids []uint16, ok bool) {
	p.Helper()
	for range n {
		f, ok := p.next(why, packet.PUBLISH)
		if !ok {
			return ids, false
		}
		m, err := packet.ParsePublish(f)
		if err != nil {
			p.Errorf("%s: %v", why, err)
			return ids, false
		}
		ids = append(ids, m.ID)
	}
	return ids, true
}

// pubrels reads PUBRELs, which must be for these identifiers in this order.
func (p *peer) pubrels(why string, ids ...uint16) bool {
	p.Helper()
	for _, id := range ids {
		f, ok := p.next(why, packet.PUBREL)
		if !ok {
			return false
		}
		if got := binary.BigEndian.Uint16(f.Body); got != id {
			p.Errorf("%s: PUBREL for %d, want %d", why, got, id)
			return false
		}
	}
	return true
}

// silence wants nothing to come for a while.
func (p *peer) silence(why string) bool {
	p.Helper()
	_ = p.nc.SetReadDeadline(time.Now().Add(quiet))
	f, err := p.r.Next()
	if err == nil {
		p.Errorf("%s: want nothing, got %v", why, f.Type())
	}
	return err != nil
}

// gone waits until the client closes.
func (p *peer) gone() {
	_ = p.nc.SetReadDeadline(time.Now().Add(patience))
	for {
		if _, err := p.r.Next(); err != nil {
			return
		}
	}
}
