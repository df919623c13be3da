package history

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What the specification allows must decode, and say what is in it.
func TestDecode(t *testing.T) {
	for _, test := range []struct {
		why    string
		level  byte
		server bool
		hex    string
		want   string // Packet.String
	}{
		{"3.1.1 CONNACK with a session", 4, true, "20 02 01 00", "CONNACK code 0x00 session present true"},
		{"5.0 CONNACK with properties", 5, true, "20 06 00 00 03 21 00 14", "CONNACK code 0x00 session present false [Receive Maximum 20]"},
		{"5.0 CONNACK that assigns an identifier", 5, true, "20 08 00 00 05 12 00 02 61 62", `CONNACK code 0x00 session present false [Assigned Client Identifier "ab"]`},
		{"a broker of 3.1.1 alone refuses level 5", 5, true, "20 02 00 01", "CONNACK code 0x01 session present false"},
		{"a broker of 5.0 refuses level 9 in its own form", 4, true, "20 03 00 84 00", "CONNACK code 0x84 session present false"},
		{"QoS 0", 4, true, "30 05 00 01 74 68 69", `PUBLISH QoS 0 "t" "hi"`},
		{"QoS 2 with DUP and RETAIN", 4, true, "3D 06 00 01 74 00 07 41", `PUBLISH QoS 2 id 7 DUP RETAIN "t" "A"`},
		{"no payload", 4, true, "32 05 00 01 74 00 01", `PUBLISH QoS 1 id 1 "t" ""`},
		{"bytes that are no text", 4, true, "30 05 00 01 74 00 ff", `PUBLISH QoS 0 "t" 0x00ff`},
		{"5.0 PUBLISH with an alias for the topic", 5, true, "32 08 00 00 00 07 03 23 00 01", `PUBLISH QoS 1 id 7 "" "" [Topic Alias 1]`},
		{"several Subscription Identifiers", 5, true, "30 08 00 01 74 04 0B 01 0B 02", `PUBLISH QoS 0 "t" "" [Subscription Identifier 1] [Subscription Identifier 2]`},
		{"a User Property twice", 5, true, "30 13 00 01 74 0F 26 00 01 61 00 01 62 26 00 01 61 00 02 62 63 41", ""},
		{"PUBREC of 5.0 that refuses", 5, true, "50 03 00 07 97", "PUBREC id 7 reason 0x97"},
		{"PUBCOMP of 5.0 in its short form", 5, true, "70 02 00 07", "PUBCOMP id 7"},
		{"PUBREL", 4, true, "62 02 00 07", "PUBREL id 7"},
		{"SUBACK of 3.1.1", 4, true, "90 05 00 07 00 02 80", "SUBACK id 7 codes 00 02 80"},
		{"UNSUBACK of 3.1.1", 4, true, "B0 02 00 07", "UNSUBACK id 7"},
		{"UNSUBACK of 5.0", 5, true, "B0 04 00 07 00 11", "UNSUBACK id 7 codes 11"},
		{"PINGRESP", 4, true, "D0 00", "PINGRESP"},
		{"DISCONNECT of a Server", 5, true, "E0 01 8E", "DISCONNECT reason 0x8E"},
		{"DISCONNECT with a Session Expiry Interval", 5, false, "E0 07 00 05 11 00 00 00 00", "DISCONNECT [Session Expiry Interval 0]"},
		{"CONNECT", 4, false, "10 0D 00 04 4D 51 54 54 04 02 00 0A 00 01 63", `CONNECT level 4 client "c" clean keep alive 10`},
		{
			"CONNECT of 5.0 with everything", 5, false,
			"10 25 00 04 4D 51 54 54 05 C4 00 00 05 11 00 00 01 2C 00 01 63 05 18 00 00 00 01 00 01 77 00 01 57 00 01 75 00 01 70",
			`CONNECT level 5 client "c" keep alive 0 [Session Expiry Interval 300]`,
		},
		{"SUBSCRIBE", 4, false, "82 06 00 01 00 01 74 02", `SUBSCRIBE id 1 "t" options 0x02`},
		{"UNSUBSCRIBE of 5.0", 5, false, "A2 06 00 01 00 00 01 74", `UNSUBSCRIBE id 1 ["t"]`},
		{"AUTH", 5, true, "F0 00", "AUTH"},
	} {
		p, err := Decode(test.level, test.server, unhex(t, test.hex))
		if test.want == "" {
			if err == nil {
				t.Errorf("%s: no error for a property that is cut", test.why)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.why, err)
		} else if got := p.String(); got != test.want {
			t.Errorf("%s: %s, want %s", test.why, got, test.want)
		}
	}
}

// What the specification forbids must not.
func TestDecodeRefuses(t *testing.T) {
	for _, test := range []struct {
		why    string
		level  byte
		server bool
		hex    string
		want   string
	}{
		{"a byte alone", 4, true, "D0", "less than two bytes"},
		{"the length is another", 4, true, "D0 01", "the packet has 0 bytes"},
		{"a length in more bytes than it needs", 4, true, "D0 80 00", "[MQTT-1.5.5-1]"},
		{"type 0", 4, true, "00 00", "reserves"},
		{"AUTH in 3.1.1", 4, true, "F0 00", "reserves"},
		{"a Server sends CONNECT", 4, true, "10 0D 00 04 4D 51 54 54 04 02 00 0A 00 01 63", "only a Client"},
		{"a Server sends DISCONNECT in 3.1.1", 4, true, "E0 00", "only a Client"},
		{"a Client sends SUBACK", 4, false, "90 03 00 07 00", "only a Server"},
		{"flags of a PUBACK", 4, true, "42 02 00 01", "flags are 0x2"},
		{"flags of a PUBREL", 4, true, "60 02 00 01", "flags are 0x0"},
		{"identifier 0", 4, true, "40 02 00 00", "[MQTT-2.3.1-1]"},
		{"PUBLISH with identifier 0", 4, true, "32 05 00 01 74 00 00", "[MQTT-2.3.1-1]"},
		{"QoS 3", 4, true, "36 05 00 01 74 00 01", "[MQTT-3.3.1-4]"},
		{"DUP at QoS 0", 4, true, "38 03 00 01 74", "[MQTT-3.3.1-2]"},
		{"a wildcard", 4, true, "30 03 00 01 23", "[MQTT-3.3.2-2]"},
		{"an empty topic", 4, true, "30 02 00 00", "[MQTT-4.7.3-1]"},
		{"an empty topic without an alias", 5, true, "30 03 00 00 00", "[MQTT-4.7.3-1]"},
		{"U+0000 in a topic", 4, true, "30 03 00 01 00", "U+0000"},
		{"a topic that is no UTF-8", 4, true, "30 04 00 02 C3 28", "UTF-8"},
		{"bytes behind an acknowledgement", 4, true, "40 03 00 01 00", "follow the last field"},
		{"a topic past the end", 4, true, "30 03 00 09 74", "ends before"},
		{"CONNACK flags", 4, true, "20 02 02 00", "[MQTT-3.2.2-1]"},
		{"a session that is present and refused", 4, true, "20 02 01 05", "[MQTT-3.2.2-4]"},
		{"a reserved return code", 4, true, "20 02 00 06", "reserved"},
		{"a Reason Code of another packet", 5, true, "40 03 00 01 92", "0x92"},
		{"a SUBACK code that is none", 4, true, "90 03 00 07 03", "[MQTT-3.9.3-2]"},
		{"a SUBACK without codes", 4, true, "90 02 00 07", "no return code"},
		{"an unknown property", 5, true, "40 06 00 01 00 02 7E 00", "unknown property"},
		{"a property of another packet", 5, true, "40 07 00 01 00 03 21 00 01", "no property of this packet"},
		{"a property twice", 5, true, "20 09 00 00 06 21 00 01 21 00 01", "twice"},
		{"Receive Maximum 0", 5, true, "20 06 00 00 03 21 00 00", "is 0"},
		{"a flag that is 2", 5, true, "20 05 00 00 02 25 02", "want 0 or 1"},
		{"properties past the end", 5, true, "20 04 00 00 05 21", "ends before"},
		{"a property length of five bytes", 5, true, "20 07 00 00 80 80 80 80 01", "more than four bytes"},
		{"a DISCONNECT code that only a Client sends", 5, true, "E0 01 04", "0x04"},
		{"a CONNECT of another protocol", 4, false, "10 0D 00 04 4D 51 54 53 04 02 00 0A 00 01 63", "Protocol Name"},
		{"the reserved Connect Flag", 4, false, "10 0D 00 04 4D 51 54 54 04 03 00 0A 00 01 63", "[MQTT-3.1.2-3]"},
		{"a SUBSCRIBE without filters", 4, false, "82 02 00 01", "no Topic Filter"},
	} {
		_, err := Decode(test.level, test.server, unhex(t, test.hex))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.why, err, test.want)
		}
	}
}

func TestSplit(t *testing.T) {
	packets, rest := Split(unhex(t, "C0 00 40 02 00 01 30 05 00"))
	if len(packets) != 2 || !bytes.Equal(rest, unhex(t, "30 05 00")) {
		t.Errorf("split into %x, rest %x", packets, rest)
	}
	packets, rest = Split(unhex(t, "C0 00 30 FF FF FF FF 01"))
	if len(packets) != 1 || len(rest) != 6 {
		t.Errorf("what cannot begin a packet: %x, rest %x", packets, rest)
	}
	if _, err := FrameLength(unhex(t, "30 FF FF FF FF")); err == nil {
		t.Error("five bytes of Remaining Length are no error")
	}
	for _, short := range []string{"", "30", "30 80"} {
		if n, err := FrameLength(unhex(t, short)); n != 0 || err != nil {
			t.Errorf("%q: %d, %v, want 0 for too few bytes", short, n, err)
		}
	}
}

// sample is a history with something of everything.
func sample() *History {
	now := time.Unix(1_700_000_000, 0).UTC()
	h := &History{Check: "Q2I-07", Version: 5, Round: 3, Seed: 1 << 60, Facts: map[string]string{"prefix": "inflight/x/", "n": "2"}}
	r := NewRecorder(h, func() time.Time { now = now.Add(1500 * time.Microsecond); return now })
	c := r.Open(Conn{Name: "p", Client: "xp", Version: 5, Addr: "tcp://127.0.0.1:1883"})
	r.Add(c, Sent, []byte{0x34, 0x07, 0, 1, 't', 0, 7, 0, 'A', 0xC0, 0, 0x30}, "in pieces")
	r.Add(c, Received, []byte{0x50, 2, 0, 7}, "")
	r.Add(c, Received, []byte{0x52, 2, 0, 7}, "")
	r.Add(c, Garbage, []byte{0x30, 0xFF, 0xFF, 0xFF, 0xFF}, "")
	r.Add(c, Closed, nil, "FIN")
	c = r.Open(Conn{Name: "p", Client: "xp", Version: 5})
	r.Add(c, Cut, nil, "RST")
	r.Add(-1, Mark, nil, "restart the broker")
	r.Fact("memory", "12")
	r.Note(false, "p: no PUBREC(7)")
	r.Note(true, "too late to say")
	return r.Finish()
}

func TestRecorder(t *testing.T) {
	h := sample()
	if h.Stuck != "p: no PUBREC(7)" || h.Trouble != "" {
		t.Errorf("stuck %q, trouble %q: the first reason counts", h.Stuck, h.Trouble)
	}
	if h.ConnName(0) != "p" || h.ConnName(1) != "p#2" || h.ConnName(-1) != "-" {
		t.Errorf("names %s %s %s", h.ConnName(0), h.ConnName(1), h.ConnName(-1))
	}
	r := NewRecorder(&History{}, time.Now)
	h = r.Finish()
	r.Add(0, Sent, nil, "")
	r.Fact("late", "")
	if len(h.Events) > 0 || len(h.Facts) > 0 {
		t.Error("something was added after the end")
	}
	if h.Span() != 0 || sample().Span() <= 0 {
		t.Error("the span of a history is not that of its events")
	}
}

// A history that would not fit any more says so.
func TestRecorderIsFull(t *testing.T) {
	h := &History{}
	r := NewRecorder(h, time.Now)
	big := make([]byte, MaxBytes/2+1)
	r.Add(-1, Sent, big, "")
	r.Add(-1, Sent, big, "")
	if !h.Full || len(h.Events) != 1 {
		t.Errorf("%d events, full %v", len(h.Events), h.Full)
	}
}

func TestFile(t *testing.T) {
	want := sample()
	var b bytes.Buffer
	if err := Write(&b, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	want.Started = want.Started.UTC()
	for i := range want.Events {
		if len(want.Events[i].Raw) == 0 {
			want.Events[i].Raw = nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was read differs:\n%s", diff)
	}
	for _, test := range []struct {
		why  string
		make func(b []byte) []byte
	}{
		{"empty", func([]byte) []byte { return nil }},
		{"another file", func([]byte) []byte { return []byte("{}") }},
		{"another version", func(b []byte) []byte { b[len(magic)-1]++; return b }},
		{"not compressed", func(b []byte) []byte { return append(b[:len(magic)], 1, 2, 3) }},
		{"cut", func(b []byte) []byte { return b[:len(b)/2] }},
		{"without its end", func(b []byte) []byte { return b[:len(b)-9] }},
	} {
		_, err := Read(bytes.NewReader(test.make(bytes.Clone(b.Bytes()))))
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", test.why, err)
		}
	}
	for i := len(magic); i < b.Len(); i++ {
		bad := bytes.Clone(b.Bytes())
		bad[i] ^= 0x10
		if h, err := Read(bytes.NewReader(bad)); err == nil && cmp.Diff(want, h) != "" {
			t.Fatalf("byte %d changed, and the file was read as another history", i)
		}
	}
	if err := Write(&failing{}, want); err == nil {
		t.Error("a write that failed is no error")
	}
}

type failing struct{}

func (*failing) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestTranscript(t *testing.T) {
	var b strings.Builder
	if err := Transcript(&b, sample(), []int{3}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`p   --> PUBLISH QoS 2 id 7 "t" "A"`, "PINGREQ", "1 bytes that are no whole packet", "in pieces", "p   <-- PUBREC id 7", "34070001740007",
		"!     6.000 ms  p   <-- PUBREC (malformed: PUBREC: the flags are 0x2", "5 bytes that cannot begin", "p       closed: FIN", "p#2     cut: RST",
		"restart the broker",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// A long transcript keeps its ends and what is marked.
func TestTranscriptIsBounded(t *testing.T) {
	h := &History{Conns: []Conn{{Name: "p", Nth: 1, Version: 4}}}
	for k := range 5_000 {
		h.Events = append(h.Events, Event{At: time.Duration(k) * time.Millisecond, Kind: Received, Raw: []byte{0x40, 2, byte((k + 1) >> 8), byte(k + 1)}})
	}
	var b strings.Builder
	if err := Transcript(&b, h, []int{2_500}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n > 400 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{"PUBACK id 1\n", "!  2500.000 ms", "PUBACK id 5000", "events left out"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}

// A capture is a sequence of blocks whose lengths agree, with IP and TCP headers that do, and the bytes in order.
func TestPcapng(t *testing.T) {
	h := sample()
	h.Events = append(h.Events, Event{Kind: Sent, Conn: 1, Raw: bytes.Repeat([]byte{7}, 3*segmentBytes), Text: "large"})
	var b bytes.Buffer
	if err := WritePcapng(&b, h); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	streams := map[string][]byte{}
	packets := 0
	for len(data) > 0 {
		n := binary.LittleEndian.Uint32(data[4:])
		if int(n) > len(data) || n%4 != 0 || binary.LittleEndian.Uint32(data[n-4:]) != n {
			t.Fatalf("a block of %d bytes in %d", n, len(data))
		}
		block := data[:n]
		data = data[n:]
		if binary.LittleEndian.Uint32(block) != enhancedPacket {
			continue
		}
		packets++
		ip := block[28 : 28+binary.LittleEndian.Uint32(block[20:])]
		if ip[0] != 0x45 || ip[9] != 6 || int(binary.BigEndian.Uint16(ip[2:])) != len(ip) {
			t.Fatalf("an IP header of %x for %d bytes", ip[:20], len(ip))
		}
		tcp := ip[20:]
		key := hex.EncodeToString(tcp[:4])
		if tcp[13]&syn != 0 {
			streams[key] = []byte{}
			continue
		}
		if seq := binary.BigEndian.Uint32(tcp[4:]); len(tcp) > 20 && int(seq) != len(streams[key])+1 {
			t.Fatalf("sequence number %d after %d bytes", seq, len(streams[key]))
		}
		streams[key] = append(streams[key], tcp[20:]...)
	}
	if packets < 12 {
		t.Errorf("%d packets", packets)
	}
	var up int
	for _, s := range streams {
		up += len(s)
	}
	if want := 12 + 4 + 4 + 5 + 3*segmentBytes; up != want {
		t.Errorf("%d bytes in the streams, want %d", up, want)
	}
	if err := WritePcapng(&failing{}, h); err == nil {
		t.Error("a write that failed is no error")
	}
}

func TestNames(t *testing.T) {
	if Received.String() != "received" || Kind(99).String() != "kind 99" || Type(17).String() != "CONNECT" {
		t.Error("names of kinds and types")
	}
	p := Packet{Props: []Prop{{ID: PropReceiveMaximum, Num: 3}}}
	if p.Number(PropReceiveMaximum, 9) != 3 || p.Number(PropMaximumQoS, 9) != 9 {
		t.Error("numbers of properties")
	}
}

// Whatever bytes come, the decoder returns, and what it accepts begins with its own length.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"3407000174000700", "90050007000280", "2006000003210014", "10250004"} {
		b, _ := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		f.Add(byte(5), true, b)
		f.Add(byte(4), false, b)
	}
	f.Fuzz(func(t *testing.T, level byte, server bool, raw []byte) {
		p, err := Decode(level, server, raw)
		_ = p.String()
		if err != nil {
			return
		}
		if n, err := FrameLength(raw); err != nil || n != len(raw) {
			t.Fatalf("decoded %v of %d bytes, the frame has %d (%v)", p.Type, len(raw), n, err)
		}
		if p.Type == PUBLISH && p.QoS > 0 && p.ID == 0 {
			t.Fatal("identifier 0 was accepted")
		}
	})
}

// Whatever a file holds, reading it returns; what was read can be written and read again.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(magic))
	if recorded, err := filepath.Glob("../../testdata/histories/H-0*.history"); err == nil {
		for _, name := range recorded {
			if data, err := os.ReadFile(name); err == nil {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := Write(&again, h); err != nil {
			t.Fatal(err)
		}
		h2, err := Read(&again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(h, h2); diff != "" {
			t.Fatal(diff)
		}
		_ = Transcript(&again, h, nil)
		_ = WritePcapng(&again, h)
	})
}
