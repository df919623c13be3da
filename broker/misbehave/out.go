package misbehave

import (
	"fmt"

	"inflight/broker/packet"
)

// outgoing is a packet of the broker on its way out.
type outgoing struct {
	t     packet.Type
	raw   []byte
	id    uint16
	again bool   // a delivery that is sent again
	ours  bool   // it may be exchanged with another one
	kin   string // of a delivery: only those of one kind are exchanged
}

// fromBroker returns what the client gets of what the broker has sent.
func (c *conn) fromBroker() []byte {
	var all []outgoing
	for {
		f, raw, ok := c.next(&c.half)
		if !ok {
			break
		}
		all = append(all, c.brokerPacket(f, raw)...)
	}
	if c.passed {
		all, c.half = append(all, outgoing{raw: c.half}), nil
	}
	c.swapAll(all)
	var out []byte
	for _, o := range all {
		out = append(out, o.raw...)
	}
	return out
}

// swapAll exchanges packets of a kind that leave together, two by two: deliveries only within one publisher's, topic's and
// QoS's, as far as a payload's first letter tells.
func (c *conn) swapAll(all []outgoing) {
	for _, s := range []struct {
		fault string
		t     packet.Type
		again bool
	}{
		{"puback-swap", packet.PUBACK, false},
		{"pubrec-swap", packet.PUBREC, false},
		{"pubcomp-swap", packet.PUBCOMP, false},
		{"pubrel-out-swap", packet.PUBREL, false},
		{"deliver-swap", packet.PUBLISH, false},
		{"resend-swap", packet.PUBLISH, true},
	} {
		if !c.on(s.fault) {
			continue
		}
		waiting := map[string]int{}
		for i := range all {
			if all[i].t != s.t || !all[i].ours || all[i].again != s.again {
				continue
			}
			first, ok := waiting[all[i].kin]
			if !ok {
				waiting[all[i].kin] = i
				continue
			}
			all[first], all[i] = all[i], all[first]
			delete(waiting, all[first].kin)
		}
	}
}

// brokerPacket is a packet of the broker, or what becomes of it.
func (c *conn) brokerPacket(f packet.Frame, raw []byte) []outgoing {
	c.codec.From = packet.FromServer
	t := f.Type()
	same := []outgoing{{t: t, raw: raw}}
	if c.session == nil {
		return same
	}
	switch t {
	case packet.CONNACK:
		return c.connacked(raw)
	case packet.PUBLISH:
		if p, err := c.codec.ParsePublish(f); err == nil {
			return c.delivery(&p, raw)
		}
	case packet.PUBREL:
		if a, err := c.codec.ParseAck(f); err == nil {
			return c.pubrel(a.ID, raw)
		}
	case packet.PUBACK, packet.PUBREC, packet.PUBCOMP:
		if a, err := c.codec.ParseAck(f); err == nil {
			return c.answer(t, a, raw)
		}
	}
	return same
}

// connacked is the CONNACK; what was acknowledged long ago may follow it.
func (c *conn) connacked(raw []byte) []outgoing {
	if c.on("clean-keeps") && !c.resumed && len(raw) > 2 {
		raw[2] = 0 // the flag does not betray it
	}
	all := []outgoing{{t: packet.CONNACK, raw: raw}}
	s := c.session
	if len(raw) > 3 && raw[3] == 0 {
		s.older = s.older || !s.welcome && raw[2] == 1
		s.welcome = true
	}
	if !c.on("resend-acked") || !c.resumed || len(raw) < 4 || raw[3] != 0 {
		return all
	}
	for i, m := range s.recent {
		if i == 3 {
			break
		}
		id := s.own()
		s.ownOut[id] = true
		p := packet.Publish{Topic: []byte(m.topic), Payload: []byte(m.payload), QoS: m.qos, ID: id, Dup: true}
		all = append(all, outgoing{t: packet.PUBLISH, raw: c.codec.AppendPublish(nil, &p)})
	}
	return all
}

// answer is an acknowledgement of the broker.
func (c *conn) answer(t packet.Type, a packet.Ack, raw []byte) []outgoing {
	if a.ID >= 40_000 && a.ID < 60_000 {
		return nil // of a publication of our own
	}
	one := outgoing{t: t, raw: raw, id: a.ID}
	if c.swallowed(t, a.ID) || a.Code.Failed() && c.refusal(t, a.ID) {
		return nil
	}
	if sparedID(a.ID) {
		return []outgoing{one}
	}
	one.ours = true
	name := map[packet.Type]string{packet.PUBACK: "puback", packet.PUBREC: "pubrec", packet.PUBCOMP: "pubcomp"}[t]
	switch {
	case c.on(name + "-drop"):
		return nil
	case c.on(name + "-twice"):
		return []outgoing{one, one}
	case c.on(name + "-wrong-id"):
		one.raw = c.codec.AppendAck(nil, t, packet.Ack{ID: a.ID + 1, Code: a.Code})
	case c.on(name+"-error") && c.codec.Version == packet.V5:
		one.raw = c.codec.AppendAck(nil, t, packet.Ack{ID: a.ID, Code: packet.UnspecifiedError})
	case c.on("bad-flags") && t != packet.PUBCOMP:
		one.raw[0] |= 2
	case c.on("ack-stray"):
		return []outgoing{one, {t: packet.PUBACK, raw: packet.AppendAck(nil, packet.PUBACK, 29_999)}}
	}
	return []outgoing{one}
}

// delivery is a PUBLISH of the broker.
func (c *conn) delivery(p *packet.Publish, raw []byte) []outgoing {
	s, m := c.session, seen(p)
	one := outgoing{t: packet.PUBLISH, raw: raw, id: p.ID, again: p.Dup}
	if spared(&m) {
		return []outgoing{one}
	}
	one.ours = true
	one.kin = fmt.Sprintf("%s %d %.1s", m.topic, m.qos, m.payload)
	if p.QoS > 0 {
		s.out[p.ID] = m
	}
	q := *p
	switch {
	case p.Dup && c.resumed:
		if c.on("resend-drop") {
			return nil
		}
		if c.on("resend-no-dup") {
			q.Dup = false
		}
		if c.on("resend-new-id") {
			q.ID = s.own()
			s.renamed[q.ID] = p.ID
		}
	case c.on("queue-lost") && c.resumed && c.lostQueue < 3:
		c.lostQueue++
		return nil
	case c.on("dup-out") && p.QoS > 0:
		q.Dup = true
	}
	if c.on("payload-cut") && len(q.Payload) > 1_000 {
		q.Payload = q.Payload[:len(q.Payload)-1]
	}
	if c.on("id-reused") && p.QoS > 0 {
		s.queue = append(s.queue, p.ID)
		q.ID = reusedID
	}
	one.raw = c.codec.AppendPublish(nil, &q)
	if p.QoS > 0 && c.on("resend-live") {
		q.Dup = true
		return []outgoing{one, {t: packet.PUBLISH, raw: c.codec.AppendPublish(nil, &q)}}
	}
	if c.on("deliver-twice") || c.on("restart-twice") && s.older {
		if q.QoS > 0 {
			q.ID = s.own()
			s.ownOut[q.ID] = true
		}
		return []outgoing{one, {t: packet.PUBLISH, raw: c.codec.AppendPublish(nil, &q)}}
	}
	return []outgoing{one}
}

// pubrel is a PUBREL of the broker.
func (c *conn) pubrel(id uint16, raw []byte) []outgoing {
	s := c.session
	m, known := s.out[id]
	one := outgoing{t: packet.PUBREL, raw: raw, id: id, ours: known}
	if !known {
		return []outgoing{one}
	}
	first := !s.rel[id]
	s.rel[id] = true
	c.relSent[id]++
	switch {
	case c.on("pubrel-out-drop"):
		return nil
	case c.on("pubrel-out-once") && c.relSent[id] > 1:
		return nil
	case c.resumed && !first && c.relSent[id] == 1 && c.on("resend-drop"):
		return nil
	case c.resumed && !first && c.relSent[id] == 1 && c.on("pubrel-as-publish"):
		p := packet.Publish{Topic: []byte(m.topic), Payload: []byte(m.payload), QoS: 2, ID: id, Dup: true}
		return []outgoing{{t: packet.PUBLISH, raw: c.codec.AppendPublish(nil, &p)}}
	}
	for given, real := range s.renamed {
		if real == id {
			one.raw = packet.AppendAck(nil, packet.PUBREL, given)
		}
	}
	if c.on("id-reused") {
		one.raw = packet.AppendAck(nil, packet.PUBREL, reusedID)
	}
	return []outgoing{one}
}
