package packet

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// The generators make legal packets. Strings are any characters but U+0000; topic names have no wildcards.
var (
	genText = rapid.Map(rapid.String(), func(s string) string { return strings.ReplaceAll(s, "\x00", "0") })
	genName = rapid.Map(genText, func(s string) string {
		return strings.NewReplacer("+", "p", "#", "h").Replace(s) + "/"
	})
	genFilter = rapid.Map(genText, func(s string) string { return s + "#" })
	genID     = rapid.Uint16Min(1)
	genQoS    = rapid.ByteMax(2)
	genBytes  = rapid.SliceOf(rapid.Byte())
	genAck    = rapid.SampledFrom([]Type{PUBACK, PUBREC, PUBREL, PUBCOMP, UNSUBACK})
	genEmpty  = rapid.SampledFrom([]Type{PINGREQ, PINGRESP, DISCONNECT})

	genConnect = rapid.Custom(func(t *rapid.T) Connect {
		p := Connect{
			Protocol: "MQTT", Level: Level311, ClientID: genText.Draw(t, "id"),
			CleanSession: rapid.Bool().Draw(t, "clean"), KeepAlive: rapid.Uint16().Draw(t, "keep alive"),
		}
		if rapid.Bool().Draw(t, "has will") {
			p.Will = &Will{
				Topic: genName.Draw(t, "will topic"), Payload: genBytes.Draw(t, "will"),
				QoS: genQoS.Draw(t, "will qos"), Retain: rapid.Bool().Draw(t, "will retain"),
			}
		}
		if p.HasUsername = rapid.Bool().Draw(t, "has user"); p.HasUsername {
			p.Username = genText.Draw(t, "user")
			if p.HasPassword = rapid.Bool().Draw(t, "has password"); p.HasPassword {
				p.Password = genBytes.Draw(t, "password")
			}
		}
		return p
	})
	genPublish = rapid.Custom(func(t *rapid.T) Publish {
		p := Publish{
			Topic: []byte(genName.Draw(t, "topic")), Payload: genBytes.Draw(t, "payload"),
			QoS: genQoS.Draw(t, "qos"), Retain: rapid.Bool().Draw(t, "retain"),
		}
		if p.QoS > 0 {
			p.ID, p.Dup = genID.Draw(t, "id"), rapid.Bool().Draw(t, "dup")
		}
		return p
	})
	genSubscribe = rapid.Custom(func(t *rapid.T) Subscribe {
		return Subscribe{ID: genID.Draw(t, "id"), Subscriptions: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Subscription {
			return Subscription{Filter: genFilter.Draw(t, "filter"), QoS: genQoS.Draw(t, "qos")}
		}), 1, 5).Draw(t, "subscriptions")}
	})
	genUnsubscribe = rapid.Custom(func(t *rapid.T) Unsubscribe {
		return Unsubscribe{ID: genID.Draw(t, "id"), Filters: rapid.SliceOfN(genFilter, 1, 5).Draw(t, "filters")}
	})
	genCodes = rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, SubackFailure}), 1, 5)
)

// split takes the one packet that b is.
func split(t tb, b []byte) Frame {
	t.Helper()
	f, n, need, err := V311.Split(b, MaxRemaining)
	if err != nil || n != len(b) || need != n {
		t.Fatalf("% x is split as %d bytes, needs %d, %v", clip(b), n, need, err)
	}
	return f
}

// same checks that the packet that came back is the one that went in, and that other readers agree.
func same[P any](t *rapid.T, raw []byte, want, got P, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("% x: %v", clip(raw), err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("% x (-want +got):\n%s", clip(raw), diff)
	}
	agree(t, raw)
}

// prefix is what the buffer holds before an append; it must stay.
var prefix = []byte("\xc0\x00")

func TestRoundTrip(t *testing.T) {
	appended := func(t *rapid.T, b []byte) []byte {
		t.Helper()
		if !bytes.HasPrefix(b, prefix) {
			t.Fatalf("appending changed what was there: % x", clip(b))
		}
		return b[len(prefix):]
	}
	head := func() []byte { return bytes.Clone(prefix) }
	for _, c := range []struct {
		name  string
		check func(t *rapid.T)
	}{
		{"CONNECT", func(t *rapid.T) {
			want := genConnect.Draw(t, "packet")
			b := appended(t, AppendConnect(head(), &want))
			got, err := ParseConnect(split(t, b))
			same(t, b, want, got, err)
		}},
		{"CONNACK", func(t *rapid.T) {
			sp, code := rapid.Bool().Draw(t, "sp"), rapid.ByteMax(RefusedUnauthorized).Draw(t, "code")
			b := appended(t, AppendConnack(head(), sp, code))
			gotSP, gotCode, err := ParseConnack(split(t, b))
			same(t, b, []any{sp && code == Accepted, code}, []any{gotSP, gotCode}, err)
		}},
		{"PUBLISH", func(t *rapid.T) {
			want := genPublish.Draw(t, "packet")
			b := appended(t, AppendPublish(head(), &want))
			got, err := ParsePublish(split(t, b))
			same(t, b, want, got, err)
		}},
		{"acknowledgements", func(t *rapid.T) {
			typ, id := genAck.Draw(t, "type"), genID.Draw(t, "id")
			b := appended(t, AppendAck(head(), typ, id))
			f := split(t, b)
			got, err := ParseAck(f)
			same(t, b, []any{typ, id}, []any{f.Type(), got}, err)
		}},
		{"SUBSCRIBE", func(t *rapid.T) {
			want := genSubscribe.Draw(t, "packet")
			b := appended(t, AppendSubscribe(head(), &want))
			got, err := ParseSubscribe(split(t, b))
			same(t, b, want, got, err)
		}},
		{"SUBACK", func(t *rapid.T) {
			id, codes := genID.Draw(t, "id"), genCodes.Draw(t, "codes")
			b := appended(t, AppendSuback(head(), id, codes))
			gotID, gotCodes, err := ParseSuback(split(t, b))
			same(t, b, []any{id, codes}, []any{gotID, gotCodes}, err)
		}},
		{"UNSUBSCRIBE", func(t *rapid.T) {
			want := genUnsubscribe.Draw(t, "packet")
			b := appended(t, AppendUnsubscribe(head(), &want))
			got, err := ParseUnsubscribe(split(t, b))
			same(t, b, want, got, err)
		}},
		{"without a body", func(t *rapid.T) {
			typ := genEmpty.Draw(t, "type")
			b := appended(t, AppendEmpty(head(), typ))
			f := split(t, b)
			same(t, b, typ, f.Type(), ParseEmpty(f))
		}},
	} {
		t.Run(c.name, rapid.MakeCheck(c.check))
	}
}

// The longest strings and sizes around each change of the length's length are rare in random packets.
func TestRoundTripExtremes(t *testing.T) {
	long := strings.Repeat("x", 65535)
	connect := Connect{
		ClientID: long, HasUsername: true, Username: long, HasPassword: true, Password: []byte(long),
		Will: &Will{Topic: long, Payload: []byte(long)},
	}
	got, err := ParseConnect(split(t, AppendConnect(nil, &connect)))
	connect.Protocol, connect.Level = "MQTT", Level311 // what their zero values mean
	if diff := cmp.Diff(connect, got); diff != "" || err != nil {
		t.Errorf("the longest CONNECT: %v (-want +got):\n%.500s", err, diff)
	}
	for _, size := range []int{0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152} {
		for near := max(size-3, 3); near < size+3; near++ {
			want := Publish{Topic: []byte("t"), Payload: make([]byte, near-3)}
			b := AppendPublish(nil, &want)
			got, err := ParsePublish(split(t, b))
			if err != nil || len(got.Payload) != near-3 {
				t.Errorf("Remaining Length %d: %d bytes of payload, %v", near, len(got.Payload), err)
			}
		}
	}
	if b := appendLength(nil, MaxRemaining); string(b) != "\xff\xff\xff\x7f" {
		t.Errorf("the largest Remaining Length is % x", b)
	}
}

// TestAppendWritesIllegalPackets holds the encoders to what a conformance check needs of them.
func TestAppendWritesIllegalPackets(t *testing.T) {
	for _, c := range []struct {
		why  string
		got  []byte
		want string
	}{
		{"Packet Identifier 0", AppendPublish(nil, &Publish{Topic: []byte("a"), QoS: 1}), "\x32\x05\x00\x01a\x00\x00"},
		{"QoS 3", AppendPublish(nil, &Publish{Topic: []byte("a"), QoS: 3, ID: 1}), "\x36\x05\x00\x01a\x00\x01"},
		{"DUP at QoS 0", AppendPublish(nil, &Publish{Topic: []byte("a"), Dup: true}), "\x38\x03\x00\x01a"},
		{"a wildcard", AppendPublish(nil, &Publish{Topic: []byte("#")}), "\x30\x03\x00\x01#"},
		{"a QoS of more than two bits stays in its two bits", AppendPublish(nil, &Publish{Topic: []byte("a"), QoS: 5, ID: 1}), "\x32\x05\x00\x01a\x00\x01"},
		{"an acknowledgement of identifier 0", AppendAck(nil, PUBREL, 0), "\x62\x02\x00\x00"},
		{"another protocol and level", AppendConnect(nil, &Connect{Protocol: "MQIsdp", Level: 3}), "\x10\x0e\x00\x06MQIsdp\x03\x00\x00\x00\x00\x00"},
		{"a Will at QoS 3", AppendConnect(nil, &Connect{Will: &Will{Topic: "w", QoS: 3}}), "\x10\x11\x00\x04MQTT\x04\x1c\x00\x00\x00\x00\x00\x01w\x00\x00"},
		{"no filter", AppendSubscribe(nil, &Subscribe{ID: 1}), "\x82\x02\x00\x01"},
		{"no filter to unsubscribe", AppendUnsubscribe(nil, &Unsubscribe{ID: 1}), "\xa2\x02\x00\x01"},
		{"a refusal has no session, whatever is asked for", AppendConnack(nil, true, RefusedLevel), "\x20\x02\x00\x01"},
	} {
		if string(c.got) != c.want {
			t.Errorf("%s: got % x, want % x", c.why, c.got, c.want)
		}
	}
}

func TestTypeNames(t *testing.T) {
	for typ, want := range map[Type]string{0: "reserved 0", CONNECT: "CONNECT", DISCONNECT: "DISCONNECT", 15: "AUTH", 16: "type 16"} {
		if typ.String() != want {
			t.Errorf("type %d is %q, want %q", byte(typ), typ, want)
		}
	}
}

// identity checks what the decoders and encoders owe each other: what is accepted comes out again byte for byte, so no
// byte is ignored and no two packets decode to the same; what is refused is an *Error with a reason.
func identity(t *testing.T, header byte, body []byte) {
	f := Frame{Header: header, Body: body}
	raw := append(appendLength([]byte{header}, len(body)), body...)
	text, again, err := parse(f)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || e.Type != f.Type() || e.Reason == "" {
			t.Errorf("% x: got %v, want an *Error of a %v with a reason", raw, err, f.Type())
		}
		return
	}
	if f.Type() == CONNECT && !strings.HasPrefix(text, "CONNECT level=4 ") {
		return // what follows another level is not read
	}
	if !bytes.Equal(again, raw) {
		t.Errorf("%s\nfrom % x\ngot  % x", text, raw, again)
	}
	agree(t, raw)
}

// fuzzParse fuzzes the decoder of the given types with their vectors as seeds.
func fuzzParse(f *testing.F, types ...Type) {
	for _, v := range loadVectors(f) {
		if frame, n, _, err := V311.Split(v.raw, MaxRemaining); err == nil && n > 0 && n < 4096 {
			for i, t := range types {
				if frame.Type() == t {
					f.Add(uint8(i), frame.Flags(), frame.Body)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, which, flags uint8, body []byte) {
		typ := types[int(which)%len(types)]
		identity(t, byte(typ)<<4|flags&0x0F, body)
	})
}

func FuzzParseConnect(f *testing.F)     { fuzzParse(f, CONNECT) }
func FuzzParseConnack(f *testing.F)     { fuzzParse(f, CONNACK) }
func FuzzParsePublish(f *testing.F)     { fuzzParse(f, PUBLISH) }
func FuzzParseAck(f *testing.F)         { fuzzParse(f, PUBACK, PUBREC, PUBREL, PUBCOMP, UNSUBACK) }
func FuzzParseSubscribe(f *testing.F)   { fuzzParse(f, SUBSCRIBE) }
func FuzzParseSuback(f *testing.F)      { fuzzParse(f, SUBACK) }
func FuzzParseUnsubscribe(f *testing.F) { fuzzParse(f, UNSUBSCRIBE) }
func FuzzParseEmpty(f *testing.F)       { fuzzParse(f, PINGREQ, PINGRESP, DISCONNECT) }

// TestMutatedTrace changes a legal trace at random: nothing panics, and each packet that is still accepted is what it
// says. A failure prints the seed that makes it again.
func TestMutatedTrace(t *testing.T) {
	var trace []byte
	whole := map[string]bool{} // the packets that no mutation has touched are compared elsewhere
	for _, v := range loadVectors(t) {
		if v.legal() && v.reencodes && len(v.raw) < 100 {
			trace = append(trace, v.raw...)
			whole[string(v.raw[0])+string(split(t, v.raw).Body)] = true
		}
	}
	rounds := uint64(10_000)
	if testing.Short() {
		rounds = 1_000
	}
	refused := 0
	for seed := range rounds {
		random := rand.New(rand.NewPCG(seed, 0))
		b := bytes.Clone(trace)
		for range 1 + random.IntN(8) {
			at := random.IntN(len(b))
			switch random.IntN(3) {
			case 0:
				b[at] ^= 1 << random.IntN(8)
			case 1:
				b = append(b[:at], b[at+1:]...)
			default:
				b = append(b[:at+1], b[at:]...)
				b[at] = byte(random.Uint32())
			}
		}
		r := NewReader(bytes.NewReader(b), 0, 0)
		for {
			f, err := r.Next()
			if err != nil {
				break
			}
			if whole[string(f.Header)+string(f.Body)] {
				continue
			}
			if _, _, err := parse(f); err != nil {
				refused++
			}
			identity(t, f.Header, f.Body)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if refused < int(rounds)/10 {
		t.Errorf("%d packets refused in %d traces: the mutations do not reach the decoders", refused, rounds)
	}
}
