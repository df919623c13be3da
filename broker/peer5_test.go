package broker

import (
	"fmt"
	"strings"
	"testing"

	"inflight/broker/packet"
)

// peer5 is a peer that speaks MQTT 5.0.
type peer5 struct {
	*peer
	codec packet.Codec
}

type props = packet.Properties

func dial5(t testing.TB, s *Server) *peer5 {
	t.Helper()
	p := &peer5{peer: dial(t, s), codec: packet.Codec{Version: packet.V5, From: packet.FromServer}}
	p.rd.SetVersion(packet.V5)
	return p
}

// connect5 dials, connects and wants to be accepted; present says whether a session must be resumed.
func connect5(t testing.TB, s *Server, c *packet.Connect, present bool) *peer5 {
	t.Helper()
	p := dial5(t, s)
	p.send(packet.V5.AppendConnect(nil, c))
	f, err := p.next()
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.codec.ParseConnack(f)
	if err != nil || a.Code != 0 || a.SessionPresent != present {
		t.Fatalf("want present=%v, got %+v, %v", present, a, err)
	}
	return p
}

// clean5 connects with Clean Start and no Session Expiry Interval.
func clean5(t testing.TB, s *Server, id string) *peer5 {
	t.Helper()
	return connect5(t, s, &packet.Connect{ClientID: id, CleanSession: true}, false)
}

func pub5(id uint16, qos byte, topic, payload string, p *props) []byte {
	return packet.V5.AppendPublish(nil, &packet.Publish{Topic: []byte(topic), Payload: []byte(payload), ID: id, QoS: qos, Properties: p})
}

func ack5(t packet.Type, id uint16, code packet.ReasonCode) []byte {
	return packet.V5.AppendAck(nil, t, packet.Ack{ID: id, Code: code})
}

func (p *peer5) subscribe(id uint32, subs ...packet.Subscription) {
	p.t.Helper()
	req := packet.Subscribe{ID: 9, Subscriptions: subs}
	if id > 0 {
		req.Properties = &props{SubscriptionIDs: []uint32{id}}
	}
	p.send(packet.V5.AppendSubscribe(nil, &req))
	codes := make([]string, len(subs))
	for i, s := range subs {
		codes[i] = fmt.Sprintf("%#02x", s.QoS)
	}
	p.want("SUBACK 9 " + strings.Join(codes, " "))
}

func (p *peer5) describe(f packet.Frame) string {
	c := &p.codec
	switch t := f.Type(); t {
	case packet.PUBLISH:
		m, err := c.ParsePublish(f)
		s := fmt.Sprintf("PUBLISH q%d %s %q", m.QoS, m.Topic, m.Payload)
		if m.Dup {
			s += " dup"
		}
		if m.Retain {
			s += " retain"
		}
		return orError(err, "%s", s+describeProps(m.Properties))
	case packet.SUBACK, packet.UNSUBACK:
		parse := c.ParseSuback
		if t == packet.UNSUBACK {
			parse = c.ParseUnsuback
		}
		a, err := parse(f)
		s := fmt.Sprintf("%v %d", t, a.ID)
		for _, code := range a.Codes {
			s += fmt.Sprintf(" %#02x", byte(code))
		}
		return orError(err, "%s", s)
	case packet.DISCONNECT:
		d, err := c.ParseDisconnect(f)
		return orError(err, "DISCONNECT %#02x", byte(d.Code))
	case packet.CONNACK:
		a, err := c.ParseConnack(f)
		return orError(err, "CONNACK present=%v %#02x", a.SessionPresent, byte(a.Code))
	case packet.PINGRESP:
		return orError(c.ParseEmpty(f), "PINGRESP")
	default:
		a, err := c.ParseAck(f)
		s := fmt.Sprintf("%v %d", t, a.ID)
		if a.Code != 0 {
			s += fmt.Sprintf(" %#02x", byte(a.Code))
		}
		return orError(err, "%s", s)
	}
}

// describeProps leaves out the message expiry, which depends on the clock.
func describeProps(p *props) (s string) {
	if p == nil {
		return ""
	}
	if p.PayloadFormat.Set {
		s += fmt.Sprintf(" format=%d", p.PayloadFormat.Value)
	}
	for name, v := range map[string][]byte{"type": p.ContentType} {
		if v != nil {
			s += fmt.Sprintf(" %s=%s", name, v)
		}
	}
	if p.ResponseTopic != nil {
		s += fmt.Sprintf(" response=%s", p.ResponseTopic)
	}
	if p.CorrelationData != nil {
		s += fmt.Sprintf(" correlation=%x", p.CorrelationData)
	}
	for _, id := range p.SubscriptionIDs {
		s += fmt.Sprintf(" subscription=%d", id)
	}
	for _, u := range p.User {
		s += fmt.Sprintf(" %s:%s", u.Key, u.Value)
	}
	return s
}

// want reads one packet for each sentence; the Packet Identifier of the last PUBLISH is returned.
func (p *peer5) want(sentences ...string) (id uint16) {
	p.t.Helper()
	for _, want := range sentences {
		f, err := p.next()
		if err != nil {
			p.t.Fatalf("want %s, got %v", want, err)
		}
		if got := p.describe(f); got != want {
			p.t.Fatalf("want %s, got %s", want, got)
		}
		if f.Type() == packet.PUBLISH {
			m, _ := p.codec.ParsePublish(f)
			id = m.ID
		}
	}
	return id
}

// wantEnd wants a DISCONNECT with a Reason Code and the end.
func (p *peer5) wantEnd(code packet.ReasonCode) {
	p.t.Helper()
	p.want(fmt.Sprintf("DISCONNECT %#02x", byte(code)))
	p.wantClosed()
}

// leave disconnects and waits for the broker to have noticed.
func (p *peer5) leave(d packet.Disconnect) {
	p.t.Helper()
	p.send(packet.V5.AppendDisconnect(nil, &d))
	p.wantClosed()
}

// away waits until nothing is connected as a client.
func away(t testing.TB, s *Server, id string) {
	t.Helper()
	eventually(t, func() bool {
		cl := s.client(id)
		if cl == nil {
			return true
		}
		cl.mu.Lock()
		defer cl.mu.Unlock()
		return cl.conn == nil
	})
}
