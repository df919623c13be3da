package broker

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"inflight/broker/packet"
)

// unreliable publishes numbered QoS 2 messages as a client that follows the protocol and is cut again and again.
type unreliable struct {
	t       *testing.T
	connect func(first bool) *peer // to any node; nil: the test is over
	longest time.Duration          // of a connection, which is then cut
	more    func(next int) bool    // whether to publish another one
	id      string
	topic   string
	text    string // begins each payload
	window  int
	rng     *rand.Rand

	next   int            // number of the next new message
	states map[uint16]int // identifier -> number, of PUBLISHes without PUBREC
	order  []uint16       // those, in the order of the PUBLISHes
	rels   []uint16       // identifiers with PUBREC and without PUBCOMP, in PUBREC order
	busy   map[uint16]bool
	lastID uint16
}

func newUnreliable(t *testing.T, id, topic string, window int, rng *rand.Rand) *unreliable {
	return &unreliable{t: t, id: id, topic: topic, window: window, rng: rng, states: map[uint16]int{}, busy: map[uint16]bool{}}
}

func (u *unreliable) message(n int) string { return fmt.Sprintf("%s%08d", u.text, n) }

func (u *unreliable) take() uint16 {
	for {
		// Twice as many identifiers as the window: each is used again soon.
		u.lastID = u.lastID%uint16(2*u.window) + 1
		if !u.busy[u.lastID] {
			u.busy[u.lastID] = true
			return u.lastID
		}
	}
}

func (u *unreliable) run() (connections int) {
	first := true
	for u.more(u.next) || len(u.busy) > 0 {
		p := u.connect(first)
		if p == nil {
			return connections
		}
		first = false
		connections++
		u.session(p, time.Now().Add(time.Duration(u.rng.Int64N(int64(u.longest)))))
	}
	return connections
}

func (u *unreliable) session(p *peer, until time.Time) {
	var b []byte
	for _, id := range u.rels {
		b = packet.AppendAck(b, packet.PUBREL, id)
	}
	for _, id := range u.order {
		b = append(b, dup(id, 2, u.topic, u.message(u.states[id]))...)
	}
	for {
		for len(u.busy) < u.window && u.more(u.next) {
			id := u.take()
			u.states[id] = u.next
			u.order = append(u.order, id)
			b = append(b, pub(id, 2, u.topic, u.message(u.next))...)
			u.next++
		}
		if len(b) > 0 {
			if _, err := p.nc.Write(b); err != nil {
				return
			}
			b = b[:0]
		}
		if len(u.busy) == 0 {
			_ = p.nc.Close()
			return
		}
		_ = p.nc.SetReadDeadline(until)
		f, err := p.rd.Next()
		if err != nil {
			p.cut()
			return
		}
		for ok := true; ok; f, ok, _ = p.rd.Buffered() {
			id, err := packet.ParseAck(f)
			if err != nil {
				u.t.Errorf("%s: %v", u.id, err)
				return
			}
			switch f.Type() {
			case packet.PUBREC:
				if len(u.order) > 0 && u.order[0] == id {
					u.order = u.order[1:]
					delete(u.states, id)
					u.rels = append(u.rels, id)
				} else {
					u.t.Errorf("%s: PUBREC %d out of order", u.id, id)
				}
				b = packet.AppendAck(b, packet.PUBREL, id)
			case packet.PUBCOMP:
				if len(u.rels) > 0 && u.rels[0] == id {
					u.rels = u.rels[1:]
					delete(u.busy, id)
				} else {
					u.t.Errorf("%s: PUBCOMP %d out of order", u.id, id)
				}
			}
		}
	}
}

// TestExactlyOnceUnderKills cuts publishers every few milliseconds and moves them from node to node; watchers of every
// QoS on stable connections must see each message once and in order.
func TestExactlyOnceUnderKills(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	run := func(t *testing.T, nodes []*Server, total int) {
		var wg sync.WaitGroup
		for i, window := range []int{1, 16, 64} {
			topic := fmt.Sprintf("k/%d", window)
			for qos := range byte(3) {
				w := connect(t, nodes[int(qos)%len(nodes)], fmt.Sprintf("w%d-%d", window, qos))
				w.subscribe(topic, qos)
				wg.Go(func() { watch(t, w, qos, total) })
			}
			u := newUnreliable(t, fmt.Sprintf("p%d", window), topic, window, rand.New(rand.NewPCG(seed, uint64(i))))
			u.longest, u.more = 60*time.Millisecond, func(next int) bool { return next < total }
			u.connect = func(first bool) *peer { return login(t, nodes[u.rng.IntN(len(nodes))], u.id, true, !first) }
			wg.Go(func() { t.Logf("window %d: %d connections", window, u.run()) })
		}
		wg.Wait()
	}
	t.Run("memory", func(t *testing.T) { run(t, []*Server{open(t, StoreMemory)}, 2000) })
	eachDurable(t, func(t *testing.T, on string) {
		t.Run("alone", func(t *testing.T) {
			t.Parallel()
			run(t, []*Server{open(t, on)}, 400)
		})
		t.Run("cluster", func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts a cluster of three; run without -short")
			}
			t.Parallel()
			run(t, cluster(t, with(on)), 150)
		})
	})
}

// watch receives total messages, then makes sure that nothing more comes.
func watch(t *testing.T, w *peer, qos byte, total int) {
	expected := 0
	var last []byte
	for expected < total {
		_ = w.nc.SetReadDeadline(time.Now().Add(patience))
		f, err := w.rd.Next()
		if err != nil {
			t.Errorf("watcher at QoS %d: %v after %d of %d messages, the last %s", qos, err, expected, total, last)
			return
		}
		switch f.Type() {
		case packet.PUBLISH:
			p, err := packet.ParsePublish(f)
			if err != nil {
				t.Errorf("watcher: %v", err)
				return
			}
			if want := fmt.Sprintf("%08d", expected); string(p.Payload) != want {
				t.Errorf("watcher at QoS %d: message %s, want %s", qos, p.Payload, want)
				return
			}
			last = append(last[:0], p.Payload...)
			expected++
			switch qos {
			case 1:
				w.send(ack(packet.PUBACK, p.ID))
			case 2:
				w.send(ack(packet.PUBREC, p.ID))
			}
		case packet.PUBREL:
			w.send(ack(packet.PUBCOMP, binary.BigEndian.Uint16(f.Body)))
		}
	}
	for {
		_ = w.nc.SetReadDeadline(time.Now().Add(quiet))
		f, err := w.rd.Next()
		if err != nil {
			return
		}
		if f.Type() == packet.PUBLISH {
			t.Errorf("watcher at QoS %d: one more message: %s", qos, describe(f))
			return
		}
	}
}
