package session

import (
	"errors"
	"strings"
	"testing"
	"time"

	"inflight/broker/packet"
	"inflight/broker/store"
)

func TestReasonCodesKeepTheOrder(t *testing.T) {
	var p Pipeline
	r := NewReceiver(&p, Limits{Copies: 10, Bytes: 1000}, nil)
	r.Unknown = packet.PacketIdentifierNotFound
	op := r.Publish(1, 1, &store.Message{Topic: "a"})
	r.Refuse(2, 1, packet.NotAuthorized)
	if b := p.Append(nil); len(b) > 0 {
		t.Fatalf("% x overtakes the first PUBACK", b)
	}
	r.Done(op, 0, nil, nil)
	r.Pubrel(9)
	hold := r.Publish(3, 2, &store.Message{Topic: "a"})
	r.Done(hold, 1, nil, nil)
	r.Refuse(3, 2, packet.NotAuthorized) // another copy of what was accepted
	r.Refuse(4, 2, packet.NotAuthorized)
	want := "\x40\x02\x00\x01" + "\x40\x03\x00\x02\x87" + "\x50\x02\x00\x03" + "\x50\x02\x00\x03" + "\x50\x03\x00\x04\x87" + "\x70\x03\x00\x09\x92"
	if got := p.Append(nil); string(got) != want {
		t.Errorf("got % x, want % x", got, want)
	}
}

func TestOver(t *testing.T) {
	var p Pipeline
	r := NewReceiver(&p, Limits{Copies: 10, Bytes: 1000}, []store.Held{{ID: 9, Ref: 1}})
	m := &store.Message{Topic: "a"}
	if r.Over(1, 2, 1) {
		t.Error("a resumed exchange counts")
	}
	op := r.Publish(1, 2, m)
	if !r.Over(2, 2, 1) || !r.Over(2, 1, 1) || r.Over(2, 2, 2) {
		t.Error("an exchange does not count once")
	}
	if r.Over(1, 2, 1) {
		t.Error("another copy counts")
	}
	r.Done(op, 1, nil, nil)
	r.Done(r.Pubrel(1), 1, nil, nil)
	if r.Over(2, 1, 1) {
		t.Error("a completed exchange counts")
	}
	op = r.Publish(2, 1, m)
	if !r.Over(3, 1, 1) {
		t.Error("QoS 1 does not count")
	}
	r.Done(op, 0, nil, nil)
	p.Append(nil)
	if r.Over(3, 1, 1) {
		t.Error("a PUBACK that left counts")
	}
}

func TestSenderOfVersion5(t *testing.T) {
	settled := 0
	delivery := func(qos byte, payload int) store.Delivery {
		return store.Delivery{Message: &store.Message{Topic: "a", Payload: make([]byte, payload), QoS: qos}, QoS: qos, Settle: func() { settled++ }}
	}
	s := NewSender(10)
	s.Connect(Link{Version: packet.V5})
	for range 2 {
		s.Send(nil, nil, delivery(2, 1))
	}
	s.Send(nil, nil, delivery(1, 100))
	s.Send(nil, nil, delivery(1, 1))
	if err := s.Refused(1); err != nil || settled != 1 || s.InFlight() != 3 {
		t.Errorf("refused: %v, %d settled, %d in flight", err, settled, s.InFlight())
	}
	if err := s.Refused(1); err != nil {
		t.Errorf("refused again: %v", err)
	}
	if err := s.Refused(3); !errors.Is(err, ErrUnexpectedAck) {
		t.Errorf("PUBREC for QoS 1: %v", err)
	}
	if b, err := s.Pubrec(nil, 77); err != nil || string(b) != "\x62\x03\x00\x4d\x92" {
		t.Errorf("unknown PUBREC: % x, %v", b, err)
	}
	// The next connection takes one at a time and nothing of 100 bytes.
	s.Connect(Link{Version: packet.V5, ReceiveMaximum: 1, MaximumPacket: 50})
	now := time.Now()
	b := s.Resend(nil, now)
	if len(b) == 0 || !s.Owes() || !s.Full() || settled != 2 || s.InFlight() != 2 {
		t.Fatalf("% x, owes %v, full %v, %d settled", b, s.Owes(), s.Full(), settled)
	}
	if f, n, _, _ := packet.V5.Split(b, 1000); n != len(b) || f.Flags() != 0x0C {
		t.Errorf("resent % x", b)
	}
	if b := s.More(nil, now); len(b) > 0 {
		t.Errorf("% x leaves although the window is full", b)
	}
	b, err := s.Pubrec(nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	if b = s.More(b, now); len(b) != 4 {
		t.Errorf("% x: only a PUBREL is due", b)
	}
	if err := s.Pubcomp(2); err != nil {
		t.Fatal(err)
	}
	if b := s.More(nil, now); len(b) == 0 || s.Owes() {
		t.Error("the last one does not follow")
	}
	if s.Puback(4) != nil || s.InFlight() != 0 || strings.Contains(string(b), "\x00\x03") {
		t.Error("the one that is too large is not gone")
	}
}
