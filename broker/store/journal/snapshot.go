package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"

	"inflight/broker/topic"
)

// snapshotV2 is the first byte of an encoded state; a later format takes another.
const snapshotV2 = 2

// errSnapshot says that bytes are no snapshot.
var errSnapshot = errors.New("snapshot is corrupt")

// encode appends the state as every node has it after the same batch: positions of messages, not their bytes. It ends
// with a checksum (CRC-32C, 4 bytes). Maps are written in order, so that two nodes write the same bytes.
func (s *state) encode(b []byte) []byte {
	begin := len(b)
	b = append(b, snapshotV2)
	b = binary.AppendUvarint(b, s.applied)
	b = binary.AppendUvarint(b, uint64(s.changes))
	b = binary.AppendUvarint(b, uint64(s.limits.bytes))
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
	b = binary.AppendUvarint(b, uint64(len(s.groups)))
	for _, filter := range ordered(s.groups) {
		b = s.groups[filter].encode(b)
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
	holds := inOrder(&s.held)
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
	b = binary.AppendUvarint(b, uint64(sub.queue.live))
	var last pos
	for e := range sub.queue.all() {
		b = binary.AppendUvarint(b, uint64(e.pos()-last))
		b = e.msg().encode(b)
		last = e.pos()
	}
	if sub.group != nil {
		b = sub.sharing.encode(b)
	}
	return b
}

// encode appends what a member has more than another subscription.
func (m *sharing) encode(b []byte) []byte {
	flags := byte(0)
	if m.transient {
		flags = 1
	}
	b = append(b, flags, m.qos)
	b = binary.AppendUvarint(b, uint64(m.seat))
	b = binary.BigEndian.AppendUint64(b, m.author)
	b = binary.AppendUvarint(b, uint64(m.last))
	return binary.AppendUvarint(b, uint64(m.taken))
}

// encode appends a group without its members: of the connected ones the seats are listed, in turn.
func (g *group) encode(b []byte) []byte {
	b = appendString(b, g.filter)
	flags := byte(0)
	if g.full {
		flags = 1
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(g.next))
	b = binary.AppendUvarint(b, uint64(len(g.ring)))
	for _, sub := range g.ring {
		b = binary.AppendUvarint(b, uint64(sub.seat))
	}
	b = binary.AppendUvarint(b, uint64(len(g.pool)))
	for _, m := range g.pool {
		b = m.encode(b)
	}
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
	if n < 1 || b[0] != snapshotV2 || crc32.Checksum(b[:n], castagnoli) != binary.BigEndian.Uint32(b[n:]) {
		return nil, errSnapshot
	}
	r := restoring{decoder: decoder{b: b[1:n]}, s: newState(), msgs: make(map[pos]*msg)}
	s := r.s
	s.applied = r.uvarint()
	s.changes = pos(r.uvarint())
	s.limits.bytes = int(r.uvarint())
	for n := r.count(); n > 0 && !r.bad; n-- {
		id := r.uint64()
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
	for n := r.count(); n > 0 && !r.bad; n-- {
		r.group()
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
		s.stray(h)
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
		if _, inner, shared := topic.Shared(sub.filter); shared {
			r.member(sub, inner)
		} else {
			s.tree.Add(sub.filter, sess.client, sub)
		}
	}
}

// member restores what a member has more; the messages in its queue are the group's and not its session's.
func (r *restoring) member(sub *subscription, inner string) {
	s := r.s
	sub.transient, sub.qos = r.byte() == 1, r.byte()
	sub.seat, sub.author = pos(r.uvarint()), r.uint64()
	sub.last, sub.taken = pos(r.uvarint()), pos(r.uvarint())
	if sub.seat != 0 {
		s.seats[sub.seat] = sub
	}
	s.membership(sub, inner)
	for e := range sub.queue.all() {
		sub.waiting++
		sub.sess.queued--
		sub.sess.bytes -= int(e.msg().size)
		sub.group.queued++
		sub.group.bytes += int(e.msg().size)
	}
}

func (r *restoring) group() {
	s := r.s
	g := s.groups[string(r.bytes())]
	if g == nil {
		r.fail()
		return
	}
	g.full = r.byte() == 1
	g.next = int(r.uvarint())
	for n := r.count(); n > 0 && !r.bad; n-- {
		if sub := s.seats[pos(r.uvarint())]; sub != nil && sub.group == g {
			g.ring = append(g.ring, sub)
		} else {
			r.fail()
		}
	}
	for n := r.count(); n > 0 && !r.bad; n-- {
		m := r.msg()
		s.use(m)
		g.pool = append(g.pool, m)
		g.queued++
		g.bytes += int(m.size)
	}
}

// clone returns bytes in memory of their own; nil when there are none.
func (r *restoring) clone() []byte { return append([]byte(nil), r.bytes()...) }
