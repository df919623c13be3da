package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"inflight/broker/packet"
	"inflight/runner/ledger"
	"inflight/runner/load"
)

// schedule is when one Run does what, on the clock of the population.
type schedule struct {
	start    time.Duration // of the Run, and of its pace
	pace     load.Turn     // of an open loop
	from, to time.Duration // the measured time
	drain    time.Duration // bound on waiting after the last PUBLISH
	stall    time.Duration
	quota    int64 // messages of this connection; below 0: no bound
}

// open reports whether the loop is.
func (s *schedule) open() bool { return s.pace.Open() }

// instant is when message number n of this Run, from 0, is to be written.
func (s *schedule) instant(n int64) time.Duration { return s.start + s.pace.At(n) }

// due is how many messages are to be written by now.
func (s *schedule) due(now time.Duration) int64 { return s.pace.Due(now - s.start) }

// counts are what one connection did in one Run.
type counts struct {
	messages                int64 // completed within the measured time
	bytes                   int64 // of their payloads
	published, acknowledged int64
	lastAck                 time.Duration // 0: none
	early                   bool          // publishing ended before the measured time did
	late, missed            int64
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

	headers [][]byte // by topic: a PUBLISH up to its payload
	idBack  int      // so many bytes before the payload is the Packet Identifier
	payload []byte   // the longest; shared with other connections
	sizes   []int    // of the payloads, by sequence number plus offset, over and over; nil: all are the longest
	offset  int64    // so that connections do not send the same size at the same time
	timed   bool     // payloads have a time in their stamp
	made    time.Duration

	rec                                    *recorder
	ack, receive, release, fence, response tally

	sched     schedule
	base      int64 // sequence number of the first message of this Run
	stamped   int64 // messages of this Run that were written, or are being
	c         counts
	written   atomic.Int64 // messages of all Runs
	measuring bool         // the batch being handled was read within the measured time
}

func newPublisher(conn *Conn, epoch time.Time, plan *Plan, number int, payload []byte, rec *recorder) (*publisher, error) {
	p := &publisher{loop: loop{conn: conn, epoch: epoch}, payload: payload, rec: rec, sizes: plan.Sizes}
	p.offset = int64(number) * SizesApart
	var err error
	if plan.QoS == 0 {
		p.fences, err = load.NewFences(plan.Window)
	} else {
		p.window, err = load.New(byte(plan.QoS), plan.Window)
	}
	if err != nil {
		return nil, err
	}
	longest := 0
	p.idBack = 2
	if plan.Version == packet.V5 {
		p.idBack = 3 // a Property Length of 0 is between them
	}
	for i := range plan.Topics {
		topic := plan.Topic(number)
		if plan.Topics > 1 {
			topic += "/" + strconv.Itoa(i)
		}
		b := plan.Version.AppendPublish(nil, &packet.Publish{Topic: []byte(topic), Payload: payload, ID: 1, QoS: byte(plan.QoS)})
		longest = max(longest, len(b))
		p.headers = append(p.headers, slices.Clone(b[:len(b)-len(payload)]))
	}
	p.out = make([]byte, 0, min(plan.Window*(longest+2)+minBuffer, maxWrite)+longest+8)
	if plan.Ledger != nil {
		p.book = plan.Ledger.Book(number)
		p.timed = len(payload) >= ledger.TimedSize
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
	p.sched, p.c, p.stamped = s, counts{}, 0
	p.ack.h, p.receive.h, p.release.h, p.fence.h = p.rec.ack, p.rec.receive, p.rec.release, p.rec.fence
	p.response.h = p.rec.response
	if p.window != nil {
		p.base = p.window.Published()
		p.window.Measure(s.from, s.to)
	} else {
		p.base = p.fences.Published()
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
			p.c.missed = p.missed(now)
		}
		if !p.pending() {
			more = p.fill(now, stopped >= 0)
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
		} else if p.sched.open() && p.room() > 0 {
			wake = min(wake, p.sched.instant(p.c.published))
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
		case more || wake <= now:
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
		case p.outstanding() == 0:
			heard = now // an open loop that waits for its next instant is owed nothing
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

// room is how many messages the window has a place for.
func (p *publisher) room() int {
	if p.window != nil {
		return p.window.Room()
	}
	return p.fences.Room()
}

// missed is how many messages of an open loop were due in the measured time, which is over at now, and are not written.
func (p *publisher) missed(now time.Duration) int64 {
	if !p.sched.open() {
		return 0
	}
	due := p.sched.due(min(now, p.sched.to-1)) // what is due at its end is not part of it
	if p.sched.quota >= 0 {
		due = min(due, p.sched.quota)
	}
	return max(0, due-p.c.published)
}

func (p *publisher) outstanding() int {
	if p.window != nil {
		return p.window.Outstanding()
	}
	return p.fences.Outstanding()
}

// fill appends what may be sent to the empty output, up to maxWrite: PUBRELs first, they free slots. It reports whether
// there is more.
func (p *publisher) fill(now time.Duration, stopped bool) (more bool) {
	left := int64(0)
	if !stopped {
		left = p.left()
		if p.sched.open() {
			due := max(0, p.sched.due(now)-p.c.published)
			if left < 0 || due < left {
				left = due
			}
		}
	}
	p.made = now
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
		at := p.append(seq)
		binary.BigEndian.PutUint16(p.out[at-p.idBack:], id)
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

// append appends message seq to the output, with any Packet Identifier, and returns where its payload is.
func (p *publisher) append(seq int64) (payloadAt int) {
	header := p.headers[0]
	if n := int64(len(p.headers)); n > 1 {
		header = p.headers[seq%n]
	}
	size := p.size(seq)
	if p.sizes == nil {
		p.out = append(p.out, header...)
	} else {
		p.out = appendSized(p.out, header, size)
	}
	payloadAt = len(p.out)
	p.out = append(p.out, p.payload[:size]...)
	if p.book != nil {
		if p.timed {
			p.book.StampAt(p.out[payloadAt:], seq, p.made)
		} else {
			p.book.Stamp(p.out[payloadAt:], seq)
		}
		p.book.Published(seq)
	}
	p.c.published++
	return payloadAt
}

// SizesApart is how far apart consecutive connections are in the table of sizes: coprime to any table's length that is a power
// of two.
const SizesApart = 1_009

// size is the payload of message seq of the connection, bytes. It is the same in every Run of every population with this plan.
func (p *publisher) size(seq int64) int {
	if p.sizes == nil {
		return len(p.payload)
	}
	return p.sizes[(seq+p.offset)%int64(len(p.sizes))]
}

// bytes is the payload of n consecutive messages.
func (p *publisher) bytes(first, n int64) (sum int64) {
	if p.sizes == nil {
		return n * int64(len(p.payload))
	}
	for i := range n {
		sum += int64(p.size(first + i))
	}
	return sum
}

// appendSized appends the header of a PUBLISH whose payload has size bytes; header is that of one with another payload.
func appendSized(out, header []byte, size int) []byte {
	fixed := 2 // the type, and a Remaining Length that ends at its first byte below 128, section 2.2.3
	for header[fixed-1] >= 128 {
		fixed++
	}
	out = append(out, header[0])
	out = binary.AppendUvarint(out, uint64(len(header)-fixed+size)) // a Variable Byte Integer is a varint
	return append(out, header[fixed:]...)
}

func (p *publisher) sent(now time.Duration) {
	if n := p.c.published - p.stamped; n > 0 {
		if p.sched.open() && now > p.sched.from && now <= p.sched.to {
			p.c.late += min(max(0, p.sched.due(now-LateAfter)-p.stamped), n)
		}
		p.stamped = p.c.published
		p.written.Add(n)
	}
	if p.window != nil {
		p.window.Sent(now)
	} else {
		p.fences.Sent(now)
	}
}

// handle takes every packet that is in the buffer; all of them arrived at now.
func (p *publisher) handle(now time.Duration) error {
	p.measuring = now > p.sched.from && now <= p.sched.to
	if p.measuring || p.sched.open() {
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
			p.response.flush()
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
		return p.conn.unexpected(f, "a publishing connection")
	}
	a, err := p.conn.codec.ParseAck(f)
	if err != nil {
		return err
	}
	if a.Code >= refusals {
		return fmt.Errorf("the broker refuses the message of Packet Identifier %d: %v with %v", a.ID, t, a.Code)
	}
	id := a.ID
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
	if p.sched.open() {
		// By its instant, whenever it was answered: else the slowest of a stall at the end would be left out.
		if at := p.sched.instant(d.Seq - p.base); at >= p.sched.from && at < p.sched.to {
			p.response.add(now - at)
		}
	}
	if p.measuring {
		p.c.messages++
		p.c.bytes += int64(p.size(d.Seq))
		p.ack.add(d.Service)
		if t == packet.PUBCOMP {
			p.release.add(d.Release)
		}
	}
	return nil
}

func (p *publisher) fenced(f packet.Frame, now time.Duration) error {
	if f.Type() != packet.PINGRESP {
		return p.conn.unexpected(f, "a publishing connection at QoS 0")
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
		p.c.bytes += p.bytes(first, int64(n))
		p.fence.add(leg)
	}
	return nil
}
