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

// maxWithheld bounds the acknowledgements that a slow subscriber owes: a broker has no more Packet Identifiers, and may
// send each once more.
const maxWithheld = 2 * load.MaxWindow

// Subscription is what a Subscriber asks for and does with it.
type Subscription struct {
	Filter string // a Topic Filter
	QoS    byte
	Epoch  time.Time // of the times that Handle gets; zero: when the connection was made

	// Delay is how long the subscriber takes for each message, one after the other. It reads what arrives at once and sends
	// the PUBACK or PUBREC when it is through with the message, so that the broker sees a reader whose window is full rather
	// than a connection that is stuck. 0: it is through at once. There is no such thing at QoS 0.
	Delay time.Duration

	// Handle is called for each delivery, in the order of arrival and from one goroutine, with the time at which it was read.
	// The packet is valid during the call only.
	Handle func(p *packet.Publish, now time.Duration)
}

// Subscriber receives the messages of one subscription and acknowledges them as a receiver must: PUBACK at QoS 1, PUBREC
// and PUBCOMP at QoS 2, all answers to one read in one write. It is one goroutine.
type Subscriber struct {
	loop
	Subscription
	message   packet.Publish // the one being handled, here so that it is not allocated for each
	at        time.Duration  // when it was read
	keepAlive time.Duration
	held      [1 << 16 / 64]uint64 // QoS 2 identifiers between PUBLISH and PUBREL
	owed      []withheld           // acknowledgements of a slow subscriber, owed[first:] in the order in which they are due
	first     int
	busy      time.Duration // until when it is at work on the messages that it has
	received  atomic.Int64
	processed atomic.Int64
	done      chan struct{}
	err       error // set before done is closed
}

// withheld is an acknowledgement that waits for its message.
type withheld struct {
	due  time.Duration
	id   uint16
	qos  byte
	copy bool // of a message that was handed on before
}

// Subscribe dials, subscribes to one Topic Filter, and from then on calls handle for each delivery until Stop, the end of
// ctx, or an error. See [SubscribeWith].
func Subscribe(ctx context.Context, o Options, filter string, qos byte, handle func(p *packet.Publish)) (*Subscriber, error) {
	return SubscribeWith(ctx, o, Subscription{Filter: filter, QoS: qos, Handle: func(p *packet.Publish, _ time.Duration) { handle(p) }})
}

// SubscribeWith dials, subscribes, and from then on calls Handle for each delivery until Stop, the end of ctx, or an error. A
// QoS 2 PUBLISH whose Packet Identifier awaits its PUBREL is the same message again: it is acknowledged and not handed
// on [MQTT-4.3.3-2]. A broker that grants less than the QoS is an error: it could not be held to its promise.
func SubscribeWith(ctx context.Context, o Options, sub Subscription) (*Subscriber, error) {
	if sub.Delay > 0 && sub.QoS == 0 {
		return nil, errors.New("a slow subscriber at QoS 0: it has no acknowledgement to withhold")
	}
	conn, err := Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	if sub.Epoch.IsZero() {
		sub.Epoch = time.Now()
	}
	s := &Subscriber{
		loop: loop{conn: conn, epoch: sub.Epoch}, Subscription: sub, keepAlive: o.KeepAlive, done: make(chan struct{}),
	}
	// Deliveries may come before the SUBACK, section 3.8.4.
	granted, err := conn.subscribeWith(ctx, sub.Filter, sub.QoS, func(f packet.Frame) error {
		s.at = s.now()
		return s.one(f)
	})
	if err == nil && granted != sub.QoS {
		err = fmt.Errorf("subscribing to %q at %s: the broker grants QoS %d, asked for %d", sub.Filter, conn.addr, granted, sub.QoS)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go s.run(ctx)
	return s, nil
}

// Received is the number of deliveries handed on so far; it may be called from any goroutine.
func (s *Subscriber) Received() int64 { return s.received.Load() }

// Processed is the number of those that the subscriber is through with, acknowledgement included: a slow one is behind.
func (s *Subscriber) Processed() int64 { return s.processed.Load() }

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
	heard, spoke := now, now // when something was read and written last
	s.at = now
	if err := s.all(); err != nil { // what came together with the SUBACK
		return err
	}
	for !s.cancelled.Load() {
		s.release(now)
		wake := now + time.Hour
		if s.first < len(s.owed) {
			wake = s.owed[s.first].due
		}
		if s.keepAlive > 0 {
			wake = min(wake, now+s.keepAlive/2)
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
		case wake <= now:
			err = s.tryRead()
		default:
			err = s.read(now, wake)
		}
		now = s.now()
		if err == nil {
			heard, s.at = now, now
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
		if s.message, err = s.conn.codec.ParsePublish(f); err != nil {
			return err
		}
		return s.publish(&s.message)
	case packet.PUBREL:
		a, err := s.conn.codec.ParseAck(f)
		if err != nil {
			return err
		}
		id := a.ID
		s.held[id/64] &^= 1 << (id % 64)
		s.out = packet.AppendAck(s.out, packet.PUBCOMP, id) // also for an unknown one: the first may have been lost
		return nil
	case packet.PINGRESP:
		return packet.ParseEmpty(f)
	default:
		return s.conn.unexpected(f, "a subscribing connection")
	}
}

func (s *Subscriber) publish(p *packet.Publish) error {
	if p.QoS > s.QoS {
		return fmt.Errorf("%w: a delivery at QoS %d on a subscription at QoS %d", load.ErrProtocol, p.QoS, s.QoS)
	}
	again := false
	if p.QoS == 2 {
		word, bit := &s.held[p.ID/64], uint64(1)<<(p.ID%64)
		again = *word&bit != 0
		*word |= bit
	}
	if !again {
		s.received.Add(1)
		s.Handle(p, s.at)
	}
	w := withheld{id: p.ID, qos: p.QoS, copy: again}
	if s.Delay == 0 || p.QoS == 0 {
		s.acknowledge(w)
		return nil
	}
	if len(s.owed)-s.first >= maxWithheld {
		return fmt.Errorf("%w: more than %d deliveries without an acknowledgement", load.ErrProtocol, maxWithheld)
	}
	if !again {
		s.busy = max(s.busy, s.at) + s.Delay
	}
	w.due = s.busy
	s.owed = append(s.owed, w)
	return nil
}

// acknowledge appends the answer to a delivery to the output.
func (s *Subscriber) acknowledge(w withheld) {
	switch w.qos {
	case 1:
		s.out = packet.AppendAck(s.out, packet.PUBACK, w.id)
	case 2:
		s.out = packet.AppendAck(s.out, packet.PUBREC, w.id)
	}
	if !w.copy {
		s.processed.Add(1)
	}
}

// release sends what a slow subscriber owes by now.
func (s *Subscriber) release(now time.Duration) {
	for ; s.first < len(s.owed) && s.owed[s.first].due <= now; s.first++ {
		s.acknowledge(s.owed[s.first])
	}
	if s.first > len(s.owed)/2 {
		s.owed = s.owed[:copy(s.owed, s.owed[s.first:])]
		s.first = 0
	}
}
