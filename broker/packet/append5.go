package packet

import "encoding/binary"

// AppendConnect appends a CONNECT of this version; a zero Level of p means the version's.
func (v Version) AppendConnect(b []byte, p *Connect) []byte {
	if v != V5 {
		return AppendConnect(b, p)
	}
	protocol, level := p.Protocol, p.Level
	if protocol == "" {
		protocol = "MQTT"
	}
	if level == 0 {
		level = Level5
	}
	flags := byte(0)
	if p.CleanSession {
		flags |= 0x02
	}
	n := 2 + len(protocol) + 4 + p.Properties.sectionSize() + 2 + len(p.ClientID)
	if w := p.Will; w != nil {
		flags |= 0x04 | w.QoS&3<<3
		if w.Retain {
			flags |= 0x20
		}
		n += w.Properties.sectionSize() + 4 + len(w.Topic) + len(w.Payload)
	}
	if p.HasUsername {
		flags |= 0x80
		n += 2 + len(p.Username)
	}
	if p.HasPassword {
		flags |= 0x40
		n += 2 + len(p.Password)
	}
	b = appendLength(append(b, byte(CONNECT)<<4), n)
	b = appendString(b, protocol)
	b = append(b, level, flags)
	b = binary.BigEndian.AppendUint16(b, p.KeepAlive)
	b = p.Properties.Append(b)
	b = appendString(b, p.ClientID)
	if w := p.Will; w != nil {
		b = w.Properties.Append(b)
		b = appendString(b, w.Topic)
		b = appendString(b, w.Payload)
	}
	if p.HasUsername {
		b = appendString(b, p.Username)
	}
	if p.HasPassword {
		b = appendString(b, p.Password)
	}
	return b
}

// AppendConnack appends a CONNACK. Session Present is only ever set with Success [MQTT-3.2.2-6].
func (v Version) AppendConnack(b []byte, p *Connack) []byte {
	if v != V5 {
		return AppendConnack(b, p.SessionPresent, p.Code.ReturnCode())
	}
	flags := byte(0)
	if p.SessionPresent && p.Code == Success {
		flags = 1
	}
	b = appendLength(append(b, byte(CONNACK)<<4), 2+p.Properties.sectionSize())
	return p.Properties.Append(append(b, flags, byte(p.Code)))
}

// AppendPublish appends a PUBLISH. The Packet Identifier is written only above QoS 0 [MQTT-2.2.1-2].
func (v Version) AppendPublish(b []byte, p *Publish) []byte {
	if v != V5 {
		return AppendPublish(b, p)
	}
	head := byte(PUBLISH)<<4 | p.QoS&3<<1
	if p.Dup {
		head |= 0x08
	}
	if p.Retain {
		head |= 0x01
	}
	n := 2 + len(p.Topic) + p.Properties.sectionSize() + len(p.Payload)
	if p.QoS > 0 {
		n += 2
	}
	b = appendLength(append(b, head), n)
	b = appendString(b, p.Topic)
	if p.QoS > 0 {
		b = binary.BigEndian.AppendUint16(b, p.ID)
	}
	b = p.Properties.Append(b)
	return append(b, p.Payload...)
}

// AppendAck appends a PUBACK, PUBREC, PUBREL or PUBCOMP in its shortest form: Success without properties is left out, and
// so is a Property Length of 0. (An UNSUBACK of 5.0 is [Version.AppendUnsuback]'s.)
func (v Version) AppendAck(b []byte, t Type, a Ack) []byte {
	bare := a.Properties.Empty()
	if v != V5 || bare && a.Code == Success {
		return AppendAck(b, t, a.ID)
	}
	head := byte(t) << 4
	if t == PUBREL {
		head |= 2 // [MQTT-3.6.1-1]
	}
	if bare {
		return append(b, head, 3, byte(a.ID>>8), byte(a.ID), byte(a.Code))
	}
	b = appendLength(append(b, head), 3+a.Properties.sectionSize())
	return a.Properties.Append(append(b, byte(a.ID>>8), byte(a.ID), byte(a.Code)))
}

// AppendSubscribe appends a SUBSCRIBE.
func (v Version) AppendSubscribe(b []byte, p *Subscribe) []byte {
	if v != V5 {
		return AppendSubscribe(b, p)
	}
	n := 2 + p.Properties.sectionSize()
	for _, s := range p.Subscriptions {
		n += 3 + len(s.Filter)
	}
	b = appendLength(append(b, byte(SUBSCRIBE)<<4|2), n)
	b = binary.BigEndian.AppendUint16(b, p.ID)
	b = p.Properties.Append(b)
	for i := range p.Subscriptions {
		b = append(appendString(b, p.Subscriptions[i].Filter), p.Subscriptions[i].options())
	}
	return b
}

// options is the Subscription Options byte, section 3.8.3.1.
func (s *Subscription) options() byte {
	o := s.QoS&3 | s.RetainHandling&3<<4
	if s.NoLocal {
		o |= 0x04
	}
	if s.RetainAsPublished {
		o |= 0x08
	}
	return o
}

// AppendSuback appends a SUBACK [MQTT-3.8.4-6].
func (v Version) AppendSuback(b []byte, p *Suback) []byte {
	if v == V5 {
		return appendSuback5(b, SUBACK, p)
	}
	b = appendLength(append(b, byte(SUBACK)<<4), 2+len(p.Codes))
	b = binary.BigEndian.AppendUint16(b, p.ID)
	for _, code := range p.Codes {
		if code.Failed() {
			code = ReasonCode(SubackFailure)
		}
		b = append(b, byte(code))
	}
	return b
}

// AppendUnsuback appends an UNSUBACK [MQTT-3.11.3-1].
func (v Version) AppendUnsuback(b []byte, p *Suback) []byte {
	if v == V5 {
		return appendSuback5(b, UNSUBACK, p)
	}
	return AppendAck(b, UNSUBACK, p.ID)
}

func appendSuback5(b []byte, t Type, p *Suback) []byte {
	b = appendLength(append(b, byte(t)<<4), 2+p.Properties.sectionSize()+len(p.Codes))
	b = binary.BigEndian.AppendUint16(b, p.ID)
	b = p.Properties.Append(b)
	for _, code := range p.Codes {
		b = append(b, byte(code))
	}
	return b
}

// AppendUnsubscribe appends an UNSUBSCRIBE.
func (v Version) AppendUnsubscribe(b []byte, p *Unsubscribe) []byte {
	if v != V5 {
		return AppendUnsubscribe(b, p)
	}
	n := 2 + p.Properties.sectionSize()
	for _, f := range p.Filters {
		n += 2 + len(f)
	}
	b = appendLength(append(b, byte(UNSUBSCRIBE)<<4|2), n)
	b = binary.BigEndian.AppendUint16(b, p.ID)
	b = p.Properties.Append(b)
	for _, f := range p.Filters {
		b = appendString(b, f)
	}
	return b
}

// AppendDisconnect appends a DISCONNECT in its shortest form. In 3.1.1 only a Client may send one, and it has no code.
func (v Version) AppendDisconnect(b []byte, p *Disconnect) []byte {
	bare := p.Properties.Empty()
	switch {
	case v != V5 || bare && p.Code == NormalDisconnection:
		return AppendEmpty(b, DISCONNECT)
	case bare:
		return append(b, byte(DISCONNECT)<<4, 1, byte(p.Code))
	}
	b = appendLength(append(b, byte(DISCONNECT)<<4), 1+p.Properties.sectionSize())
	return p.Properties.Append(append(b, byte(p.Code)))
}

// AppendAuth appends an AUTH in its shortest form, whatever the version: 3.1.1 has none.
func (v Version) AppendAuth(b []byte, p *Auth) []byte {
	if p.Code == Success && p.Properties.Empty() {
		return AppendEmpty(b, AUTH)
	}
	b = appendLength(append(b, byte(AUTH)<<4), 1+p.Properties.sectionSize())
	return p.Properties.Append(append(b, byte(p.Code)))
}
