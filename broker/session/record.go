package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"inflight/broker/store"
)

// recordV1 is the first byte of a record; a later format takes another.
const recordV1 = 1

// maxInline bounds the message bodies in one record. Bodies are only there for what the store cannot read again.
const maxInline = 512 << 10

// How a message is kept in a record, in the two bits above its QoS.
const (
	byNumber = 0 << 2 // of a subscription's delivery
	inline   = 1 << 2 // as it is: a retained message, or one of a subscription that is gone
	bodiless = 2 << 2 // not at all: too many were to be kept
	retained = 1 << 4 // Delivery.Retain
)

// ErrRecord says that bytes are no record.
var ErrRecord = errors.New("outbound record is corrupt")

// Version changes with every change that must be durable before the packet that it caused leaves, if the session is to
// survive its node:
//   - Send: a QoS 2 message that comes again under another identifier is another message to the receiver;
//   - Pubrec: after its PUBREL the receiver has forgotten the identifier, and takes its PUBLISH for a new one.
//
// What PUBACK and PUBCOMP change can come late: at worst a PUBLISH of QoS 1 or a PUBREL is sent once more.
func (s *Sender) Version() uint64 { return s.version }

// Unrecorded says that the state is newer than the last record of it: nothing may leave before there is a new one.
func (s *Sender) Unrecorded() { s.version++ }

// Record appends the state of the sender in the format of [Restore]: numbers of the messages, a few bytes each, no bodies
// but those that nobody could read again.
//
//	version, last identifier, sources: number of them, then filter and high of each;
//	PUBREC received: number of them, identifiers in PUBREC order;
//	outstanding: number of them, then in the order of the first PUBLISH the identifier, the flags, and source and Seq, or
//	the length and the bytes of the message
//
// Numbers are varints; a Seq is the difference to the last one of its source.
func (s *Sender) Record(b []byte) []byte {
	s.tidy()
	b = append(b, recordV1)
	b = binary.AppendUvarint(b, uint64(s.last))
	filters := make([]string, 0, len(s.sources))
	for f := range s.sources {
		filters = append(filters, f)
	}
	sort.Strings(filters)
	index := make(map[*Source]int, len(filters))
	b = binary.AppendUvarint(b, uint64(len(filters)))
	for i, f := range filters {
		src := s.sources[f]
		index[src] = i
		b = binary.AppendUvarint(b, uint64(len(f)))
		b = append(b, f...)
		b = binary.AppendUvarint(b, src.high)
	}
	b = binary.AppendUvarint(b, uint64(len(s.rels)))
	for _, id := range s.rels {
		b = binary.AppendUvarint(b, uint64(id))
	}
	b = binary.AppendUvarint(b, uint64(len(s.order)))
	prev := make([]uint64, len(filters))
	room := maxInline
	for _, id := range s.order {
		out := s.byID.Get(id)
		d := &out.delivery
		flags := d.QoS
		if d.Retain {
			flags |= retained
		}
		b = binary.AppendUvarint(b, uint64(id))
		i, known := index[out.src]
		switch {
		case known && d.Seq > 0:
			b = append(b, flags|byNumber)
			b = binary.AppendUvarint(b, uint64(i))
			b = binary.AppendVarint(b, int64(d.Seq-prev[i]))
			prev[i] = d.Seq
		case d.Message.Size() > room:
			b = append(b, flags|bodiless)
		default:
			room -= d.Message.Size()
			b = append(b, flags|inline)
			b = binary.AppendUvarint(b, uint64(4+d.Message.Size()))
			b = store.Encode(b, d.Message)
		}
	}
	return b
}

// Missing is an outstanding message whose body a restored sender lacks.
type Missing struct {
	ID     uint16
	Filter string
	Seq    uint64
}

// Restore makes a sender from a record; none, of zero bytes, is a new sender. Before anything else, each missing body is
// handed to Found or reported with Lost.
func Restore(window int, record []byte) (*Sender, []Missing, error) {
	s := NewSender(window)
	if len(record) == 0 {
		return s, nil, nil
	}
	r := reader{b: record}
	if r.byte() != recordV1 {
		return nil, nil, fmt.Errorf("%w: unknown version", ErrRecord)
	}
	s.last = r.id()
	sources := make([]*Source, r.count())
	for i := range sources {
		src := s.Source(string(r.bytes()))
		src.high = r.number()
		src.floor, src.waiting = src.high, make(map[uint64]*outgoing)
		sources[i] = src
	}
	add := func(id uint16, out *outgoing) {
		if id == 0 || s.byID.Get(id) != nil {
			r.bad = true
			return
		}
		s.byID.Put(id, out)
	}
	for n := r.count(); n > 0 && !r.bad; n-- {
		id := r.id()
		add(id, &outgoing{state: awaitPubcomp})
		s.rels = append(s.rels, id)
	}
	var missing []Missing
	prev := make([]uint64, len(sources))
	for n := r.count(); n > 0 && !r.bad; n-- {
		id, flags := r.id(), r.byte()
		out := &outgoing{state: awaitPuback, delivery: store.Delivery{QoS: flags & 3, Retain: flags&retained != 0, Settle: func() {}}}
		switch flags & 3 {
		case 1:
		case 2:
			out.state = awaitPubrec
		default:
			r.bad = true
		}
		switch flags & (3 << 2) {
		case byNumber:
			i := r.number()
			if i >= uint64(len(sources)) {
				r.bad = true
				break
			}
			out.src = sources[i]
			prev[i] += uint64(r.signed())
			out.delivery.Seq = prev[i]
			out.src.waiting[prev[i]], out.awaited = out, true
			missing = append(missing, Missing{ID: id, Filter: out.src.filter, Seq: prev[i]})
		case inline:
			m, err := store.Decode(append([]byte(nil), r.bytes()...))
			r.bad = r.bad || err != nil
			out.delivery.Message = m
		case bodiless:
			missing = append(missing, Missing{ID: id})
		default:
			r.bad = true
		}
		add(id, out)
		s.order = append(s.order, id)
	}
	if r.bad || len(r.b) > 0 {
		return nil, nil, ErrRecord
	}
	return s, missing, nil
}

// Found gives an outstanding message its body.
func (s *Sender) Found(id uint16, m *store.Message) {
	if out := s.byID.Get(id); out != nil {
		out.delivery.Message = m
	}
}

// Lost gives an outstanding message up whose body is nowhere any more: the store lets go only of what was settled. A
// QoS 2 exchange is completed, because its receiver may hold the identifier; QoS 1 needs nothing.
func (s *Sender) Lost(id uint16) {
	out := s.byID.Get(id)
	switch {
	case out == nil || out.state == awaitPubcomp:
	case out.state == awaitPubrec:
		out.state = awaitPubcomp
		out.delivery, out.src = store.Delivery{}, nil
		s.rels = append(s.rels, id)
		s.version++
	default:
		s.byID.Remove(id)
	}
}

// reader takes a record apart. After the end, or after something that cannot be, bad is set and everything is zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) signed() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) id() uint16 {
	n := r.number()
	if n > 65_535 {
		r.bad = true
		return 0
	}
	return uint16(n)
}

// count is a number of things that take at least a byte each, so that a wrong one cannot take memory.
func (r *reader) count() int {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.bad = true
		return 0
	}
	return int(n)
}

func (r *reader) bytes() []byte {
	n := r.count()
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}
