package packet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Level311 is the Protocol Level byte of MQTT 3.1.1, section 3.1.2.2.
const Level311 = 4

// The CONNACK return codes of MQTT 3.1.1, table 3.1.
const (
	Accepted            byte = 0
	RefusedLevel        byte = 1
	RefusedIdentifier   byte = 2
	RefusedUnavailable  byte = 3
	RefusedCredentials  byte = 4
	RefusedUnauthorized byte = 5
)

// SubackFailure is the SUBACK return code of a refused subscription, section 3.9.3.
const SubackFailure byte = 0x80

// Will is the message that the broker publishes when the connection ends without a DISCONNECT.
type Will struct {
	Topic   string
	Payload []byte
	QoS     byte
	Retain  bool

	Properties *Properties // MQTT 5.0
}

// Connect is a CONNECT packet. It owns its bytes. CleanSession is Clean Start in MQTT 5.0.
type Connect struct {
	Protocol     string // "MQTT"; empty means that when encoding
	Level        byte   // 4; 0 means that when encoding
	ClientID     string
	CleanSession bool
	KeepAlive    uint16 // seconds, 0: off
	Will         *Will
	HasUsername  bool
	Username     string
	HasPassword  bool
	Password     []byte
	Properties   *Properties // MQTT 5.0
}

// Publish is a PUBLISH packet. Topic and Payload are views when decoded.
type Publish struct {
	Topic   []byte
	Payload []byte
	ID      uint16 // Packet Identifier; 0 at QoS 0
	QoS     byte
	Dup     bool
	Retain  bool

	Properties *Properties // MQTT 5.0; ignored by AppendPublish
}

// Subscription is one Topic Filter of a SUBSCRIBE with its requested maximum QoS.
type Subscription struct {
	Filter string
	QoS    byte

	// MQTT 5.0
	NoLocal           bool
	RetainAsPublished bool
	RetainHandling    byte // 0: always, 1: only if the subscription is new, 2: never
}

// Subscribe is a SUBSCRIBE packet. It owns its bytes.
type Subscribe struct {
	ID            uint16
	Subscriptions []Subscription
	Properties    *Properties // MQTT 5.0
}

// Unsubscribe is an UNSUBSCRIBE packet. It owns its bytes.
type Unsubscribe struct {
	ID      uint16
	Filters []string

	Properties *Properties // MQTT 5.0
}

// cursor reads fields from the body of a packet; after a failed read bad is set and every further read is empty.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) u8() byte {
	if c.bad || len(c.b) < 1 {
		c.bad = true
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

func (c *cursor) u16() uint16 {
	if c.bad || len(c.b) < 2 {
		c.bad = true
		return 0
	}
	v := binary.BigEndian.Uint16(c.b)
	c.b = c.b[2:]
	return v
}

func (c *cursor) bytes() []byte {
	n := int(c.u16())
	if c.bad || len(c.b) < n {
		c.bad = true
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

// checkString checks a UTF-8 encoded string: well-formed UTF-8 without surrogates [MQTT-1.5.3-1] and without U+0000
// [MQTT-1.5.3-2]; utf8.Valid refuses surrogates and overlong forms. A byte order mark is a character like any other
// [MQTT-1.5.3-3].
func checkString(t Type, field string, b []byte) error {
	if bytes.IndexByte(b, 0) >= 0 {
		return malformed(t, "MQTT-1.5.3-2", field+" contains U+0000")
	}
	if !utf8.Valid(b) {
		return malformed(t, "MQTT-1.5.3-1", field+" is not valid UTF-8")
	}
	return nil
}

// checkName checks a Topic Name.
func checkName(t Type, field string, b []byte) error {
	if err := checkString(t, field, b); err != nil {
		return err
	}
	if len(b) == 0 {
		return malformed(t, "MQTT-4.7.3-1", field+" is empty")
	}
	if !ValidTopicName(b) {
		statement := "MQTT-4.7.1-1"
		if t == PUBLISH {
			statement = "MQTT-3.3.2-2"
		}
		return malformed(t, statement, field+" has a wildcard")
	}
	return nil
}

// ParseConnect decodes a CONNECT. A Protocol Level other than 4 is no error here: the fields up to it are set and the
// rest is left empty, so that the broker can answer with return code 1 [MQTT-3.1.2-2]. Nor is an empty Client Identifier
// without Clean Session, which the broker answers with return code 2 [MQTT-3.1.3-8].
func ParseConnect(f Frame) (Connect, error) {
	var p Connect
	if f.Flags() != 0 {
		return p, malformed(CONNECT, "MQTT-2.2.2-2", "reserved header flags are not 0")
	}
	c := cursor{b: f.Body}
	name := c.bytes()
	p.Level = c.u8()
	if c.bad {
		return p, malformed(CONNECT, "", "too short for a protocol name and level")
	}
	if string(name) != "MQTT" {
		return p, malformed(CONNECT, "MQTT-3.1.2-1", "protocol name is not MQTT")
	}
	p.Protocol = "MQTT"
	if p.Level != Level311 {
		return p, nil
	}
	flags := c.u8()
	p.KeepAlive = c.u16()
	id := c.bytes()
	if c.bad {
		return p, malformed(CONNECT, "MQTT-3.1.3-3", "too short for flags, Keep Alive and Client Identifier")
	}
	if flags&0x01 != 0 {
		return p, malformed(CONNECT, "MQTT-3.1.2-3", "reserved connect flag is set")
	}
	if err := checkString(CONNECT, "Client Identifier", id); err != nil {
		return p, err // [MQTT-3.1.3-4]
	}
	p.ClientID = string(id)
	p.CleanSession = flags&0x02 != 0
	if err := p.parseWill(&c, flags); err != nil {
		return p, err
	}
	if err := p.parseCredentials(&c, flags); err != nil {
		return p, err
	}
	if len(c.b) > 0 {
		return p, malformed(CONNECT, "", "bytes after the last field that the connect flags announce")
	}
	return p, nil
}

func (p *Connect) parseWill(c *cursor, flags byte) error {
	qos, retain := flags>>3&0x03, flags&0x20 != 0
	if flags&0x04 == 0 {
		switch {
		case qos != 0:
			return malformed(CONNECT, "MQTT-3.1.2-13", "Will QoS without a Will")
		case retain:
			return malformed(CONNECT, "MQTT-3.1.2-15", "Will Retain without a Will")
		}
		return nil
	}
	if qos > 2 {
		return malformed(CONNECT, "MQTT-3.1.2-14", "Will QoS is 3")
	}
	topic, payload := c.bytes(), c.bytes()
	if c.bad {
		return malformed(CONNECT, "MQTT-3.1.2-9", "too short for the Will")
	}
	if err := checkName(CONNECT, "Will Topic", topic); err != nil {
		return err // [MQTT-3.1.3-10]
	}
	p.Will = &Will{Topic: string(topic), Payload: bytes.Clone(payload), QoS: qos, Retain: retain}
	return nil
}

func (p *Connect) parseCredentials(c *cursor, flags byte) error {
	p.HasUsername, p.HasPassword = flags&0x80 != 0, flags&0x40 != 0
	if p.HasPassword && !p.HasUsername {
		return malformed(CONNECT, "MQTT-3.1.2-22", "Password without a User Name")
	}
	if p.HasUsername {
		user := c.bytes()
		if c.bad {
			return malformed(CONNECT, "MQTT-3.1.2-19", "too short for the User Name")
		}
		if err := checkString(CONNECT, "User Name", user); err != nil {
			return err // [MQTT-3.1.3-11]
		}
		p.Username = string(user)
	}
	if p.HasPassword {
		password := c.bytes()
		if c.bad {
			return malformed(CONNECT, "MQTT-3.1.2-21", "too short for the Password")
		}
		p.Password = bytes.Clone(password)
	}
	return nil
}

// ValidTopicName reports whether b can be the Topic Name of a PUBLISH: not empty [MQTT-4.7.3-1] and without wildcards
// [MQTT-3.3.2-2]. UTF-8 is checked elsewhere.
func ValidTopicName(b []byte) bool {
	return len(b) > 0 && bytes.IndexByte(b, '+') < 0 && bytes.IndexByte(b, '#') < 0
}

// ParsePublish decodes a PUBLISH; Topic and Payload are views into the frame.
func ParsePublish(f Frame) (Publish, error) {
	p := Publish{QoS: f.Header >> 1 & 0x03, Dup: f.Header&0x08 != 0, Retain: f.Header&0x01 != 0}
	if p.QoS > 2 {
		return p, malformed(PUBLISH, "MQTT-3.3.1-4", "QoS is 3")
	}
	if p.QoS == 0 && p.Dup {
		return p, malformed(PUBLISH, "MQTT-3.3.1-2", "DUP at QoS 0")
	}
	c := cursor{b: f.Body}
	p.Topic = c.bytes()
	if c.bad {
		return p, malformed(PUBLISH, "MQTT-3.3.2-1", "Topic Name runs past the end")
	}
	if err := checkName(PUBLISH, "Topic Name", p.Topic); err != nil {
		return p, err
	}
	if p.QoS > 0 {
		p.ID = c.u16()
		if c.bad {
			return p, malformed(PUBLISH, "MQTT-2.3.1-1", "no room for the Packet Identifier")
		}
		if p.ID == 0 {
			return p, malformed(PUBLISH, "MQTT-2.3.1-1", "Packet Identifier is 0")
		}
	}
	p.Payload = c.b
	return p, nil
}

// ParseAck decodes a PUBACK, PUBREC, PUBREL, PUBCOMP or UNSUBACK: flags, exactly two bytes, Packet Identifier not 0.
func ParseAck(f Frame) (id uint16, err error) {
	t := f.Type()
	if t == PUBREL {
		if f.Flags() != 2 {
			return 0, malformed(t, "MQTT-3.6.1-1", "reserved header flags are not 2")
		}
	} else if f.Flags() != 0 {
		return 0, malformed(t, "MQTT-2.2.2-2", "reserved header flags are not 0")
	}
	if len(f.Body) != 2 {
		return 0, malformed(t, "", "Remaining Length is not 2")
	}
	id = binary.BigEndian.Uint16(f.Body)
	if id == 0 {
		// No exchange can have the identifier that [MQTT-2.3.1-1] forbids the packet acknowledged.
		statement := ""
		switch t {
		case PUBACK, PUBREC, PUBREL:
			statement = "MQTT-2.3.1-6"
		case UNSUBACK:
			statement = "MQTT-2.3.1-7"
		}
		return 0, malformed(t, statement, "Packet Identifier is 0")
	}
	return id, nil
}

// ParseEmpty checks a PINGREQ, PINGRESP or DISCONNECT: no flags and no body.
func ParseEmpty(f Frame) error {
	if f.Flags() != 0 {
		statement := "MQTT-2.2.2-2"
		if f.Type() == DISCONNECT {
			statement = "MQTT-3.14.1-1"
		}
		return malformed(f.Type(), statement, "reserved header flags are not 0")
	}
	if len(f.Body) != 0 {
		return malformed(f.Type(), "", "Remaining Length is not 0")
	}
	return nil
}

// ParseConnack decodes a CONNACK into Session Present and the return code. A reserved return code, above 5, is left to
// the caller, who can say what it is; with Session Present and a refusal [MQTT-3.2.2-4] both are returned with the error.
func ParseConnack(f Frame) (sessionPresent bool, code byte, err error) {
	if f.Flags() != 0 {
		return false, 0, malformed(CONNACK, "MQTT-2.2.2-2", "reserved header flags are not 0")
	}
	if len(f.Body) != 2 {
		return false, 0, malformed(CONNACK, "", "Remaining Length is not 2")
	}
	if f.Body[0]&0xFE != 0 {
		return false, 0, malformed(CONNACK, "", "reserved acknowledge flags are set")
	}
	sessionPresent, code = f.Body[0] == 1, f.Body[1]
	if sessionPresent && code != Accepted {
		err = malformed(CONNACK, "MQTT-3.2.2-4", fmt.Sprintf("Session Present with return code %d", code))
	}
	return sessionPresent, code, err
}

// ParseSubscribe decodes a SUBSCRIBE. Topic Filters are checked for UTF-8 only; the rest of their rules is package
// topic's.
func ParseSubscribe(f Frame) (Subscribe, error) {
	var p Subscribe
	if f.Flags() != 2 {
		return p, malformed(SUBSCRIBE, "MQTT-3.8.1-1", "reserved header flags are not 2")
	}
	c := cursor{b: f.Body}
	p.ID = c.u16()
	if c.bad || p.ID == 0 {
		return p, malformed(SUBSCRIBE, "MQTT-2.3.1-1", "Packet Identifier is missing or 0")
	}
	for len(c.b) > 0 {
		filter := c.bytes()
		qos := c.u8()
		if c.bad {
			return p, malformed(SUBSCRIBE, "", "Topic Filter runs past the end")
		}
		if err := checkString(SUBSCRIBE, "Topic Filter", filter); err != nil {
			return p, err // [MQTT-3.8.3-1]
		}
		if qos > 2 {
			return p, malformed(SUBSCRIBE, "MQTT-3-8.3-4", "requested QoS byte is above 2")
		}
		p.Subscriptions = append(p.Subscriptions, Subscription{Filter: string(filter), QoS: qos})
	}
	if len(p.Subscriptions) == 0 {
		return p, malformed(SUBSCRIBE, "MQTT-3.8.3-3", "no Topic Filter")
	}
	return p, nil
}

// ParseSuback decodes a SUBACK; codes is a view.
func ParseSuback(f Frame) (id uint16, codes []byte, err error) {
	if f.Flags() != 0 {
		return 0, nil, malformed(SUBACK, "MQTT-2.2.2-2", "reserved header flags are not 0")
	}
	c := cursor{b: f.Body}
	id = c.u16()
	if c.bad || id == 0 {
		return 0, nil, malformed(SUBACK, "MQTT-2.3.1-7", "Packet Identifier is missing or 0")
	}
	if len(c.b) == 0 {
		return 0, nil, malformed(SUBACK, "MQTT-3.8.4-5", "no return code")
	}
	for _, code := range c.b {
		if code > 2 && code != SubackFailure {
			return 0, nil, malformed(SUBACK, "MQTT-3.9.3-2", "reserved return code")
		}
	}
	return id, c.b, nil
}

// ParseUnsubscribe decodes an UNSUBSCRIBE. Topic Filters are checked for UTF-8 only.
func ParseUnsubscribe(f Frame) (Unsubscribe, error) {
	var p Unsubscribe
	if f.Flags() != 2 {
		return p, malformed(UNSUBSCRIBE, "MQTT-3.10.1-1", "reserved header flags are not 2")
	}
	c := cursor{b: f.Body}
	p.ID = c.u16()
	if c.bad || p.ID == 0 {
		return p, malformed(UNSUBSCRIBE, "MQTT-2.3.1-1", "Packet Identifier is missing or 0")
	}
	for len(c.b) > 0 {
		filter := c.bytes()
		if c.bad {
			return p, malformed(UNSUBSCRIBE, "", "Topic Filter runs past the end")
		}
		if err := checkString(UNSUBSCRIBE, "Topic Filter", filter); err != nil {
			return p, err // [MQTT-3.10.3-1]
		}
		p.Filters = append(p.Filters, string(filter))
	}
	if len(p.Filters) == 0 {
		return p, malformed(UNSUBSCRIBE, "MQTT-3.10.3-2", "no Topic Filter")
	}
	return p, nil
}
