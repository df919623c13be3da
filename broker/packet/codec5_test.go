package packet

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// describeProperties writes what is present, by the names of the fields; nothing for none.
func describeProperties(p *Properties) string {
	if p.Empty() {
		return ""
	}
	var parts []string
	v := reflect.ValueOf(*p)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch f := v.Field(i).Interface().(type) {
		case []byte:
			if f != nil {
				parts = append(parts, fmt.Sprintf("%s=%q", name, f))
			}
		case []uint32:
			if len(f) > 0 {
				parts = append(parts, fmt.Sprintf("%s=%d", name, f))
			}
		case []UserProperty:
			for _, u := range f {
				parts = append(parts, fmt.Sprintf("%q:%q", u.Key, u.Value))
			}
		default:
			if v.Field(i).FieldByName("Set").Bool() {
				parts = append(parts, fmt.Sprintf("%s=%d", name, v.Field(i).FieldByName("Value").Interface()))
			}
		}
	}
	return " {" + strings.Join(parts, " ") + "}"
}

func describeCodes(codes []ReasonCode) (s string) {
	for _, c := range codes {
		s += fmt.Sprintf(" 0x%02X", byte(c))
	}
	return s
}

// parse5 is what every user of a Codec does with a frame.
func parse5(f Frame, from Role) (text string, again []byte, err error) {
	c := Codec{Version: V5, From: from}
	switch t := f.Type(); t {
	case CONNECT:
		p, err := c.ParseConnect(f)
		s := describeConnect(p) + describeProperties(p.Properties)
		if p.Will != nil && !p.Will.Properties.Empty() {
			s += " will" + describeProperties(p.Will.Properties)
		}
		return s, c.AppendConnect(nil, &p), err
	case CONNACK:
		p, err := c.ParseConnack(f)
		return fmt.Sprintf("CONNACK sp=%v code=0x%02X%s", p.SessionPresent, byte(p.Code), describeProperties(p.Properties)),
			c.AppendConnack(nil, &p), err
	case PUBLISH:
		p, err := c.ParsePublish(f)
		payload := strconv.QuoteToASCII(string(p.Payload))
		return fmt.Sprintf("PUBLISH topic=%q qos=%d id=%d dup=%v retain=%v payload=%s%s", p.Topic, p.QoS, p.ID, p.Dup, p.Retain,
			payload, describeProperties(p.Properties)), c.AppendPublish(nil, &p), err
	case PUBACK, PUBREC, PUBREL, PUBCOMP:
		a, err := c.ParseAck(f)
		return fmt.Sprintf("%v id=%d code=0x%02X%s", t, a.ID, byte(a.Code), describeProperties(a.Properties)), c.AppendAck(nil, t, a), err
	case SUBSCRIBE:
		p, err := c.ParseSubscribe(f)
		s := fmt.Sprintf("SUBSCRIBE id=%d", p.ID)
		for _, x := range p.Subscriptions {
			s += fmt.Sprintf(" %q=%d nl=%v rap=%v rh=%d", x.Filter, x.QoS, x.NoLocal, x.RetainAsPublished, x.RetainHandling)
		}
		return s + describeProperties(p.Properties), c.AppendSubscribe(nil, &p), err
	case SUBACK:
		p, err := c.ParseSuback(f)
		return fmt.Sprintf("SUBACK id=%d codes=%s%s", p.ID, describeCodes(p.Codes), describeProperties(p.Properties)),
			c.AppendSuback(nil, &p), err
	case UNSUBACK:
		p, err := c.ParseUnsuback(f)
		return fmt.Sprintf("UNSUBACK id=%d codes=%s%s", p.ID, describeCodes(p.Codes), describeProperties(p.Properties)),
			c.AppendUnsuback(nil, &p), err
	case UNSUBSCRIBE:
		p, err := c.ParseUnsubscribe(f)
		return fmt.Sprintf("UNSUBSCRIBE id=%d %q%s", p.ID, p.Filters, describeProperties(p.Properties)), c.AppendUnsubscribe(nil, &p), err
	case DISCONNECT:
		p, err := c.ParseDisconnect(f)
		return fmt.Sprintf("DISCONNECT code=0x%02X%s", byte(p.Code), describeProperties(p.Properties)), c.AppendDisconnect(nil, &p), err
	case AUTH:
		p, err := c.ParseAuth(f)
		return fmt.Sprintf("AUTH code=0x%02X%s", byte(p.Code), describeProperties(p.Properties)), c.AppendAuth(nil, &p), err
	case PINGREQ, PINGRESP:
		return t.String(), AppendEmpty(nil, t), c.ParseEmpty(f)
	default:
		return "", nil, fmt.Errorf("split let %v pass", t)
	}
}

// decode5 is decode for MQTT 5.0. A CONNECT is split as the first packet of a connection is, before the version is known.
func decode5(raw []byte, limit int, from Role) (text string, again []byte, err error) {
	ver := V5
	if len(raw) > 0 && Type(raw[0]>>4) == CONNECT {
		ver = V311
	}
	return decodeAs(ver, raw, limit, func(f Frame) (string, []byte, error) { return parse5(f, from) })
}

func TestVectors5(t *testing.T) {
	vectors := loadVectorsFrom(t, vectorFiles5)
	checkVectors(t, vectors, func(v vector) (string, []byte, error) { return decode5(v.raw, v.limit, v.from) })
	legal := map[Type]bool{}
	illegal := map[Type]bool{}
	rows := map[string]bool{}
	for _, v := range vectors {
		rows[v.row] = true
		typ := Type(v.raw[0] >> 4)
		if v.refused() {
			illegal[typ] = true
		} else if v.legal() {
			legal[typ] = true
			agree5(t, v.raw, v.from)
		}
	}
	for typ := CONNECT; typ <= AUTH; typ++ {
		if !legal[typ] || !illegal[typ] {
			t.Errorf("%v: a legal vector: %v, a refused one: %v", typ, legal[typ], illegal[typ])
		}
	}
	for _, row := range []string{
		"BAD-01", "BAD-02", "BAD-03", "BAD-04", "BAD-05", "BAD-06", "BAD-07", "BAD-08", "BAD-09", "BAD-10", "BAD-11", "BAD-12",
		"BAD-13", "BAD-14", "BAD-15", "BAD-16", "BAD-17", "BAD-18", "BAD-19", "H-11", "H-12",
	} {
		if !rows[row] {
			t.Errorf("no vector for %s", row)
		}
	}
}

func TestVectors5CutShort(t *testing.T) {
	for _, v := range loadVectorsFrom(t, vectorFiles5) {
		if !v.legal() || len(v.raw) > 200 {
			continue
		}
		whole, _, _ := decode5(v.raw, v.limit, v.from)
		f, _, _, _ := V5.Split(v.raw, v.limit)
		for n := range len(f.Body) {
			text, _, err := parse5(Frame{Header: f.Header, Body: f.Body[:n:n]}, v.from)
			if err == nil && text == whole && v.reencodes {
				t.Errorf("%s: %d bytes of the body are taken for all of it", v.name, n)
			}
			if err != nil && !errors.As(err, new(*Error)) {
				t.Errorf("%s: %d bytes of the body: %v", v.name, n, err)
			}
		}
	}
}

// genProperties makes properties that a packet of type in may have from that side; nil at times.
func genProperties(in Type, from Role) *rapid.Generator[*Properties] {
	return rapid.Custom(func(t *rapid.T) *Properties {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		p := &Properties{}
		for i := range properties {
			id := Property(i)
			switch {
			case !id.Known() || !properties[id].in.has(in):
				continue
			case id == PropSubscriptionID && in == PUBLISH && from == FromClient:
				continue // [MQTT-3.3.4-6]
			case id == PropSessionExpiry && in == DISCONNECT && from == FromServer:
				continue // [MQTT-3.14.2-2]
			case id == PropAuthData && p.AuthMethod == nil:
				continue
			case id == PropAuthMethod && in == AUTH:
			case rapid.Bool().Draw(t, "no "+id.String()):
				continue
			}
			setProperty(t, p, id, in)
		}
		if p.Empty() {
			return nil
		}
		return p
	})
}

func setProperty(t *rapid.T, p *Properties, id Property, in Type) {
	text := func() []byte { return append([]byte{}, genText.Draw(t, id.String())...) }
	flag := func() Opt[byte] { return Some(rapid.ByteMax(1).Draw(t, id.String())) }
	u16 := func(from uint16) Opt[uint16] { return Some(rapid.Uint16Min(from).Draw(t, id.String())) }
	u32 := func(from uint32) Opt[uint32] { return Some(rapid.Uint32Min(from).Draw(t, id.String())) }
	data := func() []byte { return append([]byte{}, genBytes.Draw(t, id.String())...) }
	switch id {
	case PropPayloadFormat:
		p.PayloadFormat = flag()
	case PropMessageExpiry:
		p.MessageExpiry = u32(0)
	case PropContentType:
		p.ContentType = text()
	case PropResponseTopic:
		p.ResponseTopic = []byte(genName.Draw(t, id.String()))
	case PropCorrelationData:
		p.CorrelationData = data()
	case PropSubscriptionID:
		most := 1
		if in == PUBLISH {
			most = 4
		}
		p.SubscriptionIDs = rapid.SliceOfN(rapid.Uint32Range(1, MaxRemaining), 1, most).Draw(t, id.String())
	case PropSessionExpiry:
		p.SessionExpiry = u32(0)
	case PropAssignedClientID:
		p.AssignedClientID = text()
	case PropServerKeepAlive:
		p.ServerKeepAlive = u16(0)
	case PropAuthMethod:
		p.AuthMethod = append(text(), 'm')
	case PropAuthData:
		p.AuthData = data()
	case PropRequestProblemInfo:
		p.RequestProblemInfo = flag()
	case PropWillDelay:
		p.WillDelay = u32(0)
	case PropRequestResponseInfo:
		p.RequestResponseInfo = flag()
	case PropResponseInfo:
		p.ResponseInfo = text()
	case PropServerReference:
		p.ServerReference = text()
	case PropReasonString:
		p.ReasonString = text()
	case PropReceiveMaximum:
		p.ReceiveMaximum = u16(1)
	case PropTopicAliasMaximum:
		p.TopicAliasMaximum = u16(0)
	case PropTopicAlias:
		p.TopicAlias = u16(1)
	case PropMaximumQoS:
		p.MaximumQoS = flag()
	case PropRetainAvailable:
		p.RetainAvailable = flag()
	case PropUser:
		p.User = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) UserProperty {
			return UserProperty{text(), text()}
		}), 1, 4).Draw(t, id.String())
	case PropMaximumPacketSize:
		p.MaximumPacketSize = u32(1)
	case PropWildcardAvailable:
		p.WildcardAvailable = flag()
	case PropSubscriptionIDsAvail:
		p.SubscriptionIDsAvail = flag()
	case PropSharedSubscriptsAvail:
		p.SharedSubscriptsAvail = flag()
	default:
		t.Fatalf("no value for %v", id)
	}
}

// genCode makes Reason Codes that are legal in a packet of type t.
func genCode(typ Type, from Role) *rapid.Generator[ReasonCode] {
	var legal []ReasonCode
	for c := range 256 {
		if ReasonCode(c).Legal(typ, from) {
			legal = append(legal, ReasonCode(c))
		}
	}
	return rapid.SampledFrom(legal)
}

// gen5 makes a legal packet of 5.0 as bytes, with the text that it must decode to.
func gen5(t *rapid.T, typ Type, from Role) (raw []byte) {
	props := func(in Type) *Properties { return genProperties(in, from).Draw(t, "properties") }
	switch typ {
	case CONNECT:
		p := genConnect.Draw(t, "packet")
		p.Level, p.Properties = Level5, props(CONNECT)
		if p.Will != nil {
			p.Will.Properties = props(will)
		}
		if !p.HasPassword && rapid.Bool().Draw(t, "password alone") {
			p.HasPassword, p.Password = true, genBytes.Draw(t, "password")
		}
		return V5.AppendConnect(nil, &p)
	case CONNACK:
		p := Connack{Code: genCode(typ, from).Draw(t, "code"), Properties: props(typ)}
		p.SessionPresent = p.Code == Success && rapid.Bool().Draw(t, "sp")
		return V5.AppendConnack(nil, &p)
	case PUBLISH:
		p := genPublish.Draw(t, "packet")
		p.Properties = props(typ)
		if p.Properties != nil && p.Properties.TopicAlias.Set && rapid.Bool().Draw(t, "alias only") {
			p.Topic = nil
		}
		return V5.AppendPublish(nil, &p)
	case SUBSCRIBE:
		p := genSubscribe.Draw(t, "packet")
		p.Properties = props(typ)
		for i := range p.Subscriptions {
			s := &p.Subscriptions[i]
			s.NoLocal, s.RetainAsPublished = rapid.Bool().Draw(t, "nl"), rapid.Bool().Draw(t, "rap")
			s.RetainHandling = rapid.ByteMax(2).Draw(t, "rh")
			s.NoLocal = s.NoLocal && !strings.HasPrefix(s.Filter, sharedPrefix)
		}
		return V5.AppendSubscribe(nil, &p)
	case UNSUBSCRIBE:
		p := genUnsubscribe.Draw(t, "packet")
		p.Properties = props(typ)
		return V5.AppendUnsubscribe(nil, &p)
	case SUBACK, UNSUBACK:
		p := Suback{ID: genID.Draw(t, "id"), Codes: rapid.SliceOfN(genCode(typ, from), 1, 5).Draw(t, "codes"), Properties: props(typ)}
		if typ == SUBACK {
			return V5.AppendSuback(nil, &p)
		}
		return V5.AppendUnsuback(nil, &p)
	case DISCONNECT:
		return V5.AppendDisconnect(nil, &Disconnect{genCode(typ, from).Draw(t, "code"), props(typ)})
	case AUTH:
		p := Auth{Code: genCode(typ, from).Draw(t, "code"), Properties: props(typ)}
		if p.Properties == nil && p.Code != Success {
			p.Properties = &Properties{AuthMethod: []byte("m")}
		}
		return V5.AppendAuth(nil, &p)
	case PINGREQ, PINGRESP:
		return AppendEmpty(nil, typ)
	}
	return V5.AppendAck(nil, typ, Ack{genID.Draw(t, "id"), genCode(typ, from).Draw(t, "code"), props(typ)})
}

// sides says who may send a packet.
func sides(t Type) []Role {
	switch t {
	case CONNECT, SUBSCRIBE, UNSUBSCRIBE, PINGREQ:
		return []Role{FromClient}
	case CONNACK, SUBACK, UNSUBACK, PINGRESP:
		return []Role{FromServer}
	}
	return []Role{FromClient, FromServer}
}

func TestRoundTrip5(t *testing.T) {
	for typ := CONNECT; typ <= AUTH; typ++ {
		for _, from := range sides(typ) {
			t.Run(fmt.Sprintf("%v from %v", typ, from), rapid.MakeCheck(func(t *rapid.T) {
				raw := gen5(t, typ, from)
				_, again, err := decode5(raw, MaxRemaining, from)
				if err != nil || !bytes.Equal(raw, again) {
					t.Fatalf("% x: %v\nagain % x", clip(raw), err, clip(again))
				}
				agree5(t, raw, from)
			}))
		}
	}
}

// identity5 is identity for 5.0, where properties may come in another order than they are written in.
func identity5(t *testing.T, header byte, body []byte, from Role) {
	text, again, err := parse5(Frame{Header: header, Body: body}, from)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || e.Type != Type(header>>4) || e.Reason == "" || !e.Code.Failed() {
			t.Errorf("%x % x: got %v, want an *Error with a reason and a code", header, clip(body), err)
		}
		return
	}
	if Type(header>>4) == CONNECT && !strings.HasPrefix(text, "CONNECT level=5 ") {
		return
	}
	back, _, err := decode5(again, MaxRemaining, from)
	if back != text || err != nil {
		t.Errorf("from % x\ngot  %s, %v\nwant %s", clip(body), back, err, text)
	}
	if whole := append(appendLength([]byte{header}, len(body)), body...); len(again) > len(whole) {
		t.Errorf("written longer than it was\ngot  % x\nfrom % x", clip(again), clip(whole))
	}
	agree5(t, again, from)
}

func fuzz5(f *testing.F, types ...Type) {
	for _, v := range loadVectorsFrom(f, vectorFiles5) {
		frame, n, _, err := V5.Split(v.raw, MaxRemaining)
		for i, t := range types {
			if err == nil && n > 0 && n < 4096 && frame.Type() == t {
				f.Add(uint8(i), frame.Flags(), v.from == FromServer, frame.Body)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which, flags uint8, server bool, body []byte) {
		from := FromClient
		if server {
			from = FromServer
		}
		identity5(t, byte(types[int(which)%len(types)])<<4|flags&0x0F, body, from)
	})
}

func FuzzParse5Connect(f *testing.F)   { fuzz5(f, CONNECT, CONNACK) }
func FuzzParse5Publish(f *testing.F)   { fuzz5(f, PUBLISH) }
func FuzzParse5Ack(f *testing.F)       { fuzz5(f, PUBACK, PUBREC, PUBREL, PUBCOMP) }
func FuzzParse5Subscribe(f *testing.F) { fuzz5(f, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK) }
func FuzzParse5End(f *testing.F)       { fuzz5(f, DISCONNECT, AUTH, PINGREQ, PINGRESP) }

func FuzzProperties(f *testing.F) {
	f.Add(byte(PUBLISH), []byte("\x07\x23\x00\x01\x26\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, typ byte, b []byte) {
		p, n, err := parseProperties(Type(typ%16), b)
		if err != nil {
			return
		}
		again := p.Append(nil)
		q, m, err := parseProperties(Type(typ%16), again)
		if err != nil || m != len(again) || m > n || describeProperties(q) != describeProperties(p) {
			t.Errorf("% x: %s, then %s, %v", clip(b), describeProperties(p), describeProperties(q), err)
		}
	})
}
