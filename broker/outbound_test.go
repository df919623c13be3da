package broker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/packet"
	"inflight/broker/session"
	"inflight/broker/store"
	"inflight/broker/store/journal"
	"inflight/broker/store/staged"
)

// crash takes the embedded node away without a word, and with it whatever was on its way.
func crash(s *Server) {
	s.node.Stop()
	s.Shutdown()
}

// places are where a session can go on after its connection was cut: move returns the broker to go on with.
func places(t *testing.T, run func(t *testing.T, first *Server, move func() *Server)) {
	restart := func(t *testing.T, on string, stop func(*Server)) {
		t.Parallel()
		cfg := Config{Listen: "127.0.0.1:0", Store: on, StoreDir: t.TempDir(), Pipeline: true, Log: testLog(t)}
		s := start(t, cfg)
		run(t, s, func() *Server {
			stop(s)
			return start(t, cfg)
		})
	}
	t.Run("the same node", func(t *testing.T) {
		t.Parallel()
		eachStore(t, func(t *testing.T, s *Server) { run(t, s, func() *Server { return s }) })
	})
	eachDurable(t, func(t *testing.T, on string) {
		t.Run("after a restart", func(t *testing.T) { restart(t, on, (*Server).Shutdown) })
		t.Run("after a crash", func(t *testing.T) { restart(t, on, crash) })
		t.Run("cluster", func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts a cluster of three; run without -short")
			}
			t.Parallel()
			nodes := cluster(t, with(on))
			t.Run("another node", func(t *testing.T) { run(t, nodes[0], func() *Server { return nodes[1] }) })
			t.Run("another node after a crash", func(t *testing.T) {
				run(t, nodes[2], func() *Server {
					crash(nodes[2])
					return nodes[0]
				})
			})
		})
	})
}

// settleDown waits until the acknowledgements that were sent are in the record, so that what is owed is exact.
func settleDown(w *peer) {
	w.t.Helper()
	w.ping() // what was sent before has been read
	cl := w.s.client(w.id)
	await(w.t, "everything in the record", func() bool {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		o := &cl.out
		return !o.on || !o.writing && o.timer == nil && len(o.held)+len(o.settle) == 0 && cl.sender.Version() == o.durable
	})
}

// took is one PUBLISH as the subscriber sees it.
type took struct {
	id   uint16
	text string
}

func (w *peer) takes(n int) []took {
	w.t.Helper()
	var got []took
	for len(got) < n {
		f, err := w.next()
		if err != nil {
			w.t.Fatalf("want %d messages, got %v after %d", n, err, len(got))
		}
		p, err := packet.ParsePublish(f)
		if f.Type() != packet.PUBLISH || err != nil {
			w.t.Fatalf("want a PUBLISH, got %s", describe(f))
		}
		got = append(got, took{p.ID, describe(f)})
	}
	return got
}

// publishes sends numbered messages, odd ones at QoS 1 to b/x and even ones at QoS 2 to a, and completes them.
func publishes(p *peer, from, to int) {
	p.t.Helper()
	for i := from; i <= to; i++ {
		id := uint16(i)
		if i%2 == 1 {
			p.send(pub(id, 1, "b/x", fmt.Sprint(i)))
			p.want(fmt.Sprintf("PUBACK %d", id))
			continue
		}
		p.send(pub(id, 2, "a", fmt.Sprint(i)), ack(packet.PUBREL, id))
		p.want(fmt.Sprintf("PUBREC %d", id), fmt.Sprintf("PUBCOMP %d", id))
	}
}

// A node whose session another one has gone on with finds out with the next record: what it would send then is not sent, and
// the session is given up here, and found as the other one has recorded it.
func TestOutboundTakenElsewhere(t *testing.T) {
	t.Parallel()
	s := open(t, StoreStaged)
	w := connect(t, s, "w", "keep")
	w.subscribe("a", 2)
	p := connect(t, s, "p")
	p.completes(1, "a", "1")
	w.want(`PUBLISH q2 a "1"`)
	settleDown(w)
	nc, err := s.node.Connect("another node")
	if err != nil {
		t.Fatal(err)
	}
	other, err := staged.Open(t.Context(), staged.Config{Conn: nc, Node: "another node"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	record, err := other.Outbound(t.Context(), "w")
	if err != nil || len(record) == 0 {
		t.Fatalf("record %q, %v", record, err)
	}
	written := make(chan error, 1)
	other.PutOutbound("w", record, func(err error) { written <- err })
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	p.completes(2, "a", "2")
	w.wantClosed()
	w = connect(t, s, "w", "keep", "present")
	w.want(`PUBLISH q2 a "1" dup`, `PUBLISH q2 a "2"`)
}

// What a node still has in memory of a session that another one has gone on with meanwhile, without asking, is not sent
// when the client comes back: its messages are settled, and the receiver would take them for new ones.
func TestStaleSessionIsNotResumed(t *testing.T) {
	t.Parallel()
	opens := map[string]func(nc *nats.Conn) (store.Store, error){
		StoreStaged: func(nc *nats.Conn) (store.Store, error) {
			return staged.Open(t.Context(), staged.Config{Conn: nc, Node: "another"})
		},
		StoreJournal: func(nc *nats.Conn) (store.Store, error) { return journal.Open(t.Context(), journal.Config{Conn: nc}) },
	}
	eachDurable(t, func(t *testing.T, on string) {
		s := open(t, on)
		w := connect(t, s, "w", "keep")
		w.subscribe("a", 2)
		p := connect(t, s, "p")
		p.completes(1, "a", "1")
		w.want(`PUBLISH q2 a "1"`)
		settleDown(w)
		w.cut()
		nc, err := s.node.Connect("another")
		if err != nil {
			t.Fatal(err)
		}
		other, err := opens[on](nc)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if c, ok := other.(store.Claimer); ok {
			if err := c.Claim(t.Context(), "w"); err != nil {
				t.Fatal(err)
			}
		}
		rec, err := other.Session(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		rec.Node = "another"
		if err := other.SwapSession(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		record, err := other.Outbound(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		sender, _, err := session.Restore(10, record)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sender.Pubrec(nil, 1); err != nil {
			t.Fatal(err)
		}
		if err := sender.Pubcomp(1); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		other.PutOutbound("w", sender.Record(nil), func(err error) { written <- err })
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		w = connect(t, s, "w", "keep", "present")
		p.completes(2, "a", "2")
		w.want(`PUBLISH q2 a "2"`)
		w.wantQuiet()
	})
}

// Q2O-06 to -10: wherever a session goes on, exactly what is owed is sent at once, in the original order, with DUP and
// the original identifiers [MQTT-4.4.0-1] [MQTT-4.6.0-1], and new messages collide with none of them.
func TestResume(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, first *Server, move func() *Server) {
		const n = 60
		client := fmt.Sprintf("w%d", time.Now().UnixNano())
		w := connect(t, first, client, "keep")
		w.subscribe("a", 2)
		w.subscribe("b/+", 1)
		p := connect(t, first, "p")
		var sent []took
		for i := 1; i <= n; i++ { // one by one: two subscriptions have no order between them
			publishes(p, i, i)
			sent = append(sent, w.takes(1)...)
		}
		var owed []string
		var rels, open []took
		for i, m := range sent {
			switch qos := 2 - (i+1)%2; {
			case qos == 1 && i%3 == 0:
				w.send(ack(packet.PUBACK, m.id))
			case qos == 2 && i%3 == 0: // PUBREL owed
				rels = append(rels, m)
			case qos == 2 && i%5 == 0: // completed
				w.send(ack(packet.PUBREC, m.id))
				w.want(fmt.Sprintf("PUBREL %d", m.id))
				w.send(ack(packet.PUBCOMP, m.id))
			default:
				open = append(open, m)
			}
		}
		slices.Reverse(rels)
		for _, m := range rels {
			w.send(ack(packet.PUBREC, m.id))
			w.want(fmt.Sprintf("PUBREL %d", m.id)) // in PUBREC order, also later
			owed = append(owed, fmt.Sprintf("PUBREL %d", m.id))
		}
		settleDown(w)
		w.cut()
		second := move()
		w = connect(t, second, client, "keep", "present")
		w.want(owed...)
		for i, m := range w.takes(len(open)) {
			if m.id != open[i].id || m.text != open[i].text+" dup" {
				t.Fatalf("message %d comes as %d %s, it was %d %s", i+1, m.id, m.text, open[i].id, open[i].text)
			}
		}
		w.wantQuiet()
		// Cut again before any answer: the same once more.
		w.cut()
		w = connect(t, second, client, "keep", "present")
		w.want(owed...)
		busy := map[uint16]bool{}
		for _, m := range append(w.takes(len(open)), rels...) {
			busy[m.id] = true
		}
		if len(busy) != len(open)+len(rels) {
			t.Fatalf("%d identifiers for %d messages", len(busy), len(open)+len(rels))
		}
		p = connect(t, second, "p")
		publishes(p, n+1, n+10)
		for _, m := range w.takes(10) {
			if busy[m.id] {
				t.Fatalf("%s comes as %d, which is in use [MQTT-2.3.1-4]", m.text, m.id)
			}
		}
		for _, m := range rels {
			w.send(ack(packet.PUBCOMP, m.id))
		}
		w.wantQuiet()
	})
}

// Q2O-07 with many: in the order of the first PUBLISH.
func TestResumeOrder(t *testing.T) { t.Parallel(); eachDurable(t, testResumeOrder) }

func testResumeOrder(t *testing.T, on string) {
	s := open(t, on)
	w := connect(t, s, "w", "keep")
	w.subscribe("a", 2)
	p := connect(t, s, "p")
	const n = 300
	p.send(numbered(n, func(id uint16) []byte { return pub(id, 1, "a", fmt.Sprint(id)) }))
	p.want(sentences(n, "PUBACK #")...)
	w.want(sentences(n, `PUBLISH q1 a "#"`)...)
	w.cut()
	cfg := s.cfg
	crash(s)
	w = connect(t, start(t, cfg), "w", "keep", "present")
	w.want(sentences(n, `PUBLISH q1 a "#" dup`)...)
	w.send(numbered(n, func(id uint16) []byte { return ack(packet.PUBACK, id) }))
	w.wantQuiet()
}

// Q2O-17: what is in flight of a subscription is completed after its end [MQTT-3.10.4-3], wherever that is.
func TestUnsubscribeInFlight(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, first *Server, move func() *Server) {
		client := fmt.Sprintf("w%d", time.Now().UnixNano())
		w := connect(t, first, client, "keep")
		w.subscribe("a", 2)
		p := connect(t, first, "p")
		p.send(pub(1, 1, "a", "one"), pub(2, 2, "a", "two"), ack(packet.PUBREL, 2), pub(3, 2, "a", "three"), ack(packet.PUBREL, 3))
		w.want(`PUBLISH q1 a "one"`, `PUBLISH q2 a "two"`, `PUBLISH q2 a "three"`)
		w.send(ack(packet.PUBREC, 2))
		w.want("PUBREL 2")
		w.send(packet.AppendUnsubscribe(nil, &packet.Unsubscribe{ID: 9, Filters: []string{"a"}}))
		w.want("UNSUBACK 9")
		settleDown(w)
		w.cut()
		w = connect(t, move(), client, "keep", "present")
		w.want("PUBREL 2", `PUBLISH q1 a "one" dup`, `PUBLISH q2 a "three" dup`)
		w.send(ack(packet.PUBCOMP, 2), ack(packet.PUBACK, 1), ack(packet.PUBREC, 3))
		w.want("PUBREL 3")
		w.send(ack(packet.PUBCOMP, 3))
		w.wantQuiet()
	})
}

// A clean session on the way leaves nothing of a kept one [MQTT-3.1.2-6], its identifiers included.
func TestCleanEndsOutbound(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, first *Server, move func() *Server) {
		client := fmt.Sprintf("w%d", time.Now().UnixNano())
		w := connect(t, first, client, "keep")
		w.subscribe("a", 2)
		p := connect(t, first, "p")
		p.send(pub(1, 1, "a", "one"))
		w.want(`PUBLISH q1 a "one"`)
		settleDown(w)
		w.cut()
		second := move()
		connect(t, second, client).wantQuiet()
		w = connect(t, second, client, "keep")
		w.wantQuiet()
		w.subscribe("a", 1)
		p = connect(t, second, "p")
		p.send(pub(1, 1, "a", "two"))
		if id := w.want(`PUBLISH q1 a "two"`); id != 1 {
			t.Errorf("a new session begins with identifier %d", id)
		}
	})
}

// receiver takes QoS 2 messages as a client that follows the protocol and is cut again and again.
type receiver struct {
	t       *testing.T
	got     []string
	pending map[uint16]string // PUBLISH received, no PUBREL yet
	again   int               // PUBLISHes that came again
}

func (r *receiver) connection(p *peer, total int, until time.Time) {
	for len(r.got) < total || len(r.pending) > 0 {
		_ = p.nc.SetReadDeadline(until)
		f, err := p.rd.Next()
		if err != nil {
			p.cut()
			return
		}
		var answer []byte
		switch f.Type() {
		case packet.PUBLISH:
			pub, err := packet.ParsePublish(f)
			if err != nil {
				r.t.Error(err)
				return
			}
			payload := string(pub.Payload)
			if old, known := r.pending[pub.ID]; known {
				r.again++
				if old != payload || !pub.Dup {
					r.t.Errorf("identifier %d is %s, then %s (DUP %v)", pub.ID, old, payload, pub.Dup)
				}
			} else {
				r.pending[pub.ID] = payload
				r.got = append(r.got, payload)
			}
			answer = ack(packet.PUBREC, pub.ID)
		case packet.PUBREL:
			id, _ := packet.ParseAck(f)
			delete(r.pending, id)
			answer = ack(packet.PUBCOMP, id)
		}
		if _, err := p.nc.Write(answer); err != nil {
			return
		}
	}
	_ = p.nc.Close()
}

// wantInOrder wants the numbers below total, once each, in order.
func (r *receiver) wantInOrder(total int) {
	r.t.Helper()
	var wrong []string
	times := map[string]int{}
	for i, payload := range r.got {
		if times[payload]++; times[payload] > 1 {
			wrong = append(wrong, fmt.Sprintf("%s again at %d", payload, i))
		} else if i > 0 && len(payload) == len(r.got[i-1]) && payload < r.got[i-1] || i > 0 && len(payload) < len(r.got[i-1]) {
			wrong = append(wrong, fmt.Sprintf("%s after %s", payload, r.got[i-1]))
		}
	}
	for i := range total {
		if times[fmt.Sprint(i)] == 0 {
			wrong = append(wrong, fmt.Sprintf("%d is missing", i))
		}
	}
	if len(wrong) > 0 {
		r.t.Fatalf("of %d received: %s", len(r.got), strings.Join(wrong[:min(len(wrong), 20)], ", "))
	}
}

// E2E-03, E2E-07: a subscriber that is cut every few milliseconds and moves from node to node gets each message once, in
// order.
func TestExactlyOnceForMovingSubscriber(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	run := func(t *testing.T, nodes []*Server, total, most int) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := connect(t, nodes[0], "moving", "keep")
		w.subscribe("m", 2)
		w.cut()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			p := connect(t, nodes[len(nodes)-1], "p")
			for i := range total {
				id := uint16(i + 1)
				p.send(pub(id, 2, "m", fmt.Sprint(i)), ack(packet.PUBREL, id))
				p.want(fmt.Sprintf("PUBREC %d", id), fmt.Sprintf("PUBCOMP %d", id))
			}
		})
		r := &receiver{t: t, pending: map[uint16]string{}}
		connections := 0
		for ; (len(r.got) < total || len(r.pending) > 0) && !t.Failed(); connections++ {
			p := connect(t, nodes[rng.IntN(len(nodes))], "moving", "keep", "present")
			r.connection(p, total, time.Now().Add(time.Duration(1+rng.IntN(most))*time.Millisecond))
		}
		r.wantInOrder(total)
		p := connect(t, nodes[0], "moving", "keep", "present")
		for {
			_ = p.nc.SetReadDeadline(time.Now().Add(quiet))
			f, err := p.rd.Next()
			if err != nil {
				break
			}
			if f.Type() != packet.PUBREL { // the last PUBCOMPs may not have arrived
				t.Fatalf("one more: %s", describe(f))
			}
		}
		t.Logf("%d connections, %d came again", connections, r.again)
	}
	t.Run("memory", func(t *testing.T) { run(t, []*Server{open(t, StoreMemory)}, 2000, 10) })
	eachDurable(t, func(t *testing.T, on string) {
		t.Run("alone", func(t *testing.T) {
			t.Parallel()
			run(t, []*Server{open(t, on)}, 1000, 20)
		})
		t.Run("cluster", func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts a cluster of three; run without -short")
			}
			t.Parallel()
			run(t, cluster(t, with(on)), 300, 60)
		})
	})
}
