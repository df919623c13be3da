package misbehave

import (
	"bytes"

	"inflight/broker/packet"
)

// Faults that show when the broker's process ends, its store fails or a client comes from another process, and those of
// what it refuses. What a Set knows dies with the process, as it should here.

// ACLIgnored reports whether the broker is to be opened without its rights: that fault is not one of connections.
func (s *Set) ACLIgnored() bool { return s.on["acl-ignored"] }

// early answers a PUBLISH before the broker has it. taken says that the broker does not get it now.
func (c *conn) early(p *packet.Publish, raw []byte) (taken bool) {
	s := c.session
	switch {
	case p.QoS == 1 && c.on("puback-early"):
		c.answers = packet.AppendAck(c.answers, packet.PUBACK, p.ID)
		s.swallow[packet.PUBACK][p.ID]++
	case p.QoS == 2 && c.on("pubrec-early"):
		c.answers = packet.AppendAck(c.answers, packet.PUBREC, p.ID)
		if s.unstored[p.ID] == nil {
			s.unstored[p.ID] = bytes.Clone(raw)
		}
		return true
	}
	return false
}

// late appends the PUBLISH that the broker has not got yet and whose PUBREL is here.
func (c *conn) late(id uint16, out []byte) []byte {
	s := c.session
	raw := s.unstored[id]
	if raw == nil {
		return out
	}
	delete(s.unstored, id)
	s.swallow[packet.PUBREC][id]++
	return append(out, raw...)
}

// swallowed reports whether the answer was given already.
func (c *conn) swallowed(t packet.Type, id uint16) bool {
	left := c.session.swallow[t]
	if left[id] == 0 {
		return false
	}
	left[id]--
	return true
}

// refusal looks at an answer that refuses; drop says that the client does not get it.
func (c *conn) refusal(t packet.Type, id uint16) (drop bool) {
	if t == packet.PUBREC {
		delete(c.session.held, id)
		c.session.refused[id] = true
	}
	return t == packet.PUBACK && c.on("refusal-drop")
}

// refusedBefore reports whether a new message is to be taken for the one that was refused under its identifier.
func (c *conn) refusedBefore(id uint16) bool {
	was := c.session.refused[id]
	delete(c.session.refused, id)
	return was && c.on("refused-kept")
}
