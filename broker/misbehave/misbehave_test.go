package misbehave

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"inflight/broker/packet"
)

func TestNew(t *testing.T) {
	if _, err := New("lose", " dup-drop"); err != nil {
		t.Error(err)
	}
	if _, err := New("lose", "nothing"); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("an unknown fault: %v", err)
	}
	names := map[string]bool{}
	for _, f := range Faults() {
		if names[f.Name] || f.Text == "" {
			t.Errorf("%s is there twice, or says nothing", f.Name)
		}
		names[f.Name] = true
	}
}

// link is a wrapped connection between a client and a broker that are both the test.
type link struct {
	t              *testing.T
	client, broker net.Conn
	got            chan []byte // what the client gets
}

func open(t *testing.T, set *Set, connect *packet.Connect, v packet.Version) *link {
	t.Helper()
	client, server := net.Pipe()
	l := &link{t: t, client: client, broker: set.Wrap(server), got: make(chan []byte, 100)}
	go l.receive()
	t.Cleanup(func() { client.Close(); server.Close() })
	l.put(v.AppendConnect(nil, connect))
	l.reads(1)
	l.broker.Write(v.AppendConnack(nil, &packet.Connack{}))
	l.wants("CONNACK", v.AppendConnack(nil, &packet.Connack{}))
	return l
}

// receive is what the client gets, until the end.
func (l *link) receive() {
	for {
		buf := make([]byte, 4096)
		n, err := l.client.Read(buf)
		if err != nil {
			close(l.got)
			return
		}
		l.got <- buf[:n]
	}
}

func (l *link) put(b []byte) {
	l.t.Helper()
	go l.client.Write(b)
}

// reads takes n packets on the broker's side.
func (l *link) reads(n int) (all []byte) {
	l.t.Helper()
	l.broker.SetReadDeadline(time.Now().Add(2 * time.Minute))
	for have := 0; have < n; {
		buf := make([]byte, 4096)
		k, err := l.broker.Read(buf)
		if err != nil {
			l.t.Fatalf("the broker read %x, then %v", all, err)
		}
		all = append(all, buf[:k]...)
		have = 0
		for rest := all; ; have++ {
			_, size, _, err := packet.V311.Split(rest, packet.MaxRemaining)
			if err != nil || size == 0 {
				break
			}
			rest = rest[size:]
		}
	}
	return all
}

func (l *link) wants(what string, want []byte) {
	l.t.Helper()
	var got []byte
	for len(got) < len(want) {
		select {
		case b, ok := <-l.got:
			if !ok {
				l.t.Fatalf("%s: the end after %x, want %x", what, got, want)
			}
			got = append(got, b...)
		case <-time.After(2 * time.Minute):
			l.t.Fatalf("%s: %x, want %x", what, got, want)
		}
	}
	if !bytes.Equal(got, want) {
		l.t.Fatalf("%s: %x, want %x", what, got, want)
	}
}

func ack(t packet.Type, id uint16) []byte { return packet.AppendAck(nil, t, id) }

func pub(qos byte, id uint16, dup bool, body string) []byte {
	return packet.AppendPublish(nil, &packet.Publish{Topic: []byte("t"), Payload: []byte(body), QoS: qos, ID: id, Dup: dup})
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

var kept = &packet.Connect{ClientID: "c"}

// many are messages 1 to n.
func many(n int) (all []byte) {
	for id := range uint16(n) {
		all = append(all, pub(2, id+1, false, "m")...)
	}
	return all
}

// What the broker writes, and what the client gets of it.
func TestFromBroker(t *testing.T) {
	for _, test := range []struct {
		fault     string
		put, want []byte
	}{
		{"puback-drop", join(ack(packet.PUBACK, 1), ack(packet.PUBACK, 30_001)), ack(packet.PUBACK, 30_001)},
		{"puback-twice", ack(packet.PUBACK, 1), join(ack(packet.PUBACK, 1), ack(packet.PUBACK, 1))},
		{"pubrec-wrong-id", ack(packet.PUBREC, 1), ack(packet.PUBREC, 2)},
		{"pubcomp-swap", join(ack(packet.PUBCOMP, 1), ack(packet.PUBREC, 9), ack(packet.PUBCOMP, 2)), join(ack(packet.PUBCOMP, 2), ack(packet.PUBREC, 9), ack(packet.PUBCOMP, 1))},
		{"ack-stray", ack(packet.PUBREC, 1), join(ack(packet.PUBREC, 1), ack(packet.PUBACK, 29_999))},
		{"bad-flags", ack(packet.PUBACK, 1), []byte{0x42, 2, 0, 1}},
		{"puback-error", ack(packet.PUBACK, 1), ack(packet.PUBACK, 1)}, // 3.1.1 has no codes
		{"deliver-swap", join(pub(0, 0, false, "m1"), pub(0, 0, false, "~1"), pub(0, 0, false, "m2")), join(pub(0, 0, false, "m2"), pub(0, 0, false, "~1"), pub(0, 0, false, "m1"))},
		{"deliver-twice", pub(2, 1, false, "A"), join(pub(2, 1, false, "A"), pub(2, 40_001, false, "A"))},
		{"dup-out", pub(1, 1, false, "A"), pub(1, 1, true, "A")},
		{"id-reused", join(pub(1, 1, false, "A"), pub(1, 2, false, "=B")), join(pub(1, 7, false, "A"), pub(1, 2, false, "=B"))},
		{"payload-cut", pub(0, 0, false, strings.Repeat("x", 1500)), pub(0, 0, false, strings.Repeat("x", 1499))},
		{"resend-live", pub(1, 1, false, "A"), join(pub(1, 1, false, "A"), pub(1, 1, true, "A"))},
		{"pubrel-out-drop", join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1), ack(packet.PUBREL, 5)), join(pub(2, 1, false, "A"), ack(packet.PUBREL, 5))},
		{"pubrel-out-once", join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1), ack(packet.PUBREL, 1)), join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1))},
		{"lose", []byte{0xD0, 0}, []byte{0xD0, 0}},
	} {
		set, err := New(test.fault)
		if err != nil {
			t.Fatal(err)
		}
		l := open(t, set, kept, packet.V311)
		// Whole packets leave, however they were written.
		go func() {
			l.broker.Write(test.put[:1])
			l.broker.Write(test.put[1:])
		}()
		l.wants(test.fault, test.want)
	}
}

// What the client writes, and what broker and client get of it.
func TestFromClient(t *testing.T) {
	end := []byte{0xC0, 0}
	for _, test := range []struct {
		fault               string
		put, broker, client []byte
	}{
		{"dup-drop", join(pub(1, 1, true, "A"), pub(1, 2, false, "B")), pub(1, 2, false, "B"), nil},
		{"dup-as-new", join(pub(2, 1, false, "A"), pub(2, 1, true, "A")), join(pub(2, 1, false, "A"), pub(1, 40_001, false, "A"), pub(2, 1, true, "A")), nil},
		{"lose", join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1), pub(1, 2, false, "B"), pub(2, 30_001, false, "C")), pub(2, 30_001, false, "C"), join(ack(packet.PUBREC, 1), ack(packet.PUBCOMP, 1), ack(packet.PUBACK, 2))},
		{"reuse-as-dup", join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1), pub(2, 1, false, "B")), join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1)), ack(packet.PUBREC, 1)},
		{"pubrel-dup-drop", join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1), ack(packet.PUBREL, 1)), join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1)), nil},
		{"pubrel-dup-delivers", join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1), ack(packet.PUBREL, 1)), join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1), pub(1, 40_001, false, "A"), ack(packet.PUBREL, 1)), nil},
		{"pubrel-unknown-drop", ack(packet.PUBREL, 9), nil, nil},
		{"early-delivery", pub(2, 2, false, "A"), join(pub(1, 40_001, false, "A"), pub(2, 2, false, "A")), nil},
		{"window-blocks", join(pub(2, 1, false, "A"), end), pub(2, 1, false, "A"), nil},
		{"clean-keeps", []byte{0xE0, 0}, []byte{0xE0, 0}, nil},
		{"overflow-drop", join(many(17), ack(packet.PUBREL, 17)), many(16), join(ack(packet.PUBREC, 17), ack(packet.PUBCOMP, 17))},
		{"dup-pubrec-error", join(pub(2, 1, false, "A"), pub(2, 1, true, "A")), join(pub(2, 1, false, "A"), pub(2, 1, true, "A")), nil}, // 3.1.1 has no codes
	} {
		set, err := New(test.fault)
		if err != nil {
			t.Fatal(err)
		}
		l := open(t, set, kept, packet.V311)
		mark := pub(0, 0, false, "end")
		l.put(join(test.put, mark))
		n := 1
		for rest := test.broker; len(rest) > 0; n++ {
			_, size, _, _ := packet.V311.Split(rest, packet.MaxRemaining)
			rest = rest[size:]
		}
		if got := l.reads(n); !bytes.Equal(got, join(test.broker, mark)) {
			t.Errorf("%s: the broker gets %x, want %x", test.fault, got, join(test.broker, mark))
		}
		if test.client != nil {
			l.wants(test.fault, test.client)
		}
	}
}

// Faults that need a second connection, or 5.0.
func TestSessions(t *testing.T) {
	set, _ := New("resend-new-id", "resend-no-dup")
	l := open(t, set, kept, packet.V311)
	go l.broker.Write(pub(2, 5, false, "A"))
	l.wants("first", pub(2, 5, false, "A"))
	l = open(t, set, kept, packet.V311)
	go l.broker.Write(pub(2, 5, true, "A"))
	l.wants("again", pub(2, 40_001, false, "A"))
	l.put(ack(packet.PUBREC, 40_001))
	if got := l.reads(1); !bytes.Equal(got, ack(packet.PUBREC, 5)) {
		t.Errorf("the broker gets %x", got)
	}
	go l.broker.Write(ack(packet.PUBREL, 5))
	l.wants("its release", ack(packet.PUBREL, 40_001))

	set, _ = New("resume-forgets", "resend-drop")
	l = open(t, set, kept, packet.V311)
	l.put(pub(2, 3, false, "A"))
	l.reads(1)
	l.client.Close()
	if _, err := l.broker.Read(make([]byte, 9)); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	l = open(t, set, kept, packet.V311)
	l.put(ack(packet.PUBREL, 3))
	go l.broker.Read(make([]byte, 9))
	l.wants("completed all the same", ack(packet.PUBCOMP, 3))

	set, _ = New("receive-maximum-ignored", "max-packet-ignored", "refused-pubrel")
	client, server := net.Pipe()
	defer client.Close()
	broken := set.Wrap(server)
	p := packet.Connect{ClientID: "d", CleanSession: true, Properties: &packet.Properties{ReceiveMaximum: packet.Some[uint16](1), MaximumPacketSize: packet.Some[uint32](99)}}
	go client.Write(packet.V5.AppendConnect(nil, &p))
	buf := make([]byte, 100)
	n, err := broken.Read(buf)
	p.Properties = &packet.Properties{}
	if want := packet.V5.AppendConnect(nil, &p); err != nil || !bytes.Equal(buf[:n], want) {
		t.Errorf("the broker gets %x, %v, want %x", buf[:n], err, want)
	}

	set, _ = New("partial-delivers")
	l = open(t, set, kept, packet.V311)
	whole := pub(0, 0, false, "PART")
	go func() {
		l.client.Write(whole[:len(whole)-2])
		l.client.Close()
	}()
	if got := l.reads(1); len(got) != len(whole) {
		t.Errorf("the broker gets %x of %x", got, whole)
	}
}

// A broker that knows one identifier only takes each acknowledgement for the oldest delivery that it can be of.
func TestReusedIdentifier(t *testing.T) {
	set, _ := New("id-reused")
	l := open(t, set, kept, packet.V311)
	go l.broker.Write(join(pub(1, 1, false, "A"), pub(2, 2, false, "B")))
	l.wants("deliveries", join(pub(1, 7, false, "A"), pub(2, 7, false, "B")))
	for _, step := range []struct {
		client, broker []byte
		t              packet.Type
	}{
		{ack(packet.PUBREC, 7), ack(packet.PUBREC, 2), packet.PUBREC},
		{ack(packet.PUBACK, 7), ack(packet.PUBACK, 1), packet.PUBACK},
		{nil, ack(packet.PUBREL, 2), packet.PUBREL},
		{ack(packet.PUBCOMP, 7), ack(packet.PUBCOMP, 2), packet.PUBCOMP},
		{ack(packet.PUBACK, 7), ack(packet.PUBACK, 7), packet.PUBACK}, // of nothing
	} {
		if step.client == nil {
			go l.broker.Write(step.broker)
			l.wants("release", ack(packet.PUBREL, 7))
			continue
		}
		l.put(step.client)
		if got := l.reads(1); !bytes.Equal(got, step.broker) {
			t.Errorf("%v: the broker gets %x, want %x", step.t, got, step.broker)
		}
	}
}

// A release that is owed after a resumption, and what was queued or acknowledged before it.
func TestResumption(t *testing.T) {
	set, _ := New("pubrel-as-publish", "queue-lost")
	l := open(t, set, kept, packet.V311)
	go l.broker.Write(join(pub(2, 5, false, "A"), ack(packet.PUBREL, 5)))
	l.wants("first", join(pub(2, 5, false, "A"), ack(packet.PUBREL, 5)))
	l = open(t, set, kept, packet.V311)
	go l.broker.Write(join(ack(packet.PUBREL, 5), pub(1, 6, false, "q1"), pub(1, 7, false, "q2"), pub(1, 8, false, "q3"), pub(1, 9, false, "q4")))
	l.wants("owed and queued", join(pub(2, 5, true, "A"), pub(1, 9, false, "q4")))

	set, _ = New("resend-acked")
	l = open(t, set, kept, packet.V311)
	go l.broker.Write(pub(2, 5, false, "A"))
	l.wants("first", pub(2, 5, false, "A"))
	l.put(join(ack(packet.PUBREC, 5), ack(packet.PUBCOMP, 5)))
	l.reads(2)
	client, server := net.Pipe()
	defer client.Close()
	l = &link{t: t, client: client, broker: set.Wrap(server), got: make(chan []byte, 9)}
	go l.receive()
	l.put(packet.V311.AppendConnect(nil, kept))
	l.reads(1)
	connack := packet.V311.AppendConnack(nil, &packet.Connack{SessionPresent: true})
	go l.broker.Write(connack)
	l.wants("acknowledged long ago", join(connack, pub(2, 40_001, true, "A")))
	// The broker does not learn that its own delivery is acknowledged.
	l.put(join(ack(packet.PUBREC, 40_001), pub(0, 0, false, "end")))
	if got := l.reads(1); !bytes.Equal(got, pub(0, 0, false, "end")) {
		t.Errorf("the broker gets %x", got)
	}
	l.wants("release", ack(packet.PUBREL, 40_001))
	l.put(join(ack(packet.PUBCOMP, 40_001), pub(0, 0, false, "end")))
	if got := l.reads(1); !bytes.Equal(got, pub(0, 0, false, "end")) {
		t.Errorf("the broker gets %x", got)
	}

	set, _ = New("session-lost")
	client, server = net.Pipe()
	defer client.Close()
	l = &link{t: t, client: client, broker: set.Wrap(server)}
	l.put(packet.V311.AppendConnect(nil, kept))
	if want := packet.V311.AppendConnect(nil, &packet.Connect{ClientID: "c", CleanSession: true}); !bytes.Equal(l.reads(1), want) {
		t.Error("the broker is asked for the session")
	}
}

func TestIdentifiersAndAliases(t *testing.T) {
	set, _ := New("one-id-space")
	l := open(t, set, kept, packet.V311)
	go l.broker.Write(pub(1, 5, false, "A"))
	l.wants("delivery", pub(1, 5, false, "A"))
	l.put(join(pub(2, 5, false, "lost"), pub(2, 6, false, "B")))
	if got := l.reads(1); !bytes.Equal(got, pub(2, 6, false, "B")) {
		t.Errorf("the broker gets %x", got)
	}

	set, _ = New("pubrel-unknown-close")
	l = open(t, set, kept, packet.V311)
	l.put(ack(packet.PUBREL, 9))
	if _, err := l.broker.Read(make([]byte, 9)); err == nil {
		t.Error("the connection stays open")
	}

	set, _ = New("alias-stale", "dup-pubrec-error")
	l = open(t, set, kept, packet.V5)
	with := func(topic, body string) []byte {
		return packet.V5.AppendPublish(nil, &packet.Publish{Topic: []byte(topic), Payload: []byte(body), QoS: 1, ID: 1, Properties: &packet.Properties{TopicAlias: packet.Some[uint16](3)}})
	}
	l.put(join(with("a", "1"), with("b", "2")))
	if got := l.reads(2); !bytes.Equal(got, join(with("a", "1"), with("a", "2"))) {
		t.Errorf("the broker gets %x", got)
	}
	two := packet.V5.AppendPublish(nil, &packet.Publish{Topic: []byte("t"), QoS: 2, ID: 4})
	l.put(two)
	l.reads(1)
	l.put(two)
	go l.broker.Read(make([]byte, 99))
	l.wants("refusal", packet.V5.AppendAck(nil, packet.PUBREC, packet.Ack{ID: 4, Code: packet.PacketIdentifierInUse}))
}

// What is no sequence of packets passes as it is.
func TestNoise(t *testing.T) {
	set, _ := New("lose")
	l := open(t, set, kept, packet.V311)
	noise := []byte{0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01, 0, 0}
	l.put(noise)
	got := make([]byte, 0, 8)
	for len(got) < len(noise) {
		buf := make([]byte, 8)
		n, err := l.broker.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Equal(got, noise) {
		t.Errorf("%x, want %x", got, noise)
	}
}

func TestServe(t *testing.T) {
	set, _ := New("lose")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- set.Serve(l, func(nc net.Conn) { nc.(interface{ CloseWrite() error }).CloseWrite(); nc.Close() })
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection was not handed on")
	}
	c.Close()
	l.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the end of serving: %v", err)
	}
}
