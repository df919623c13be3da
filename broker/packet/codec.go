package packet

import "bytes"

// Version is a version of the protocol, in the words of the CONNECT's Protocol Level. Any but [V5] means MQTT 3.1.1, the
// zero value too. Its methods append packets; for 3.1.1 they leave out what it does not have: properties, and the Reason
// Codes that no byte of the packet can carry.
type Version byte

// The versions.
const (
	V311 Version = Level311
	V5   Version = Level5
)

// Role says which side of a connection a packet comes from.
type Role byte

// The roles. A server decodes what is [FromClient], the zero value.
const (
	FromClient Role = iota
	FromServer
)

// String is the role as the specification writes it.
func (r Role) String() string {
	if r == FromServer {
		return "Server"
	}
	return "Client"
}

// Codec encodes and decodes the packets of one connection in its version, so that one code path serves both. It belongs
// to one goroutine; the appending methods are those of its Version, and free for all. The zero value is the server's side
// before the CONNECT, which then sets the version.
//
// What it decodes is strict as in the rest of the package. Errors are [*Error] with the Reason Code to answer with.
//
// Properties are a nil pointer where the packet has none, and always for 3.1.1. Those of a CONNECT, SUBSCRIBE and
// UNSUBSCRIBE are the packet's own; those of all others are views, and kept in the Codec: valid only until it decodes the
// next packet, and only as long as the bytes of the frame are.
type Codec struct {
	Version
	From Role // whose packets are decoded

	props Properties
}

// Ack is a PUBACK, PUBREC, PUBREL or PUBCOMP.
type Ack struct {
	ID         uint16
	Code       ReasonCode
	Properties *Properties
}

// Connack is a CONNACK. Code is a Reason Code also for 3.1.1, whose return codes are translated both ways; a return code
// that 3.1.1 reserves, above 5, is taken as it is.
type Connack struct {
	SessionPresent bool
	Code           ReasonCode
	Properties     *Properties
}

// Suback is a SUBACK or an UNSUBACK with one Reason Code for each Topic Filter, in their order; in 3.1.1 an UNSUBACK has
// none, and every failure of a SUBACK is 0x80. It owns its Codes.
type Suback struct {
	ID         uint16
	Codes      []ReasonCode
	Properties *Properties
}

// Disconnect is a DISCONNECT or an AUTH.
type Disconnect struct {
	Code       ReasonCode
	Properties *Properties
}

// Auth is an AUTH, which only 5.0 has.
type Auth = Disconnect

// ParseConnect decodes a CONNECT of 3.1.1 or 5.0, and sets the version to its Protocol Level; any other level is no error,
// as for the function [ParseConnect], and leaves the version alone. If a CONNECT of level 5 is refused the version is set
// nevertheless, so that the error can be answered with a Reason Code.
func (c *Codec) ParseConnect(f Frame) (Connect, error) {
	if bytes.HasPrefix(f.Body, protocol5) {
		c.Version = V5
		return parseConnect5(f)
	}
	p, err := ParseConnect(f)
	if p.Level == Level311 {
		c.Version = V311
	}
	return p, err
}

// protocol5 begins every CONNECT of MQTT 5.0.
var protocol5 = []byte("\x00\x04MQTT\x05")

// ParseConnack decodes a CONNACK.
func (c *Codec) ParseConnack(f Frame) (Connack, error) {
	if c.Version == V5 {
		return c.connack5(f)
	}
	present, code, err := ParseConnack(f)
	p := Connack{SessionPresent: present, Code: ReasonCode(code)}
	if int(code) < len(returnCodes) {
		p.Code = returnCodes[code]
	}
	return p, err
}

// ParsePublish decodes a PUBLISH; Topic and Payload are views into the frame. In 5.0 the Topic is empty where a Topic
// Alias stands for it, which is the session's to resolve [MQTT-3.3.2-12], as is an alias above the maximum.
func (c *Codec) ParsePublish(f Frame) (Publish, error) {
	if c.Version == V5 {
		return c.publish5(f)
	}
	return ParsePublish(f)
}

// ParseAck decodes a PUBACK, PUBREC, PUBREL or PUBCOMP.
func (c *Codec) ParseAck(f Frame) (Ack, error) {
	if c.Version == V5 {
		return c.ack5(f)
	}
	id, err := ParseAck(f)
	return Ack{ID: id}, err
}

// ParseSubscribe decodes a SUBSCRIBE. Of a Topic Filter it checks UTF-8, and in 5.0 that a Shared Subscription is without
// No Local [MQTT-3.8.3-4]; the rest of its rules is package topic's.
func (c *Codec) ParseSubscribe(f Frame) (Subscribe, error) {
	if c.Version == V5 {
		return parseSubscribe5(f)
	}
	return ParseSubscribe(f)
}

// ParseSuback decodes a SUBACK.
func (c *Codec) ParseSuback(f Frame) (Suback, error) {
	if c.Version == V5 {
		return c.suback5(f)
	}
	id, codes, err := ParseSuback(f)
	p := Suback{ID: id}
	for _, code := range codes {
		p.Codes = append(p.Codes, ReasonCode(code))
	}
	return p, err
}

// ParseUnsubscribe decodes an UNSUBSCRIBE. Topic Filters are checked for UTF-8 only.
func (c *Codec) ParseUnsubscribe(f Frame) (Unsubscribe, error) {
	if c.Version == V5 {
		return parseUnsubscribe5(f)
	}
	return ParseUnsubscribe(f)
}

// ParseUnsuback decodes an UNSUBACK.
func (c *Codec) ParseUnsuback(f Frame) (Suback, error) {
	if c.Version == V5 {
		return c.suback5(f)
	}
	id, err := ParseAck(f)
	return Suback{ID: id}, err
}

// ParseEmpty checks a PINGREQ or PINGRESP.
func (c *Codec) ParseEmpty(f Frame) error {
	if c.Version != V5 {
		return ParseEmpty(f)
	}
	if err := checkFlags5(f, 0); err != nil {
		return err
	}
	if len(f.Body) != 0 {
		return malformed(f.Type(), "", "Remaining Length is not 0")
	}
	return nil
}

// ParseDisconnect decodes a DISCONNECT.
func (c *Codec) ParseDisconnect(f Frame) (Disconnect, error) {
	if c.Version == V5 {
		return c.disconnect5(f)
	}
	return Disconnect{}, ParseEmpty(f)
}

// ParseAuth decodes an AUTH. In 3.1.1 there is none: its type is reserved, and refused before it comes here.
func (c *Codec) ParseAuth(f Frame) (Auth, error) {
	if c.Version == V5 {
		return c.auth5(f)
	}
	return Auth{}, malformed(AUTH, "", reservedType)
}
