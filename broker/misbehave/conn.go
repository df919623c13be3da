package misbehave

import (
	"bytes"
	"errors"
	"net"
	"os"

	"inflight/broker/packet"
)

// conn is a connection with faults. The broker reads from it what the client should have sent, and writes to it what is
// changed before it leaves. Below set.mu is everything but what only the broker's reader touches.
type conn struct {
	net.Conn
	set *Set

	ready   []byte // for the broker; its reader's
	readErr error  // the reader's

	codec   packet.Codec // of the version, once there was a CONNECT
	session *session
	resumed bool // the client asked for the session that was there

	raw, half []byte // from the client and from the broker: not a whole packet yet
	passed    bool   // what comes is no sequence of packets: it is passed on as it is

	answers   []byte            // for the client, of our own
	aliases   map[uint16]string // the client's Topic Aliases, as they were defined first
	relSent   map[uint16]int    // PUBRELs that the broker sent here
	lostQueue int               // deliveries that queue-lost has taken
	closed    bool              // we end the connection
}

// Read gives the broker what the client should have sent.
func (c *conn) Read(b []byte) (int, error) {
	for len(c.ready) == 0 {
		if c.readErr != nil {
			return 0, c.readErr
		}
		buf := make([]byte, 32<<10)
		n, err := c.Conn.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) && n == 0 {
			return 0, err // the broker may set another one
		}
		c.set.mu.Lock()
		c.raw = append(c.raw, buf[:n]...)
		c.ready = c.fromClient(c.ready)
		if err != nil {
			c.readErr = err
			c.ready = c.ended(c.ready)
		}
		answers, closed := c.answers, c.closed
		c.answers = nil
		c.set.mu.Unlock()
		if len(answers) > 0 {
			_, _ = c.Conn.Write(answers)
		}
		if closed {
			_ = c.Conn.Close()
		}
	}
	n := copy(b, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// Write changes what the broker sends. Only whole packets leave.
func (c *conn) Write(b []byte) (int, error) {
	c.set.mu.Lock()
	c.half = append(c.half, b...)
	out := c.fromBroker()
	c.set.mu.Unlock()
	if len(out) > 0 {
		if _, err := c.Conn.Write(out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// CloseWrite is what a broker needs that ends a connection in good order.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

func (c *conn) on(name string) bool { return c.set.on[name] }

// ended is the end of the connection, as the client wanted it or not.
func (c *conn) ended(ready []byte) []byte {
	if c.session == nil {
		return ready
	}
	if c.on("resume-forgets") {
		for id := range c.session.held {
			c.session.forgot[id] = true
		}
	}
	if c.on("partial-delivers") && len(c.raw) > 2 && packet.Type(c.raw[0]>>4) == packet.PUBLISH && c.raw[1] < 0x80 {
		whole := make([]byte, 2+int(c.raw[1]))
		copy(whole, c.raw)
		ready = append(ready, whole...)
	}
	return ready
}

// next takes the first whole packet from b. ok is false when there is none, or none that can be read: then everything is
// passed on.
func (c *conn) next(b *[]byte) (f packet.Frame, raw []byte, ok bool) {
	if c.passed {
		return f, nil, false
	}
	view, n, _, err := c.codec.Split(*b, packet.MaxRemaining)
	if err != nil {
		c.passed = true
		return f, nil, false
	}
	if n == 0 {
		return f, nil, false
	}
	raw = bytes.Clone((*b)[:n])
	f = view
	f.Body = raw[len(raw)-len(view.Body):]
	*b = (*b)[n:]
	return f, raw, true
}

// fromClient appends what the broker gets of what the client has sent.
func (c *conn) fromClient(out []byte) []byte {
	for {
		f, raw, ok := c.next(&c.raw)
		if !ok {
			if c.passed {
				out, c.raw = append(out, c.raw...), nil
			}
			return out
		}
		out = c.clientPacket(f, raw, out)
	}
}

// clientPacket appends a packet of the client, or what becomes of it.
func (c *conn) clientPacket(f packet.Frame, raw, out []byte) []byte {
	c.codec.From = packet.FromClient
	switch t := f.Type(); {
	case t == packet.CONNECT && c.session == nil:
		return append(out, c.connect(f, raw)...)
	case c.session == nil:
		return append(out, raw...)
	case t == packet.PUBLISH:
		if p, err := c.codec.ParsePublish(f); err == nil {
			return c.published(&p, raw, out)
		}
	case t == packet.PUBREL:
		if a, err := c.codec.ParseAck(f); err == nil {
			return c.released(a.ID, raw, out)
		}
	case t == packet.PUBACK, t == packet.PUBREC, t == packet.PUBCOMP:
		if a, err := c.codec.ParseAck(f); err == nil {
			return c.acknowledged(t, a, raw, out)
		}
	case t == packet.PINGREQ && c.on("window-blocks") && c.busy():
		return out
	case t == packet.DISCONNECT && c.on("clean-keeps"):
		return append(out, 0xE0, 0) // what it says of the session's end is not read
	}
	return append(out, raw...)
}

// busy reports whether anything is unfinished, in either direction.
func (c *conn) busy() bool {
	for id := range c.session.held {
		if !sparedID(id) {
			return true
		}
	}
	return len(c.session.out) > 0
}

// connect changes a CONNECT and finds the session.
func (c *conn) connect(f packet.Frame, raw []byte) []byte {
	p, err := c.codec.ParseConnect(f)
	if err != nil {
		c.passed = true
		return raw
	}
	s := c.set.sessions[p.ClientID]
	if s == nil || p.ClientID == "" {
		s = newSession()
		c.set.sessions[p.ClientID] = s
	}
	c.resumed = !p.CleanSession && s.conns > 0
	if p.CleanSession && !c.on("clean-keeps") {
		conns, welcome := s.conns, s.welcome
		*s = *newSession()
		s.conns, s.welcome = conns, welcome
	}
	s.conns++
	c.session, c.relSent, c.aliases = s, map[uint16]int{}, map[uint16]string{}
	changed := false
	props := p.Properties
	if props == nil {
		props = &packet.Properties{}
	}
	if (c.on("session-lost") || c.on("moved-forgets") && !s.welcome) && !p.CleanSession {
		p.CleanSession, changed = true, true
	}
	if c.on("clean-keeps") {
		p.CleanSession, changed = false, true
		props.SessionExpiry = packet.Some[uint32](300)
	}
	if c.on("receive-maximum-ignored") && props.ReceiveMaximum.Set {
		props.ReceiveMaximum, changed = packet.Opt[uint16]{}, true
	}
	if c.on("max-packet-ignored") && props.MaximumPacketSize.Set {
		props.MaximumPacketSize, changed = packet.Opt[uint32]{}, true
	}
	if !changed {
		return raw
	}
	p.Properties = props
	return c.codec.AppendConnect(nil, &p)
}

// published is a PUBLISH of the client.
func (c *conn) published(p *packet.Publish, raw, out []byte) []byte {
	s, m := c.session, seen(p)
	if p.QoS == 0 || sparedID(p.ID) {
		return append(out, raw...)
	}
	if c.on("alias-stale") && p.Properties != nil && p.Properties.TopicAlias.Set && len(p.Topic) > 0 {
		alias := p.Properties.TopicAlias.Value
		if first, known := c.aliases[alias]; known {
			q := *p
			q.Topic = []byte(first)
			return c.codec.AppendPublish(out, &q)
		}
		c.aliases[alias] = string(p.Topic)
	}
	if c.on("dup-drop") && p.Dup {
		return out
	}
	if c.on("one-id-space") {
		if _, used := s.out[p.ID]; used {
			return out
		}
	}
	if c.early(p, raw) {
		return out
	}
	if p.QoS == 1 {
		if c.on("lose") {
			c.answers = packet.AppendAck(c.answers, packet.PUBACK, p.ID)
			return out
		}
		return append(out, raw...)
	}
	_, known := s.held[p.ID]
	switch {
	case known && c.on("dup-as-new"):
		// The copy goes its own way, with an identifier that the client does not know.
		out = c.copyOf(&m, out)
	case known && c.on("dup-pubrec-error") && c.codec.Version == packet.V5:
		c.answers = c.codec.AppendAck(c.answers, packet.PUBREC, packet.Ack{ID: p.ID, Code: packet.PacketIdentifierInUse})
		return out
	case known:
	case c.refusedBefore(p.ID), c.on("lose"), c.on("reuse-as-dup") && s.done[p.ID] != (message{}), c.on("overflow-drop") && len(s.held) >= 16:
		s.lost[p.ID] = true
	}
	if !known {
		s.held[p.ID] = m
		if c.on("early-delivery") && p.ID%2 == 0 {
			out = c.copyOf(&m, out)
		}
	}
	delete(s.forgot, p.ID)
	if s.lost[p.ID] {
		c.answers = packet.AppendAck(c.answers, packet.PUBREC, p.ID)
		return out
	}
	return append(out, raw...)
}

// copyOf publishes a message once more, on an identifier of our own.
func (c *conn) copyOf(m *message, out []byte) []byte {
	p := packet.Publish{Topic: []byte(m.topic), Payload: []byte(m.payload), QoS: 1, ID: c.session.own()}
	return c.codec.AppendPublish(out, &p)
}

// released is a PUBREL of the client.
func (c *conn) released(id uint16, raw, out []byte) []byte {
	s := c.session
	if sparedID(id) {
		return append(out, raw...)
	}
	out = c.late(id, out)
	m, held := s.held[id]
	before, was := s.done[id]
	switch {
	case !held && was && c.on("pubrel-dup-drop"):
		return out
	case !held && was && c.on("pubrel-dup-delivers"):
		out = c.copyOf(&before, out)
	case !held && c.on("pubrel-unknown-close"):
		c.closed = true
		return out
	case !held && !was && c.on("pubrel-unknown-drop"):
		return out
	case s.lost[id] || s.forgot[id]:
		delete(s.lost, id)
		delete(s.forgot, id)
		delete(s.held, id)
		s.done[id] = m
		c.answers = packet.AppendAck(c.answers, packet.PUBCOMP, id)
		return out
	}
	if held {
		delete(s.held, id)
		s.done[id] = m
	}
	return append(out, raw...)
}

// acknowledged is a PUBACK, PUBREC or PUBCOMP of the client.
func (c *conn) acknowledged(t packet.Type, a packet.Ack, raw, out []byte) []byte {
	s := c.session
	if s.ownOut[a.ID] {
		if t == packet.PUBREC {
			c.answers = packet.AppendAck(c.answers, packet.PUBREL, a.ID)
		} else {
			delete(s.ownOut, a.ID)
		}
		return out
	}
	id := a.ID
	if real, ok := s.renamed[id]; ok {
		id = real
	}
	if c.on("id-reused") && id == reusedID {
		id = s.oldest(t)
	}
	m, open := s.out[id]
	if t == packet.PUBREC && a.Code.Failed() && c.on("refused-pubrel") && open {
		a.Code = packet.Success
	}
	if open && (t != packet.PUBREC || a.Code.Failed()) {
		delete(s.out, id)
		delete(s.rel, id)
		s.recent = append(s.recent, m)
	}
	if id == a.ID && t != packet.PUBREC {
		return append(out, raw...)
	}
	return c.codec.AppendAck(out, t, packet.Ack{ID: id, Code: a.Code})
}

// reusedID is the only identifier of a broker with id-reused.
const reusedID = 7

// oldest is the delivery that an acknowledgement of the reused identifier is taken for.
func (s *session) oldest(t packet.Type) uint16 {
	for _, id := range s.queue {
		m, open := s.out[id]
		if !open {
			continue
		}
		if t == packet.PUBACK && m.qos == 1 || t == packet.PUBREC && m.qos == 2 && !s.rel[id] || t == packet.PUBCOMP && s.rel[id] {
			return id
		}
	}
	return reusedID
}
