package staged

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

// openAs opens a store as another node would, on the same server.
func (m *member) openAs(t testing.TB, node string) *Store {
	t.Helper()
	s, err := Open(starting(t), Config{Conn: m.Conn(t), Node: node, Replicas: m.Replicas})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestWinner(t *testing.T) {
	at := func(n uint64) *retainOp { return &retainOp{delivery: n} }
	qos0, lost := &retainOp{qos0: true}, &retainOp{failed: true, delivery: 99}
	for _, test := range []struct {
		reason   string
		record   retainedRecord
		batch    []*retainOp
		wins     int // in batch; -1: the record stays
		delivery uint64
	}{
		{"the first one of a topic", retainedRecord{}, []*retainOp{at(5)}, 0, 5},
		{"a later delivery replaces", retainedRecord{1, 4}, []*retainOp{at(5)}, 0, 5},
		{"an earlier one does not, be it written later", retainedRecord{1, 6}, []*retainOp{at(5)}, -1, 6},
		{"written again after a crash", retainedRecord{1, 5}, []*retainOp{at(5)}, -1, 5},
		{"the last of many", retainedRecord{1, 1}, []*retainOp{at(5), at(6), at(7)}, 2, 7},
		{"in the order of the stream", retainedRecord{1, 1}, []*retainOp{at(7), at(5), at(6)}, 0, 7},
		{"what was not delivered is not retained", retainedRecord{1, 1}, []*retainOp{at(5), lost}, 0, 5},
		{"nothing was delivered", retainedRecord{1, 1}, []*retainOp{lost}, -1, 1},
		{"QoS 0 replaces what is there and takes its place", retainedRecord{1, 6}, []*retainOp{qos0}, 0, 6},
		{"QoS 0 after a delivery", retainedRecord{1, 1}, []*retainOp{at(5), qos0}, 1, 5},
		{"QoS 0 before a delivery", retainedRecord{1, 1}, []*retainOp{qos0, at(5)}, 1, 5},
		{"QoS 0 before an earlier delivery", retainedRecord{1, 6}, []*retainOp{qos0, at(5)}, 0, 6},
		{"QoS 0 first of all", retainedRecord{}, []*retainOp{qos0}, 0, 0},
	} {
		op, delivery := winner(test.record, test.batch)
		var want *retainOp
		if test.wins >= 0 {
			want = test.batch[test.wins]
		}
		if op != want || delivery != test.delivery {
			t.Errorf("%s: %+v with delivery %d, want %+v with %d", test.reason, op, delivery, want, test.delivery)
		}
	}
}

// race publishes retained messages of one topic from several nodes at the same time, and compares what is retained with
// what came last.
func race(t *testing.T, rounds int, nodes ...*storetest.Env) {
	const each = 8
	last := nodes[len(nodes)-1]
	in := last.Subscribe(last.Root+"/x", 2, false)
	for round := range rounds {
		var wg sync.WaitGroup
		for n, e := range nodes {
			for i := range each {
				m := &store.Message{Topic: e.Root + "/x", Payload: fmt.Appendf(nil, "%d.%d.%d", round, n, i), QoS: 1, Retain: true}
				if (n+i+round)%8 == 0 {
					m.Payload = nil
				}
				done := make(chan error, 1)
				e.S.Publish(m, func(_ store.Ref, err error) { done <- err })
				wg.Go(func() {
					if err := <-done; err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		var newest string
		for range each * len(nodes) {
			newest = string(in.Next("published").Message.Payload)
		}
		for n, e := range nodes {
			end, err := e.S.RetainedEnd(starting(t))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := e.S.Retained(starting(t), e.Root+"/x", end, func(m *store.Message) bool { got = string(m.Payload); return true }); err != nil {
				t.Fatal(err)
			}
			if got != newest {
				t.Fatalf("round %d, node %d: retained is %q, and %q came last", round, n, got, newest)
			}
		}
	}
}

// Whichever node writes a topic, and when: what came last is retained.
func TestRetainedOfTwoNodes(t *testing.T) {
	m := single(t)
	a := storetest.NewEnv(t, m.open(t))
	race(t, 40, a, a.View(m.openAs(t, "n2")))
}

// A subscriber that comes too late for a delivery finds it retained, also when another node has delivered it and still
// writes.
func TestRetainedEndWaitsForEveryNode(t *testing.T) {
	m := single(t)
	a, b := m.open(t), m.openAs(t, "n2")
	for name, writer := range map[string]*Store{"this node": a, "another node": b} {
		msg := &store.Message{Topic: "t/" + name, Payload: []byte("A"), QoS: 1, Retain: true}
		subject, err := writer.subject(msg.Topic)
		if err != nil {
			t.Fatal(err)
		}
		op := writer.retaining.ask(subject, store.Encode(nil, msg), msg)
		end := make(chan uint64, 1)
		go func() {
			n, err := a.RetainedEnd(starting(t))
			if err != nil {
				t.Error(err)
			}
			end <- n
		}()
		select {
		case <-end:
			t.Fatalf("%s: it did not wait", name)
		case <-time.After(100 * time.Millisecond):
		}
		writer.retain(op, 1, false, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		n := 0
		if err := a.Retained(starting(t), msg.Topic, <-end, func(*store.Message) bool { n++; return true }); err != nil || n != 1 {
			t.Errorf("%s: %d messages, %v; want 1", name, n, err)
		}
	}
	b.Close()
	for end := time.Now().Add(startUp); ; {
		begin := time.Now()
		if _, err := a.RetainedEnd(starting(t)); err != nil {
			t.Fatal(err)
		}
		if time.Since(begin) < peerWait {
			return // the server has noticed that b is gone
		}
		if time.Now().After(end) {
			t.Fatal("a node that is gone is waited for")
		}
	}
}

// A message is delivered, and its node ends before it is retained: whoever discards the copy sees to it first.
func TestReleasedAndNotRetained(t *testing.T) {
	m := single(t)
	s := m.open(t)
	e := storetest.NewEnv(t, s)
	deliver := func(id uint16, payload string) {
		t.Helper()
		msg := &store.Message{Topic: e.Root + "/" + strconv.Itoa(int(id)), Payload: []byte(payload), QoS: 2, Retain: true}
		ref := e.Hold(id, msg)
		subject, err := s.subject(msg.Topic)
		if err != nil {
			t.Fatal(err)
		}
		ack, err := s.nc.RequestMsg(&nats.Msg{
			Subject: s.released + subject, Data: store.Encode(nil, msg),
			Header: nats.Header{jetstream.MsgIDHeader: {s.messageID(ref)}},
		}, startUp)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := parsePubAck(ack.Data); err != nil {
			t.Fatal(err)
		}
	}
	other := e.View(m.openAs(t, "n2"))
	want := func(e *storetest.Env, id uint16, payload string) {
		t.Helper()
		got := ""
		topic := e.Root + "/" + strconv.Itoa(int(id))
		if err := e.S.Retained(starting(t), topic, 1<<60, func(m *store.Message) bool { got = string(m.Payload); return true }); err != nil || got != payload {
			t.Errorf("%s: retained %q, %v; want %q", topic, got, err, payload)
		}
	}
	deliver(1, "A")
	other.WantHeld("it is released")
	want(other, 1, "A")
	deliver(2, "B")
	crash(s)
	e = e.View(m.open(t))
	awaitStaged(t, e.S.(*Store), e.Client, 0)
	want(e, 2, "B")
}

// What has expired is not sent, and the stream removes it in the end.
func TestExpiredRetainedGoes(t *testing.T) {
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	kept := func(topic string, expires time.Duration) *store.Message {
		return &store.Message{
			Topic: e.Root + topic, Payload: []byte("x"), QoS: 1, Retain: true, Expires: time.Now().Add(expires).UnixMilli(),
		}
	}
	e.Publish(kept("/soon", 400*time.Millisecond))
	e.Publish(kept("/late", time.Hour))
	count := func() (n int) {
		if err := s.Retained(starting(t), e.Root+"/#", 1<<60, func(*store.Message) bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for end := time.Now().Add(startUp); count() > 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is still sent")
		}
	}
	subject, err := s.subject(e.Root + "/soon")
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.get(retainedStream, `{"last_by_subj":`+quote(retainedRoot+subject)+`}`)
	if err != nil {
		t.Fatal(err)
	}
	header, err := nats.DecodeHeadersMsg(got.Message.Header)
	if err != nil {
		t.Fatal(err)
	}
	if ttl, err := time.ParseDuration(header.Get(jetstream.MsgTTLHeader)); err != nil || ttl < removedFor || ttl > removedFor+time.Minute {
		t.Errorf("the stream removes it after %v, %v", ttl, err)
	}
	if n := count(); n != 1 {
		t.Errorf("%d are left, want the other one", n)
	}
}

// Of the topics that nothing is written to, not more than a few are kept in mind.
func TestRetainedTopicsAreBounded(t *testing.T) {
	var r retaining
	busy := r.ask("busy", nil, &store.Message{})
	for i := range 2 * retainedTopics {
		op := r.ask(fmt.Sprint(i), nil, &store.Message{})
		op.ready = true
		r.batch(r.topics[op.subject])
		r.mu.Lock()
		r.finish(op)
		r.mu.Unlock()
	}
	if n := len(r.topics); n > retainedTopics {
		t.Errorf("%d topics are kept, limit %d", n, retainedTopics)
	}
	if t2 := r.topics["busy"]; t2 == nil || len(t2.queue) != 1 || t2.queue[0] != busy {
		t.Error("one that is under way was dropped")
	}
	select {
	case <-r.caughtUp():
		t.Error("caught up, with one under way")
	default:
	}
}
