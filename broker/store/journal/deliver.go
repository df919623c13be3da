package journal

import (
	"bytes"

	"inflight/broker/store"
)

// name returns a topic as a string, the same one while it is in use.
func (s *state) name(b []byte) string {
	if string(b) == s.named {
		return s.named
	}
	if name, ok := s.names[string(b)]; ok {
		s.named = name
		return name
	}
	if len(s.names) >= maxNames || len(b) > 1024 {
		if len(b) > 1024 {
			return string(b)
		}
		clear(s.names)
	}
	name := string(b)
	s.names[name], s.named = name, name
	return name
}

// meta is what the state needs to know of an encoded message.
type meta struct {
	topic  string
	qos    byte
	retain bool
	empty  bool // no payload; only known where retain is set
}

func (s *state) meta(data []byte) (meta, bool) {
	name, qos, retain, err := store.Header(data)
	if err != nil {
		return meta{}, false
	}
	m := meta{topic: s.name(name), qos: qos, retain: retain}
	if retain {
		full, err := store.Decode(data)
		if err != nil {
			return meta{}, false
		}
		m.empty = len(full.Payload) == 0
	}
	return m, true
}

// body returns the message that is being applied, in memory of its own; nil when its bytes are not at hand.
func (s *state) body(m *msg) *store.Message {
	c := &s.current
	switch {
	case m.body != nil:
		return m.body
	case c.of != m:
		return nil // handed out behind the record that brought it
	case c.own != nil:
		return c.own
	case c.made == nil && c.data != nil:
		made, err := store.Decode(bytes.Clone(c.data))
		if err != nil {
			return nil
		}
		made.Topic = s.name([]byte(made.Topic))
		c.made = made
	}
	return c.made
}

// publish delivers a message. One that cannot be retained has no effect at all.
func (s *state) publish(p pos, data []byte) error {
	mt, ok := s.meta(data)
	if !ok {
		return store.ErrCorrupt
	}
	if err := s.mayRetain(&mt); err != nil {
		return err
	}
	m := &msg{pos: p, size: int32(len(data)), qos: mt.qos}
	s.current.data = data
	s.deliver(p, m, &mt)
	return nil
}

// deliver queues a message for every subscription and every group that its topic matches, and retains it.
func (s *state) deliver(p pos, m *msg, mt *meta) {
	s.current.of = m
	s.tree.Match(mt.topic, func(_ string, sub *subscription) { s.enqueue(p, sub, m) })
	s.groupTree.Match(mt.topic, func(_ string, g *group) { s.pooled(g, m) })
	if s.audience != nil {
		s.audience.published(p, m, mt.topic)
	}
	if mt.retain {
		s.retain(p, m, mt)
	}
}

func (s *state) enqueue(p pos, sub *subscription, m *msg) {
	sess := sub.sess
	if sess.queued >= s.limits.queued || sess.bytes+int(m.size) > s.limits.bytes {
		if s.audience != nil {
			s.audience.dropped(sub, m.qos)
		}
		sess.full = true
		return
	}
	sess.queued++
	sess.bytes += int(m.size)
	sess.full = false
	s.use(m)
	e := sub.queue.push(p, m)
	if sub.feed != nil {
		s.audience.queued(sub, e)
	}
}

// settle takes a delivery out of the queue.
func (s *state) settle(sub *subscription, d pos) {
	if e, ok := sub.queue.find(d); ok {
		s.unqueue(sub, e)
		sub.queue.trim()
	}
}

// unqueue lets the message of an entry go.
func (s *state) unqueue(sub *subscription, e entry) {
	m := e.msg()
	if g := sub.group; g != nil {
		g.queued--
		g.bytes -= int(m.size)
		sub.waiting--
	} else {
		sub.sess.queued--
		sub.sess.bytes -= int(m.size)
	}
	s.uncache(sub, e)
	s.drop(m)
	sub.queue.settle(e)
}

// uncache lets go of the body that is in memory for an entry of a subscription's feed.
func (s *state) uncache(sub *subscription, e entry) {
	if e.cached() {
		e.setCached(false)
		s.cache.drop(e.msg())
		sub.feed.cached -= int(e.msg().size)
	}
}

func (s *state) mayRetain(mt *meta) error {
	if mt.retain && !mt.empty && len(s.retained) >= s.limits.retained {
		if _, known := s.retained[mt.topic]; !known {
			return errRetainedFull
		}
	}
	return nil
}

// retain makes m the retained message of its topic [MQTT-3.3.1-5]; an empty one only removes it [MQTT-3.3.1-10].
func (s *state) retain(p pos, m *msg, mt *meta) {
	s.changes = p
	old, known := s.retained[mt.topic]
	if mt.empty {
		delete(s.retained, mt.topic)
	} else {
		s.use(m)
		s.retained[mt.topic] = retained{m, p}
	}
	if known {
		s.drop(old.msg)
	}
}

// retainOnly retains a message of QoS 0, which is delivered elsewhere.
func (s *state) retainOnly(p pos, data []byte) error {
	mt, ok := s.meta(data)
	if !ok || !mt.retain {
		return store.ErrCorrupt
	}
	if err := s.mayRetain(&mt); err != nil {
		return err
	}
	s.retain(p, &msg{pos: p, size: int32(len(data)), qos: mt.qos}, &mt)
	return nil
}

// carry moves the bytes of a message that is still needed to the record at p, so that the journal before can be trimmed.
// Lost ones are nowhere: who wants the message is told when it is due.
func (s *state) carry(p, from pos, lost bool) {
	m := s.journal.find(from)
	if m == nil {
		return
	}
	s.journal.remove(m)
	if h := s.holding(from); h != nil && h.msg == m && s.strike(from) { // its batch can go before it
		s.holds.strays[from] = h
	}
	if m.pos = p; lost {
		m.pos = 0
	}
	s.journal.add(m)
}

// use counts one more user of a message's bytes.
func (s *state) use(m *msg) {
	if m.refs++; m.refs == 1 {
		s.journal.add(m)
	}
}

// drop counts one less.
func (s *state) drop(m *msg) {
	if m.refs--; m.refs == 0 {
		s.journal.remove(m)
	}
}
