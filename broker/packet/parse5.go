package packet

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// Level5 is the Protocol Version byte of MQTT 5.0, section 3.1.2.2.
const Level5 = 5

// sharedPrefix begins the Topic Filter of a Shared Subscription, section 4.8.2.
const sharedPrefix = "$share/"

// checkFlags5 checks the four reserved bits of the fixed header of any packet but PUBLISH.
func checkFlags5(f Frame, want byte) error {
	if f.Flags() == want {
		return nil
	}
	t := f.Type()
	statement := "MQTT-2.1.3-1"
	switch t {
	case PUBREL:
		statement = "MQTT-3.6.1-1"
	case SUBSCRIBE:
		statement = "MQTT-3.8.1-1"
	case UNSUBSCRIBE:
		statement = "MQTT-3.10.1-1"
	case DISCONNECT:
		statement = "MQTT-3.14.1-1"
	case AUTH:
		statement = "MQTT-3.15.1-1"
	}
	if want == 2 {
		return malformed(t, statement, "reserved header flags are not 2")
	}
	return malformed(t, statement, "reserved header flags are not 0")
}

// checkName5 checks what must be a Topic Name.
func checkName5(t Type, field, wildcard string, b []byte) error {
	if err := checkString5(t, field, b); err != nil {
		return err
	}
	if !ValidTopicName(b) {
		return malformed(t, wildcard, field+" has a wildcard")
	}
	return nil
}

// properties reads the properties of a packet of type t into the Codec; nil if there are none.
func (c *Codec) properties(t Type, body *cursor) (*Properties, error) {
	section, err := body.section(t)
	if err != nil || len(section) == 0 {
		return nil, err
	}
	c.props.reset()
	if err := c.props.parse(t, t, section); err != nil {
		return nil, err
	}
	return &c.props, nil
}

// lastProperties is properties for a packet that ends with them.
func (c *Codec) lastProperties(t Type, body *cursor) (*Properties, error) {
	p, err := c.properties(t, body)
	if err == nil && len(body.b) > 0 {
		return nil, malformed(t, "", "bytes after the properties")
	}
	return p, err
}

// ownProperties reads properties into memory of their own; in is t or [will].
func ownProperties(t, in Type, body *cursor) (*Properties, error) {
	section, err := body.section(t)
	if err != nil || len(section) == 0 {
		return nil, err
	}
	p := new(Properties)
	if err := p.parse(t, in, bytes.Clone(section)); err != nil {
		return nil, err
	}
	return p, nil
}

// parseConnect5 decodes a CONNECT that begins with protocol5.
func parseConnect5(f Frame) (p Connect, err error) {
	p.Protocol, p.Level = "MQTT", Level5
	if f.long {
		return p, malformed(CONNECT, "MQTT-1.5.5-1", "Remaining Length "+notShortest)
	}
	if err := checkFlags5(f, 0); err != nil {
		return p, err
	}
	c := cursor{b: f.Body[len(protocol5):]}
	flags := c.u8()
	p.KeepAlive = c.u16()
	if c.bad {
		return p, malformed(CONNECT, "", "too short for flags and Keep Alive")
	}
	if flags&0x01 != 0 {
		return p, malformed(CONNECT, "MQTT-3.1.2-3", "reserved connect flag is set")
	}
	p.CleanSession = flags&0x02 != 0
	if p.Properties, err = ownProperties(CONNECT, CONNECT, &c); err != nil {
		return p, err
	}
	if err := checkAuth(CONNECT, p.Properties); err != nil {
		return p, err
	}
	id := c.bytes()
	if c.bad {
		return p, malformed(CONNECT, "MQTT-3.1.3-3", "too short for the Client Identifier")
	}
	if err := checkString5(CONNECT, "Client Identifier", id); err != nil {
		return p, err // [MQTT-3.1.3-4]
	}
	p.ClientID = string(id)
	if err := p.parseWill5(&c, flags); err != nil {
		return p, err
	}
	if err := p.parseCredentials5(&c, flags); err != nil {
		return p, err
	}
	if len(c.b) > 0 {
		return p, malformed(CONNECT, "", "bytes after the last field that the connect flags announce")
	}
	return p, nil
}

func (p *Connect) parseWill5(c *cursor, flags byte) error {
	qos, retain := flags>>3&0x03, flags&0x20 != 0
	if flags&0x04 == 0 {
		switch {
		case qos != 0:
			return malformed(CONNECT, "MQTT-3.1.2-11", "Will QoS without a Will")
		case retain:
			return malformed(CONNECT, "MQTT-3.1.2-13", "Will Retain without a Will")
		}
		return nil
	}
	if qos > 2 {
		return malformed(CONNECT, "MQTT-3.1.2-12", "Will QoS is 3")
	}
	props, err := ownProperties(CONNECT, will, c)
	if err != nil {
		return err
	}
	topic, payload := c.bytes(), c.bytes()
	if c.bad {
		return malformed(CONNECT, "MQTT-3.1.2-9", "too short for the Will")
	}
	if len(topic) == 0 {
		return malformed(CONNECT, "MQTT-4.7.3-1", "Will Topic is empty")
	}
	if err := checkName5(CONNECT, "Will Topic", "MQTT-4.7.0-1", topic); err != nil {
		return err // [MQTT-3.1.3-11]
	}
	p.Will = &Will{Topic: string(topic), Payload: bytes.Clone(payload), QoS: qos, Retain: retain, Properties: props}
	return nil
}

// parseCredentials5 differs from 3.1.1 in that a Password may come without a User Name.
func (p *Connect) parseCredentials5(c *cursor, flags byte) error {
	p.HasUsername, p.HasPassword = flags&0x80 != 0, flags&0x40 != 0
	if p.HasUsername {
		user := c.bytes()
		if c.bad {
			return malformed(CONNECT, "MQTT-3.1.2-17", "too short for the User Name")
		}
		if err := checkString5(CONNECT, "User Name", user); err != nil {
			return err // [MQTT-3.1.3-12]
		}
		p.Username = string(user)
	}
	if p.HasPassword {
		password := c.bytes()
		if c.bad {
			return malformed(CONNECT, "MQTT-3.1.2-19", "too short for the Password")
		}
		p.Password = bytes.Clone(password)
	}
	return nil
}

// checkAuth holds Authentication Data to having a method, section 3.1.2.11.10.
func checkAuth(t Type, p *Properties) error {
	if p != nil && p.AuthData != nil && p.AuthMethod == nil {
		return protocolError(t, "", "Authentication Data without an Authentication Method")
	}
	return nil
}

func (c *Codec) connack5(f Frame) (p Connack, err error) {
	if err := checkFlags5(f, 0); err != nil {
		return p, err
	}
	body := cursor{b: f.Body}
	flags := body.u8()
	p.Code = ReasonCode(body.u8())
	if body.bad {
		return p, malformed(CONNACK, "", "too short for flags and Reason Code")
	}
	if flags&0xFE != 0 {
		return p, malformed(CONNACK, "MQTT-3.2.2-1", "reserved acknowledge flags are set")
	}
	p.SessionPresent = flags == 1
	if err := checkCode(CONNACK, p.Code, FromServer); err != nil {
		return p, err
	}
	if p.SessionPresent && p.Code != Success {
		return p, protocolError(CONNACK, "MQTT-3.2.2-6", "Session Present with "+p.Code.String())
	}
	if p.Properties, err = c.lastProperties(CONNACK, &body); err != nil {
		return p, err
	}
	return p, checkAuth(CONNACK, p.Properties)
}

func (c *Codec) publish5(f Frame) (p Publish, err error) {
	p = Publish{QoS: f.Header >> 1 & 0x03, Dup: f.Header&0x08 != 0, Retain: f.Header&0x01 != 0}
	if p.QoS > 2 {
		return p, malformed(PUBLISH, "MQTT-3.3.1-4", "QoS is 3")
	}
	if p.QoS == 0 && p.Dup {
		return p, protocolError(PUBLISH, "MQTT-3.3.1-2", "DUP at QoS 0")
	}
	body := cursor{b: f.Body}
	p.Topic = body.bytes()
	if body.bad {
		return p, malformed(PUBLISH, "MQTT-3.3.2-1", "Topic Name runs past the end")
	}
	if len(p.Topic) > 0 {
		if err := checkName5(PUBLISH, "Topic Name", "MQTT-3.3.2-2", p.Topic); err != nil {
			return p, err
		}
	}
	if p.QoS > 0 {
		p.ID = body.u16()
		if body.bad {
			return p, malformed(PUBLISH, identifierOf(c.From), "no room for the Packet Identifier")
		}
		if p.ID == 0 {
			return p, protocolError(PUBLISH, identifierOf(c.From), "Packet Identifier is 0")
		}
	}
	if p.Properties, err = c.properties(PUBLISH, &body); err != nil {
		return p, err
	}
	if len(p.Topic) == 0 && (p.Properties == nil || !p.Properties.TopicAlias.Set) {
		return p, protocolError(PUBLISH, "MQTT-4.7.3-1", "Topic Name is empty without a Topic Alias")
	}
	if p.Properties != nil && len(p.Properties.SubscriptionIDs) > 0 && c.From == FromClient {
		return p, protocolError(PUBLISH, "MQTT-3.3.4-6", "Subscription Identifier from a Client")
	}
	p.Payload = body.b
	return p, nil
}

// identifierOf is the statement that gives a PUBLISH its Packet Identifier.
func identifierOf(from Role) string {
	if from == FromServer {
		return "MQTT-2.2.1-4"
	}
	return "MQTT-2.2.1-3"
}

func (c *Codec) ack5(f Frame) (a Ack, err error) {
	t := f.Type()
	flags := byte(0)
	if t == PUBREL {
		flags = 2
	}
	if err := checkFlags5(f, flags); err != nil {
		return a, err
	}
	if len(f.Body) < 2 {
		return a, malformed(t, "", "too short for the Packet Identifier")
	}
	a.ID = binary.BigEndian.Uint16(f.Body)
	if a.ID == 0 {
		return a, protocolError(t, "MQTT-2.2.1-5", "Packet Identifier is 0")
	}
	if len(f.Body) == 2 {
		return a, nil // Success, section 3.4.2.1
	}
	a.Code = ReasonCode(f.Body[2])
	if !a.Code.Legal(t, c.From) {
		return a, checkCode(t, a.Code, c.From)
	}
	if len(f.Body) == 3 {
		return a, nil // no properties, section 3.4.2.2.1
	}
	body := cursor{b: f.Body[3:]}
	a.Properties, err = c.lastProperties(t, &body)
	return a, err
}

func parseSubscribe5(f Frame) (p Subscribe, err error) {
	if err := checkFlags5(f, 2); err != nil {
		return p, err
	}
	c := cursor{b: f.Body}
	if p.ID, err = c.identifier(SUBSCRIBE, "MQTT-2.2.1-3"); err != nil {
		return p, err
	}
	if p.Properties, err = ownProperties(SUBSCRIBE, SUBSCRIBE, &c); err != nil {
		return p, err
	}
	for len(c.b) > 0 {
		filter := c.bytes()
		options := c.u8()
		if c.bad {
			return p, malformed(SUBSCRIBE, "", "Topic Filter runs past the end")
		}
		if err := checkString5(SUBSCRIBE, "Topic Filter", filter); err != nil {
			return p, err // [MQTT-3.8.3-1]
		}
		s := Subscription{
			Filter: string(filter), QoS: options & 0x03, NoLocal: options&0x04 != 0, RetainAsPublished: options&0x08 != 0,
			RetainHandling: options >> 4 & 0x03,
		}
		switch {
		case options&0xC0 != 0:
			return p, malformed(SUBSCRIBE, "MQTT-3.8.3-5", "reserved subscription options are set")
		case s.QoS > 2:
			return p, protocolError(SUBSCRIBE, "", "Maximum QoS of a subscription is 3")
		case s.RetainHandling > 2:
			return p, protocolError(SUBSCRIBE, "", "Retain Handling is 3")
		case s.NoLocal && strings.HasPrefix(s.Filter, sharedPrefix):
			return p, protocolError(SUBSCRIBE, "MQTT-3.8.3-4", "No Local on a Shared Subscription")
		}
		p.Subscriptions = append(p.Subscriptions, s)
	}
	if len(p.Subscriptions) == 0 {
		return p, protocolError(SUBSCRIBE, "MQTT-3.8.3-2", "no Topic Filter")
	}
	return p, nil
}

// identifier reads a Packet Identifier that must not be 0.
func (c *cursor) identifier(t Type, statement string) (uint16, error) {
	id := c.u16()
	if c.bad {
		return 0, malformed(t, statement, "too short for the Packet Identifier")
	}
	if id == 0 {
		return 0, protocolError(t, statement, "Packet Identifier is 0")
	}
	return id, nil
}

func parseUnsubscribe5(f Frame) (p Unsubscribe, err error) {
	if err := checkFlags5(f, 2); err != nil {
		return p, err
	}
	c := cursor{b: f.Body}
	if p.ID, err = c.identifier(UNSUBSCRIBE, "MQTT-2.2.1-3"); err != nil {
		return p, err
	}
	if p.Properties, err = ownProperties(UNSUBSCRIBE, UNSUBSCRIBE, &c); err != nil {
		return p, err
	}
	for len(c.b) > 0 {
		filter := c.bytes()
		if c.bad {
			return p, malformed(UNSUBSCRIBE, "", "Topic Filter runs past the end")
		}
		if err := checkString5(UNSUBSCRIBE, "Topic Filter", filter); err != nil {
			return p, err // [MQTT-3.10.3-1]
		}
		p.Filters = append(p.Filters, string(filter))
	}
	if len(p.Filters) == 0 {
		return p, protocolError(UNSUBSCRIBE, "MQTT-3.10.3-2", "no Topic Filter")
	}
	return p, nil
}

// suback5 decodes a SUBACK or UNSUBACK. Whether there is a code for each filter [MQTT-3.8.4-6] [MQTT-3.11.3-1] only who
// sent them can say.
func (c *Codec) suback5(f Frame) (p Suback, err error) {
	t := f.Type()
	if err := checkFlags5(f, 0); err != nil {
		return p, err
	}
	body := cursor{b: f.Body}
	if p.ID, err = body.identifier(t, "MQTT-2.2.1-6"); err != nil {
		return p, err
	}
	if p.Properties, err = c.properties(t, &body); err != nil {
		return p, err
	}
	if len(body.b) == 0 {
		return p, protocolError(t, "", "no Reason Code")
	}
	p.Codes = make([]ReasonCode, len(body.b))
	for i, b := range body.b {
		p.Codes[i] = ReasonCode(b)
		if err := checkCode(t, p.Codes[i], FromServer); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (c *Codec) disconnect5(f Frame) (p Disconnect, err error) {
	if err := checkFlags5(f, 0); err != nil || len(f.Body) == 0 {
		return p, err // without a body it is a Normal disconnection, section 3.14.2.1
	}
	p.Code = ReasonCode(f.Body[0])
	if err := checkCode(DISCONNECT, p.Code, c.From); err != nil {
		return p, err
	}
	if len(f.Body) == 1 {
		return p, nil // no properties, section 3.14.2.2.1
	}
	body := cursor{b: f.Body[1:]}
	if p.Properties, err = c.lastProperties(DISCONNECT, &body); err != nil {
		return p, err
	}
	if p.Properties != nil && p.Properties.SessionExpiry.Set && c.From == FromServer {
		return p, protocolError(DISCONNECT, "MQTT-3.14.2-2", "Session Expiry Interval from a Server")
	}
	return p, nil
}

// auth5 decodes an AUTH. Section 3.15.2.1 lets a Success leave out everything, section 3.15.2.2.2 makes the Authentication
// Method a duty of the rest; a lone Reason Code, which other packets allow, is none of both.
func (c *Codec) auth5(f Frame) (p Auth, err error) {
	if err := checkFlags5(f, 0); err != nil {
		return p, err
	}
	if len(f.Body) > 0 {
		p.Code = ReasonCode(f.Body[0])
	}
	if err := checkCode(AUTH, p.Code, c.From); err != nil || len(f.Body) == 0 {
		return p, err
	}
	body := cursor{b: f.Body[1:]}
	if p.Properties, err = c.lastProperties(AUTH, &body); err != nil {
		return p, err
	}
	if p.Properties == nil || p.Properties.AuthMethod == nil {
		return p, protocolError(AUTH, "", "no Authentication Method")
	}
	return p, nil
}
