package packet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// maxScratch is how many elements a [Codec] keeps room for between packets: one packet with very many user properties
// must not hold memory as long as its connection lives.
const maxScratch = 64

// reset empties p for the next packet.
func (p *Properties) reset() {
	user, ids := p.User[:0], p.SubscriptionIDs[:0]
	if cap(user) > maxScratch {
		user = nil
	}
	if cap(ids) > maxScratch {
		ids = nil
	}
	*p = Properties{User: user, SubscriptionIDs: ids}
}

func (c *cursor) u32() uint32 {
	if c.bad || len(c.b) < 4 {
		c.bad = true
		return 0
	}
	v := binary.BigEndian.Uint32(c.b)
	c.b = c.b[4:]
	return v
}

// varint reads a Variable Byte Integer, section 1.5.5; problem is "" or what is wrong with it.
func (c *cursor) varint() (v int, problem string) {
	for i := range 4 {
		if i >= len(c.b) {
			c.bad = true
			return 0, "runs past the end"
		}
		d := c.b[i]
		v |= int(d&0x7F) << (7 * i)
		if d&0x80 == 0 {
			c.b = c.b[i+1:]
			if i > 0 && d == 0 {
				return 0, notShortest
			}
			return v, ""
		}
	}
	return 0, "takes more than four bytes"
}

const notShortest = "is not in its shortest form"

// badVarint is the error of a Variable Byte Integer; [MQTT-1.5.5-1] is about its length only.
func badVarint(t Type, field, problem string) error {
	statement := ""
	if problem == notShortest {
		statement = "MQTT-1.5.5-1"
	}
	return malformed(t, statement, field+" "+problem)
}

// section reads a Property Length and returns the bytes of the properties.
func (c *cursor) section(t Type) ([]byte, error) {
	n, problem := c.varint()
	if problem != "" {
		return nil, badVarint(t, "Property Length", problem)
	}
	if n > len(c.b) {
		return nil, malformed(t, "", "Property Length runs past the end")
	}
	section := c.b[:n]
	c.b = c.b[n:]
	return section, nil
}

// checkString5 is checkString with the statements of MQTT 5.0.
func checkString5(t Type, field string, b []byte) error {
	if bytes.IndexByte(b, 0) >= 0 {
		return malformed(t, "MQTT-1.5.4-2", field+" contains U+0000")
	}
	if !utf8.Valid(b) {
		return malformed(t, "MQTT-1.5.4-1", field+" is not valid UTF-8")
	}
	return nil
}

// parse decodes the properties in section, which are those of a packet of type t; in is t, or [will]. p must be empty.
//
// An identifier that the packet may not have is malformed, section 2.2.2.2; one that may be there once and is there twice,
// or has a value that is not allowed, is a Protocol Error, which the section of each property says.
func (p *Properties) parse(t, in Type, section []byte) error {
	c := cursor{b: section}
	seen := uint64(0)
	for len(c.b) > 0 {
		id := Property(c.u8()) // a Variable Byte Integer, but none is above 127
		if !id.Known() {
			return malformed(t, "", fmt.Sprintf("there is no property 0x%02X", byte(id)))
		}
		if !properties[id].in.has(in) {
			return malformed(t, "", id.String()+" is not a property of this packet")
		}
		repeats := id == PropUser || id == PropSubscriptionID && t == PUBLISH
		if seen>>id&1 != 0 && !repeats {
			return protocolError(t, "", id.String()+" appears twice")
		}
		seen |= 1 << id
		if err := p.value(t, id, &c); err != nil {
			return err
		}
		if c.bad {
			return malformed(t, "", id.String()+" runs past the end of the properties")
		}
	}
	return nil
}

// value decodes the value of one property. If it is cut short c is bad, and no error is given for what it seems to be.
func (p *Properties) value(t Type, id Property, c *cursor) (err error) {
	switch id {
	case PropPayloadFormat:
		p.PayloadFormat, err = c.flag(t, id)
	case PropMaximumQoS:
		p.MaximumQoS, err = c.flag(t, id)
	case PropRetainAvailable:
		p.RetainAvailable, err = c.flag(t, id)
	case PropWildcardAvailable:
		p.WildcardAvailable, err = c.flag(t, id)
	case PropSubscriptionIDsAvail:
		p.SubscriptionIDsAvail, err = c.flag(t, id)
	case PropSharedSubscriptsAvail:
		p.SharedSubscriptsAvail, err = c.flag(t, id)
	case PropRequestProblemInfo:
		p.RequestProblemInfo, err = c.flag(t, id)
	case PropRequestResponseInfo:
		p.RequestResponseInfo, err = c.flag(t, id)
	case PropServerKeepAlive:
		p.ServerKeepAlive = Some(c.u16())
	case PropTopicAliasMaximum:
		p.TopicAliasMaximum = Some(c.u16())
	case PropReceiveMaximum:
		p.ReceiveMaximum = Some(c.u16())
		if p.ReceiveMaximum.Value == 0 && !c.bad {
			err = protocolError(t, "", "Receive Maximum is 0")
		}
	case PropTopicAlias:
		p.TopicAlias = Some(c.u16())
		if p.TopicAlias.Value == 0 && !c.bad {
			err = coded(t, TopicAliasInvalid, "MQTT-3.3.2-8", "Topic Alias is 0")
		}
	case PropMessageExpiry:
		p.MessageExpiry = Some(c.u32())
	case PropSessionExpiry:
		p.SessionExpiry = Some(c.u32())
	case PropWillDelay:
		p.WillDelay = Some(c.u32())
	case PropMaximumPacketSize:
		p.MaximumPacketSize = Some(c.u32())
		if p.MaximumPacketSize.Value == 0 && !c.bad {
			err = protocolError(t, "", "Maximum Packet Size is 0")
		}
	case PropSubscriptionID:
		n, problem := c.varint()
		switch {
		case c.bad:
		case problem != "":
			err = badVarint(t, id.String(), problem)
		case n == 0:
			err = protocolError(t, "", "Subscription Identifier is 0")
		}
		p.SubscriptionIDs = append(p.SubscriptionIDs, uint32(n))
	case PropCorrelationData:
		p.CorrelationData = c.data()
	case PropAuthData:
		p.AuthData = c.data()
	case PropContentType:
		p.ContentType, err = c.text(t, id) // [MQTT-3.3.2-19]
	case PropResponseTopic:
		p.ResponseTopic, err = c.text(t, id) // [MQTT-3.3.2-13]
		if err == nil && !c.bad {
			err = checkResponseTopic(t, p.ResponseTopic)
		}
	case PropAssignedClientID:
		p.AssignedClientID, err = c.text(t, id)
	case PropAuthMethod:
		p.AuthMethod, err = c.text(t, id)
	case PropResponseInfo:
		p.ResponseInfo, err = c.text(t, id)
	case PropServerReference:
		p.ServerReference, err = c.text(t, id)
	case PropReasonString:
		p.ReasonString, err = c.text(t, id)
	case PropUser:
		var u UserProperty
		if u.Key, err = c.text(t, id); err == nil { // [MQTT-1.5.7-1]
			u.Value, err = c.text(t, id)
		}
		p.User = append(p.User, u)
	}
	return err
}

// flag reads a byte that can be 0 or 1.
func (c *cursor) flag(t Type, id Property) (Opt[byte], error) {
	v := c.u8()
	if v > 1 {
		return Some(v), protocolError(t, "", id.String()+" is neither 0 nor 1")
	}
	return Some(v), nil
}

// data reads binary data; unlike [cursor.bytes] what is there and empty is not nil, and the view keeps to itself.
func (c *cursor) data() []byte {
	v := c.bytes()
	return v[:len(v):len(v)]
}

// text reads a UTF-8 encoded string.
func (c *cursor) text(t Type, id Property) ([]byte, error) {
	v := c.data()
	if c.bad {
		return nil, nil
	}
	// The name is joined to the error only if there is one: this is on the way of every message.
	if bytes.IndexByte(v, 0) < 0 && utf8.Valid(v) {
		return v, nil
	}
	return v, checkString5(t, id.String(), v)
}

// checkResponseTopic checks what must be a Topic Name.
func checkResponseTopic(t Type, b []byte) error {
	if len(b) == 0 {
		return malformed(t, "MQTT-4.7.3-1", "Response Topic is empty")
	}
	if !ValidTopicName(b) {
		return malformed(t, "MQTT-3.3.2-14", "Response Topic has a wildcard")
	}
	return nil
}
