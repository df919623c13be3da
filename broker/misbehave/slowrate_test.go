package misbehave

import (
	"container/heap"
	"fmt"
	"math"
	"testing"
	"time"

	"inflight/broker/packet"
)

// event is something that happens at a virtual time.
type event struct {
	at time.Duration
	n  int // later ones of the same time after earlier ones
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// closedLoop is a client with a window, a broker that works service on each packet in turn and answers latency later, and
// the slowConn between them, all in virtual time.
type closedLoop struct {
	c                *slowConn
	qos              byte
	service, latency time.Duration

	codec   packet.Codec
	now     time.Duration
	pending events
	count   int
	free    time.Duration // when the broker has worked off what it has
	left    time.Duration // when the last packet left the line
	done    int           // exchanges
}

func (l *closedLoop) after(d time.Duration, do func()) {
	l.count++
	heap.Push(&l.pending, event{l.now + d, l.count, do})
}

func (l *closedLoop) clock() time.Time { return time.Unix(0, int64(l.now)) }

// fromClient gives the broker what the client sends.
func (l *closedLoop) fromClient(b []byte) {
	if all := l.c.fromClient(b, l.clock()); all != nil {
		b = all
	}
	for len(b) > 0 {
		f, n, _, err := l.codec.Split(b, packet.MaxRemaining)
		if err != nil || n == 0 {
			panic(fmt.Sprintf("half a packet: %v", err))
		}
		l.work(f)
		b = b[n:]
	}
}

// work answers a packet when it is its turn.
func (l *closedLoop) work(f packet.Frame) {
	l.codec.From = packet.FromClient
	answer, id := packet.PUBACK, uint16(0)
	switch f.Type() {
	case packet.PUBLISH:
		p, err := l.codec.ParsePublish(f)
		if err != nil {
			panic(err)
		}
		id = p.ID
		if p.QoS == 2 {
			answer = packet.PUBREC
		}
	case packet.PUBREL:
		a, err := l.codec.ParseAck(f)
		if err != nil {
			panic(err)
		}
		answer, id = packet.PUBCOMP, a.ID
	default:
		return
	}
	l.free = max(l.free, l.now) + l.service
	l.after(l.free-l.now+l.latency, func() { l.fromBroker(l.codec.AppendAck(nil, answer, packet.Ack{ID: id})) })
}

// fromBroker lets an answer leave when the line does, and the client go on at once.
func (l *closedLoop) fromBroker(b []byte) {
	out, hold := l.c.fromBroker(b, l.clock())
	if len(out) == 0 {
		return
	}
	l.left = max(l.left, l.now+hold)
	l.after(l.left-l.now, func() {
		for len(out) > 0 {
			f, n, _, _ := l.codec.Split(out, packet.MaxRemaining)
			l.codec.From = packet.FromServer
			a, err := l.codec.ParseAck(f)
			if err != nil {
				panic(err)
			}
			if f.Type() == packet.PUBREC {
				l.fromClient(l.codec.AppendAck(nil, packet.PUBREL, packet.Ack{ID: a.ID}))
			} else {
				l.done++
				l.fromClient(publish(a.ID, l.qos))
			}
			out = out[n:]
		}
	})
}

// run returns the exchanges of a virtual time.
func (l *closedLoop) run(window int, d time.Duration) int {
	l.fromClient(packet.V311.AppendConnect(nil, &packet.Connect{ClientID: "c", CleanSession: true}))
	for id := range window {
		l.fromClient(publish(uint16(id+1), l.qos))
	}
	for len(l.pending) > 0 {
		e := heap.Pop(&l.pending).(event)
		if e.at > d {
			break
		}
		l.now = e.at
		e.do()
	}
	return l.done
}

// A share of 10 % takes the throughput of a closed loop down to 1/1.1, whatever bounds it: the broker's latency, its work, or
// some of both.
func TestSlowIsSlowerByTheShare(t *testing.T) {
	t.Parallel()
	const (
		ms        = time.Millisecond
		tolerance = 0.08 // most is within a hundredth; QoS 2 over a broker that is bound by both loses a little more
	)
	for _, c := range []struct {
		why              string
		service, latency time.Duration
		window           int
	}{
		{"latency, alone", 0, 2 * ms, 1},
		{"latency", 0, 2 * ms, 20},
		{"latency, and a broker that is busy half of the time", ms / 10, 2 * ms, 10},
		{"as much work as latency", ms / 10, 2 * ms, 20},
		{"work, with a window just beyond the latency", ms / 10, 2 * ms, 30},
		{"work", ms / 10, ms / 10, 20},
		{"work, far behind", ms / 10, 2 * ms, 64},
	} {
		for qos := byte(1); qos <= 2; qos++ {
			run := func(share float64) float64 {
				l := &closedLoop{c: newSlowConn(nil, share), qos: qos, service: c.service, latency: c.latency}
				return float64(l.run(c.window, 400*ms))
			}
			base := run(0)
			for _, share := range []float64{0.1, 0.4} {
				got, want := run(share)/base, 1/(1+share)
				if math.Abs(math.Log(got/want)) > tolerance {
					t.Errorf("%s, window %d, QoS %d: a share of %.0f %% leaves %.3f of the throughput, want %.3f", c.why, c.window, qos, 100*share, got, want)
				}
			}
		}
	}
}
