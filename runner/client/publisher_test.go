package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"inflight/broker/packet"
	"inflight/runner/ledger"
	"inflight/runner/load"
	"inflight/runner/null"
)

// bounded is a plan that ends by its number of messages.
func bounded(addr string, qos, window int, messages int64) Plan {
	return Plan{Addrs: []string{addr}, Connections: 1, QoS: qos, Window: window, Payload: 64, MaxMessages: messages}
}

func mustRun(t testing.TB, plan Plan) *Stats {
	t.Helper()
	p, err := Open(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTrueWindowQoS1(t *testing.T) {
	s := mustRun(t, bounded(broker(t, func(p *peer) {
		if !p.accept() {
			return
		}
		ids, ok := p.publishes("the window at once", 4)
		if !ok || !p.silence("not one more than the window") {
			return
		}
		p.ack(packet.PUBACK, ids[0])
		next, ok := p.publishes("one slot is free", 1)
		if !ok || !p.silence("but only one") {
			return
		}
		p.ack(packet.PUBACK, ids[1], ids[2], ids[3])
		rest, ok := p.publishes("three slots are free", 3)
		if !ok || !p.silence("but only three") {
			return
		}
		p.ack(packet.PUBACK, append(next, rest...)...)
		p.next("all is acknowledged", packet.DISCONNECT)
	}), 1, 4, 8))
	if s.Published != 8 || s.Acknowledged != 8 || s.Messages != 8 || s.AckService.TotalCount() != 8 {
		t.Errorf("want 8 of everything: %+v", s)
	}
	if s.Order.Checked != 8 || s.Order.Violations != 0 {
		t.Errorf("order: %+v", s.Order)
	}
	if s.Receive != nil || s.Release != nil || s.Fence != nil {
		t.Error("a histogram that does not exist at QoS 1")
	}
	if s.Duration <= 0 || s.LastAck.IsZero() {
		t.Errorf("duration %v, last acknowledgement %v", s.Duration, s.LastAck)
	}
}

func TestTrueWindowQoS2(t *testing.T) {
	s := mustRun(t, bounded(broker(t, func(p *peer) {
		if !p.accept() {
			return
		}
		ids, ok := p.publishes("the window at once", 2)
		if !ok || !p.silence("not one more than the window") {
			return
		}
		p.ack(packet.PUBREC, ids...)
		if !p.pubrels("in the order of the PUBRECs", ids...) || !p.silence("a PUBREC frees no slot") {
			return
		}
		p.ack(packet.PUBCOMP, ids[0])
		next, ok := p.publishes("a PUBCOMP does", 1)
		if !ok || !p.silence("but only one") {
			return
		}
		p.ack(packet.PUBREC, next...)
		p.ack(packet.PUBCOMP, ids[1])
		if !p.pubrels("the last", next...) {
			return
		}
		p.ack(packet.PUBCOMP, next...)
		p.next("all is acknowledged", packet.DISCONNECT)
	}), 2, 2, 3))
	if s.Acknowledged != 3 || s.AckService.TotalCount() != 3 || s.Receive.TotalCount() != 3 || s.Release.TotalCount() != 3 {
		t.Errorf("want 3 of everything: %+v", s)
	}
	if s.Order.Checked != 6 || s.Order.Violations != 0 {
		t.Errorf("order: %+v", s.Order)
	}
}

func TestFencesQoS0(t *testing.T) {
	s := mustRun(t, bounded(broker(t, func(p *peer) {
		if !p.accept() {
			return
		}
		// A window of 16: a fence behind every 2 messages, 16 messages unfenced.
		fenced := func(why string, batches int) bool {
			for range batches {
				if _, ok := p.publishes(why, 2); !ok {
					return false
				}
				if _, ok := p.next(why, packet.PINGREQ); !ok {
					return false
				}
			}
			return true
		}
		if !fenced("the window in batches", 8) || !p.silence("not one more than the window") {
			return
		}
		p.send(packet.AppendEmpty(nil, packet.PINGRESP))
		if !fenced("the next batch", 1) || !p.silence("but only one") {
			return
		}
		p.send(packet.AppendEmpty(nil, packet.PINGRESP))
		if _, ok := p.publishes("the last one, 19 in all", 1); !ok {
			return
		}
		p.next("a fence behind what is left", packet.PINGREQ)
		for range 8 {
			p.send(packet.AppendEmpty(nil, packet.PINGRESP))
		}
		p.next("all is fenced", packet.DISCONNECT)
	}), 0, 16, 19))
	if s.Published != 19 || s.Acknowledged != 19 || s.Messages != 19 || s.Fence.TotalCount() != 10 {
		t.Errorf("want 19 messages and 10 fences: %+v, %d fences", s, s.Fence.TotalCount())
	}
	if s.AckService != nil || s.Receive != nil || s.Release != nil {
		t.Error("a histogram that does not exist at QoS 0")
	}
}

func TestOrderViolationsAreCounted(t *testing.T) {
	s := mustRun(t, bounded(broker(t, func(p *peer) {
		if !p.accept() {
			return
		}
		ids, ok := p.publishes("the window", 3)
		if !ok {
			return
		}
		a, b, c := ids[0], ids[1], ids[2]
		p.ack(packet.PUBREC, b, a, c) // b before a: one
		if !p.pubrels("in the order of the PUBRECs", b, a, c) {
			return
		}
		p.ack(packet.PUBCOMP, c, a, b) // c before b and a, a before b: two
		p.next("all is acknowledged", packet.DISCONNECT)
	}), 2, 3, 3))
	if s.Order.Checked != 6 || s.Order.Violations != 3 || s.Order.ByType["PUBREC"] != 1 || s.Order.ByType["PUBCOMP"] != 2 {
		t.Errorf("order: %+v", s.Order)
	}
	if want := "PUBREC: expected Packet Identifier 1, got 2"; !strings.Contains(s.Order.First, want) {
		t.Errorf("first violation %q, want %q", s.Order.First, want)
	}
}

// Whatever the broker does ends in an error that says it and names the address, never in a hang.
func TestBrokerMisbehaves(t *testing.T) {
	for _, c := range []struct {
		why    string
		qos    int
		script func(p *peer, ids []uint16)
		want   string
		is     error
	}{
		{
			"an unknown identifier", 1, func(p *peer, _ []uint16) { p.ack(packet.PUBACK, 60_000) },
			"PUBACK for Packet Identifier 60000, which is not outstanding", load.ErrProtocol,
		},
		{
			"a second PUBACK", 1, func(p *peer, ids []uint16) { p.ack(packet.PUBACK, ids[0], ids[0]) },
			"PUBACK for Packet Identifier 1, which is not outstanding", load.ErrProtocol,
		},
		{
			"a second PUBREC", 2, func(p *peer, ids []uint16) { p.ack(packet.PUBREC, ids[0], ids[0]) },
			"PUBREC for Packet Identifier 1, which has had its PUBREC", load.ErrProtocol,
		},
		{
			"a PUBCOMP instead of the PUBREC", 2, func(p *peer, ids []uint16) { p.ack(packet.PUBCOMP, ids[0]) },
			"PUBCOMP for Packet Identifier 1, which awaits the answer to its PUBLISH", load.ErrProtocol,
		},
		{
			"a PUBACK at QoS 2", 2, func(p *peer, ids []uint16) { p.ack(packet.PUBACK, ids[0]) },
			"PUBACK for Packet Identifier 1 of a QoS 2 PUBLISH", load.ErrProtocol,
		},
		{
			"a PUBREC at QoS 1", 1, func(p *peer, ids []uint16) { p.ack(packet.PUBREC, ids[0]) },
			"PUBREC for Packet Identifier 1 of a QoS 1 PUBLISH", load.ErrProtocol,
		},
		{"identifier 0", 1, func(p *peer, _ []uint16) { p.ack(packet.PUBACK, 0) }, "Packet Identifier is 0", load.ErrProtocol},
		{"a delivery", 1, func(p *peer, _ []uint16) {
			p.send(packet.AppendPublish(nil, &packet.Publish{Topic: []byte("t")}))
		}, "unexpected PUBLISH", load.ErrProtocol},
		{"garbage", 1, func(p *peer, _ []uint16) { p.send([]byte("\x40\xff\xff\xff\xff\xff")) }, "more than four bytes", load.ErrProtocol},
		{"a close", 1, func(*peer, []uint16) {}, "the broker closed the connection", nil},
		{"a close inside a packet", 1, func(p *peer, _ []uint16) { p.send([]byte{0x40, 2, 0}) }, "the broker closed the connection", nil},
		{"a reset", 1, func(p *peer, _ []uint16) { _ = p.nc.(*net.TCPConn).SetLinger(0) }, "the broker closed the connection", nil},
		{"silence", 1, func(p *peer, _ []uint16) { p.gone() }, "stalled: 4 exchanges outstanding for ", nil},
		{
			"silence in the second half", 2, func(p *peer, ids []uint16) { p.ack(packet.PUBREC, ids...); p.gone() },
			"stalled: 4 exchanges outstanding for ", nil,
		},
		{"an answer to no fence", 0, func(p *peer, _ []uint16) {
			var five []byte // in one write: after four of them alone the run is over
			for range 5 {
				five = packet.AppendEmpty(five, packet.PINGRESP)
			}
			p.send(five)
			p.gone()
		}, "PINGRESP without a PINGREQ", load.ErrProtocol},
		{"an acknowledgement at QoS 0", 0, func(p *peer, _ []uint16) { p.ack(packet.PUBACK, 1) }, "unexpected PUBACK", load.ErrProtocol},
		{"silence at QoS 0", 0, func(p *peer, _ []uint16) { p.gone() }, "stalled: 4 exchanges outstanding for ", nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			addr := broker(t, func(p *peer) {
				if !p.accept() {
					return
				}
				n := 4
				if c.qos == 0 {
					n = 1 // a fence behind each
				}
				if ids, ok := p.publishes("the window", n); ok {
					c.script(p, ids)
				}
			})
			plan := bounded(addr, c.qos, 4, 4)
			plan.StallTimeout = time.Second
			p, err := Open(t.Context(), plan)
			if err != nil {
				t.Fatal(err)
			}
			stats, err := p.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), addr) {
				t.Errorf("error %v, want one with %q and the address", err, c.want)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v is no %v", err, c.is)
			}
			if stats == nil {
				t.Error("no statistics of what was measured until then")
			}
			_ = p.Close()
		})
	}
}

func TestCancelKeepsWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr := broker(t, func(p *peer) {
		if !p.accept() {
			return
		}
		if ids, ok := p.publishes("the window", 8); ok {
			p.ack(packet.PUBACK, ids...)
			p.publishes("the window again: the first is acknowledged", 8)
		}
		cancel()
		p.gone()
	})
	p, err := Open(t.Context(), Plan{
		Addrs: []string{addr}, Connections: 1, QoS: 1, Window: 8, Payload: 64, Duration: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if s.Messages != 8 || s.Acknowledged != 8 || s.Published != 16 || s.AckService.TotalCount() != 8 {
		t.Errorf("want 8 of 16 acknowledged: %+v", s)
	}
	if s.Duration <= 0 || s.Duration > patience || s.InFlightMean <= 0 || s.InFlightMean > 8 {
		t.Errorf("%v in flight for %v", s.InFlightMean, s.Duration)
	}
	_ = p.Close()
}

// What completes in the warm-up or the drain is acknowledged, and not measured.
func TestOnlyTheMeasuredTimeCounts(t *testing.T) {
	t.Parallel()
	const warmup, duration = time.Second, 20 * time.Millisecond
	addr := broker(t, func(p *peer) {
		if !p.accept() {
			return
		}
		ids, ok := p.publishes("the window, in the warm-up", 4)
		if !ok {
			return
		}
		p.ack(packet.PUBACK, ids...)
		if ids, ok = p.publishes("the window again", 4); !ok {
			return
		}
		time.Sleep(warmup + duration + quiet) // from when the client had begun
		p.ack(packet.PUBACK, ids...)
		p.next("nothing more is published", packet.DISCONNECT)
	})
	s := mustRun(t, Plan{
		Addrs: []string{addr}, Connections: 1, QoS: 1, Window: 4, Payload: 64, Warmup: warmup, Duration: duration,
	})
	if s.Messages != 0 || s.AckService.TotalCount() != 0 || s.Acknowledged != 8 || s.Order.Checked != 8 {
		t.Errorf("want 8 acknowledged, none of them measured: %+v", s)
	}
	if s.Duration != duration || s.InFlightMean != 4 {
		t.Errorf("want 4 in flight for %v: %v in flight for %v", duration, s.InFlightMean, s.Duration)
	}
}

// Acknowledgements that do not come within the drain are missing, not an error, and the next Run goes on with them.
func TestDrainIsBounded(t *testing.T) {
	addr := broker(t, func(p *peer) {
		if !p.accept() {
			return
		}
		ids, ok := p.publishes("the first run", 2)
		if !ok {
			return
		}
		p.ack(packet.PUBACK, ids[0])
		next, ok := p.publishes("the second run", 1)
		if !ok {
			return
		}
		p.ack(packet.PUBACK, ids[1], next[0])
		p.next("all is acknowledged", packet.DISCONNECT)
	})
	plan := bounded(addr, 1, 2, 2)
	plan.Drain = time.Second
	p, err := Open(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Run(t.Context())
	if err != nil || s.Published != 2 || s.Acknowledged != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if s.Duration >= plan.Drain {
		t.Errorf("the measured time of %v has the wait for the drain in it", s.Duration)
	}
	p.plan.MaxMessages, p.plan.Drain = 1, patience
	s, err = p.Run(t.Context())
	if err != nil || s.Published != 1 || s.Acknowledged != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMaxMessagesAreExactAndInTheLedger(t *testing.T) {
	addr := nullBroker(t, null.Config{}, nil)
	for qos := range 3 {
		t.Run(fmt.Sprint("qos=", qos), func(t *testing.T) {
			l := ledger.New(7, 3)
			p, err := Open(t.Context(), Plan{
				Addrs: []string{addr}, Connections: 3, QoS: qos, Window: 20, Payload: 64, MaxMessages: 1000, Ledger: l,
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second goes on where the first ended
				s, err := p.Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if s.Published != 1000 || s.Acknowledged != 1000 {
					t.Errorf("published %d, acknowledged %d, want 1000", s.Published, s.Acknowledged)
				}
			}
			if a := l.Account(0); a.Published != 2000 || a.Acknowledged != 2000 || a.Lost != 2000 {
				t.Errorf("account of a broker that delivers nothing: %+v", a)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPlanIsValidated(t *testing.T) {
	good := bounded("127.0.0.1:1", 1, 1, 1)
	for _, c := range []struct {
		change func(*Plan)
		want   string
	}{
		{func(p *Plan) { p.Addrs = nil }, "no address"},
		{func(p *Plan) { p.Connections = 0 }, "connections 0"},
		{func(p *Plan) { p.QoS = 3 }, "QoS 3"},
		{func(p *Plan) { p.Window = 0 }, "window 0"},
		{func(p *Plan) { p.Window = 65_536 }, "window 65536"},
		{func(p *Plan) { p.Payload = MaxPayload + 1 }, "payload of"},
		{func(p *Plan) { p.Payload, p.Ledger = 23, ledger.New(1, 1) }, "the ledger's header takes 24"},
		{func(p *Plan) { p.Ledger = ledger.New(1, 0) }, "fewer than 1 connections"},
		{func(p *Plan) { p.MaxMessages = 0 }, "neither a duration nor a number of messages"},
		{func(p *Plan) { p.Window, p.QoS = 0, 9 }, "window 0"},
		{func(p *Plan) { p.Window, p.QoS = 0, 9 }, "QoS 9"},
	} {
		plan := good
		c.change(&plan)
		if _, err := Open(t.Context(), plan); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	if err := good.Validate(); err != nil {
		t.Errorf("the good plan: %v", err)
	}
}
