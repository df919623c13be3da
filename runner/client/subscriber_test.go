package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inflight/broker/packet"
	"inflight/runner/load"
)

// inbox keeps what a subscriber was handed.
type inbox struct {
	mu  sync.Mutex
	got []string
}

func (i *inbox) handle(p *packet.Publish) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.got = append(i.got, fmt.Sprintf("%s=%s", p.Topic, p.Payload))
}

func (i *inbox) want(t *testing.T, want ...string) {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	if !slices.Equal(i.got, want) {
		t.Errorf("handed on %v, want %v", i.got, want)
	}
}

func message(b []byte, qos byte, id uint16, payload string) []byte {
	return packet.AppendPublish(b, &packet.Publish{Topic: []byte("t"), Payload: []byte(payload), QoS: qos, ID: id})
}

// subscription takes the CONNECT and the SUBSCRIBE and grants what is asked for; before goes out ahead of the SUBACK.
func (p *peer) subscription(before []byte) bool {
	if !p.accept() {
		return false
	}
	f, ok := p.next("then", packet.SUBSCRIBE)
	if !ok {
		return false
	}
	s, err := packet.ParseSubscribe(f)
	if err != nil {
		p.Error(err)
		return false
	}
	p.send(packet.AppendSuback(before, s.ID, []byte{s.Subscriptions[0].QoS}))
	return true
}

// acks reads acknowledgements of that type, which must be for these identifiers in this order.
func (p *peer) acks(why string, t packet.Type, ids ...uint16) bool {
	p.Helper()
	for _, id := range ids {
		f, ok := p.next(why, t)
		if !ok {
			return false
		}
		if got, err := packet.ParseAck(f); err != nil || got != id {
			p.Errorf("%s: %v for %d (%v), want %d", why, t, got, err, id)
			return false
		}
	}
	return true
}

func subscribe(t *testing.T, addr string, qos byte, handle func(*packet.Publish)) *Subscriber {
	t.Helper()
	s, err := Subscribe(t.Context(), Options{Addr: addr, ClientID: "s", CleanSession: true}, "#", qos, handle)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSubscriberQoS1(t *testing.T) {
	var in inbox
	served := make(chan struct{})
	s := subscribe(t, broker(t, func(p *peer) {
		defer close(served)
		if !p.subscription(message(nil, 1, 9, "before the SUBACK")) || !p.acks("also of that", packet.PUBACK, 9) {
			return
		}
		b := message(nil, 0, 0, "zero")
		b = message(b, 1, 1, "one")
		b = message(b, 1, 2, "two")
		b = message(b, 1, 1, "one again") // at QoS 1 a second delivery, whatever its identifier
		p.send(b)
		if p.acks("in the order of the PUBLISHes [MQTT-4.6.0-2]", packet.PUBACK, 1, 2, 1) {
			p.send(packet.AppendEmpty(nil, packet.PINGRESP)) // nobody asked; it does no harm
			served <- struct{}{}
			p.next("at the end", packet.DISCONNECT)
		}
	}), 1, in.handle)
	<-served
	if err := s.Err(); err != nil {
		t.Errorf("error while it runs: %v", err)
	}
	if err := errors.Join(s.Stop(), s.Stop(), s.Err()); err != nil {
		t.Error(err)
	}
	in.want(t, "t=before the SUBACK", "t=zero", "t=one", "t=two", "t=one again")
	if s.Received() != 5 {
		t.Errorf("received %d", s.Received())
	}
}

func TestSubscriberQoS2(t *testing.T) {
	var in inbox
	served := make(chan struct{})
	s := subscribe(t, broker(t, func(p *peer) {
		defer close(served)
		if !p.subscription(nil) {
			return
		}
		b := message(nil, 2, 1, "a")
		b = message(b, 2, 65_535, "b")
		b = message(b, 2, 1, "a") // the same message again [MQTT-4.3.3-2]
		p.send(b)
		if !p.acks("every PUBLISH, also the second", packet.PUBREC, 1, 65_535, 1) {
			return
		}
		p.ack(packet.PUBREL, 1, 7)
		if !p.acks("also an unknown one", packet.PUBCOMP, 1, 7) {
			return
		}
		p.send(message(nil, 2, 1, "c")) // after the PUBREL the identifier is another message's
		if !p.acks("the new one", packet.PUBREC, 1) {
			return
		}
		served <- struct{}{}
		p.next("at the end", packet.DISCONNECT)
	}), 2, in.handle)
	<-served
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	in.want(t, "t=a", "t=b", "t=c")
}

func TestSubscriberFails(t *testing.T) {
	for _, c := range []struct {
		why    string
		script func(p *peer)
		want   string
		is     error
	}{
		{"a close", func(*peer) {}, "the broker closed the connection", nil},
		{"QoS above the granted one", func(p *peer) { p.send(message(nil, 2, 1, "")) }, "a delivery at QoS 2 on a subscription at QoS 1", load.ErrProtocol},
		{"a PUBACK", func(p *peer) { p.ack(packet.PUBACK, 1) }, "unexpected PUBACK", load.ErrProtocol},
		{"QoS 3", func(p *peer) { p.send([]byte{0x36, 0}) }, "QoS is 3", load.ErrProtocol},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			addr := broker(t, func(p *peer) {
				if p.subscription(nil) {
					c.script(p)
				}
			})
			s := subscribe(t, addr, 1, func(*packet.Publish) { t.Error("handed on") })
			select {
			case <-s.Done():
			case <-time.After(patience):
				t.Fatal("the subscriber does not end")
			}
			err := s.Err()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), addr) {
				t.Errorf("error %v, want one with %q and the address", err, c.want)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v is no %v", err, c.is)
			}
			if again := s.Stop(); again == nil || again.Error() != err.Error() {
				t.Errorf("stop returns %v", again)
			}
		})
	}
}

func TestSubscriberEndsWithItsContext(t *testing.T) {
	addr := broker(t, func(p *peer) {
		if p.subscription(nil) {
			p.next("at the end", packet.DISCONNECT)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Subscribe(ctx, Options{Addr: addr, ClientID: "s", CleanSession: true}, "#", 0, func(*packet.Publish) {})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-s.Done()
	if !errors.Is(s.Err(), context.Canceled) {
		t.Errorf("error %v", s.Err())
	}
}

// A subscriber at QoS 0 acknowledges nothing, so it must ping even while messages keep coming [MQTT-3.1.2-23]; a broker
// that then says nothing at all is gone.
func TestSubscriberKeepAlive(t *testing.T) {
	t.Parallel()
	addr := broker(t, func(p *peer) {
		if !p.subscription(nil) {
			return
		}
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
					p.send(message(nil, 0, 0, "m"))
				}
			}
		}()
		_, ok := p.next("while messages keep coming", packet.PINGREQ)
		close(stop)
		if ok {
			p.gone() // no PINGRESP
		}
	})
	s, err := Subscribe(t.Context(), Options{Addr: addr, ClientID: "s", CleanSession: true, KeepAlive: time.Second},
		"#", 0, func(*packet.Publish) {})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	case <-time.After(patience):
		t.Fatal("a dead broker goes unnoticed")
	}
	if err := s.Stop(); err == nil || !strings.Contains(err.Error(), "no answer to a PINGREQ") {
		t.Errorf("error %v", err)
	}
}

// Deliveries are handed on and acknowledged without an allocation for each.
func TestSubscriberAllocatesNothingPerMessage(t *testing.T) {
	const messages, batch = 50_000, 100
	served := make(chan struct{})
	s := subscribe(t, broker(t, func(p *peer) {
		defer close(served)
		if !p.subscription(nil) {
			return
		}
		var out []byte
		ids := make([]uint16, batch)
		for i := range ids {
			ids[i] = uint16(i + 1)
			out = message(out, 1, ids[i], "payload")
		}
		allocs := testing.AllocsPerRun(messages/batch, func() {
			p.send(out)
			p.acks("each", packet.PUBACK, ids...)
		})
		// What the script itself allocates is a constant for each batch.
		if allocs > batch/2 {
			p.Errorf("%v allocations for each %d messages", allocs, batch)
		}
		served <- struct{}{}
		p.next("at the end", packet.DISCONNECT)
	}), 1, func(*packet.Publish) {})
	<-served
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
