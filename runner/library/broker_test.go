package library

import (
	"net"
	"sync"
	"testing"

	"inflight/broker/packet"
)

// peer is a broker that acknowledges in batches, so that the window of its client shows: it answers nothing until batch
// PUBLISHes are unanswered, and then all of them.
type peer struct {
	addr           string
	batch          int
	limit          int64 // PUBLISHes that are answered at all; 0: all of them
	dropAfter      int64 // the connection is closed after so many PUBLISHes; 0: never
	receiveMaximum uint16
	take           func(payload []byte) // called with each message, by one goroutine at a time; nil: nobody

	mu       sync.Mutex
	seen     int64
	most     int // PUBLISHes unanswered on one connection
	versions map[packet.Version]bool
}

func startPeer(t *testing.T, p *peer) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr, p.versions = l.Addr().String(), map[packet.Version]bool{}
	var group sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			group.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return p
}

func (p *peer) serve(conn net.Conn) {
	defer conn.Close()
	var codec packet.Codec
	r := packet.NewReader(conn, 1<<16, 0)
	var waiting []byte
	n := 0
	for {
		f, err := r.Next()
		if err != nil {
			return
		}
		var out []byte
		switch f.Type() {
		case packet.CONNECT:
			if _, err := codec.ParseConnect(f); err != nil {
				return
			}
			r.SetVersion(codec.Version)
			ack := &packet.Connack{}
			if p.receiveMaximum > 0 && codec.Version == packet.V5 {
				ack.Properties = &packet.Properties{ReceiveMaximum: packet.Some(p.receiveMaximum)}
			}
			out = codec.AppendConnack(nil, ack)
			p.mu.Lock()
			p.versions[codec.Version] = true
			p.mu.Unlock()
		case packet.PUBLISH:
			m, err := codec.ParsePublish(f)
			if err != nil {
				return
			}
			n++
			answered, drop := p.note(&m, n)
			if drop {
				return
			}
			answer := packet.PUBACK
			if m.QoS == 2 {
				answer = packet.PUBREC
			}
			if answered {
				waiting = packet.AppendAck(waiting, answer, m.ID)
			}
			if n >= p.batch {
				out, waiting, n = waiting, nil, 0
			}
		case packet.PUBREL:
			a, err := codec.ParseAck(f)
			if err != nil {
				return
			}
			out = packet.AppendAck(nil, packet.PUBCOMP, a.ID)
		case packet.PINGREQ:
			out = packet.AppendEmpty(nil, packet.PINGRESP)
		default:
			return
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func (p *peer) note(m *packet.Publish, unanswered int) (answered, drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	p.most = max(p.most, unanswered)
	if p.take != nil {
		p.take(m.Payload)
	}
	return p.limit == 0 || p.seen <= p.limit, p.dropAfter > 0 && p.seen > p.dropAfter
}
