package client

import (
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"inflight/broker/packet"
	"inflight/runner/load"
	"inflight/runner/null"
)

// A window of 65,535 with 1 KiB payloads is 64 MiB under way, far beyond the buffers of both sockets, and the broker here
// reads nothing until its acknowledgements are taken. Whoever waits in a write then waits for ever.
func TestFullSocketsDoNotDeadlock(t *testing.T) {
	const messages = 70_000 // more than the window
	for _, c := range []struct {
		name string
		sock func(*net.TCPConn) (socket, error)
	}{
		{"this system's socket", newSocket},
		{"deadlines", func(nc *net.TCPConn) (socket, error) { return deadlineSocket{nc}, nil }},
	} {
		for qos := range 3 {
			if qos != 1 && (testing.Short() || c.name == "deadlines") {
				continue // what differs is covered by the others
			}
			t.Run(fmt.Sprintf("%s/qos=%d", c.name, qos), func(t *testing.T) {
				small := func(nc *net.TCPConn) {
					_ = nc.SetReadBuffer(64 << 10)
					_ = nc.SetWriteBuffer(64 << 10)
				}
				addr := nullBroker(t, null.Config{}, small)
				p, err := Open(t.Context(), Plan{
					Addrs: []string{addr}, Connections: 1, QoS: qos, Window: 65_535, Payload: 1024, MaxMessages: messages,
					StallTimeout: patience,
				})
				if err != nil {
					t.Fatal(err)
				}
				conn := p.pubs[0].conn
				small(conn.nc)
				if conn.sock, err = c.sock(conn.nc); err != nil {
					t.Fatal(err)
				}
				s, err := p.Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if s.Acknowledged != messages || s.Order.Violations != 0 {
					t.Errorf("%+v", s)
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The plainest form of it: a broker that takes most of the window, and then nothing more until all its acknowledgements
// are taken, while the client still has far more to write than the sockets hold.
func TestAcknowledgementsAreReadWhileWriting(t *testing.T) {
	const window, first = load.MaxWindow, 50_000 // 200 KB of PUBACKs
	for name, sock := range map[string]func(*net.TCPConn) (socket, error){
		"this system's socket": newSocket,
		"deadlines":            func(nc *net.TCPConn) (socket, error) { return deadlineSocket{nc}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			addr := broker(t, func(p *peer) {
				_ = p.nc.(*net.TCPConn).SetReadBuffer(64 << 10)
				_ = p.nc.(*net.TCPConn).SetWriteBuffer(8 << 10)
				if !p.accept() {
					return
				}
				ids, ok := p.publishes("most of the window", first)
				if !ok {
					return
				}
				time.Sleep(quiet) // the client fills the sockets
				var acks []byte
				for _, id := range ids {
					acks = packet.AppendAck(acks, packet.PUBACK, id)
				}
				_ = p.nc.SetWriteDeadline(time.Now().Add(patience))
				if _, err := p.nc.Write(acks); err != nil {
					p.Errorf("the client does not read while it cannot write: %v", err)
					return
				}
				if ids, ok = p.publishes("the rest", window-first); ok {
					p.ack(packet.PUBACK, ids...)
					p.next("then", packet.DISCONNECT)
				}
			})
			plan := bounded(addr, 1, window, window)
			plan.StallTimeout = 2 * patience
			plan.Payload = 256 // the rest is 4 MB
			p, err := Open(t.Context(), plan)
			if err != nil {
				t.Fatal(err)
			}
			conn := p.pubs[0].conn
			_ = conn.nc.SetWriteBuffer(64 << 10)
			if conn.sock, err = sock(conn.nc); err != nil {
				t.Fatal(err)
			}
			s, err := p.Run(t.Context())
			if err != nil || s.Acknowledged != window {
				t.Errorf("%+v, %v", s, err)
			}
			_ = p.Close()
		})
	}
}

// In steady state a message costs no allocation: what is left are the few of each Run.
func TestNoAllocationPerMessage(t *testing.T) {
	const messages = 50_000
	for qos := range 3 {
		t.Run(fmt.Sprint("qos=", qos), func(t *testing.T) {
			p, err := Open(t.Context(), Plan{
				Addrs: []string{nullProcess(t, 0)}, Connections: 1, QoS: qos, Window: 256, Payload: 256, MaxMessages: messages,
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s, err := p.Run(t.Context())
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			mallocs := after.Mallocs - before.Mallocs
			t.Logf("%d allocations for %d messages", mallocs, s.Acknowledged)
			if mallocs > messages/100 {
				t.Errorf("%d allocations for %d messages", mallocs, messages)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Many connections share the histograms, and each has its own window and its own identifiers.
func TestPopulation(t *testing.T) {
	addrs := []string{nullBroker(t, null.Config{Delay: time.Millisecond}, nil), nullBroker(t, null.Config{}, nil)}
	plan := Plan{Addrs: addrs, Connections: 40, QoS: 2, Window: 5, Payload: 32, Warmup: 20 * time.Millisecond, Duration: 200 * time.Millisecond}
	s := mustRun(t, plan)
	for s.Messages == 0 && plan.Duration < patience { // on a machine that is busy with something else
		plan.Duration *= 4
		s = mustRun(t, plan)
	}
	for name, n := range map[string]int64{
		"ack service": s.AckService.TotalCount(), "pubrel to pubcomp": s.Release.TotalCount(),
	} {
		if n != s.Messages || n == 0 {
			t.Errorf("%s has %d samples of %d messages", name, n, s.Messages)
		}
	}
	if s.Acknowledged != s.Published || s.Messages > s.Acknowledged || s.Order.Violations != 0 {
		t.Errorf("%+v", s)
	}
	if s.InFlightMean <= 0 || s.InFlightMean > 5 {
		t.Errorf("mean in flight %v of 5", s.InFlightMean)
	}
	if s.CPUSeconds != nil && *s.CPUSeconds < 0 {
		t.Errorf("processor time %v", *s.CPUSeconds)
	}
}
