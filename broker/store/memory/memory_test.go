package memory

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) *storetest.Fixture {
		s := Open(nil)
		t.Cleanup(s.Close)
		return &storetest.Fixture{Store: s}
	})
}

func message(qos byte) *store.Message {
	return &store.Message{Topic: "a", Payload: []byte("x"), QoS: qos}
}

// deliveries subscribes and hands every delivery over, unsettled.
func deliveries(t *testing.T, s *Store, client string, qos byte) (<-chan store.Delivery, store.Feed) {
	t.Helper()
	ch := make(chan store.Delivery, 1000)
	feed, err := s.Subscribe(t.Context(), client, store.Subscription{Filter: "a", QoS: qos}, true, func(d store.Delivery) { ch <- d })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(feed.Close)
	return ch, feed
}

func publish(t *testing.T, s *Store, m *store.Message) {
	t.Helper()
	s.Publish(m, func(_ store.Ref, err error) {
		if err != nil {
			t.Error(err)
		}
	})
}

func TestQueuesShareTheMessage(t *testing.T) {
	s := Open(nil)
	m := message(1)
	for i := range 10 {
		_, feed := deliveries(t, s, fmt.Sprint(i), 2)
		feed.Close()
	}
	publish(t, s, m)
	for i := range 10 {
		q := s.queues[key(fmt.Sprint(i), "a")]
		if len(q.entries) != 1 || q.entries[0].msg != m {
			t.Errorf("queue %d does not hold the message itself", i)
		}
	}
}

func TestSettledMessagesAreNotKept(t *testing.T) {
	s := Open(nil)
	ch, _ := deliveries(t, s, "c", 2)
	const n = 100
	var got []store.Delivery
	for range n {
		publish(t, s, message(1))
	}
	for range n {
		got = append(got, <-ch)
	}
	for _, d := range got[1:] {
		d.Settle()
	}
	q := s.queues[key("c", "a")]
	q.mu.Lock()
	for i, e := range q.entries {
		if i > 0 && e.msg != nil {
			t.Fatalf("entry %d is settled and its message is kept, because entry 0 is not", i)
		}
	}
	q.mu.Unlock()
	got[0].Settle()
	got[0].Settle() // again
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.entries) != 0 || q.base != n || q.next != n {
		t.Errorf("%d entries, base %d, next %d; want 0, %d, %d", len(q.entries), q.base, q.next, n, n)
	}
}

func TestQueueIsBounded(t *testing.T) {
	var log bytes.Buffer
	s := Open(slog.New(slog.NewTextHandler(&log, nil)))
	_, feed := deliveries(t, s, "c", 2)
	feed.Close()
	q := s.queues[key("c", "a")]
	q.entries = make([]*entry, MaxQueued)
	publish(t, s, message(1))
	if len(q.entries) != MaxQueued {
		t.Errorf("%d entries, limit %d", len(q.entries), MaxQueued)
	}
	if !strings.Contains(log.String(), "queue is full") {
		t.Errorf("nobody is told: %q", log.String())
	}
}

func TestTransientsAreBounded(t *testing.T) {
	s := Open(nil)
	gate, entered := make(chan struct{}), make(chan struct{}, 3*transientQueue)
	feed, err := s.Subscribe(t.Context(), "c", store.Subscription{Filter: "a", QoS: 2}, false, func(store.Delivery) {
		entered <- struct{}{}
		<-gate
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * transientQueue {
		if err := s.Transient(message(0)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			<-entered
		}
	}
	close(gate)
	for range transientQueue {
		<-entered
	}
	feed.Close()
	if got := len(entered); got != 0 {
		t.Errorf("%d more were kept than the limit of %d", got, transientQueue)
	}
}

func TestNothingIsKeptForWhoIsGone(t *testing.T) {
	s := Open(nil)
	for i := range 50 {
		client := fmt.Sprint(i)
		for _, qos := range []byte{0, 2} {
			feed, err := s.Subscribe(t.Context(), client, store.Subscription{Filter: fmt.Sprint("f", qos), QoS: qos}, qos == 0, func(store.Delivery) {})
			if err != nil {
				t.Fatal(err)
			}
			feed.Close()
		}
		for _, end := range []func(ref store.Ref){
			func(ref store.Ref) { s.Discard(client, ref) },
			func(ref store.Ref) { s.Release(client, 1, ref, message(2), func(store.Ref, error) {}) },
			func(store.Ref) { _ = s.Forget(t.Context(), client) },
		} {
			s.Hold(client, 1, message(2), func(ref store.Ref, _ error) { end(ref) })
		}
		if err := s.PutSession(t.Context(), &store.Session{ClientID: client}); err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteSession(t.Context(), client, math.MaxUint64); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.queues) + s.tree.Len() + len(s.held) + len(s.sessions); n != 0 {
		t.Errorf("%d queues, %d subscriptions, %d clients with held messages, %d sessions are left; want none",
			len(s.queues), s.tree.Len(), len(s.held), len(s.sessions))
	}
}

// A QoS 0 subscription settles nothing: what it gets must not be queued for that.
func TestQoS0SubscriptionsQueueNothing(t *testing.T) {
	s := Open(nil)
	ch, _ := deliveries(t, s, "c", 0)
	for range 10 {
		publish(t, s, message(1))
		if d := <-ch; d.QoS != 0 {
			t.Fatalf("delivered at QoS %d", d.QoS)
		}
	}
	q := s.queues[key("c", "a")]
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.entries) != 0 {
		t.Errorf("%d entries are kept", len(q.entries))
	}
}

// The session may settle what the feed before had handed over while the next feed hands over the same.
func TestSettledByAnEarlierFeed(t *testing.T) {
	s := Open(nil)
	ch, old := deliveries(t, s, "c", 2)
	var first []store.Delivery
	for range 3 {
		publish(t, s, message(1))
		first = append(first, <-ch)
	}
	old.Close()
	gate, entered := make(chan struct{}), make(chan store.Delivery, 10)
	feed, err := s.Subscribe(t.Context(), "c", store.Subscription{Filter: "a", QoS: 2}, true, func(d store.Delivery) {
		entered <- d
		<-gate
	})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	<-entered
	for _, d := range first {
		d.Settle()
	}
	last := message(1)
	publish(t, s, last)
	close(gate)
	if d := <-entered; d.Message != last {
		t.Error("what the earlier feed settled comes again")
	}
}
