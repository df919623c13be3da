package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"inflight/broker/packet"
	"inflight/runner/load"
)

// maxUnwrittenAcks bounds, in bytes, the acknowledgements that a subscriber holds because the broker does not read them.
// Beyond it the subscriber stops receiving until they are written.
const maxUnwrittenAcks = 1 << 20

// Subscriber receives the messages of one subscription and acknowledges them as a receiver must: PUBACK at QoS 1, PUBREC
// and PUBCOMP at QoS 2, all answers to one read in one write. It is one goroutine.
type Subscriber struct {
	loop
	granted   byte
	handle    func(p *packet.Publish)
	message   packet.Publish // the one being handled, here so that it is not allocated for each
	keepAlive time.Duration
	held      [1 << 16 / 64]uint64 // QoS 2 identifiers between PUBLISH and PUBREL
	received  atomic.Int64
	done      chan struct{}
	err       error // set before done is closed
}

// Subscribe dials, subscribes to one Topic Filter, and from then on calls handle for each delivery, in the order of
// arrival and from one goroutine, until Stop, the end of ctx, or an error. The packet is valid during the call only. A
// QoS 2 PUBLISH whose Packet Identifier awaits its PUBREL is the same message again: it is acknowledged and not handed
// on [MQTT-4.3.3-2]. A broker that grants less than qos is an error: it could not be held to the promise of qos.
func Subscribe(ctx context.Context, o Options, filter string, qos byte, handle func(p *packet.Publish)) (*Subscriber, error) {
	conn, err := Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Subscriber{
		loop: loop{conn: conn, epoch: time.Now()}, handle: handle, keepAlive: o.KeepAlive, granted: qos,
		done: make(chan struct{}),
	}
	// Deliveries may come before the SUBACK, section 3.8.4.
	granted, err := conn.subscribeWith(ctx, filter, qos, s.one)
	if err == nil && granted != qos {
		err = fmt.Errorf("subscribing to %q at %s: the broker grants QoS %d, asked for %d", filter, conn.addr, granted, qos)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go s.run(ctx)
	return s, nil
}

// Received is the number of deliveries handed on so far; it may be called from any goroutine.
func (s *Subscriber) Received() int64 { return s.received.Load() }

// Done is closed when the subscriber has ended, for whatever reason.
func (s *Subscriber) Done() <-chan struct{} { return s.done }

// Err is what ended the subscriber: nil while it runs and when Stop ended it.
func (s *Subscriber) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Stop disconnects, waits until handle is not running and will not run again, and returns Err. It may be called again.
func (s *Subscriber) Stop() error {
	s.cancel()
	<-s.done
	return s.err
}

func (s *Subscriber) run(ctx context.Context) {
	defer close(s.done)
	stop := context.AfterFunc(ctx, s.cancel)
	defer stop()
	err := s.receive()
	s.conn.torn = s.pending()
	switch {
	case !s.cancelled.Load():
		s.err = errors.Join(fmt.Errorf("subscriber of %s: %w", s.conn.addr, s.conn.trouble(err)), s.conn.Close())
	default:
		_ = s.conn.Disconnect() // what was received counts, not how the connection ended
		s.err = ctx.Err()
	}
}

// receive is the event loop; it returns an error, or nil when it was cancelled.
func (s *Subscriber) receive() error {
	now := s.now()
	heard, spoke := now, now        // when something was read and written last
	if err := s.all(); err != nil { // what came together with the SUBACK
		return err
	}
	for !s.cancelled.Load() {
		wake := now + time.Hour
		if s.keepAlive > 0 {
			wake = now + s.keepAlive/2
			if now-heard > 2*s.keepAlive {
				return fmt.Errorf("no answer to a PINGREQ, silent for %v", (now - heard).Round(time.Millisecond))
			}
			if now-spoke >= s.keepAlive/2 {
				s.out = packet.AppendEmpty(s.out, packet.PINGREQ) // [MQTT-3.1.2-23]
			}
		}
		if s.pending() {
			if err := s.flush(); err != nil {
				return err
			}
			spoke = now
		}
		var err error
		switch {
		case len(s.out)-s.off > maxUnwrittenAcks:
			time.Sleep(retryInterval)
			err = errWouldBlock
		case s.pending():
			now = s.now() // the write may have taken as long as the wait is to be
			err = s.read(now, now+retryInterval)
		default:
			err = s.read(now, wake)
		}
		now = s.now()
		if err == nil {
			heard = now
			err = s.all()
		}
		if err != nil && !errors.Is(err, errWouldBlock) {
			return err
		}
	}
	return nil
}

func (s *Subscriber) all() error {
	for {
		f, ok, err := s.conn.r.Buffered()
		if !ok || err != nil {
			return err
		}
		if err := s.one(f); err != nil {
			return err
		}
	}
}

func (s *Subscriber) one(f packet.Frame) error {
	switch f.Type() {
	case packet.PUBLISH:
		var err error
		if s.message, err = packet.ParsePublish(f); err != nil {
			return err
		}
		return s.publish(&s.message)
	case packet.PUBREL:
		id, err := packet.ParseAck(f)
		if err != nil {
			return err
		}
		s.held[id/64] &^= 1 << (id % 64)
		s.out = packet.AppendAck(s.out, packet.PUBCOMP, id) // also for an unknown one: the first may have been lost
		return nil
	case packet.PINGRESP:
		return packet.ParseEmpty(f)
	default:
		return fmt.Errorf("%w: unexpected %v on a subscribing connection", load.ErrProtocol, f.Type())
	}
}

func (s *Subscriber) publish(p *packet.Publish) error {
	if p.QoS > s.granted {
		return fmt.Errorf("%w: a delivery at QoS %d on a subscription at QoS %d", load.ErrProtocol, p.QoS, s.granted)
	}
	switch p.QoS {
	case 1:
		s.out = packet.AppendAck(s.out, packet.PUBACK, p.ID)
	case 2:
		s.out = packet.AppendAck(s.out, packet.PUBREC, p.ID)
		word, bit := &s.held[p.ID/64], uint64(1)<<(p.ID%64)
		if *word&bit != 0 {
			return nil
		}
		*word |= bit
	}
	s.received.Add(1)
	s.handle(p)
	return nil
}
