package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"inflight/broker/packet"
	"inflight/runner/ledger"
	"inflight/runner/load"
)

// schedule is when one Run does what, on the clock of the population.
type schedule struct {
	from, to time.Duration // the measured time
	drain    time.Duration // bound on waiting after the last PUBLISH
	stall    time.Duration
	quota    int64 // messages of this connection; below 0: no bound
}

// counts are what one connection did in one Run.
type counts struct {
	messages                int64 // completed within the measured time
	published, acknowledged int64
	lastAck                 time.Duration // 0: none
	early                   bool          // publishing ended before the measured time did
	end                     time.Duration // when the loop ended
	inFlight                float64
	order                   load.Order
}

// publisher is the event loop of one connection. Exactly one of window and fences is set, by the QoS.
type publisher struct {
	loop
	window *load.Window
	fences *load.Fences
	book   *ledger.Book // nil: payloads are not stamped

	template  []byte // a PUBLISH; every message is a copy
	idAt      int    // of the Packet Identifier in it
	payloadAt int

	rec                          *recorder
	ack, receive, release, fence tally

	sched     schedule
	c         counts
	measuring bool // the batch being handled was read within the measured time
}

func newPublisher(conn *Conn, epoch time.Time, plan *Plan, number int, rec *recorder) (*publisher, error) {
	p := &publisher{loop: loop{conn: conn, epoch: epoch}, rec: rec}
	var err error
	if plan.QoS == 0 {
		p.fences, err = load.NewFences(plan.Window)
	} else {
		p.window, err = load.New(byte(plan.QoS), plan.Window)
	}
	if err != nil {
		return nil, err
	}
	payload := make([]byte, plan.Payload)
	for i := range payload {
		payload[i] = byte('a' + i%26)
	}
	p.template = packet.AppendPublish(nil, &packet.Publish{
		Topic: []byte(plan.Topic(number)), Payload: payload, ID: 1, QoS: byte(plan.QoS),
	})
	p.payloadAt = len(p.template) - plan.Payload
	p.idAt = p.payloadAt - 2
	p.out = make([]byte, 0, maxWrite+len(p.template)+8)
	if plan.Ledger != nil {
		p.book = plan.Ledger.Book(number)
	}
	return p, nil
}

// run puts the load of one Run on the connection and returns when it is over, drained or failed.
func (p *publisher) run(s schedule) (counts, error) {
	p.begin(s)
	err := p.loopUntilDone()
	p.c.end = p.now()
	if p.window != nil {
		p.c.order = p.window.TakeOrder()
		p.c.inFlight = p.window.Mean(p.c.end)
	} else {
		p.c.inFlight = p.fences.Mean(p.c.end)
	}
	p.conn.torn = p.pending()
	return p.c, err
}

func (p *publisher) begin(s schedule) {
	p.armed = 0
	p.sched, p.c = s, counts{}
	p.ack.h, p.receive.h, p.release.h, p.fence.h = p.rec.ack, p.rec.receive, p.rec.release, p.rec.fence
	if p.window != nil {
		p.window.Measure(s.from, s.to)
	} else {
		p.fences.Measure(s.from, s.to)
	}
}

// loopUntilDone is the event loop: append what may be sent, write what fits, read what is there, handle it.
//
// It must not wait in a write. At a window of 65,535 the packets under way are far more than the buffers of both sockets:
// a broker that stops reading until its acknowledgements are taken and a client that stops reading until its messages
// are taken would wait for each other for ever.
func (p *publisher) loopUntilDone() error {
	now := p.now()
	heard := now                 // when something arrived last
	stopped := time.Duration(-1) // when publishing ended
	more := false                // there was more to send than fitted into the output
	for {
		if p.cancelled.Load() {
			return context.Canceled
		}
		if stopped < 0 && (now >= p.sched.to || p.left() == 0) {
			stopped = now
			p.c.early = now < p.sched.to
		}
		if !p.pending() {
			more = p.fill(stopped >= 0)
			if p.pending() {
				now = p.now()
				p.sent(now)
			}
		}
		if p.pending() {
			if err := p.flush(); err != nil {
				return p.conn.trouble(err)
			}
		}
		if stopped >= 0 && !p.pending() && !more && p.outstanding() == 0 {
			return nil
		}
		wake := heard + p.sched.stall
		if stopped >= 0 {
			wake = min(wake, stopped+p.sched.drain)
		}
		var err error
		switch {
		case p.pending() && p.fences != nil:
			// Answers are few and small at QoS 0: none will end a wait for one, and none can fill a socket.
			if err = p.flushWaiting(); err == nil {
				err = p.tryRead()
			}
		case p.pending():
			now = p.now() // the write may have taken as long as the wait is to be
			err = p.read(now, min(wake, now+retryInterval))
		case more:
			err = p.tryRead()
		default:
			err = p.read(now, wake)
		}
		now = p.now()
		switch {
		case err == nil:
			heard = now
			if err := p.handle(now); err != nil {
				return p.conn.trouble(err)
			}
		case !errors.Is(err, errWouldBlock):
			return p.conn.trouble(err)
		case stopped >= 0 && now-stopped >= p.sched.drain:
			return nil
		case now-heard >= p.sched.stall && p.outstanding() > 0:
			return fmt.Errorf("stalled: %d exchanges outstanding for %v, and nothing arrives", p.outstanding(),
				(now - heard).Round(time.Millisecond))
		}
	}
}

// left is how many messages may still be published in this Run; below 0: no bound.
func (p *publisher) left() int64 {
	left := int64(-1)
	if p.sched.quota >= 0 {
		left = p.sched.quota - p.c.published
	}
	if p.book != nil {
		if room := p.book.Room(); left < 0 || room < left {
			left = room
		}
	}
	return left
}

func (p *publisher) outstanding() int {
	if p.window != nil {
		return p.window.Outstanding()
	}
	return p.fences.Outstanding()
}

// fill appends what may be sent to the empty output, up to maxWrite: PUBRELs first, they free slots. It reports whether
// there is more.
func (p *publisher) fill(stopped bool) (more bool) {
	left := int64(0)
	if !stopped {
		left = p.left()
	}
	if p.fences != nil {
		return p.fillFenced(left)
	}
	for p.window.Releases() {
		if len(p.out) >= maxWrite {
			return true
		}
		id, _ := p.window.Release()
		p.out = packet.AppendAck(p.out, packet.PUBREL, id)
	}
	for ; p.window.Room() > 0 && left != 0; left-- {
		if len(p.out) >= maxWrite {
			return true
		}
		id, seq := p.window.Publish()
		at := len(p.out)
		p.append(seq)
		binary.BigEndian.PutUint16(p.out[at+p.idAt:], id)
	}
	return false
}

func (p *publisher) fillFenced(left int64) (more bool) {
	for {
		for ; p.fences.Room() > 0 && left != 0; left-- {
			if len(p.out) >= maxWrite {
				return true
			}
			p.append(p.fences.Publish())
		}
		if !p.fences.Due(left == 0) {
			return false
		}
		p.fences.Fence()
		p.out = packet.AppendEmpty(p.out, packet.PINGREQ)
	}
}

// append copies the template into the output as message seq.
func (p *publisher) append(seq int64) {
	p.out = append(p.out, p.template...)
	if p.book != nil {
		p.book.Stamp(p.out[len(p.out)-len(p.template)+p.payloadAt:], seq)
		p.book.Published(seq)
	}
	p.c.published++
}

func (p *publisher) sent(now time.Duration) {
	if p.window != nil {
		p.window.Sent(now)
	} else {
		p.fences.Sent(now)
	}
}

// handle takes every packet that is in the buffer; all of them arrived at now.
func (p *publisher) handle(now time.Duration) error {
	p.measuring = now > p.sched.from && now <= p.sched.to
	if p.measuring {
		p.rec.Lock()
		defer p.rec.Unlock()
	}
	for {
		f, ok, err := p.conn.r.Buffered()
		if ok {
			err = p.one(f, now)
		}
		if !ok || err != nil {
			p.ack.flush()
			p.receive.flush()
			p.release.flush()
			p.fence.flush()
			return err
		}
	}
}

func (p *publisher) one(f packet.Frame, now time.Duration) error {
	if p.fences != nil {
		return p.fenced(f, now)
	}
	t := f.Type()
	if t != packet.PUBACK && t != packet.PUBREC && t != packet.PUBCOMP {
		return fmt.Errorf("%w: unexpected %v on a publishing connection", load.ErrProtocol, t)
	}
	id, err := packet.ParseAck(f)
	if err != nil {
		return err
	}
	var d load.Done
	switch t {
	case packet.PUBREC:
		leg, err := p.window.Pubrec(id, now)
		if err == nil && p.measuring {
			p.receive.add(leg)
		}
		return err
	case packet.PUBACK:
		d, err = p.window.Puback(id, now)
	default:
		d, err = p.window.Pubcomp(id, now)
	}
	if err != nil {
		return err
	}
	p.c.acknowledged++
	p.c.lastAck = now
	if p.book != nil {
		p.book.Acknowledged(d.Seq)
	}
	if p.measuring {
		p.c.messages++
		p.ack.add(d.Service)
		if t == packet.PUBCOMP {
			p.release.add(d.Release)
		}
	}
	return nil
}

func (p *publisher) fenced(f packet.Frame, now time.Duration) error {
	if f.Type() != packet.PINGRESP {
		return fmt.Errorf("%w: unexpected %v on a publishing connection at QoS 0", load.ErrProtocol, f.Type())
	}
	if err := packet.ParseEmpty(f); err != nil {
		return err
	}
	first, n, leg, err := p.fences.Pingresp(now)
	if err != nil {
		return err
	}
	p.c.acknowledged += int64(n)
	p.c.lastAck = now
	if p.book != nil {
		for i := range int64(n) {
			p.book.Acknowledged(first + i)
		}
	}
	if p.measuring {
		p.c.messages += int64(n)
		p.fence.add(leg)
	}
	return nil
}
