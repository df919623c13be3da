package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Type is a control packet type, table 2.1.
type Type byte

// The control packet types.
const (
	CONNECT Type = iota + 1
	CONNACK
	PUBLISH
	PUBACK
	PUBREC
	PUBREL
	PUBCOMP
	SUBSCRIBE
	SUBACK
	UNSUBSCRIBE
	UNSUBACK
	PINGREQ
	PINGRESP
	DISCONNECT
	AUTH
)

var typeNames = [...]string{
	"reserved 0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK",
	"UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
}

// String is the specification's name of the type.
func (t Type) String() string { return typeNames[t&15] }

// Level5 is the Protocol Level of MQTT 5.0; that of 3.1.1 is Level311.
const (
	Level311 byte = 4
	Level5   byte = 5
)

// Packet is a decoded control packet. Which fields are set depends on its type.
type Packet struct {
	Type  Type
	Flags byte // of the fixed header

	ID      uint16 // Packet Identifier, 0 if there is none
	QoS     byte   // of a PUBLISH
	Dup     bool
	Retain  bool
	Topic   string
	Payload []byte

	Reason  byte     // Reason Code, or the return code of a CONNACK
	Codes   []byte   // of a SUBACK or UNSUBACK; the options of a SUBSCRIBE
	Filters []string // of a SUBSCRIBE or UNSUBSCRIBE
	Present bool     // Session Present
	Props   []Prop   // in wire order

	Client    string // of a CONNECT, as the fields that follow
	Level     byte
	Clean     bool
	KeepAlive uint16
}

// Prop is a property of MQTT 5.0. Num holds an integer of any size, Str a string or binary data or the name of a User
// Property, whose value is Val.
type Prop struct {
	ID       byte
	Num      uint32
	Str, Val string
}

// Property identifiers that judges ask for, table 2-4.
const (
	PropMessageExpiry    byte = 2
	PropSubscriptionID   byte = 11
	PropSessionExpiry    byte = 17
	PropAssignedClientID byte = 18
	PropReceiveMaximum   byte = 33
	PropTopicAlias       byte = 35
	PropMaximumQoS       byte = 36
	PropRetainAvailable  byte = 37
	PropMaximumPacket    byte = 39
	PropWildcard         byte = 40
	PropSubIDAvailable   byte = 41
	PropShared           byte = 42
)

// Prop returns the first property with the identifier.
func (p *Packet) Prop(id byte) (Prop, bool) {
	for _, q := range p.Props {
		if q.ID == id {
			return q, true
		}
	}
	return Prop{}, false
}

// Number is the integer property with the identifier, or otherwise.
func (p *Packet) Number(id byte, otherwise uint32) uint32 {
	if q, ok := p.Prop(id); ok {
		return q.Num
	}
	return otherwise
}

// FrameLength returns the size in bytes of the first control packet of b, fixed header included; 0 if b ends before that
// can be told. It is an error if no packet can begin like this: a Remaining Length of more than four bytes.
func FrameLength(b []byte) (int, error) {
	n, size, err := varint(b[min(1, len(b)):])
	if err != nil {
		return 0, fmt.Errorf("the Remaining Length has more than four bytes")
	}
	if len(b) == 0 || size == 0 {
		return 0, nil
	}
	return 1 + size + n, nil
}

// Split cuts a write into the packets that it holds. rest is what follows the last whole one.
func Split(b []byte) (packets [][]byte, rest []byte) {
	for {
		n, err := FrameLength(b)
		if err != nil || n == 0 || n > len(b) {
			return packets, b
		}
		packets, b = append(packets, b[:n:n]), b[n:]
	}
}

var errVarint = errors.New("a Variable Byte Integer of more than four bytes")

// varint reads a Variable Byte Integer; size 0 means that b is too short.
func varint(b []byte) (n, size int, err error) {
	for i := 0; i < 4; i++ {
		if i == len(b) {
			return 0, 0, nil
		}
		n |= int(b[i]&0x7F) << (7 * i)
		if b[i] < 0x80 {
			return n, i + 1, nil
		}
	}
	return 0, 0, errVarint
}

// reader takes fields from the body of a packet. The first field that is not there, or not legal, ends it.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) take(n int, what string) []byte {
	if r.err != nil {
		return nil
	}
	if len(r.b) < n {
		r.fail("%s: the packet ends before it does", what)
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) byte(what string) byte {
	if v := r.take(1, what); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) uint16(what string) uint16 {
	if v := r.take(2, what); v != nil {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}

func (r *reader) uint32(what string) uint32 {
	if v := r.take(4, what); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (r *reader) data(what string) string { return string(r.take(int(r.uint16(what)), what)) }

// text is a UTF-8 encoded string, [MQTT-1.5.3-1] [MQTT-1.5.3-2] ; [MQTT-1.5.4-1] [MQTT-1.5.4-2].
func (r *reader) text(what string) string {
	s := r.data(what)
	if !utf8.ValidString(s) {
		r.fail("%s is not well-formed UTF-8", what)
	}
	for i := range len(s) {
		if s[i] == 0 {
			r.fail("%s holds U+0000", what)
			break
		}
	}
	return s
}

func (r *reader) varint(what string) int {
	if r.err != nil {
		return 0
	}
	n, size, err := varint(r.b)
	switch {
	case err != nil:
		r.fail("%s: %w", what, err)
	case size == 0:
		r.fail("%s: the packet ends before it does", what)
	case size > 1 && n < 1<<(7*(size-1)):
		r.fail("%s takes more bytes than it needs [MQTT-1.5.5-1]", what)
	}
	r.take(size, what)
	return n
}

func (r *reader) id(what string) uint16 {
	v := r.uint16(what)
	if r.err == nil && v == 0 {
		r.fail("%s is 0 [MQTT-2.3.1-1] ; [MQTT-2.2.1-3]", what)
	}
	return v
}

// Decode reads one whole control packet. fromServer says who sent it: some packets, codes and properties are for one side
// only. What it knows of a packet that is not legal is returned with the error, the Type at least.
func Decode(level byte, fromServer bool, raw []byte) (Packet, error) {
	if len(raw) < 2 {
		return Packet{}, errors.New("no control packet has less than two bytes")
	}
	p := Packet{Type: Type(raw[0] >> 4), Flags: raw[0] & 15}
	r := &reader{b: raw[1:]}
	n := r.varint("Remaining Length")
	if r.err == nil && n != len(r.b) {
		r.fail("Remaining Length is %d, the packet has %d bytes", n, len(r.b))
	}
	d := decoder{reader: r, v5: level == Level5, server: fromServer, p: &p}
	d.decode()
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow the last field", len(r.b))
	}
	if r.err != nil {
		return p, fmt.Errorf("%v: %w", p.Type, r.err)
	}
	return p, nil
}
