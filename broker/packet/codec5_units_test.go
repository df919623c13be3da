package packet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// TestReasonCodes is table 2-6 once more, in the order of the packets, with the tables of sections 3.2.2.2 to 3.15.2.1.
func TestReasonCodes(t *testing.T) {
	receipt := []ReasonCode{0x00, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
	ended := []ReasonCode{0x00, 0x80, 0x81, 0x82, 0x83, 0x8C, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99}
	for _, c := range []struct {
		t    Type
		from Role
		want []ReasonCode
	}{
		{CONNACK, FromServer, []ReasonCode{
			0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B,
			0x9C, 0x9D, 0x9F,
		}},
		{PUBACK, FromServer, slices.Concat(receipt, []ReasonCode{0x10})},
		{PUBREC, FromServer, slices.Concat(receipt, []ReasonCode{0x10})},
		{PUBACK, FromClient, receipt},
		{PUBREC, FromClient, receipt},
		{PUBREL, FromServer, []ReasonCode{0x00, 0x92}},
		{PUBREL, FromClient, []ReasonCode{0x00, 0x92}},
		{PUBCOMP, FromServer, []ReasonCode{0x00, 0x92}},
		{PUBCOMP, FromClient, []ReasonCode{0x00, 0x92}},
		{SUBACK, FromServer, []ReasonCode{0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}},
		{UNSUBACK, FromServer, []ReasonCode{0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}},
		{DISCONNECT, FromClient, slices.Concat(ended, []ReasonCode{0x04})},
		{DISCONNECT, FromServer, slices.Concat(ended, []ReasonCode{
			0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
		})},
		{AUTH, FromServer, []ReasonCode{0x00, 0x18}},
		{AUTH, FromClient, []ReasonCode{0x18, 0x19}},
		{CONNACK, FromClient, nil},
		{SUBACK, FromClient, nil},
		{UNSUBACK, FromClient, nil},
		{PUBLISH, FromServer, nil},
		{16, FromServer, nil},
	} {
		for code := range 256 {
			if got, want := ReasonCode(code).Legal(c.t, c.from), slices.Contains(c.want, ReasonCode(code)); got != want {
				t.Errorf("0x%02X in a %v from a %v: legal %v, want %v", code, c.t, c.from, got, want)
			}
		}
	}
	for code, want := range map[ReasonCode]string{
		0x00: "Success", 0x8E: "Session taken over", 0xA2: "Wildcard Subscriptions not supported", 0x03: "reason code 0x03", 0xFF: "reason code 0xFF",
	} {
		if code.String() != want {
			t.Errorf("0x%02X is %q, want %q", byte(code), code, want)
		}
	}
	if GrantedQoS2.Failed() || !UnspecifiedError.Failed() {
		t.Error("failures are the codes from 0x80 on")
	}
}

func TestPropertyNames(t *testing.T) {
	for id, want := range map[Property]string{0: "property 0x00", 1: "Payload Format Indicator", 42: "Shared Subscription Available", 43: "property 0x2B"} {
		if id.String() != want {
			t.Errorf("%d is %q, want %q", byte(id), id, want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	_, _, _, malformed := V5.Split([]byte("\x00\x00"), MaxRemaining)
	_, _, _, large := V5.Split([]byte("\x30\x7f"), 10)
	for _, c := range []struct {
		err  error
		want ReasonCode
	}{
		{malformed, MalformedPacket},
		{fmt.Errorf("read: %w", malformed), MalformedPacket},
		{fmt.Errorf("read: %w", large), PacketTooLarge},
		{protocolError(SUBSCRIBE, "", "x"), ProtocolError},
		{coded(PUBLISH, TopicAliasInvalid, "", "x"), TopicAliasInvalid},
		{io.ErrUnexpectedEOF, UnspecifiedError},
	} {
		if got := CodeOf(c.err); got != c.want {
			t.Errorf("%v is answered with %v, want %v", c.err, got, c.want)
		}
	}
}

func TestReturnCode(t *testing.T) {
	want := map[ReasonCode]byte{
		Success: 0, UnsupportedProtocolVersion: 1, ClientIdentifierNotValid: 2, ServerUnavailable: 3, BadUserNameOrPassword: 4,
		NotAuthorized: 5, Banned: 5, QuotaExceeded: 3, ServerBusy: 3, BadAuthenticationMethod: 5,
	}
	for code, n := range want {
		if got := code.ReturnCode(); got != n {
			t.Errorf("%v is return code %d, want %d", code, got, n)
		}
	}
	var c Codec
	for n := range byte(6) {
		p, err := c.ParseConnack(split(t, AppendConnack(nil, false, n)))
		if err != nil || p.Code.ReturnCode() != n || n > 0 && !p.Code.Failed() {
			t.Errorf("return code %d is read as %v, %v", n, p.Code, err)
		}
	}
	if p, err := c.ParseConnack(split(t, AppendConnack(nil, false, 6))); p.Code != 6 || err != nil {
		t.Errorf("the reserved return code 6 is read as %v, %v", p.Code, err)
	}
}

// TestCodec311 has every legal vector of 3.1.1 go through a Codec of that version: what comes is what the functions give.
func TestCodec311(t *testing.T) {
	for _, v := range loadVectors(t) {
		f, n, _, err := V311.Split(v.raw, v.limit)
		if err != nil || n == 0 || n != len(v.raw) || v.name == "connack-reserved-code" {
			continue // a return code of 0x80 is not one that a Reason Code becomes
		}
		_, want, wantErr := parse(f)
		var c Codec
		var again []byte
		switch f.Type() {
		case CONNECT:
			p, e := c.ParseConnect(f)
			if p.Level == Level5 {
				continue
			}
			again, err = c.AppendConnect(nil, &p), e
		case CONNACK:
			p, e := c.ParseConnack(f)
			again, err = c.AppendConnack(nil, &p), e
		case PUBLISH:
			p, e := c.ParsePublish(f)
			p.Properties = &Properties{TopicAlias: Some[uint16](1)} // left out
			again, err = c.AppendPublish(nil, &p), e
		case PUBACK, PUBREC, PUBREL, PUBCOMP:
			a, e := c.ParseAck(f)
			a.Code = ImplementationSpecificError // left out
			again, err = c.AppendAck(nil, f.Type(), a), e
		case SUBSCRIBE:
			p, e := c.ParseSubscribe(f)
			again, err = c.AppendSubscribe(nil, &p), e
		case SUBACK:
			p, e := c.ParseSuback(f)
			again, err = c.AppendSuback(nil, &p), e
		case UNSUBSCRIBE:
			p, e := c.ParseUnsubscribe(f)
			again, err = c.AppendUnsubscribe(nil, &p), e
		case UNSUBACK:
			p, e := c.ParseUnsuback(f)
			again, err = c.AppendUnsuback(nil, &p), e
		case DISCONNECT:
			p, e := c.ParseDisconnect(f)
			again, err = c.AppendDisconnect(nil, &p), e
		default:
			again, err = AppendEmpty(nil, f.Type()), c.ParseEmpty(f)
		}
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || err == nil && !bytes.Equal(again, want) {
			t.Errorf("%s: % x, %v, want % x, %v", v.name, clip(again), err, clip(want), wantErr)
		}
	}
	if b := V311.AppendSuback(nil, &Suback{ID: 1, Codes: []ReasonCode{GrantedQoS2, NotAuthorized}}); string(b) != "\x90\x04\x00\x01\x02\x80" {
		t.Errorf("a SUBACK of 3.1.1 is % x", b)
	}
	var c Codec
	if _, err := c.ParseAuth(Frame{Header: 0xF0}); CodeOf(err) != MalformedPacket {
		t.Errorf("an AUTH of 3.1.1: %v", err)
	}
}

// TestCodecVersion checks that the CONNECT decides, also one that is refused, and that no other level does.
func TestCodecVersion(t *testing.T) {
	for _, c := range []struct {
		why   string
		body  string
		want  Version
		fails bool
	}{
		{"3.1.1", "\x00\x04MQTT\x04\x02\x00\x00\x00\x00", V311, false},
		{"5.0", "\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00", V5, false},
		{"5.0, malformed: the CONNACK that says so is of 5.0", "\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x00", V5, true},
		{"level 6 is refused in words of 3.1.1, the lowest", "\x00\x04MQTT\x06", 0, false},
		{"another protocol", "\x00\x04MQIS\x05", 0, true},
	} {
		var codec Codec
		_, err := codec.ParseConnect(Frame{Header: 0x10, Body: []byte(c.body)})
		if codec.Version != c.want || (err != nil) != c.fails {
			t.Errorf("%s: version %d, %v", c.why, codec.Version, err)
		}
	}
}

func TestReaderVersion(t *testing.T) {
	stream := slices.Concat(
		V5.AppendConnect(nil, &Connect{ClientID: "c"}),
		V5.AppendAuth(nil, &Auth{Code: ContinueAuthentication, Properties: &Properties{AuthMethod: []byte("m")}}),
		[]byte("\xc0\x80\x00"),
	)
	r := NewReader(bytes.NewReader(stream), 0, 0)
	if f, err := r.Next(); err != nil || f.Type() != CONNECT {
		t.Fatalf("got %v, %v", f.Type(), err)
	}
	if _, err := r.Next(); !errors.As(err, new(*Error)) {
		t.Errorf("AUTH in 3.1.1: got %v", err)
	}
	r.SetVersion(V5)
	if f, err := r.Next(); err != nil || f.Type() != AUTH {
		t.Errorf("AUTH in 5.0: got %v, %v", f.Type(), err)
	}
	if _, err := r.Next(); CodeOf(err) != MalformedPacket {
		t.Errorf("a length that is not in its shortest form: got %v", err)
	}
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SampledFrom([]Type{CONNECT, CONNACK, PUBLISH, PUBREC, SUBSCRIBE, DISCONNECT, AUTH}).Draw(t, "packet")
		p := genProperties(in, FromServer).Draw(t, "properties")
		b := p.Append([]byte("ab"))[2:]
		if len(b) != p.sectionSize() {
			t.Fatalf("%d bytes, announced %d", len(b), p.sectionSize())
		}
		got, n, err := parseProperties(in, append(b, "after"...))
		if err != nil || n != len(b) {
			t.Fatalf("read %d bytes of %d, %v", n, len(b), err)
		}
		want := describeProperties(p)
		q := got.Clone()
		if describeProperties(q) == want {
			for _, u := range q.User {
				_ = append(u.Key, "!!"...) // the views of a clone keep to themselves
				_ = append(u.Value, "!!"...)
			}
		}
		for i := range b {
			b[i] = 'X' // a clone has no views
		}
		if describeProperties(q) != want {
			t.Fatalf("cloned %s, want %s", describeProperties(q), want)
		}
		if p != nil {
			if diff := cmp.Diff(p, q, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
		}
	})
	if (*Properties)(nil).Clone() != nil || !(*Properties)(nil).Empty() || !new(Properties).Empty() {
		t.Error("none is empty and stays none")
	}
	if Some(7).Or(9) != 7 || (Opt[int]{}).Or(9) != 9 {
		t.Error("an absent value is what Or says")
	}
	for _, b := range []string{"", "\x02\x01", "\x02\x01\x02", "\x80"} {
		if p, n, err := parseProperties(PUBLISH, []byte(b)); err == nil || p != nil || n != 0 {
			t.Errorf("%x: got %v, %d, %v", b, p, n, err)
		}
	}
}

// TestPropertySizes has a Property Length on each side of where it takes another byte.
func TestPropertySizes(t *testing.T) {
	for _, around := range []int{127, 128, 16_383, 16_384, 65_535, 2_097_151, 2_097_152} {
		for size := around - 2; size < around+3; size++ {
			p := &Properties{}
			rest := size
			for ; rest > 65_000; rest -= 65_000 {
				p.User = append(p.User, UserProperty{[]byte("k"), make([]byte, 65_000-6)})
			}
			for i := range p.User {
				for j := range p.User[i].Value {
					p.User[i].Value[j] = 'v'
				}
			}
			p.ContentType = bytes.Repeat([]byte("c"), max(rest-3, 0))
			raw := V5.AppendPublish(nil, &Publish{Topic: []byte("t"), Properties: p, Payload: []byte("x")})
			c := Codec{Version: V5}
			got, err := c.ParsePublish(split(t, raw))
			if err != nil || string(got.Payload) != "x" || got.Properties.size() != p.size() {
				t.Errorf("properties of %d bytes: payload %q, %v", p.size(), got.Payload, err)
			}
		}
	}
}

// TestCodecForgets checks that no property stays from one packet to the next, nor the memory of a very large one.
func TestCodecForgets(t *testing.T) {
	c := Codec{Version: V5}
	large := V5.AppendPublish(nil, &Publish{Topic: []byte("t"), Properties: &Properties{
		TopicAlias: Some[uint16](3), ContentType: []byte("x"), User: make([]UserProperty, 10*maxScratch),
	}})
	small := V5.AppendPublish(nil, &Publish{Topic: []byte("t"), Properties: &Properties{PayloadFormat: Some[byte](1)}})
	none := V5.AppendPublish(nil, &Publish{Topic: []byte("t")})
	for _, step := range []struct {
		raw  []byte
		want string
		room int
	}{
		{large, "", 1 << 20}, {small, " {PayloadFormat=1}", maxScratch}, {none, "", maxScratch}, {small, " {PayloadFormat=1}", maxScratch},
	} {
		p, err := c.ParsePublish(split(t, step.raw))
		if err != nil {
			t.Fatal(err)
		}
		if got := describeProperties(p.Properties); step.want != "" && got != step.want {
			t.Errorf("got%s, want%s", got, step.want)
		}
		if cap(c.props.User) > step.room {
			t.Errorf("room for %d user properties is kept", cap(c.props.User))
		}
	}
	c.From = FromServer
	many := V5.AppendPublish(nil, &Publish{Topic: []byte("t"), Properties: &Properties{SubscriptionIDs: slices.Repeat([]uint32{1}, 10*maxScratch)}})
	for _, raw := range [][]byte{many, small} {
		if _, err := c.ParsePublish(split(t, raw)); err != nil {
			t.Fatal(err)
		}
	}
	if cap(c.props.SubscriptionIDs) > maxScratch {
		t.Errorf("room for %d Subscription Identifiers is kept", cap(c.props.SubscriptionIDs))
	}
}

// TestOwnProperties checks that a CONNECT and a SUBSCRIBE outlive the bytes that they came in.
func TestOwnProperties(t *testing.T) {
	props := &Properties{User: []UserProperty{{[]byte("k"), []byte("v")}}}
	raw := V5.AppendConnect(nil, &Connect{ClientID: "c", Properties: props, Will: &Will{Topic: "w", Properties: props}})
	var c Codec
	p, err := c.ParseConnect(split(t, raw))
	if err != nil {
		t.Fatal(err)
	}
	sub := V5.AppendSubscribe(nil, &Subscribe{ID: 1, Subscriptions: []Subscription{{Filter: "a"}}, Properties: props})
	s, err := c.ParseSubscribe(split(t, sub))
	if err != nil {
		t.Fatal(err)
	}
	clear(raw)
	clear(sub)
	for _, got := range []*Properties{p.Properties, p.Will.Properties, s.Properties} {
		if describeProperties(got) != ` {"k":"v"}` {
			t.Errorf("became%s", describeProperties(got))
		}
	}
}

// TestAppendWritesIllegalPackets5 holds the encoders to what a conformance check needs of them.
func TestAppendWritesIllegalPackets5(t *testing.T) {
	for _, c := range []struct {
		why  string
		got  []byte
		want string
	}{
		{"Receive Maximum 0", V5.AppendConnect(nil, &Connect{Properties: &Properties{ReceiveMaximum: Some[uint16](0)}}), "\x10\x10\x00\x04MQTT\x05\x00\x00\x00\x03\x21\x00\x00\x00\x00"},
		{"another level", V5.AppendConnect(nil, &Connect{Protocol: "X", Level: 9}), "\x10\x0a\x00\x01X\x09\x00\x00\x00\x00\x00\x00"},
		{"Topic Alias 0", V5.AppendPublish(nil, &Publish{Properties: &Properties{TopicAlias: Some[uint16](0)}}), "\x30\x06\x00\x00\x03\x23\x00\x00"},
		{"a Packet Identifier of 0 and an unknown code", V5.AppendAck(nil, PUBREC, Ack{Code: 0xFF}), "\x50\x03\x00\x00\xff"},
		{"a property of another packet", V5.AppendAck(nil, PUBREL, Ack{ID: 1, Properties: &Properties{TopicAlias: Some[uint16](1)}}), "\x62\x07\x00\x01\x00\x03\x23\x00\x01"},
		{"options of 2 bits stay in 2 bits", V5.AppendSubscribe(nil, &Subscribe{ID: 1, Subscriptions: []Subscription{{QoS: 7, RetainHandling: 7}}}), "\x82\x06\x00\x01\x00\x00\x00\x33"},
		{"no filter", V5.AppendUnsubscribe(nil, &Unsubscribe{ID: 1}), "\xa2\x03\x00\x01\x00"},
		{"a refusal has no session, whatever is asked for", V5.AppendConnack(nil, &Connack{SessionPresent: true, Code: Banned}), "\x20\x03\x00\x8a\x00"},
		{"an AUTH without a method", V5.AppendAuth(nil, &Auth{Code: ContinueAuthentication}), "\xf0\x02\x18\x00"},
	} {
		if string(c.got) != c.want {
			t.Errorf("%s: got % x, want % x", c.why, c.got, c.want)
		}
	}
}

// TestPropertiesKeepToThemselves checks that appending to a view does not write over what follows it in the buffer.
func TestPropertiesKeepToThemselves(t *testing.T) {
	raw := V5.AppendPublish(nil, &Publish{Topic: []byte("t"), Payload: []byte("payload"), Properties: &Properties{
		ContentType: []byte("a"), CorrelationData: []byte("b"), User: []UserProperty{{[]byte("k"), []byte("v")}},
	}})
	before := strings.Clone(string(raw))
	c := Codec{Version: V5}
	p, err := c.ParsePublish(split(t, raw))
	if err != nil {
		t.Fatal(err)
	}
	for _, view := range [][]byte{p.Properties.ContentType, p.Properties.CorrelationData, p.Properties.User[0].Key, p.Properties.User[0].Value} {
		_ = append(view, "!!"...)
	}
	if string(raw) != before {
		t.Errorf("the packet is now % x", raw)
	}
}

// parseProperties decodes what [Properties.Append] wrote for a packet of type t, whoever sends it, from the start of b. It
// returns the number of bytes read; the properties are views into b.
func parseProperties(t Type, b []byte) (*Properties, int, error) {
	c := cursor{b: b}
	section, err := c.section(t)
	if err != nil {
		return nil, 0, err
	}
	p := new(Properties)
	if err := p.parse(t, t, section); err != nil {
		return nil, 0, err
	}
	return p, len(b) - len(c.b), nil
}
