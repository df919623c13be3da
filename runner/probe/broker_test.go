package probe

import (
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"inflight/broker/packet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// smallBroker is just enough of a broker to be checked: sessions in memory, QoS 0 to 2 both ways, delivery at PUBREL, no
// wildcards and nothing retained. fault may change what it writes.
type smallBroker struct {
	addr  string
	fault func(client string, answer []byte) []byte

	mu       sync.Mutex
	sessions map[string]*smallSession
	conns    []net.Conn
	group    sync.WaitGroup
}

type smallSession struct {
	id    string
	conn  net.Conn
	codec *packet.Codec
	subs  map[string]byte
	held  map[uint16]packet.Publish
	out   []packet.Publish // sent and not acknowledged
	rel   map[uint16]bool  // PUBREC was received
	next  uint16
}

func startSmall(t *testing.T, fault func(string, []byte) []byte) *smallBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &smallBroker{addr: l.Addr().String(), fault: fault, sessions: map[string]*smallSession{}}
	b.group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns = append(b.conns, conn)
			b.mu.Unlock()
			b.group.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		b.mu.Lock()
		for _, c := range b.conns {
			c.Close()
		}
		b.mu.Unlock()
		b.group.Wait()
	})
	return b
}

func (b *smallBroker) serve(conn net.Conn) {
	defer conn.Close()
	reader := packet.NewReader(conn, 1<<16, 0)
	f, err := reader.Next()
	if err != nil || f.Type() != packet.CONNECT {
		return
	}
	codec := &packet.Codec{}
	p, err := codec.ParseConnect(f)
	if err != nil {
		return
	}
	reader.SetVersion(codec.Version)
	b.mu.Lock()
	s := b.sessions[p.ClientID]
	if s != nil && s.conn != nil {
		s.conn.Close()
	}
	present := s != nil && !p.CleanSession
	if !present {
		s = &smallSession{id: p.ClientID, subs: map[string]byte{}, held: map[uint16]packet.Publish{}, rel: map[uint16]bool{}}
		b.sessions[p.ClientID] = s
	}
	s.conn, s.codec = conn, codec
	b.write(s, codec.AppendConnack(nil, &packet.Connack{SessionPresent: present}))
	for i := range s.out {
		if s.rel[s.out[i].ID] {
			b.write(s, packet.AppendAck(nil, packet.PUBREL, s.out[i].ID))
			continue
		}
		again := s.out[i]
		again.Dup = true
		b.write(s, codec.AppendPublish(nil, &again))
	}
	b.mu.Unlock()
	for {
		f, err := reader.Next()
		if err != nil {
			break
		}
		b.mu.Lock()
		ok := s.conn == conn && b.packet(s, f)
		b.mu.Unlock()
		if !ok {
			break
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.conn == conn {
		s.conn = nil
		if p.CleanSession {
			delete(b.sessions, s.id)
		}
	}
}

// write is called with the lock; a client that is gone gets nothing.
func (b *smallBroker) write(s *smallSession, out []byte) {
	if b.fault != nil {
		out = b.fault(s.id, out)
	}
	if s.conn != nil && len(out) > 0 {
		s.conn.Write(out)
	}
}

func (b *smallBroker) packet(s *smallSession, f packet.Frame) bool {
	c := s.codec
	switch f.Type() {
	case packet.PUBLISH:
		p, err := c.ParsePublish(f)
		if err != nil {
			return false
		}
		m := packet.Publish{Topic: []byte(string(p.Topic)), Payload: []byte(string(p.Payload)), QoS: p.QoS}
		switch p.QoS {
		case 2:
			if _, known := s.held[p.ID]; !known {
				s.held[p.ID] = m
			}
			b.write(s, packet.AppendAck(nil, packet.PUBREC, p.ID))
		case 1:
			b.deliver(m)
			b.write(s, packet.AppendAck(nil, packet.PUBACK, p.ID))
		default:
			b.deliver(m)
		}
	case packet.PUBREL:
		a, err := c.ParseAck(f)
		if err != nil {
			return false
		}
		if m, ok := s.held[a.ID]; ok {
			delete(s.held, a.ID)
			b.deliver(m)
		}
		b.write(s, packet.AppendAck(nil, packet.PUBCOMP, a.ID))
	case packet.PUBREC, packet.PUBACK, packet.PUBCOMP:
		a, err := c.ParseAck(f)
		if err != nil {
			return false
		}
		if f.Type() == packet.PUBREC {
			s.rel[a.ID] = true
			b.write(s, packet.AppendAck(nil, packet.PUBREL, a.ID))
			break
		}
		for i := range s.out {
			if s.out[i].ID == a.ID {
				s.out = append(s.out[:i], s.out[i+1:]...)
				break
			}
		}
		delete(s.rel, a.ID)
	case packet.SUBSCRIBE:
		p, err := c.ParseSubscribe(f)
		if err != nil {
			return false
		}
		ack := packet.Suback{ID: p.ID}
		for _, sub := range p.Subscriptions {
			s.subs[sub.Filter] = sub.QoS
			ack.Codes = append(ack.Codes, packet.ReasonCode(sub.QoS))
		}
		b.write(s, c.AppendSuback(nil, &ack))
	case packet.PINGREQ:
		b.write(s, packet.AppendEmpty(nil, packet.PINGRESP))
	default:
		return false
	}
	return true
}

func (b *smallBroker) deliver(m packet.Publish) {
	for _, s := range b.sessions {
		qos, ok := s.subs[string(m.Topic)]
		if !ok {
			continue
		}
		p := m
		if p.QoS = min(m.QoS, qos); p.QoS > 0 {
			s.next++
			p.ID = s.next
			s.out = append(s.out, p)
		}
		b.write(s, s.codec.AppendPublish(nil, &p))
	}
}
