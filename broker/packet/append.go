package packet

import "encoding/binary"

// appendLength appends a Remaining Length in its shortest form, section 2.2.3.
func appendLength(b []byte, n int) []byte {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

func appendString[S ~string | ~[]byte](b []byte, s S) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// AppendPublish appends a PUBLISH. The Packet Identifier is written only above QoS 0.
func AppendPublish(b []byte, p *Publish) []byte {
	head := byte(PUBLISH)<<4 | p.QoS&3<<1
	if p.Dup {
		head |= 0x08
	}
	if p.Retain {
		head |= 0x01
	}
	n := 2 + len(p.Topic) + len(p.Payload)
	if p.QoS > 0 {
		n += 2
	}
	b = appendLength(append(b, head), n)
	b = appendString(b, p.Topic)
	if p.QoS > 0 {
		b = binary.BigEndian.AppendUint16(b, p.ID)
	}
	return append(b, p.Payload...)
}

// AppendAck appends a PUBACK, PUBREC, PUBREL, PUBCOMP or UNSUBACK with its Packet Identifier.
func AppendAck(b []byte, t Type, id uint16) []byte {
	head := byte(t) << 4
	if t == PUBREL {
		head |= 2 // [MQTT-3.6.1-1]
	}
	return append(b, head, 2, byte(id>>8), byte(id))
}

// AppendEmpty appends a PINGREQ, PINGRESP or DISCONNECT.
func AppendEmpty(b []byte, t Type) []byte { return append(b, byte(t)<<4, 0) }

// AppendConnack appends a CONNACK. Session Present is only ever set with return code 0 [MQTT-3.2.2-4].
func AppendConnack(b []byte, sessionPresent bool, code byte) []byte {
	flags := byte(0)
	if sessionPresent && code == Accepted {
		flags = 1
	}
	return append(b, byte(CONNACK)<<4, 2, flags, code)
}

// AppendConnect appends a CONNECT; zero Protocol and Level mean MQTT 3.1.1.
func AppendConnect(b []byte, p *Connect) []byte {
	protocol, level := p.Protocol, p.Level
	if protocol == "" {
		protocol = "MQTT"
	}
	if level == 0 {
		level = Level311
	}
	n := 2 + len(protocol) + 4 + 2 + len(p.ClientID)
	flags := byte(0)
	if p.CleanSession {
		flags |= 0x02
	}
	if p.Will != nil {
		flags |= 0x04 | p.Will.QoS&3<<3
		if p.Will.Retain {
			flags |= 0x20
		}
		n += 4 + len(p.Will.Topic) + len(p.Will.Payload)
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
	b = appendString(b, p.ClientID)
	if p.Will != nil {
		b = appendString(b, p.Will.Topic)
		b = appendString(b, p.Will.Payload)
	}
	if p.HasUsername {
		b = appendString(b, p.Username)
	}
	if p.HasPassword {
		b = appendString(b, p.Password)
	}
	return b
}

// AppendSubscribe appends a SUBSCRIBE.
func AppendSubscribe(b []byte, p *Subscribe) []byte {
	n := 2
	for _, s := range p.Subscriptions {
		n += 3 + len(s.Filter)
	}
	b = appendLength(append(b, byte(SUBSCRIBE)<<4|2), n)
	b = binary.BigEndian.AppendUint16(b, p.ID)
	for _, s := range p.Subscriptions {
		b = append(appendString(b, s.Filter), s.QoS)
	}
	return b
}

// AppendSuback appends a SUBACK with one return code for each Topic Filter, in order [MQTT-3.9.3-1].
func AppendSuback(b []byte, id uint16, codes []byte) []byte {
	b = appendLength(append(b, byte(SUBACK)<<4), 2+len(codes))
	b = binary.BigEndian.AppendUint16(b, id)
	return append(b, codes...)
}

// AppendUnsubscribe appends an UNSUBSCRIBE.
func AppendUnsubscribe(b []byte, p *Unsubscribe) []byte {
	n := 2
	for _, f := range p.Filters {
		n += 2 + len(f)
	}
	b = appendLength(append(b, byte(UNSUBSCRIBE)<<4|2), n)
	b = binary.BigEndian.AppendUint16(b, p.ID)
	for _, f := range p.Filters {
		b = appendString(b, f)
	}
	return b
}
