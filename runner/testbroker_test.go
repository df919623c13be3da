package runner

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"inflight/broker/packet"
)

// testBroker is just enough of a broker to be verified: every subscriber gets what is published below its filter, a prefix
// and "+". Its faults are planted per delivery of a message, probes left alone.
type testBroker struct {
	addr string

	mu          sync.Mutex
	subscribers []*testSubscriber
	deliveries  int
	deaf        int // publishes still to be ignored

	// fault returns how many copies of the nth delivery go out; nil: one.
	fault func(n int) int
	// pace is slept before each delivery.
	pace time.Duration
	// late is the number of publishes after a SUBACK before the subscription is in force.
	late int
}

type testSubscriber struct {
	conn   net.Conn
	prefix string
	qos    byte
	id     uint16
}

func startTestBroker(t *testing.T, b *testBroker) *testBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr = l.Addr().String()
	var group sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			group.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return b
}

// forReadiness tells the topics with which package target looks whether a broker works.
func forReadiness(topic string) bool { return strings.HasPrefix(topic, "inflight/ready/") }

func (b *testBroker) serve(conn net.Conn) {
	defer conn.Close()
	reader := packet.NewReader(conn, 1<<16, 0)
	for {
		f, err := reader.Next()
		if err != nil {
			return
		}
		var out []byte
		switch f.Type() {
		case packet.CONNECT:
			out = packet.AppendConnack(nil, false, packet.Accepted)
		case packet.SUBSCRIBE:
			s, err := packet.ParseSubscribe(f)
			if err != nil {
				return
			}
			out = packet.AppendSuback(nil, s.ID, []byte{s.Subscriptions[0].QoS})
			b.subscribe(conn, s)
		case packet.PINGREQ:
			out = packet.AppendEmpty(nil, packet.PINGRESP)
		case packet.PUBLISH:
			p, err := packet.ParsePublish(f)
			if err != nil {
				return
			}
			b.deliver(&p)
			switch p.QoS {
			case 1:
				out = packet.AppendAck(nil, packet.PUBACK, p.ID)
			case 2:
				out = packet.AppendAck(nil, packet.PUBREC, p.ID)
			}
		case packet.PUBREC:
			id, _ := packet.ParseAck(f)
			out = packet.AppendAck(nil, packet.PUBREL, id)
		case packet.PUBREL:
			id, _ := packet.ParseAck(f)
			out = packet.AppendAck(nil, packet.PUBCOMP, id)
		case packet.DISCONNECT:
			return
		}
		if len(out) == 0 {
			continue
		}
		b.mu.Lock() // deliveries share the connection of a subscriber
		_, err = conn.Write(out)
		b.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (b *testBroker) subscribe(conn net.Conn, s packet.Subscribe) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !forReadiness(s.Subscriptions[0].Filter) {
		b.deaf = b.late
	}
	b.subscribers = append(b.subscribers, &testSubscriber{
		conn:   conn,
		prefix: strings.TrimRight(s.Subscriptions[0].Filter, "+#"),
		qos:    s.Subscriptions[0].QoS,
	})
}

func (b *testBroker) deliver(p *packet.Publish) {
	time.Sleep(b.pace)
	b.mu.Lock()
	defer b.mu.Unlock()
	topic := string(p.Topic)
	if !forReadiness(topic) {
		if b.deaf--; b.deaf >= 0 {
			return
		}
	}
	for _, s := range b.subscribers {
		if !strings.HasPrefix(topic, s.prefix) {
			continue
		}
		copies := 1
		if b.fault != nil && !forReadiness(topic) && !strings.Contains(topic, "/probe") {
			copies = b.fault(b.deliveries)
			b.deliveries++
		}
		for range copies {
			s.id = s.id%65535 + 1
			q := packet.Publish{Topic: p.Topic, Payload: p.Payload, QoS: min(p.QoS, s.qos), ID: s.id}
			if q.QoS == 0 {
				q.ID = 0
			}
			s.conn.Write(packet.AppendPublish(nil, &q)) // its reader sees a broken connection
		}
	}
}
