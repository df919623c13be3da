package misbehave

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"inflight/broker/packet"
)

func TestSlowNames(t *testing.T) {
	for name, want := range map[string]float64{"slow:10%": 0.1, "slow:40": 0.4, "slow:2.5%": 0.025} {
		if s, err := New(name); err != nil || s.slow != want {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	for _, name := range []string{"slow:", "slow:0%", "slow:-5%", "slow:NaN", "slow:2000%", "slow"} {
		if _, err := New(name); err == nil || !strings.Contains(err.Error(), "slow") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// slowly feeds a slowConn by hand: no connection, no clock.
type slowly struct {
	t   *testing.T
	c   *slowConn
	now time.Time
}

func newSlowly(t *testing.T, share float64) *slowly {
	s := &slowly{t: t, c: newSlowConn(nil, share), now: time.Unix(0, 0)}
	s.client(packet.V311.AppendConnect(nil, &packet.Connect{ClientID: "c", CleanSession: true}))
	return s
}

// client is what the broker gets of what the client sends.
func (s *slowly) client(b []byte) []packet.Frame {
	out := s.c.fromClient(b, s.now)
	if out == nil {
		out = b
	}
	return s.frames(out)
}

// broker is what the client gets of what the broker sends after a time, and for how long that is held back.
func (s *slowly) broker(after time.Duration, b []byte) ([]packet.Frame, time.Duration) {
	s.now = s.now.Add(after)
	out, hold := s.c.fromBroker(b, s.now)
	return s.frames(out), hold
}

func (s *slowly) frames(b []byte) (all []packet.Frame) {
	s.t.Helper()
	for len(b) > 0 {
		f, n, _, err := packet.V311.Split(b, packet.MaxRemaining)
		if err != nil || n == 0 {
			s.t.Fatalf("not a sequence of packets: %x", b)
		}
		all = append(all, f)
		b = b[n:]
	}
	return all
}

func publish(id uint16, qos byte) []byte {
	return packet.AppendPublish(nil, &packet.Publish{QoS: qos, ID: id, Topic: []byte("t"), Payload: []byte("payload")})
}

// Ten messages make one more, the broker answers it, and the client hears nothing of it.
func TestSlowAddsWork(t *testing.T) {
	s := newSlowly(t, 0.1)
	var extra []uint16
	for id := uint16(1); id <= 41; id++ { // the first is alone
		for _, f := range s.client(publish(id, 2)) {
			p, err := packet.ParsePublish(f)
			if err != nil {
				t.Fatal(err)
			}
			if p.ID >= firstOwn {
				extra = append(extra, p.ID)
				if string(p.Topic) != slowTopic || p.QoS != 2 || string(p.Payload) != "payload" {
					t.Errorf("extra message %+v", p)
				}
			}
		}
	}
	if len(extra) != 4 {
		t.Fatalf("%d extra messages for 40 at 10 %%, want 4", len(extra))
	}
	if got, _ := s.broker(0, packet.AppendAck(nil, packet.PUBREC, extra[0])); len(got) != 0 {
		t.Errorf("the client hears of the extra message: %v", got)
	}
	got := s.client(packet.AppendAck(nil, packet.PUBREL, 1))
	if len(got) != 2 || !bytes.Equal(got[0].Body, packet.AppendAck(nil, packet.PUBREL, extra[0])[2:]) {
		t.Errorf("the broker gets %v, want the PUBREL of the extra message and that of the client", got)
	}
	if got, _ := s.broker(0, packet.AppendAck(packet.AppendAck(nil, packet.PUBCOMP, extra[0]), packet.PUBCOMP, 1)); len(got) != 1 || got[0].Type() != packet.PUBCOMP {
		t.Errorf("the client gets %v, want its own PUBCOMP", got)
	}
	if s.c.own[extra[0]] || len(s.c.own) != 3 {
		t.Errorf("identifiers in use: %v", s.c.own)
	}
	for range 50 {
		if got := s.client(publish(0, 0)); len(got) != 1 {
			t.Fatalf("QoS 0 is not left alone: %v", got)
		}
	}
	if got := s.client(publish(60_500, 1)); len(got) != 1 || !s.c.crowded {
		t.Errorf("a client that uses our identifiers: %v", got)
	}
}

// However the client's bytes are cut, the broker gets the same packets: the extra ones come between two others.
func TestSlowCutsNoPacket(t *testing.T) {
	var sent []byte
	for id := uint16(1); id <= 30; id++ {
		sent = append(sent, publish(id, byte(id%3))...)
		sent = packet.AppendAck(sent, packet.PUBREL, id)
	}
	for size := 1; size <= len(sent); size = size*3/2 + 1 {
		s := newSlowly(t, 0.4)
		var got []byte
		for rest := sent; len(rest) > 0; {
			n := min(size, len(rest))
			out := s.c.fromClient(rest[:n], s.now)
			if out == nil {
				out = rest[:n]
			}
			got = append(got, out...)
			if len(got) > 200 {
				s.c.owed = packet.AppendAck(nil, packet.PUBREL, firstOwn)
			}
			rest = rest[n:]
		}
		theirs, ours := []byte(nil), 0
		for len(got) > 0 {
			f, n, _, err := packet.V311.Split(got, packet.MaxRemaining)
			if err != nil || n == 0 {
				t.Fatalf("%d bytes at a time: the packets were cut", size)
			}
			id := uint16(0)
			if p, err := packet.ParsePublish(f); err == nil {
				id = p.ID
			} else if a, err := packet.ParseAck(f); err == nil {
				id = a
			}
			if id >= firstOwn {
				ours++
			} else {
				theirs = append(theirs, got[:n]...)
			}
			got = got[n:]
		}
		if !bytes.Equal(theirs, sent) || ours < 8 {
			t.Errorf("%d bytes at a time: %d extra packets, the client's own the same: %v", size, ours, bytes.Equal(theirs, sent))
		}
	}
}

// An acknowledgement is held back for a share of what the broker took, whole packets or not.
func TestSlowHoldsBack(t *testing.T) {
	s := newSlowly(t, 0.5)
	s.client(publish(7, 2))
	rec := packet.AppendAck(nil, packet.PUBREC, 7)
	if got, hold := s.broker(10*time.Millisecond, rec[:3]); len(got) != 0 || hold != 0 {
		t.Errorf("three bytes of a packet: %v, held for %v", got, hold)
	}
	if got, hold := s.broker(0, rec[3:]); len(got) != 1 || hold != 5*time.Millisecond {
		t.Errorf("PUBREC after 10 ms at 50 %%: %v, held for %v", got, hold)
	}
	s.client(packet.AppendAck(nil, packet.PUBREL, 7))
	if got, hold := s.broker(4*time.Millisecond, packet.AppendAck(nil, packet.PUBCOMP, 7)); len(got) != 1 || hold != 2*time.Millisecond {
		t.Errorf("PUBCOMP after 4 ms at 50 %%: %v, held for %v", got, hold)
	}
	if got, hold := s.broker(time.Second, packet.AppendEmpty(nil, packet.PINGRESP)); len(got) != 1 || hold != 0 {
		t.Errorf("PINGRESP: %v, held for %v", got, hold)
	}
	if len(s.c.arrived) != 0 {
		t.Errorf("left behind: %v", s.c.arrived)
	}
}

// Over a connection: the broker reads the extra messages, in whatever pieces, and the client never sees their answers.
func TestSlowConnection(t *testing.T) {
	client, nc := net.Pipe()
	defer client.Close()
	c := newSlowConn(nc, 1)
	sent := packet.V311.AppendConnect(nil, &packet.Connect{ClientID: "c", CleanSession: true})
	for id := uint16(1); id <= 3; id++ {
		sent = append(sent, publish(id, 1)...)
	}
	go client.Write(sent)
	var got []byte
	for ids := 0; ids < 5; { // two extra ones: the first message is alone
		b := make([]byte, 16)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b[:n]...)
		ids = 0
		for rest := got; ; {
			f, n, _, err := packet.V311.Split(rest, packet.MaxRemaining)
			if err != nil || n == 0 {
				break
			}
			if f.Type() == packet.PUBLISH {
				ids++
			}
			rest = rest[n:]
		}
	}
	answers := []byte(nil)
	for id := uint16(1); id <= 3; id++ {
		answers = packet.AppendAck(packet.AppendAck(answers, packet.PUBACK, id), packet.PUBACK, firstOwn+id-1)
	}
	go func() {
		_, _ = c.Write(answers[:16])
		_, _ = c.Write(answers[16:])
		_ = c.CloseWrite()
	}()
	heard, err := io.ReadAll(client)
	if err != nil || !bytes.Equal(heard[:8], packet.AppendAck(packet.AppendAck(nil, packet.PUBACK, 1), packet.PUBACK, 2)) {
		t.Errorf("the client hears %x, %v", heard, err)
	}
	if _, err := c.Read(make([]byte, 16)); err == nil {
		t.Error("a connection that is closed is read")
	}
}

// An alarm is never early, and can be used again after it was closed.
func TestAlarm(t *testing.T) {
	var a alarm
	for _, d := range []time.Duration{-time.Second, 0, 70 * time.Microsecond, 3 * time.Millisecond} {
		begun := time.Now()
		a.wait(d)
		if took := time.Since(begun); took < d {
			t.Errorf("%v took %v", d, took)
		}
		a.close()
	}
}

// late is what an alarm is late by.
func BenchmarkAlarm(b *testing.B) {
	const wanted = 300 * time.Microsecond
	var a alarm
	defer a.close()
	var late time.Duration
	for b.Loop() {
		begun := time.Now()
		a.wait(wanted)
		late += time.Since(begun) - wanted
	}
	b.ReportMetric(float64(late.Microseconds())/float64(b.N), "us-late/op")
}
