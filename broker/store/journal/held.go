package journal

import (
	"sort"

	"inflight/broker/ids"
	"inflight/broker/store"
)

// held is a QoS 2 message between PUBLISH and PUBREL.
type held struct {
	*msg
	ref    pos
	id     uint16
	topic  string // "": the stored bytes are no message
	retain bool
	empty  bool // no payload; only known where retain is set
	sess   *session
	cached bool  // the cache has its body
	next   *held // of the free ones
}

// maxFreeHeld is how many held messages that are no more a state keeps for the next ones.
const maxFreeHeld = 4096

// holds finds what is held by its Ref. Every message passes through it twice on every node, so it is no map: what a batch
// of the journal brought is listed with the batch, by the index of the record. The others, whose bytes were carried to
// another batch, or which are from a snapshot, are few.
type holds struct {
	strays map[pos]*held
	free   *held // what was held, for the next ones: nothing refers to one that is held no more
	spare  int
}

// brought lists what is held of a batch.
type brought struct {
	at []*held // by the index of the record
	n  int
}

// take returns an empty one.
func (x *holds) take() *held {
	h := x.free
	if h == nil {
		return new(held)
	}
	x.free, h.next = h.next, nil
	x.spare--
	return h
}

// put takes one back.
func (x *holds) put(h *held) {
	*h = held{}
	if x.spare < maxFreeHeld {
		h.next, x.free = x.free, h
		x.spare++
	}
}

// holding returns what is held as ref; nil: nothing.
func (s *state) holding(ref pos) *held {
	if list := s.listOf(ref); list != nil && list.at[ref.index()] != nil {
		return list.at[ref.index()]
	}
	return s.holds.strays[ref]
}

// listOf is the list of a batch if it has a place for ref.
func (s *state) listOf(ref pos) *brought {
	if b := s.journal.batch(ref.seq()); b != nil && b.held != nil && ref.index() < len(b.held.at) {
		return b.held
	}
	return nil
}

// list notes that h is held, as the record that is being applied says.
func (s *state) list(h *held) {
	b := s.journal.batch(h.ref.seq())
	if b.held == nil {
		b.held = &brought{at: make([]*held, len(s.records))}
	}
	b.held.at[h.ref.index()] = h
	b.held.n++
	h.sess.held.Put(h.id, h)
}

// stray notes that h is held, and not listed with its batch.
func (s *state) stray(h *held) {
	s.holds.strays[h.ref] = h
	h.sess.held.Put(h.id, h)
}

// unlist forgets that h is held.
func (s *state) unlist(h *held) {
	if !s.strike(h.ref) {
		delete(s.holds.strays, h.ref)
	}
	if h.sess.held.Get(h.id) == h {
		h.sess.held.Remove(h.id)
	}
}

// strike takes ref from the list of its batch, and reports whether it was there.
func (s *state) strike(ref pos) bool {
	list := s.listOf(ref)
	if list == nil || list.at[ref.index()] == nil {
		return false
	}
	list.at[ref.index()] = nil
	if list.n--; list.n == 0 {
		s.journal.batch(ref.seq()).held = nil
	}
	return true
}

// hold keeps a message until its release. Of one identifier only the newest copy is kept.
func (s *state) hold(p pos, sess *session, id uint16, data []byte) {
	if old := sess.held.Get(id); old != nil {
		s.unhold(old)
	}
	mt, _ := s.meta(data) // what is corrupt is held all the same: its owner is told when it asks
	h := s.holds.take()
	*h = held{
		msg: &msg{pos: p, size: int32(len(data)), qos: mt.qos}, ref: p, id: id, sess: sess,
		topic: mt.topic, retain: mt.retain, empty: mt.empty,
	}
	s.use(h.msg)
	s.list(h)
	if s.audience != nil && h.topic != "" && s.audience.wants(h.topic) {
		s.current.of, s.current.data = h.msg, data
		h.cached = s.cache.put(h.msg, s.body(h.msg))
	}
}

// unhold forgets a held message.
func (s *state) unhold(h *held) {
	s.unlist(h)
	if h.cached {
		s.cache.drop(h.msg)
	}
	s.drop(h.msg)
	s.holds.put(h)
}

// release turns a held message into a delivery: both in one record, so neither is ever without the other. What is not
// held was released before.
func (s *state) release(p pos, sess *session, ref pos) error {
	h := s.holding(ref)
	if h == nil || h.sess != sess {
		return nil
	}
	if h.topic != "" {
		mt := meta{topic: h.topic, qos: h.qos, retain: h.retain, empty: h.empty}
		if err := s.mayRetain(&mt); err != nil {
			return err
		}
		s.deliver(p, h.msg, &mt)
	}
	s.unhold(h)
	s.tidy(sess)
	return nil
}

// forget drops all that is held of a session.
func (s *state) forget(sess *session) {
	for _, h := range inOrder(&sess.held) {
		s.unhold(h)
	}
}

// inOrder lists what is held of a session, oldest first.
func inOrder(t *ids.Table[held]) []*held {
	out := make([]*held, 0, t.Len())
	t.Each(func(_ uint16, h *held) { out = append(out, h) })
	sort.Slice(out, func(i, j int) bool { return out[i].ref < out[j].ref })
	return out
}

// heldOf lists what is held of a client, oldest first.
func (s *state) heldOf(client string) []store.Held {
	sess := s.sessions[client]
	if sess == nil {
		return nil
	}
	out := make([]store.Held, 0, sess.held.Len())
	for _, h := range inOrder(&sess.held) {
		out = append(out, store.Held{ID: h.id, Ref: store.Ref(h.ref)})
	}
	return out
}
