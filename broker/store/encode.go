package store

import "encoding/binary"

// The first byte of an encoded message; a later format takes another.
const (
	encodingV1 = 1 // plain
	encodingV2 = 2 // with what MQTT 5.0 adds
)

// Encode appends m in the format in which stores keep it: version, flags (QoS in bits 0-1, retain in bit 2), topic
// length (2 bytes, big endian), topic, payload. Only a message that has something which MQTT 5.0 adds is of version 2:
// there, before the payload, come the time of expiry (8 bytes), the publisher's length (2 bytes) and the publisher, and
// the length of the properties (4 bytes) and the properties.
func Encode(b []byte, m *Message) []byte {
	flags := m.QoS
	if m.Retain {
		flags |= 4
	}
	version := byte(encodingV1)
	if !m.plain() {
		version = encodingV2
	}
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Topic)))
	b = append(b, m.Topic...)
	if version == encodingV2 {
		b = binary.BigEndian.AppendUint64(b, uint64(m.Expires))
		b = binary.BigEndian.AppendUint16(b, uint16(len(m.From)))
		b = append(b, m.From...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(m.Passed)))
		b = append(b, m.Passed...)
	}
	return append(b, m.Payload...)
}

// Decode is the inverse of Encode; Payload and Passed are views into b. Any other bytes are ErrCorrupt.
func Decode(b []byte) (*Message, error) {
	topic, qos, retain, err := Header(b)
	if err != nil {
		return nil, err
	}
	m := &Message{Topic: string(topic), Payload: b[4+len(topic):], QoS: qos, Retain: retain}
	if b[0] == encodingV2 && !m.decode5() {
		return nil, ErrCorrupt
	}
	return m, nil
}

// decode5 takes what version 2 adds from the beginning of the payload.
func (m *Message) decode5() bool {
	b := m.Payload
	if len(b) < 10 {
		return false
	}
	m.Expires = int64(binary.BigEndian.Uint64(b))
	n := int(binary.BigEndian.Uint16(b[8:]))
	if b = b[10:]; len(b) < n+4 {
		return false
	}
	m.From = string(b[:n])
	size := binary.BigEndian.Uint32(b[n:])
	if b = b[n+4:]; uint64(len(b)) < uint64(size) {
		return false
	}
	m.Passed, m.Payload = b[:size:size], b[size:]
	return !m.plain() // or it would have been of version 1
}

// Header reads the topic, a view into b, and the flags of an encoded message without making one. What it accepts Decode
// may still find corrupt.
func Header(b []byte) (topic []byte, qos byte, retain bool, err error) {
	if len(b) < 4 || b[0] != encodingV1 && b[0] != encodingV2 || b[1]&^7 != 0 || b[1]&3 == 3 {
		return nil, 0, false, ErrCorrupt
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n == 0 || len(b) < 4+n {
		return nil, 0, false, ErrCorrupt
	}
	return b[4 : 4+n], b[1] & 3, b[1]&4 != 0, nil
}
