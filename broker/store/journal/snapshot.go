package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"sort"
)

// snapshotV1 is the first byte of an encoded state; a later format takes another.
const snapshotV1 = 1

// errSnapshot says that bytes are no snapshot.
var errSnapshot = errors.New("snapshot is corrupt")

// encode appends the state as every node has it after the same batch: positions of messages, not their bytes. It ends
// with a checksum (CRC-32C, 4 bytes). Maps are written in order, so that two nodes write the same bytes.
func (s *state) encode(b []byte) []byte {
	begin := len(b)
	b = append(b, snapshotV1)
	b = binary.AppendUvarint(b, s.applied)
	b = binary.AppendUvarint(b, uint64(s.changes))
	b = binary.AppendUvarint(b, uint64(len(s.authors)))
	for _, id := range ordered(s.authors) {
		a := s.authors[id]
		b = binary.BigEndian.AppendUint64(b, id)
		b = binary.AppendUvarint(b, a.last)
		b = binary.AppendUvarint(b, a.seen)
	}
	b = binary.AppendUvarint(b, s.journal.first)
	b = binary.AppendUvarint(b, uint64(len(s.journal.slots)))
	for i := range s.journal.slots {
		b = binary.AppendUvarint(b, uint64(s.journal.slots[i].bytes))
		b = binary.BigEndian.AppendUint32(b, s.journal.slots[i].sum)
	}
	b = binary.AppendUvarint(b, uint64(len(s.sessions)))
	for _, client := range ordered(s.sessions) {
		b = s.sessions[client].encode(b)
	}
	b = binary.AppendUvarint(b, uint64(len(s.retained)))
	for _, name := range ordered(s.retained) {
		r := s.retained[name]
		b = appendString(b, name)
		b = binary.AppendUvarint(b, uint64(r.change))
		b = r.msg.encode(b)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[begin:], castagnoli))
}

func ordered[K ~string | ~uint64, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (s *session) encode(b []byte) []byte {
	b = appendString(b, s.client)
	b = binary.AppendUvarint(b, uint64(s.epoch))
	b = appendBytes(b, s.record)
	b = binary.AppendUvarint(b, uint64(s.revision))
	b = appendBytes(b, s.outbound)
	flags := byte(0)
	if s.full {
		flags = 1
	}
	b = append(b, flags)
	holds := make([]*held, 0, len(s.held))
	for _, h := range s.held {
		holds = append(holds, h)
	}
	sort.Slice(holds, func(i, j int) bool { return holds[i].ref < holds[j].ref })
	b = binary.AppendUvarint(b, uint64(len(holds)))
	for _, h := range holds {
		b = binary.AppendUvarint(b, uint64(h.ref))
		b = binary.BigEndian.AppendUint16(b, h.id)
		flags := byte(0)
		if h.retain {
			flags |= 1
		}
		if h.empty {
			flags |= 2
		}
		b = append(b, flags)
		b = appendString(b, h.topic)
		b = h.msg.encode(b)
	}
	b = binary.AppendUvarint(b, uint64(len(s.subs)))
	for _, filter := range ordered(s.subs) {
		b = s.subs[filter].encode(b)
	}
	return b
}

func (sub *subscription) encode(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(sub.number))
	b = appendString(b, sub.filter)
	b = appendBytes(b, sub.opts)
	n := 0
	sub.queue.each(func(*entry) { n++ })
	b = binary.AppendUvarint(b, uint64(n))
	var last pos
	sub.queue.each(func(e *entry) {
		b = binary.AppendUvarint(b, uint64(e.pos-last))
		b = e.m.encode(b)
		last = e.pos
	})
	return b
}

func (m *msg) encode(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(m.pos))
	b = binary.AppendUvarint(b, uint64(m.size))
	return append(b, m.qos)
}

// restore makes a state from a snapshot.
func restore(b []byte) (*state, error) {
	n := len(b) - crcSize
	if n < 1 || b[0] != snapshotV1 || crc32.Checksum(b[:n], castagnoli) != binary.BigEndian.Uint32(b[n:]) {
		return nil, errSnapshot
	}
	r := restoring{decoder: decoder{b: b[1:n]}, s: newState(), msgs: make(map[pos]*msg)}
	s := r.s
	s.applied = r.uvarint()
	s.changes = pos(r.uvarint())
	for n := r.count(); n > 0 && !r.bad; n-- {
		id := uint64(r.uint16())<<48 | uint64(r.uint16())<<32 | uint64(r.uint16())<<16 | uint64(r.uint16())
		s.authors[id] = &author{last: r.uvarint(), seen: r.uvarint()}
	}
	s.journal.first = r.uvarint()
	s.journal.slots = make([]slot, r.count())
	for i := range s.journal.slots {
		size := int32(r.uvarint())
		s.journal.slots[i].bytes = size
		s.journal.slots[i].sum = uint32(r.uint16())<<16 | uint32(r.uint16())
		s.journal.bytes += int64(size)
	}
	for n := r.count(); n > 0 && !r.bad; n-- {
		r.session()
	}
	for n := r.count(); n > 0 && !r.bad; n-- {
		name := string(r.bytes())
		change := pos(r.uvarint())
		m := r.msg()
		s.use(m)
		s.retained[name] = retained{m, change}
	}
	if r.bad || len(r.b) > 0 {
		return nil, errSnapshot
	}
	return s, nil
}

type restoring struct {
	decoder
	s    *state
	msgs map[pos]*msg
}

// msg returns a message, the same one for all that refer to the same bytes. One whose bytes are lost has no position.
func (r *restoring) msg() *msg {
	p, size, qos := pos(r.uvarint()), int32(r.uvarint()), r.byte()
	m := r.msgs[p]
	if m == nil {
		m = &msg{pos: p, size: size, qos: qos}
		if p != 0 {
			r.msgs[p] = m
		}
	}
	return m
}

func (r *restoring) session() {
	s := r.s
	sess := s.account(string(r.bytes()))
	if sess.epoch = pos(r.uvarint()); sess.epoch != 0 {
		s.epochs[sess.epoch] = sess
	}
	sess.record = r.clone()
	sess.revision = pos(r.uvarint())
	sess.outbound = r.clone()
	sess.full = r.byte() == 1
	for n := r.count(); n > 0 && !r.bad; n-- {
		h := &held{ref: pos(r.uvarint()), id: r.uint16(), sess: sess}
		flags := r.byte()
		h.retain, h.empty = flags&1 != 0, flags&2 != 0
		h.topic = s.name(r.bytes())
		h.msg = r.msg()
		s.use(h.msg)
		sess.held[h.id], s.held[h.ref] = h, h
	}
	for n := r.count(); n > 0 && !r.bad; n-- {
		sub := &subscription{number: pos(r.uvarint()), sess: sess, filter: string(r.bytes()), opts: r.clone()}
		var last pos
		for n := r.count(); n > 0 && !r.bad; n-- {
			last += pos(r.uvarint())
			m := r.msg()
			s.use(m)
			sub.queue.push(last, m)
			sess.queued++
			sess.bytes += int(m.size)
		}
		sess.subs[sub.filter], s.subs[sub.number] = sub, sub
		s.tree.Add(sub.filter, sess.client, sub)
	}
}

// clone returns bytes in memory of their own; nil when there are none.
func (r *restoring) clone() []byte { return append([]byte(nil), r.bytes()...) }
