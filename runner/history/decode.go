package history

import (
	"slices"
	"strings"
)

// decoder reads the body of one packet into p.
type decoder struct {
	*reader
	v5     bool
	server bool // the server sent it
	p      *Packet
}

func (d *decoder) decode() {
	p := d.p
	serverOnly := []Type{CONNACK, SUBACK, UNSUBACK, PINGRESP}
	clientOnly := []Type{CONNECT, SUBSCRIBE, UNSUBSCRIBE, PINGREQ}
	if !d.v5 {
		clientOnly = append(clientOnly, DISCONNECT)
	}
	switch {
	case p.Type == 0 || p.Type == AUTH && !d.v5:
		d.fail("a packet type that the version reserves")
	case d.server && slices.Contains(clientOnly, p.Type):
		d.fail("a packet that only a Client sends")
	case !d.server && slices.Contains(serverOnly, p.Type):
		d.fail("a packet that only a Server sends")
	}
	d.flags()
	switch p.Type {
	case CONNECT:
		d.connect()
	case CONNACK:
		d.connack()
	case PUBLISH:
		d.publish()
	case PUBACK, PUBREC, PUBREL, PUBCOMP:
		d.ack()
	case SUBSCRIBE, UNSUBSCRIBE:
		d.subscribe()
	case SUBACK, UNSUBACK:
		d.suback()
	case DISCONNECT, AUTH:
		d.disconnect()
	}
}

// flags checks the fixed header's, [MQTT-2.2.2-1] ; [MQTT-2.1.3-1], those of a PUBLISH excepted.
func (d *decoder) flags() {
	want := byte(0)
	switch d.p.Type {
	case PUBLISH:
		return
	case PUBREL, SUBSCRIBE, UNSUBSCRIBE:
		want = 2
	}
	if d.p.Flags != want {
		d.fail("the flags are 0x%X, want 0x%X [MQTT-2.2.2-1] ; [MQTT-2.1.3-1]", d.p.Flags, want)
	}
}

func (d *decoder) publish() {
	p := d.p
	p.QoS, p.Dup, p.Retain = p.Flags>>1&3, p.Flags&8 != 0, p.Flags&1 != 0
	if p.QoS == 3 {
		d.fail("QoS 3 [MQTT-3.3.1-4]")
	}
	if p.QoS == 0 && p.Dup {
		d.fail("DUP is set at QoS 0 [MQTT-3.3.1-2]")
	}
	p.Topic = d.text("Topic Name")
	if strings.ContainsAny(p.Topic, "+#") {
		d.fail("the Topic Name has a wildcard [MQTT-3.3.2-2]")
	}
	if p.QoS > 0 {
		p.ID = d.id("Packet Identifier")
	}
	p.Props = d.props()
	if d.err == nil && p.Topic == "" {
		if alias, ok := p.Prop(PropTopicAlias); !ok || alias.Num == 0 {
			d.fail("the Topic Name is empty [MQTT-4.7.3-1]")
		}
	}
	if d.err == nil {
		p.Payload = append([]byte{}, d.b...)
		d.b = nil
	}
}

func (d *decoder) ack() {
	p := d.p
	p.ID = d.id("Packet Identifier")
	if !d.v5 || len(d.b) == 0 {
		return
	}
	p.Reason = d.code()
	if len(d.b) > 0 {
		p.Props = d.props()
	}
}

func (d *decoder) connack() {
	p := d.p
	flags := d.byte("Connect Acknowledge Flags")
	p.Present = flags&1 != 0
	if d.err == nil && flags > 1 {
		d.fail("the Connect Acknowledge Flags are 0x%02X, want 0 or 1 [MQTT-3.2.2-1]", flags)
	}
	// The refusal of a version that the broker does not speak may come in the form of another one.
	switch {
	case len(d.b) == 1 && d.b[0] == 1 && d.v5, len(d.b) == 2 && d.b[0] == 0x84 && d.b[1] == 0 && !d.v5:
		p.Reason = d.b[0]
		d.b = nil
		return
	}
	if d.v5 {
		p.Reason = d.code()
		if len(d.b) > 0 || p.Reason == 0 {
			p.Props = d.props()
		}
	} else if p.Reason = d.byte("return code"); p.Reason > 5 {
		d.fail("return code %d is reserved", p.Reason)
	}
	if p.Present && p.Reason != 0 {
		d.fail("Session Present is set with return code 0x%02X [MQTT-3.2.2-4] ; [MQTT-3.2.2-6]", p.Reason)
	}
}

func (d *decoder) suback() {
	p := d.p
	p.ID = d.id("Packet Identifier")
	p.Props = d.props()
	if p.Type == UNSUBACK && !d.v5 || d.err != nil {
		return
	}
	for _, c := range d.b {
		legal := c <= 2 || c == 0x80
		if d.v5 {
			legal = legalCode(p.Type, true, c)
		}
		if !legal {
			d.fail("return code 0x%02X is not one of a %v [MQTT-3.9.3-2]", c, p.Type)
		}
	}
	if len(d.b) == 0 {
		d.fail("there is no return code")
	}
	p.Codes = append([]byte(nil), d.b...)
	d.b = nil
}

func (d *decoder) disconnect() {
	p := d.p
	if !d.v5 || len(d.b) == 0 {
		return
	}
	p.Reason = d.code()
	if len(d.b) > 0 {
		p.Props = d.props()
	}
}

func (d *decoder) subscribe() {
	p := d.p
	p.ID = d.id("Packet Identifier")
	p.Props = d.props()
	for d.err == nil && len(d.b) > 0 {
		p.Filters = append(p.Filters, d.text("Topic Filter"))
		if p.Type == SUBSCRIBE {
			p.Codes = append(p.Codes, d.byte("options"))
		}
	}
	if d.err == nil && len(p.Filters) == 0 {
		d.fail("there is no Topic Filter")
	}
}

func (d *decoder) connect() {
	p := d.p
	if name := d.text("Protocol Name"); d.err == nil && name != "MQTT" {
		d.fail("the Protocol Name is %q", name)
	}
	p.Level = d.byte("Protocol Level")
	flags := d.byte("Connect Flags")
	p.Clean = flags&2 != 0
	p.KeepAlive = d.uint16("Keep Alive")
	d.v5 = p.Level == Level5
	p.Props = d.props()
	p.Client = d.text("Client Identifier")
	if flags&4 != 0 {
		d.p = &Packet{} // the Will Properties are not the packet's
		d.willProps()
		d.p = p
		d.text("Will Topic")
		d.data("Will Payload")
	}
	if flags&0x80 != 0 {
		d.text("User Name")
	}
	if flags&0x40 != 0 {
		d.data("Password")
	}
	if flags&1 != 0 {
		d.fail("the reserved Connect Flag is set [MQTT-3.1.2-3]")
	}
}

// will is the pseudo type of the Will Properties.
const will Type = 0

func (d *decoder) willProps() {
	if d.v5 {
		d.propsOf(will)
	}
}

// props reads the properties of the packet; in 3.1.1 there are none.
func (d *decoder) props() []Prop {
	if !d.v5 || d.err != nil {
		return nil
	}
	return d.propsOf(d.p.Type)
}

// form is how a property's value is encoded.
type form byte

const (
	oneByte form = iota + 1
	twoBytes
	fourBytes
	varByte
	textForm
	dataForm
	pairForm
)

// propTable is table 2-4: name, form and the packets that may have it.
var propTable = map[byte]struct {
	name string
	form form
	in   []Type
}{
	1:  {"Payload Format Indicator", oneByte, []Type{PUBLISH, will}},
	2:  {"Message Expiry Interval", fourBytes, []Type{PUBLISH, will}},
	3:  {"Content Type", textForm, []Type{PUBLISH, will}},
	8:  {"Response Topic", textForm, []Type{PUBLISH, will}},
	9:  {"Correlation Data", dataForm, []Type{PUBLISH, will}},
	11: {"Subscription Identifier", varByte, []Type{PUBLISH, SUBSCRIBE}},
	17: {"Session Expiry Interval", fourBytes, []Type{CONNECT, CONNACK, DISCONNECT}},
	18: {"Assigned Client Identifier", textForm, []Type{CONNACK}},
	19: {"Server Keep Alive", twoBytes, []Type{CONNACK}},
	21: {"Authentication Method", textForm, []Type{CONNECT, CONNACK, AUTH}},
	22: {"Authentication Data", dataForm, []Type{CONNECT, CONNACK, AUTH}},
	23: {"Request Problem Information", oneByte, []Type{CONNECT}},
	24: {"Will Delay Interval", fourBytes, []Type{will}},
	25: {"Request Response Information", oneByte, []Type{CONNECT}},
	26: {"Response Information", textForm, []Type{CONNACK}},
	28: {"Server Reference", textForm, []Type{CONNACK, DISCONNECT}},
	31: {"Reason String", textForm, []Type{CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH}},
	33: {"Receive Maximum", twoBytes, []Type{CONNECT, CONNACK}},
	34: {"Topic Alias Maximum", twoBytes, []Type{CONNECT, CONNACK}},
	35: {"Topic Alias", twoBytes, []Type{PUBLISH}},
	36: {"Maximum QoS", oneByte, []Type{CONNACK}},
	37: {"Retain Available", oneByte, []Type{CONNACK}},
	38: {"User Property", pairForm, []Type{
		CONNECT, CONNACK, PUBLISH, will, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, DISCONNECT, AUTH,
	}},
	39: {"Maximum Packet Size", fourBytes, []Type{CONNECT, CONNACK}},
	40: {"Wildcard Subscription Available", oneByte, []Type{CONNACK}},
	41: {"Subscription Identifier Available", oneByte, []Type{CONNACK}},
	42: {"Shared Subscription Available", oneByte, []Type{CONNACK}},
}

func (d *decoder) propsOf(in Type) []Prop {
	body := d.take(d.varint("Property Length"), "properties")
	if d.err != nil {
		return nil
	}
	rest := d.b
	d.b = body
	var all []Prop
	seen := map[byte]bool{}
	for d.err == nil && len(d.b) > 0 {
		id := byte(d.varint("property identifier"))
		about, known := propTable[id]
		switch {
		case d.err != nil:
		case !known:
			d.fail("unknown property 0x%02X", id)
		case !slices.Contains(about.in, in):
			d.fail("%s is no property of this packet", about.name)
		case seen[id] && id != 38 && (id != 11 || in != PUBLISH):
			d.fail("%s is there twice", about.name)
		default:
			seen[id] = true
			all = append(all, d.prop(id, about.form, about.name))
		}
	}
	d.b = rest
	return all
}

func (d *decoder) prop(id byte, f form, name string) Prop {
	p := Prop{ID: id}
	switch f {
	case oneByte:
		p.Num = uint32(d.byte(name))
		if d.err == nil && p.Num > 1 {
			d.fail("%s is %d, want 0 or 1", name, p.Num)
		}
	case twoBytes:
		p.Num = uint32(d.uint16(name))
	case fourBytes:
		p.Num = d.uint32(name)
	case varByte:
		p.Num = uint32(d.varint(name))
	case textForm:
		p.Str = d.text(name)
	case dataForm:
		p.Str = d.data(name)
	case pairForm:
		p.Str, p.Val = d.text(name), d.text(name)
	}
	if d.err == nil && p.Num == 0 && (id == PropReceiveMaximum || id == PropMaximumPacket || id == PropSubscriptionID || id == PropTopicAlias) {
		d.fail("%s is 0", name)
	}
	return p
}

// code is a Reason Code that the sender may use in this packet.
func (d *decoder) code() byte {
	c := d.byte("Reason Code")
	if d.err == nil && !legalCode(d.p.Type, d.server, c) {
		d.fail("Reason Code 0x%02X is not one that this side sends here", c)
	}
	return c
}

// codesOf are the Reason Codes of each packet, sections 3.2.2.2, 3.4.2.1 to 3.7.2.1, 3.9.3, 3.11.3, 3.14.2.1 and 3.15.2.1;
// those of a DISCONNECT and an AUTH are the server's.
var codesOf = map[Type][]byte{
	CONNACK: {
		0, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
	},
	PUBACK:   {0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
	PUBREC:   {0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
	PUBREL:   {0, 0x92},
	PUBCOMP:  {0, 0x92},
	SUBACK:   {0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
	UNSUBACK: {0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
	DISCONNECT: {
		0, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C,
		0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
	},
	AUTH: {0, 0x18},
}

func legalCode(t Type, server bool, c byte) bool {
	switch {
	case slices.Contains(codesOf[t], c):
		return true
	case server:
		return false
	}
	return t == DISCONNECT && c == 4 || t == AUTH && c == 0x19
}
