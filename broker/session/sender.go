package session

import (
	"errors"
	"fmt"

	"inflight/broker/packet"
	"inflight/broker/store"
)

// outstate is the state of a message that was sent to the subscriber.
type outstate byte

const (
	awaitPuback  outstate = iota // QoS 1: PUBLISH sent
	awaitPubrec                  // QoS 2: PUBLISH sent
	awaitPubcomp                 // QoS 2: PUBREC received, PUBREL sent or owed; the message is the receiver's
)

type outgoing struct {
	state    outstate
	delivery store.Delivery
	src      *Source // nil: of no subscription that goes on
	round    uint64  // of compact, in which it was seen
}

// ErrUnexpectedAck is an acknowledgement that answers nothing that was sent, or answers it with the wrong type.
var ErrUnexpectedAck = errors.New("acknowledgement answers nothing that was sent")

// Sender is the sending side of one session: the messages that were sent to the subscriber and not yet completed, in
// the order in which they were sent. It outlives the connection.
//
// Invariants: an identifier is in use from PUBLISH to PUBACK or PUBCOMP and is never 0 [MQTT-2.3.1-1] [MQTT-2.3.1-4]; at
// most window messages are in use; after PUBREC the message itself is never sent again, only its PUBREL [MQTT-4.3.3-1].
type Sender struct {
	window int
	last   uint16
	byID   map[uint16]*outgoing
	order  []uint16 // identifiers by first PUBLISH; completed ones are skipped and trimmed
	rels   []uint16 // identifiers that await PUBCOMP, in PUBREC order [MQTT-4.6.0-4]

	sources map[string]*Source // by Topic Filter
	version uint64             // counts the changes that must be durable before the packet that they caused leaves
	round   uint64             // counts the runs of compact
}

// NewSender returns a sender with at most window messages outstanding.
func NewSender(window int) *Sender {
	return &Sender{window: min(max(window, 1), 65_535), byID: make(map[uint16]*outgoing), sources: make(map[string]*Source)}
}

// Full reports whether the window has no room for another message above QoS 0.
func (s *Sender) Full() bool { return len(s.byID) >= s.window }

// InFlight is the number of messages outstanding.
func (s *Sender) InFlight() int { return len(s.byID) }

// Send appends the PUBLISH of a delivery of src, which may be nil. Above QoS 0 the window must not be full.
func (s *Sender) Send(b []byte, src *Source, d store.Delivery) []byte {
	p := packet.Publish{Topic: []byte(d.Message.Topic), Payload: d.Message.Payload, QoS: d.QoS, Retain: d.Retain}
	if d.QoS > 0 {
		p.ID = s.take()
		src.sent(d)
		s.version++
		out := &outgoing{state: awaitPuback, delivery: d, src: src}
		if d.QoS == 2 {
			out.state = awaitPubrec
		}
		s.byID[p.ID] = out
		s.order = append(s.order, p.ID)
		s.trim()
	}
	return packet.AppendPublish(b, &p)
}

// take returns the next identifier that is not in use.
func (s *Sender) take() uint16 {
	for {
		s.last++
		if s.last == 0 {
			s.last = 1
		}
		if _, used := s.byID[s.last]; !used {
			return s.last
		}
	}
}

// tidy leaves in both orders what is outstanding, once each.
func (s *Sender) tidy() {
	s.rels = s.compact(s.rels, true)
	s.order = s.compact(s.order, false)
}

// trim drops completed identifiers once they are most of an order.
func (s *Sender) trim() {
	if len(s.order) > 64 && len(s.order) > 4*len(s.byID) {
		s.order = s.compact(s.order, false)
	}
	if len(s.rels) > 64 && len(s.rels) > 4*len(s.byID) {
		s.rels = s.compact(s.rels, true)
	}
}

// compact keeps, of each identifier that still awaits PUBCOMP or not, the last mention: an earlier one belongs to a
// completed exchange that used the same number.
func (s *Sender) compact(ids []uint16, pubcomp bool) []uint16 {
	s.round++
	at := len(ids)
	for i := len(ids) - 1; i >= 0; i-- {
		out := s.byID[ids[i]]
		if out == nil || out.round == s.round || (out.state == awaitPubcomp) != pubcomp {
			continue
		}
		out.round = s.round
		at--
		ids[at] = ids[i]
	}
	return ids[:copy(ids, ids[at:])]
}

// Puback takes a PUBACK: the message is settled and its identifier is free.
func (s *Sender) Puback(id uint16) error {
	out := s.byID[id]
	if out == nil {
		return nil // a late answer to a message of an earlier connection; nothing to free
	}
	if out.state != awaitPuback {
		return fmt.Errorf("PUBACK %d for a QoS 2 message: %w", id, ErrUnexpectedAck)
	}
	delete(s.byID, id)
	out.delivery.Settle()
	out.src = nil // if the store delivers it again, it is settled again
	return nil
}

// Pubrec takes a PUBREC and appends its PUBREL. The message is settled: from here on it is the receiver's. A repeated
// PUBREC gets the PUBREL again, never the PUBLISH, and so does one for an unknown identifier, whose exchange was
// completed before.
func (s *Sender) Pubrec(b []byte, id uint16) ([]byte, error) {
	out := s.byID[id]
	if out != nil && out.state == awaitPuback {
		return b, fmt.Errorf("PUBREC %d for a QoS 1 message: %w", id, ErrUnexpectedAck)
	}
	if out != nil && out.state == awaitPubrec {
		out.state = awaitPubcomp
		out.delivery.Settle()
		out.delivery, out.src = store.Delivery{}, nil
		s.rels = append(s.rels, id)
		s.version++
	}
	return packet.AppendAck(b, packet.PUBREL, id), nil
}

// Pubcomp takes a PUBCOMP: the identifier is free.
func (s *Sender) Pubcomp(id uint16) error {
	out := s.byID[id]
	if out == nil {
		return nil
	}
	if out.state != awaitPubcomp {
		return fmt.Errorf("PUBCOMP %d before its PUBREC: %w", id, ErrUnexpectedAck)
	}
	delete(s.byID, id)
	return nil
}

// Resend appends what a resumed session owes: the PUBRELs in PUBREC order, then the unacknowledged PUBLISHes in their
// original order with DUP and their original identifiers [MQTT-4.4.0-1] [MQTT-4.6.0-1].
func (s *Sender) Resend(b []byte) []byte {
	s.tidy()
	for _, id := range s.rels {
		b = packet.AppendAck(b, packet.PUBREL, id)
	}
	for _, id := range s.order {
		d := s.byID[id].delivery
		b = packet.AppendPublish(b, &packet.Publish{
			Topic: []byte(d.Message.Topic), Payload: d.Message.Payload, ID: id, QoS: d.QoS, Dup: true, Retain: d.Retain,
		})
	}
	return b
}
