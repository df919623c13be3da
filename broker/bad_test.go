package broker

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"inflight/broker/packet"
)

// bad is a packet that no client may send; the row is of the conformance catalogue.
type bad struct {
	row, why string
	v4, v5   []byte            // nil: nothing is wrong with it in this version
	code     packet.ReasonCode // of the DISCONNECT in MQTT 5.0
}

// raw is a packet with a Remaining Length that is right for its body.
func raw(header byte, body ...any) []byte {
	var b []byte
	for _, part := range body {
		switch p := part.(type) {
		case int:
			b = append(b, byte(p))
		case uint16:
			b = binary.BigEndian.AppendUint16(b, p)
		case string: // with its length
			b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		}
	}
	out := []byte{header}
	for n := len(b); ; n >>= 7 {
		if n < 0x80 {
			return append(append(out, byte(n)), b...)
		}
		out = append(out, byte(n)|0x80)
	}
}

// none is an empty Property Length.
const none = 0

const id1 = uint16(1)

// badPackets are the rows of the group BAD that are single packets.
func badPackets() []bad {
	const malformed, protocol = packet.MalformedPacket, packet.ProtocolError
	both := func(row, why string, code packet.ReasonCode, b []byte) bad { return bad{row, why, b, b, code} }
	rows := []bad{
		{"BAD-01", "PUBLISH QoS 1, identifier 0", raw(0x32, "a", uint16(0), []byte("x")), raw(0x32, "a", uint16(0), none, []byte("x")), protocol},
		{"BAD-01", "PUBLISH QoS 2, identifier 0", raw(0x34, "a", uint16(0), []byte("x")), raw(0x34, "a", uint16(0), none, []byte("x")), protocol},
		{"BAD-02", "PUBLISH QoS 3", raw(0x36, "a", id1, []byte("x")), raw(0x36, "a", id1, none, []byte("x")), malformed},
		{"BAD-03", "PUBLISH QoS 0 with DUP", raw(0x38, "a", []byte("x")), raw(0x38, "a", none, []byte("x")), protocol},
		both("BAD-10", "a Remaining Length of five bytes", malformed, []byte{0x30, 0x80, 0x80, 0x80, 0x80, 0x01}),
		both("BAD-10", "a Remaining Length of five bytes that is small", malformed, []byte{0xC0, 0x80, 0x80, 0x80, 0x80, 0x00}),
		{"BAD-11", "a Remaining Length that is not in its shortest form", nil, []byte{0xC0, 0x80, 0x00}, malformed},
		{"BAD-11", "a Property Length that is not in its shortest form", nil, raw(0x30, "a", 0x80, 0x00, []byte("x")), malformed},
		both("BAD-12", "a claim of 256 MiB", packet.PacketTooLarge, []byte{0x30, 0xFF, 0xFF, 0xFF, 0x7F, 0, 1, 'a'}),
		both("BAD-13", "a packet above the limit", packet.PacketTooLarge, raw(0x30, "a", make([]byte, 70_000))),
		both("BAD-14", "a topic longer than the packet", malformed, raw(0x30, uint16(9), []byte("abc"))),
		both("BAD-14", "half a topic length", malformed, raw(0x30, 0)),
		both("BAD-14", "a PUBLISH of nothing", malformed, raw(0x30)),
		both("BAD-14", "QoS 2 without room for the identifier", malformed, raw(0x34, "a")),
		both("BAD-14", "QoS 1 with room for half of it", malformed, raw(0x32, "a", 0)),
		{"BAD-14", "no Property Length", nil, raw(0x30, "a"), malformed},
		{"BAD-14", "a Property Length past the end", nil, raw(0x30, "a", 9, 1, 0), malformed},
		{"BAD-17", "an empty topic", raw(0x30, "", []byte("x")), raw(0x30, "", none, []byte("x")), protocol},
		both("BAD-18", "SUBSCRIBE flags 0", malformed, raw(0x80, id1, "a", 0)),
		both("BAD-18", "UNSUBSCRIBE flags 0", malformed, raw(0xA0, id1, "a")),
		{"BAD-18", "SUBSCRIBE without filters", raw(0x82, id1), raw(0x82, id1, none), protocol},
		{"BAD-18", "UNSUBSCRIBE without filters", raw(0xA2, id1), raw(0xA2, id1, none), protocol},
		{"BAD-18", "SUBSCRIBE QoS 3", raw(0x82, id1, "a", 3), raw(0x82, id1, none, "a", 3), protocol},
		{"BAD-18", "SUBSCRIBE with reserved options", raw(0x82, id1, "a", 0x40), raw(0x82, id1, none, "a", 0x40), malformed},
		{"BAD-18", "SUBSCRIBE Retain Handling 3", raw(0x82, id1, "a", 0x30), raw(0x82, id1, none, "a", 0x30), protocol},
		{"BAD-18", "SUBSCRIBE identifier 0", raw(0x82, uint16(0), "a", 0), raw(0x82, uint16(0), none, "a", 0), protocol},
		{"BAD-18", "UNSUBSCRIBE identifier 0", raw(0xA2, uint16(0), "a"), raw(0xA2, uint16(0), none, "a"), protocol},
		{"BAD-18", "SUBSCRIBE without a QoS", raw(0x82, id1, "a"), raw(0x82, id1, none, "a"), malformed},
		{"BAD-18", "a filter that 3.1.1 has no answer to", raw(0x82, id1, "a/#/b", 0), nil, 0},
		{"BAD-19", "CONNACK", raw(0x20, 0, 0), raw(0x20, 0, 0, none), protocol},
		{"BAD-19", "SUBACK", raw(0x90, id1, 0), raw(0x90, id1, none, 0), protocol},
		{"BAD-19", "UNSUBACK", raw(0xB0, id1), raw(0xB0, id1, none, 0), protocol},
		both("BAD-19", "PINGRESP", protocol, raw(0xD0)),
		both("BAD-19", "type 0", malformed, raw(0x00)),
		{"BAD-19", "type 15", raw(0xF0), nil, 0},
		{"BAD-19", "AUTH that nobody asked for", nil, raw(0xF0, 0x18, 4, 0x15, "m"), protocol},
		{"BAD-19", "a second CONNECT", packet.V311.AppendConnect(nil, &packet.Connect{ClientID: "bad"}), packet.V5.AppendConnect(nil, &packet.Connect{ClientID: "bad"}), protocol},
	}
	for _, flags := range []byte{0x0, 0x3, 0x6, 0xF} {
		rows = append(rows, both("BAD-04", fmt.Sprintf("PUBREL flags %#x", flags), malformed, raw(0x60|flags, id1)))
	}
	for _, flags := range []byte{0x1, 0x2, 0x8, 0xF} {
		for _, t := range []packet.Type{packet.PUBACK, packet.PUBREC, packet.PUBCOMP} {
			rows = append(rows, both("BAD-05", fmt.Sprintf("%v flags %#x", t, flags), malformed, raw(byte(t)<<4|flags, id1)))
		}
		for _, t := range []packet.Type{packet.PINGREQ, packet.DISCONNECT} {
			rows = append(rows, both("BAD-05", fmt.Sprintf("%v flags %#x", t, flags), malformed, raw(byte(t)<<4|flags)))
		}
	}
	rows = append(rows, both("BAD-05", "PINGREQ with a body", malformed, raw(0xC0, 0)))
	for _, t := range []packet.Type{packet.PUBACK, packet.PUBREC, packet.PUBREL, packet.PUBCOMP} {
		header := byte(t) << 4
		if t == packet.PUBREL {
			header |= 2
		}
		ack := func(row, why string, code packet.ReasonCode, v4, v5 []byte) {
			rows = append(rows, bad{row, fmt.Sprintf("%v %s", t, why), v4, v5, code})
		}
		ack("BAD-06", "identifier 0", protocol, raw(header, uint16(0)), raw(header, uint16(0)))
		ack("BAD-07", "of length 0", malformed, raw(header), raw(header))
		ack("BAD-07", "of length 1", malformed, raw(header, 0), raw(header, 0))
		ack("BAD-07", "of length 3", 0, raw(header, id1, 0), nil)
		ack("BAD-08", "reason 0xFF", protocol, nil, raw(header, id1, 0xFF))
		ack("BAD-08", "reason 0x01", protocol, nil, raw(header, id1, 0x01))
		ack("BAD-09", "with an unknown property", malformed, nil, raw(header, id1, 0, 2, 0x7F, 0))
		ack("BAD-09", "with another packet's property", malformed, nil, raw(header, id1, 0, 4, 0x03, "a"))
		ack("BAD-09", "with a property twice", protocol, nil, raw(header, id1, 0, 8, 0x1F, "a", 0x1F, "b"))
		ack("BAD-09", "with properties past the end", malformed, nil, raw(header, id1, 0, 9, 0x1F, "a"))
		ack("BAD-09", "with bytes after the properties", malformed, nil, raw(header, id1, 0, none, 1))
		ack("BAD-11", "with a Property Length that is not in its shortest form", malformed, nil, raw(header, id1, 0, 0x80, 0))
	}
	for name, text := range map[string]string{
		"invalid UTF-8": "a\xff", "a surrogate": "a\xed\xa0\x80", "U+0000": "a\x00", "an overlong form": "a\xc0\xaf",
		"a character cut short": "a\xe6\x97", "above U+10FFFF": "a\xf4\x90\x80\x80",
	} {
		rows = append(rows,
			bad{"BAD-16", "PUBLISH: " + name, raw(0x30, text, []byte("x")), raw(0x30, text, none, []byte("x")), malformed},
			bad{"BAD-16", "SUBSCRIBE: " + name, raw(0x82, id1, text, 0), raw(0x82, id1, none, text, 0), malformed},
			bad{"BAD-16", "UNSUBSCRIBE: " + name, raw(0xA2, id1, text), raw(0xA2, id1, none, text), malformed},
			bad{"BAD-16", "User Property: " + name, nil, raw(0x30, "a", 1+2+len(text)+2, 0x26, text, ""), malformed})
	}
	for _, topic := range []string{"+", "#", "a/+", "a/#", "a+", "a/+/b"} {
		rows = append(rows, bad{"BAD-17", "PUBLISH to " + topic, raw(0x30, topic, []byte("x")), raw(0x30, topic, none, []byte("x")), malformed})
	}
	return rows
}

// bytes are those of a version.
func (b *bad) bytes(v packet.Version) []byte {
	if v == packet.V5 {
		return b.v5
	}
	return b.v4
}

// witness is a connection that nothing bad of another one may touch, and what it sees delivered.
type witness struct{ publisher, watcher *peer5 }

func newWitness(t *testing.T, s *Server) witness {
	t.Helper()
	w := witness{clean5(t, s, "publisher"), clean5(t, s, "watcher")}
	w.watcher.subscribe(0, packet.Subscription{Filter: "#", QoS: 1})
	return w
}

// saw wants the messages, in any order, and after them one of its own: the broker is alive and nothing else was delivered.
// Each comes once, unless they may be repeated.
func (w witness) saw(t *testing.T, topic string, payloads []string, repeats bool) {
	t.Helper()
	w.publisher.send(pub5(1, 1, "sentinel", topic, nil))
	w.publisher.want("PUBACK 1")
	seen := map[string]bool{}
	for {
		f, err := w.watcher.next()
		if err != nil {
			t.Fatal(err)
		}
		m, err := w.watcher.codec.ParsePublish(f)
		if err != nil {
			t.Fatalf("%s: %v", w.watcher.describe(f), err)
		}
		w.watcher.send(ack5(packet.PUBACK, m.ID, 0))
		if string(m.Topic) == "sentinel" {
			break
		}
		payload := string(m.Payload)
		if string(m.Topic) != topic || !slices.Contains(payloads, payload) || seen[payload] && !repeats {
			t.Fatalf("delivered: %s", w.watcher.describe(f))
		}
		seen[payload] = true
	}
	if len(seen) < len(payloads) {
		t.Fatalf("%d of %d are delivered", len(seen), len(payloads))
	}
}

// TestBadPackets sends each bad packet with a good one before and after it: the connection is closed, to a client of 5.0
// with the reason, what comes before it counts, nothing of it or after it does, and nobody else notices.
func TestBadPackets(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory, func(c *Config) { c.MaxPacket = 64 << 10 })
	w := newWitness(t, s)
	for _, b := range badPackets() {
		for _, v := range []packet.Version{packet.V311, packet.V5} {
			bytes := b.bytes(v)
			if bytes == nil {
				continue
			}
			t.Run(fmt.Sprintf("%s %v %s", b.row, v, b.why), func(t *testing.T) {
				p := plain.enter(t, s, v, "bad")
				good := func(payload string) []byte {
					return v.AppendPublish(nil, &packet.Publish{Topic: []byte("a"), Payload: []byte(payload), QoS: 1, ID: 9})
				}
				p.send(good("before"), bytes, good("after"))
				wantEnd(t, p, b.code, "PUBACK 9")
				w.saw(t, "a", []string{"before"}, false)
			})
		}
	}
}

// wantEnd wants the connection to be closed, to a client of 5.0 with a Reason Code; those packets may come before.
func wantEnd(t *testing.T, p *peer5, code packet.ReasonCode, may ...string) {
	t.Helper()
	end := fmt.Sprintf("DISCONNECT %#02x", byte(code))
	for {
		f, err := p.next()
		if err != nil {
			if p.codec.Version == packet.V5 {
				t.Fatalf("want %s, got %v", end, err)
			}
			if ne, ok := err.(interface{ Timeout() bool }); ok && ne.Timeout() {
				t.Fatal("the connection stays open")
			}
			return
		}
		got := p.describe(f)
		if got == end && p.codec.Version == packet.V5 {
			p.wantClosed()
			return
		}
		if len(may) == 0 || got != may[0] {
			t.Fatalf("want the end, got %s", got)
		}
		may = may[1:]
	}
}

// BAD-12: a claim costs nothing, and what has arrived of it about its own size.
func TestClaimedMemory(t *testing.T) {
	const connections, sent = 100, 10_000
	s := open(t, StoreMemory, func(c *Config) { c.MaxPacket = packet.MaxRemaining })
	w := newWitness(t, s)
	before := heap()
	for i := range connections {
		p := plain.enter(t, s, []packet.Version{packet.V311, packet.V5}[i%2], fmt.Sprint("c", i), []byte{0x30, 0xFF, 0xFF, 0xFF, 0x7F, 0, 1, 'a'}, make([]byte, sent))
		for range 10 { // a trickle
			p.send(make([]byte, 10))
		}
	}
	time.Sleep(100 * time.Millisecond)
	if grown, most := heap()-before, int64(connections*(8*sent+100_000)); grown > most {
		t.Errorf("%d connections that claim 256 MiB each take %d bytes, want at most %d", connections, grown, most)
	}
	w.saw(t, "", nil, false)
}

// BAD-20: what a connection sent before something bad is acknowledged or can be sent again, and what came after it never
// happened.
func TestBadInsideAWindow(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		w := newWitness(t, s)
		for _, v := range []packet.Version{packet.V311, packet.V5} {
			rows := map[string]bad{} // one of each row
			for _, b := range badPackets() {
				if b.bytes(v) != nil && b.code != packet.PacketTooLarge { // this broker takes what is large
					rows[b.row] = b
				}
			}
			for row, b := range rows {
				for qos := byte(1); qos <= 2; qos++ {
					t.Run(fmt.Sprintf("%s %v QoS %d: %s", row, v, qos, b.why), func(t *testing.T) { badInside(t, s, w, &b, v, qos) })
				}
			}
		}
	})
}

func badInside(t *testing.T, s *Server, w witness, b *bad, v packet.Version, qos byte) {
	t.Helper()
	const n = 20
	publish := func(i int, dup bool) []byte {
		return v.AppendPublish(nil, &packet.Publish{
			Topic: []byte("window"), Payload: fmt.Append(nil, i), QoS: qos, ID: uint16(i), Dup: dup,
		})
	}
	answer := map[byte]packet.Type{1: packet.PUBACK, 2: packet.PUBREC}[qos]
	connect := packet.Connect{ClientID: t.Name()}
	if v == packet.V5 {
		connect.Properties = &props{SessionExpiry: packet.Some[uint32](600)}
	}
	p := plain.dial(t, s, v)
	p.send(v.AppendConnect(nil, &connect))
	p.want("CONNACK present=false 0x00")
	var burst []byte
	var want []string
	for i := 1; i <= n; i++ {
		burst = append(burst, publish(i, false)...)
		want = append(want, fmt.Sprint(i))
	}
	p.send(burst, b.bytes(v), publish(n+1, false))
	acked := 0
	for {
		f, err := p.next()
		if err != nil {
			if v == packet.V5 {
				t.Fatalf("no DISCONNECT: %v", err)
			}
			break
		}
		got := p.describe(f)
		if got == fmt.Sprintf("DISCONNECT %#02x", byte(b.code)) {
			break
		}
		if acked++; got != fmt.Sprint(answer, " ", acked) || acked > n {
			t.Fatalf("got %s as answer %d", got, acked)
		}
	}
	_ = p.nc.Close()
	away(t, s, connect.ClientID)

	p = plain.dial(t, s, v)
	p.send(v.AppendConnect(nil, &connect))
	p.want("CONNACK present=true 0x00")
	var again, rels []byte
	for i := 1; i <= n; i++ {
		if i > acked {
			again = append(again, publish(i, true)...)
		}
		rels = append(rels, v.AppendAck(nil, packet.PUBREL, packet.Ack{ID: uint16(i)})...)
	}
	p.send(again)
	for i := acked + 1; i <= n; i++ {
		p.want(fmt.Sprint(answer, " ", i))
	}
	if qos == 2 {
		p.send(rels)
		for i := 1; i <= n; i++ {
			p.want(fmt.Sprint("PUBCOMP ", i))
		}
	}
	w.saw(t, "window", want, qos == 1)
	_ = p.nc.Close()
}

// heap is how many bytes of the heap are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools held
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
