package memory

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"inflight/broker/store"
)

// cost is what message takes of a budget.
const cost = len("a") + len("x") + entryCost

func TestQueueBytesOfASession(t *testing.T) {
	var log bytes.Buffer
	dropped := map[byte]int{}
	s := Open(slog.New(slog.NewTextHandler(&log, nil)))
	s.Limit(Limits{Bytes: 10 * cost, Dropped: func(qos byte) { dropped[qos]++ }})
	t.Cleanup(s.Close)
	ch, feed := deliveries(t, s, "c", 2)
	other, _ := deliveries(t, s, "reads", 2)
	for i := range 15 {
		publish(t, s, message(1))
		d := <-other
		d.Settle()
		if i < 10 {
			<-ch // sent and not acknowledged: still the session's
		}
	}
	if dropped[1] != 5 {
		t.Errorf("%d dropped, want 5: the limit holds ten, and a session that settles loses nothing", dropped[1])
	}
	if n := strings.Count(log.String(), "queue is full"); n != 1 {
		t.Errorf("told %d times, want once: %s", n, log.String())
	}

	// What is settled makes room, once.
	feed.Close()
	ch, _ = deliveries(t, s, "c", 2)
	for range 3 {
		d := <-ch
		d.Settle()
		d.Settle()
	}
	for range 5 {
		publish(t, s, message(1))
		d := <-other
		d.Settle()
	}
	if dropped[1] != 7 {
		t.Errorf("%d dropped, want 7: three of five fit", dropped[1])
	}

	// A second subscription of the session shares its budget; without subscriptions nothing is left of it.
	more, err := s.Subscribe(t.Context(), "c", store.Subscription{Filter: "+", QoS: 1}, true, func(store.Delivery) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(more.Close)
	publish(t, s, message(2))
	d := <-other
	d.Settle()
	if dropped[2] != 2 {
		t.Errorf("%d dropped, want 2: neither subscription of the session has room", dropped[2])
	}
	b := s.budgets["c"]
	for _, filter := range []string{"a", "+"} {
		if err := s.Unsubscribe(t.Context(), "c", filter); err != nil {
			t.Fatal(err)
		}
	}
	if b.used != 0 || s.budgets["c"] != nil {
		t.Errorf("%d bytes are still counted for a session without subscriptions", b.used)
	}
}

func TestDroppedTransientsAreTold(t *testing.T) {
	dropped := 0
	s := Open(nil)
	s.Limit(Limits{Bytes: 1, Dropped: func(qos byte) {
		if qos == 0 {
			dropped++
		}
	}})
	gate := make(chan struct{})
	feed, err := s.Subscribe(t.Context(), "c", store.Subscription{Filter: "a", QoS: 0}, false, func(store.Delivery) { <-gate })
	if err != nil {
		t.Fatal(err)
	}
	for range transientQueue + 11 {
		if err := s.Transient(message(0)); err != nil {
			t.Fatal(err)
		}
	}
	close(gate)
	feed.Close()
	// One may have been taken from the queue before it was full.
	if dropped != 10 && dropped != 11 {
		t.Errorf("%d drops, want 10 or 11: the queue holds %d", dropped, transientQueue)
	}
}
