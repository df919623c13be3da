package staged

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// A subscription begins at a sequence that every member knows, not at what is new to the one that leads its consumer.
func TestSubscriptionsBeginAtASequence(t *testing.T) {
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	e.Publish(e.Msg(1, "before"))
	last, err := s.lastSeq(msgsStream)
	if err != nil {
		t.Fatal(err)
	}
	in := e.Subscribe(e.Root+"/x", 2, true)
	c, err := s.js.PushConsumer(starting(t), msgsStream, consumerName(e.Client, e.Root+"/x"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.CachedInfo().Config; got.DeliverPolicy != jetstream.DeliverByStartSequencePolicy || got.OptStartSeq != last+1 {
		t.Errorf("it begins %v %d, want by the sequence %d", got.DeliverPolicy, got.OptStartSeq, last+1)
	}
	in.Close()
}

// Bytes that are no message reach nobody, and nothing behind them waits.
func TestCorruptDeliveries(t *testing.T) {
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	subject, err := s.subject(e.Root + "/x")
	if err != nil {
		t.Fatal(err)
	}
	in := e.Subscribe(e.Root+"/x", 2, true)
	zero := e.SubscribeAs(e.Client+"-0", e.Root+"/x", 0, false)
	for _, root := range []string{s.published, retainedRoot, sessionsRoot} {
		to := root + subject
		if root == sessionsRoot {
			to = root + hash("nobody")
		}
		if _, err := s.nc.Request(to, []byte("no message"), startUp); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.nc.Publish(transient+subject, []byte("no message")); err != nil {
		t.Fatal(err)
	}
	e.Publish(e.Msg(1, "A"))
	in.Want("the next one", "A")
	zero.Want("the next one", "A")
	if err := s.Retained(starting(t), e.Root+"/#", 1<<60, func(m *store.Message) bool {
		t.Errorf("retained: %q", m.Payload)
		return true
	}); err != nil {
		t.Error(err)
	}
	if rec, err := s.Session(starting(t), "nobody"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("session %+v, %v; want ErrCorrupt", rec, err)
	}
	if err := s.Sessions(starting(t), func(rec *store.Session) bool {
		t.Errorf("session %+v", rec)
		return true
	}); err != nil {
		t.Error(err)
	}
	// It can be replaced.
	m := e.Msg(1, "B")
	m.Retain = true
	e.Publish(m)
	n := 0
	if err := s.Retained(starting(t), e.Root+"/x", 1<<60, func(*store.Message) bool { n++; return true }); err != nil || n != 1 {
		t.Errorf("%d retained, %v; want 1", n, err)
	}
	in.Want("live", "B")
	in.Close()
}
