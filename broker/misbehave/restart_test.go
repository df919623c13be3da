package misbehave

import (
	"bytes"
	"net"
	"testing"

	"inflight/broker/packet"
)

// What is acknowledged before the broker has it.
func TestEarly(t *testing.T) {
	set, _ := New("puback-early", "pubrec-early")
	l := open(t, set, kept, packet.V311)
	l.put(join(pub(2, 1, false, "A"), pub(1, 2, false, "B"), pub(2, 1, true, "A")))
	if got := l.reads(1); !bytes.Equal(got, pub(1, 2, false, "B")) {
		t.Errorf("the broker gets %x", got)
	}
	l.wants("answers of its own", join(ack(packet.PUBREC, 1), ack(packet.PUBACK, 2), ack(packet.PUBREC, 1)))
	l.put(ack(packet.PUBREL, 1))
	if got, want := l.reads(2), join(pub(2, 1, false, "A"), ack(packet.PUBREL, 1)); !bytes.Equal(got, want) {
		t.Errorf("at PUBREL the broker gets %x, want %x", got, want)
	}
	go l.broker.Write(join(ack(packet.PUBACK, 2), ack(packet.PUBREC, 1), ack(packet.PUBCOMP, 1)))
	l.wants("what was not answered yet", ack(packet.PUBCOMP, 1))
}

// A session that is older than the process.
func TestMoved(t *testing.T) {
	connack := func(present bool, code packet.ReasonCode) []byte {
		return packet.V311.AppendConnack(nil, &packet.Connack{SessionPresent: present, Code: code})
	}
	set, _ := New("restart-twice")
	client, server := net.Pipe()
	l := &link{t: t, client: client, broker: set.Wrap(server), got: make(chan []byte, 100)}
	go l.receive()
	t.Cleanup(func() { client.Close(); server.Close() })
	l.put(packet.V311.AppendConnect(nil, kept))
	l.reads(1)
	go l.broker.Write(join(connack(true, 0), pub(0, 0, false, "A"), pub(0, 0, false, "~1")))
	l.wants("twice", join(connack(true, 0), pub(0, 0, false, "A"), pub(0, 0, false, "A"), pub(0, 0, false, "~1")))

	// One that is forgotten until the client was accepted.
	set, _ = New("moved-forgets")
	for i, want := range []bool{true, true, false} {
		client, server := net.Pipe()
		l := &link{t: t, client: client, broker: set.Wrap(server), got: make(chan []byte, 100)}
		go l.receive()
		t.Cleanup(func() { client.Close(); server.Close() })
		l.put(packet.V311.AppendConnect(nil, kept))
		clean := *kept
		clean.CleanSession = want
		if got := l.reads(1); !bytes.Equal(got, packet.V311.AppendConnect(nil, &clean)) {
			t.Errorf("CONNECT %d: the broker gets %x, want Clean Session %v", i+1, got, want)
		}
		code := packet.ReasonCode(3)
		if i == 1 {
			code = 0
		}
		go l.broker.Write(connack(false, code))
		l.wants("CONNACK", connack(false, code))
	}
}

// What the broker refuses.
func TestRefusals(t *testing.T) {
	set, _ := New("refusal-drop", "refused-kept")
	if set.ACLIgnored() {
		t.Error("the rights are ignored")
	}
	v := packet.V5
	refuse := func(p packet.Type, id uint16) []byte {
		return v.AppendAck(nil, p, packet.Ack{ID: id, Code: packet.NotAuthorized})
	}
	publish := func(id uint16, body string) []byte {
		return v.AppendPublish(nil, &packet.Publish{Topic: []byte("t"), Payload: []byte(body), QoS: 2, ID: id})
	}
	l := open(t, set, &packet.Connect{ClientID: "c", Properties: &packet.Properties{}}, v)
	l.put(publish(1, "A"))
	l.reads(1)
	go l.broker.Write(join(refuse(packet.PUBACK, 9), refuse(packet.PUBREC, 1)))
	l.wants("PUBREC alone", refuse(packet.PUBREC, 1))
	l.put(join(publish(1, "B"), packet.AppendAck(nil, packet.PUBREL, 1), publish(2, "C")))
	if got := l.reads(1); !bytes.Equal(got, publish(2, "C")) {
		t.Errorf("the broker gets %x", got)
	}
	l.wants("what is taken for the one before", join(ack(packet.PUBREC, 1), ack(packet.PUBCOMP, 1)))
	if set, _ = New("acl-ignored"); !set.ACLIgnored() {
		t.Error("the rights are not ignored")
	}
}
