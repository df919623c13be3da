package session

import (
	"errors"
	"fmt"
	"time"

	"inflight/broker/ids"
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
	awaited  bool    // a source knows it by its Seq, until the store delivers it again
	next     *outgoing
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
	byID   ids.Table[outgoing]
	order  []uint16 // identifiers by first PUBLISH; completed ones are skipped and trimmed
	rels   []uint16 // identifiers that await PUBCOMP, in PUBREC order [MQTT-4.6.0-4]

	free  *outgoing // for the next messages
	spare int       // how many are free

	limit   int  // of the window, whatever a connection wants
	link    Link // of the connection
	aliases aliases
	owed    []owed // what a resumed session sends again once the window has room

	sources map[string]*Source // by Topic Filter
	version uint64             // counts the changes that must be durable before the packet that they caused leaves
	round   uint64             // counts the runs of compact
}

// NewSender returns a sender with at most window messages outstanding.
func NewSender(window int) *Sender {
	window = min(max(window, 1), 65_535)
	return &Sender{window: window, limit: window, sources: make(map[string]*Source)}
}

// Link is what a connection asks of the sender.
type Link struct {
	Version        packet.Version
	ReceiveMaximum int // messages above QoS 0 outstanding; 0: no limit but the sender's own [MQTT-3.3.4-9]
	MaximumPacket  int // bytes of a PUBLISH, fixed header included; 0: no limit [MQTT-3.1.2-24]
	TopicAliases   int // Topic Alias Maximum; 0: none are sent [MQTT-3.1.2-27]

	// Late says that what is sent above QoS 0 may leave after what is sent later at QoS 0. Each keeps its order.
	Late bool
}

// owed is a message that is to be sent again.
type owed struct {
	id  uint16
	out *outgoing
}

// Connect begins a connection. What is sent from now on is for it.
func (s *Sender) Connect(l Link) {
	s.link, s.window, s.owed = l, s.limit, nil
	s.aliases.reset(l.TopicAliases)
	if l.ReceiveMaximum > 0 {
		s.window = min(s.limit, l.ReceiveMaximum)
	}
}

// Fits reports whether the PUBLISH of a delivery is no larger than the subscriber takes.
func (s *Sender) Fits(src *Source, d *store.Delivery) bool {
	if s.link.Version != packet.V5 || s.link.MaximumPacket == 0 {
		return true
	}
	f := forward(src, d, d.Left, 0)
	return f.Size() <= s.link.MaximumPacket
}

// forward is the PUBLISH of a delivery for MQTT 5.0; left is in seconds.
func forward(src *Source, d *store.Delivery, left uint32, id uint16) packet.Forward {
	f := packet.Forward{
		Publish: packet.Publish{Topic: []byte(d.Message.Topic), Payload: d.Message.Payload, ID: id, QoS: d.QoS, Retain: d.Retain},
		Passed:  d.Message.Passed,
	}
	if d.Message.Expires != 0 {
		f.Expiry = packet.Some(left)
	}
	if src != nil {
		f.SubscriptionID = src.ID
	}
	return f
}

// Full reports whether the window has no room for another message above QoS 0.
func (s *Sender) Full() bool { return s.byID.Len() >= s.window }

// InFlight is the number of messages outstanding.
func (s *Sender) InFlight() int { return s.byID.Len() }

// Send appends the PUBLISH of a delivery of src, which may be nil. Above QoS 0 the window must not be full.
func (s *Sender) Send(b []byte, src *Source, d store.Delivery) []byte {
	var id uint16
	if d.QoS > 0 {
		id = s.take()
		src.sent(d)
		s.version++
		out := s.fresh()
		out.state, out.delivery, out.src = awaitPuback, d, src
		if d.QoS == 2 {
			out.state = awaitPubrec
		}
		s.byID.Put(id, out)
		s.order = append(s.order, id)
		s.trim()
	}
	if s.link.Version == packet.V5 {
		f := forward(src, &d, d.Left, id)
		if s.aliases.max > 0 {
			var known bool
			if f.TopicAlias, known = s.alias(d.Message.Topic, d.QoS, f.Size()); known {
				f.Topic = nil
			}
		}
		return packet.AppendForward(b, &f)
	}
	return packet.AppendPublish(b, &packet.Publish{
		Topic: []byte(d.Message.Topic), Payload: d.Message.Payload, ID: id, QoS: d.QoS, Retain: d.Retain,
	})
}

// fresh returns an empty outgoing message.
func (s *Sender) fresh() *outgoing {
	out := s.free
	if out == nil {
		return new(outgoing)
	}
	s.free, out.next = out.next, nil
	s.spare--
	return out
}

// done forgets what is under id. It is used again, unless something else may still refer to it.
func (s *Sender) done(id uint16, out *outgoing) {
	s.byID.Remove(id)
	out.src = nil // if the store delivers it again, it is settled again
	if out.awaited || len(s.owed) > 0 || s.spare == maxFree {
		return
	}
	*out = outgoing{next: s.free}
	s.free = out
	s.spare++
}

// take returns the next identifier that is not in use.
func (s *Sender) take() uint16 {
	for {
		s.last++
		if s.last == 0 {
			s.last = 1
		}
		if s.byID.Get(s.last) == nil {
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
	if len(s.order) > 64 && len(s.order) > 4*s.byID.Len() {
		s.order = s.compact(s.order, false)
	}
	if len(s.rels) > 64 && len(s.rels) > 4*s.byID.Len() {
		s.rels = s.compact(s.rels, true)
	}
}

// compact keeps, of each identifier that still awaits PUBCOMP or not, the last mention: an earlier one belongs to a
// completed exchange that used the same number.
func (s *Sender) compact(ids []uint16, pubcomp bool) []uint16 {
	s.round++
	at := len(ids)
	for i := len(ids) - 1; i >= 0; i-- {
		out := s.byID.Get(ids[i])
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
	out := s.byID.Get(id)
	if out == nil {
		return nil // a late answer to a message of an earlier connection; nothing to free
	}
	if out.state != awaitPuback {
		return fmt.Errorf("PUBACK %d for a QoS 2 message: %w", id, ErrUnexpectedAck)
	}
	out.delivery.Settle()
	s.done(id, out)
	return nil
}

// Pubrec takes a PUBREC and appends its PUBREL. The message is settled: from here on it is the receiver's. A repeated
// PUBREC gets the PUBREL again, never the PUBLISH, and so does one for an unknown identifier, whose exchange was
// completed before.
func (s *Sender) Pubrec(b []byte, id uint16) ([]byte, error) {
	out := s.byID.Get(id)
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
	if out == nil && s.link.Version == packet.V5 {
		return packet.V5.AppendAck(b, packet.PUBREL, packet.Ack{ID: id, Code: packet.PacketIdentifierNotFound}), nil
	}
	return packet.AppendAck(b, packet.PUBREL, id), nil
}

// Refused takes a PUBREC with a Reason Code that is a failure: the exchange is over, no PUBREL follows, and the identifier
// is free.
func (s *Sender) Refused(id uint16) error {
	out := s.byID.Get(id)
	switch {
	case out == nil:
		return nil
	case out.state != awaitPubrec:
		return fmt.Errorf("PUBREC %d with a failure for what awaits none: %w", id, ErrUnexpectedAck)
	}
	out.delivery.Settle()
	s.done(id, out)
	return nil
}

// Pubcomp takes a PUBCOMP: the identifier is free.
func (s *Sender) Pubcomp(id uint16) error {
	out := s.byID.Get(id)
	if out == nil {
		return nil
	}
	if out.state != awaitPubcomp {
		return fmt.Errorf("PUBCOMP %d before its PUBREC: %w", id, ErrUnexpectedAck)
	}
	s.done(id, out)
	return nil
}

// Resend appends what a resumed session owes: the PUBRELs in PUBREC order, then the unacknowledged PUBLISHes in their
// original order with DUP and their original identifiers [MQTT-4.4.0-1] [MQTT-4.6.0-1]. Those that the connection's window
// has no room for follow with More, and those that it does not take at all are given up.
func (s *Sender) Resend(b []byte, now time.Time) []byte {
	s.tidy()
	s.owed = nil
	for _, id := range s.order {
		out := s.byID.Get(id)
		if !s.Fits(out.src, &out.delivery) {
			out.delivery.Settle()
			s.Lost(id)
			continue
		}
		s.owed = append(s.owed, owed{id, out})
	}
	for _, id := range s.rels {
		b = packet.AppendAck(b, packet.PUBREL, id)
	}
	return s.More(b, now)
}

// Owes reports whether a resumed session has not yet sent everything again.
func (s *Sender) Owes() bool { return len(s.owed) > 0 }

// More appends what a resumed session still owes and the window has room for. To be called after an acknowledgement.
func (s *Sender) More(b []byte, now time.Time) []byte {
	for len(s.owed) > 0 {
		id, out := s.owed[0].id, s.owed[0].out
		again := s.byID.Get(id) == out && out.state != awaitPubcomp
		if again && s.byID.Len()-len(s.owed) >= s.window {
			break
		}
		s.owed = s.owed[1:]
		if again {
			b = s.resend(b, id, out, now)
		}
	}
	return b
}

func (s *Sender) resend(b []byte, id uint16, out *outgoing, now time.Time) []byte {
	d := &out.delivery
	if s.link.Version == packet.V5 {
		f := forward(out.src, d, d.Message.Left(now), id)
		f.Dup = true
		if s.aliases.max > 0 {
			var known bool
			if f.TopicAlias, known = s.alias(d.Message.Topic, d.QoS, f.Size()); known {
				f.Topic = nil
			}
		}
		return packet.AppendForward(b, &f)
	}
	return packet.AppendPublish(b, &packet.Publish{
		Topic: []byte(d.Message.Topic), Payload: d.Message.Payload, ID: id, QoS: d.QoS, Dup: true, Retain: d.Retain,
	})
}
