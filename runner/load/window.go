package load

import (
	"errors"
	"fmt"
	"time"

	"inflight/broker/packet"
)

// MaxWindow is the largest window: there are no more Packet Identifiers, section 2.3.1.
const MaxWindow = 65_535

// ErrProtocol is wrapped by every error that says that the broker broke the protocol.
var ErrProtocol = errors.New("protocol violation by the broker")

// phase is how far an exchange has come.
type phase uint8

const (
	free      phase = iota
	appended        // the PUBLISH is in the output, not stamped yet
	published       // PUBLISH written, awaiting PUBACK or PUBREC
	received        // PUBREC read, PUBREL not written yet
	released        // PUBREL written, awaiting PUBCOMP
)

func (p phase) String() string {
	switch p {
	case appended:
		return "has not been sent yet"
	case published:
		return "awaits the answer to its PUBLISH"
	case received:
		return "has had its PUBREC and no PUBREL yet"
	case released:
		return "awaits its PUBCOMP"
	default:
		return "is not outstanding"
	}
}

// exchange is the state of one Packet Identifier. prev and next link it into the list of its phase; 0 is no identifier.
type exchange struct {
	sent, released time.Duration
	seq            int64
	prev, next     uint16
	phase          phase
}

// list is a queue of exchanges in the order of the packets that await an answer. It is linked through the exchanges
// themselves, so that one answered out of order leaves the middle in O(1), and an exchange that is never answered cannot
// make anything grow while others come and go behind it.
type list struct{ head, tail uint16 }

// Order counts acknowledgements per packet type; Violations are those that came while an older one was outstanding.
type Order struct {
	Checked    int64
	Violations int64
	PUBACK     int64
	PUBREC     int64
	PUBCOMP    int64
	First      string // the first violation in words, "" if none
}

// Done is a completed exchange.
type Done struct {
	Seq     int64
	Service time.Duration // PUBLISH sent -> PUBACK or PUBCOMP
	Release time.Duration // QoS 2: PUBREL sent -> PUBCOMP
}

// Window is the closed loop of one connection at QoS 1 or 2. It belongs to the goroutine that owns the connection.
//
// An exchange goes appended -> published -> (QoS 2: received -> released ->) free. It takes a slot of the window from
// Publish on and gives it back when it becomes free. Those before received are in the list sent, in the order of their
// PUBLISHes; the others are in the list recd, in the order of their PUBRECs, which is the order in which their PUBRELs
// go out [MQTT-4.6.0-4]. An acknowledgement is in order if it is for the head of its list.
//
// Identifiers are given out in a circle rather than from a free list, as a client with a counter does: the one just freed
// comes back last, so a second acknowledgement is recognised as such. The circle is 8 times the window, at least 1,024:
// the whole range would cost each connection two megabytes that stay cold in every cache. Near 65,535 it is the whole
// range, and a late second acknowledgement may hit a new exchange.
type Window struct {
	meter
	qos    byte
	size   int
	used   int
	ids    []exchange // by Packet Identifier; 0 is never used
	next   uint16     // where the search for a free identifier starts
	seq    int64      // of the next message
	sent   list
	recd   list
	fresh  uint16 // in sent: the first one not stamped yet
	unrel  uint16 // in recd: the first one whose PUBREL has not been appended
	relnew uint16 // in recd: the first one whose PUBREL is appended but not stamped
	order  Order
}

// New returns an empty window of that many exchanges at QoS 1 or 2.
func New(qos byte, size int) (*Window, error) {
	if qos != 1 && qos != 2 {
		return nil, fmt.Errorf("a window of acknowledged exchanges at QoS %d: only at 1 and 2", qos)
	}
	if size < 1 || size > MaxWindow {
		return nil, fmt.Errorf("window %d: must be 1 to %d", size, MaxWindow)
	}
	circle := min(max(8*size, 1024), MaxWindow)
	return &Window{qos: qos, size: size, ids: make([]exchange, circle+1), next: 1}, nil
}

// Room is the number of messages that may be published now.
func (w *Window) Room() int { return w.size - w.used }

// Outstanding is the number of exchanges that are not complete.
func (w *Window) Outstanding() int { return w.used }

// Published is the number of messages given out so far; it is the sequence number of the next.
func (w *Window) Published() int64 { return w.seq }

// Publish takes a slot for the next message. It must not be called without Room: the identifier is then 0.
func (w *Window) Publish() (id uint16, seq int64) {
	if w.used >= w.size {
		return 0, 0
	}
	id = w.next
	for w.ids[id].phase != free { // ends: used < size <= the number of identifiers
		id = w.after(id)
	}
	w.next = w.after(id)
	e := &w.ids[id]
	e.phase, e.seq = appended, w.seq
	w.push(&w.sent, id)
	if w.fresh == 0 {
		w.fresh = id
	}
	w.used++
	w.seq++
	return id, e.seq
}

func (w *Window) after(id uint16) uint16 {
	if int(id) == len(w.ids)-1 {
		return 1
	}
	return id + 1
}

// Release returns the next identifier whose PUBREL is due, in the order of the PUBRECs; ok is false if there is none.
func (w *Window) Release() (id uint16, ok bool) {
	id = w.unrel
	if id == 0 {
		return 0, false
	}
	w.unrel = w.ids[id].next
	if w.relnew == 0 {
		w.relnew = id
	}
	return id, true
}

// Releases reports whether a PUBREL is due.
func (w *Window) Releases() bool { return w.unrel != 0 }

// Sent stamps everything given out by Publish and Release since the last call: now is just before the write.
func (w *Window) Sent(now time.Duration) {
	n := 0
	for id := w.fresh; id != 0; n++ {
		e := &w.ids[id]
		e.phase, e.sent = published, now
		id = e.next
	}
	w.fresh = 0
	w.add(now, n)
	for id := w.relnew; id != 0 && id != w.unrel; {
		e := &w.ids[id]
		e.phase, e.released = released, now
		id = e.next
	}
	w.relnew = 0
}

// Puback completes a QoS 1 exchange.
func (w *Window) Puback(id uint16, now time.Duration) (Done, error) {
	e, err := w.answered(packet.PUBACK, id, published, &w.sent, &w.order.PUBACK)
	if err != nil {
		return Done{}, err
	}
	d := Done{Seq: e.seq, Service: now - e.sent}
	w.complete(e, now)
	return d, nil
}

// Pubrec moves a QoS 2 exchange to its second half; leg is PUBLISH sent -> PUBREC. Its PUBREL is then due.
func (w *Window) Pubrec(id uint16, now time.Duration) (leg time.Duration, err error) {
	e, err := w.answered(packet.PUBREC, id, published, &w.sent, &w.order.PUBREC)
	if err != nil {
		return 0, err
	}
	e.phase = received
	w.push(&w.recd, id)
	if w.unrel == 0 {
		w.unrel = id
	}
	return now - e.sent, nil
}

// Pubcomp completes a QoS 2 exchange.
func (w *Window) Pubcomp(id uint16, now time.Duration) (Done, error) {
	e, err := w.answered(packet.PUBCOMP, id, released, &w.recd, &w.order.PUBCOMP)
	if err != nil {
		return Done{}, err
	}
	d := Done{Seq: e.seq, Service: now - e.sent, Release: now - e.released}
	w.complete(e, now)
	return d, nil
}

// TakeOrder returns what was counted since the last call.
func (w *Window) TakeOrder() Order {
	o := w.order
	w.order = Order{}
	return o
}

// answered checks an acknowledgement against the exchange and the order, and takes it out of its list.
func (w *Window) answered(t packet.Type, id uint16, want phase, l *list, violations *int64) (*exchange, error) {
	if (t == packet.PUBACK) != (w.qos == 1) {
		return nil, fmt.Errorf("%w: %v for Packet Identifier %d of a QoS %d PUBLISH", ErrProtocol, t, id, w.qos)
	}
	if int(id) >= len(w.ids) || w.ids[id].phase != want {
		state := free
		if int(id) < len(w.ids) {
			state = w.ids[id].phase
		}
		return nil, fmt.Errorf("%w: %v for Packet Identifier %d, which %v", ErrProtocol, t, id, state)
	}
	w.order.Checked++
	if id != l.head {
		w.order.Violations++
		*violations++
		if w.order.First == "" {
			w.order.First = fmt.Sprintf("%v: expected Packet Identifier %d, got %d (message %d of the connection)",
				t, l.head, id, w.ids[id].seq)
		}
	}
	e := &w.ids[id]
	w.remove(l, e)
	return e, nil
}

func (w *Window) complete(e *exchange, now time.Duration) {
	e.phase = free
	w.used--
	w.add(now, -1)
}

func (w *Window) push(l *list, id uint16) {
	e := &w.ids[id]
	e.prev, e.next = l.tail, 0
	if l.tail == 0 {
		l.head = id
	} else {
		w.ids[l.tail].next = id
	}
	l.tail = id
}

func (w *Window) remove(l *list, e *exchange) {
	if e.prev == 0 {
		l.head = e.next
	} else {
		w.ids[e.prev].next = e.next
	}
	if e.next == 0 {
		l.tail = e.prev
	} else {
		w.ids[e.next].prev = e.prev
	}
}
