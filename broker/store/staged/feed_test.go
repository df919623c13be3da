package staged

import (
	"strings"
	"testing"
	"time"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

// A QoS 0 subscriber that takes nothing does not make the broker keep everything: what was published at QoS 1 is bounded
// for it, as what was published at QoS 0, and the rest is dropped and counted.
func TestSlowSubscriberAtQoS0(t *testing.T) {
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	blocked := make(chan struct{})
	feed, err := s.Subscribe(starting(t), e.Client, store.Subscription{Filter: e.Root + "/x"}, false, func(store.Delivery) { <-blocked })
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 1<<20)
	for range 1 + droppableBytes/len(large) + 8 {
		e.Publish(e.Msg(1, large))
	}
	for end := time.Now().Add(startUp); s.Dropped() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was dropped")
		}
	}
	before := s.Dropped()
	close(blocked)
	feed.Close()
	if n := s.Dropped(); n < before {
		t.Errorf("%d were dropped, and after the end of the feed %d", before, n)
	}
}
