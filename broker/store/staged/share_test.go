package staged

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

// shareOf is the filter of the shared subscription of a test.
func shareOf(e *storetest.Env) string { return "$share/g/" + e.Root + "/#" }

// publishesTwo publishes numbered QoS 2 messages.
func publishesTwo(e *storetest.Env, from, to int) {
	for i := from; i <= to; i++ {
		m := e.Msg(2, fmt.Sprint(i))
		e.Release(1, e.Hold(1, m), m)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(startUp); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not so within %v", what, startUp)
		}
	}
}

// A group's consumer that is deleted underneath is made again.
func TestShareConsumerComesBack(t *testing.T) {
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	in := e.Subscribe(shareOf(e), 2, true)
	publishesTwo(e, 1, 1)
	in.Want("before", "1")
	if err := s.drop(starting(t), shareName(shareOf(e))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the consumer is there", func() bool {
		_, err := s.js.Consumer(context.Background(), msgsStream, shareName(shareOf(e)))
		return err == nil
	})
	publishesTwo(e, 2, 4)
	in.Want("after", "2", "3", "4")
}

// The consumer of a group that has lost its members to the death of their nodes goes, and no other one.
func TestShareOrphans(t *testing.T) {
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	here := e.Subscribe("$share/here/a", 2, true)
	away := e.Subscribe("$share/away/a", 2, true)
	away.Close()
	orphan := shareName("$share/orphan/a")
	cfg := jetstream.ConsumerConfig{Durable: orphan, AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: anyOrigin + "t.a"}
	if _, err := s.js.CreateConsumer(starting(t), msgsStream, cfg); err != nil {
		t.Fatal(err)
	}
	before, err := s.consumerNames(starting(t))
	if err != nil || !slices.Contains(before, orphan) {
		t.Fatalf("%v, %v", before, err)
	}
	suspects := s.removeOrphans(nil)
	if again, _ := s.consumerNames(starting(t)); len(again) != len(before) {
		t.Errorf("%v: what has just been seen may be coming", again)
	}
	s.removeOrphans(suspects)
	after, err := s.consumerNames(starting(t))
	if err != nil || slices.Contains(after, orphan) || len(after) != len(before)-1 {
		t.Errorf("before %v, after %v, %v; want without %s", before, after, err, orphan)
	}
	here.Close()
}

// stuck subscribes as a member whose session does not take what it is handed.
func stuck(t *testing.T, s *Store, client, filter string) (feed store.Feed, entered chan string, gate chan struct{}) {
	t.Helper()
	entered, gate = make(chan string, 100), make(chan struct{})
	feed, err := s.Subscribe(starting(t), client, store.Subscription{Filter: filter, QoS: 2}, true, func(d store.Delivery) {
		entered <- string(d.Message.Payload)
		<-gate
	})
	if err != nil {
		t.Fatal(err)
	}
	return feed, entered, gate
}

// What was handed out to a member whose session did not get it goes to another one when it is forgotten, unless the session
// was elsewhere since: there it may have got it [MQTT-4.8.2-5].
func TestShareGivesBackWhatWasNotTaken(t *testing.T) {
	for name, elsewhere := range map[string]bool{"here": false, "elsewhere since": true} {
		t.Run(name, func(t *testing.T) {
			m := single(t)
			s := m.open(t)
			e := storetest.NewEnv(t, s)
			feed, entered, gate := stuck(t, s, "slow", shareOf(e))
			publishesTwo(e, 1, 4)
			if first := <-entered; first != "1" {
				t.Fatalf("the first is %s", first)
			}
			// All of them are handed out.
			eventually(t, "nothing waits for the group", func() bool {
				floor, err := s.ackFloor(shareName(shareOf(e)))
				got, _ := s.get(msgsStream, fmt.Sprintf(`{"seq":1,"next_by_subj":"%s%s.*.%s"}`, handedRoot, shareName(shareOf(e)), memberToken("slow", shareOf(e))))
				return err == nil && got != nil && floor >= handedFrom(got.Message.Subject)+3
			})
			feed.Close()
			if elsewhere {
				other := e.View(m.open(t)).SubscribeAs("slow", shareOf(e), 2, true)
				other.Keep = true
				other.Want("all of it", "1", "2", "3", "4")
				other.Close()
			}
			next := e.SubscribeAs("next", shareOf(e), 2, false)
			if err := s.Unsubscribe(starting(t), "slow", shareOf(e)); err != nil {
				t.Fatal(err)
			}
			if !elsewhere {
				next.Want("not the first, which the session has", "2", "3", "4")
			}
			next.Quiet("no more", e.Root+"/x")
			close(gate)
		})
	}
}

// A node that dies between handing out and telling the group's consumer leaves both; the message comes once.
func TestShareHandedOutBefore(t *testing.T) {
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	filter := shareOf(e)
	in := e.Subscribe(filter, 2, true)
	in.Close()
	// No request is open any more.
	eventually(t, "the group is gone from this node", func() bool {
		for _, g := range s.tending() {
			g.mu.Lock()
			for _, p := range g.pulls {
				p.issued = time.Now().Add(-time.Hour)
			}
			g.mu.Unlock()
		}
		return len(s.tending()) == 0
	})
	publishesTwo(e, 1, 2)
	group, err := s.js.Consumer(starting(t), msgsStream, shareName(filter))
	if err != nil {
		t.Fatal(err)
	}
	batch, err := group.Fetch(2)
	if err != nil {
		t.Fatal(err)
	}
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		m, err := store.Decode(msg.Data())
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Payload) == "1" {
			handed := nats.NewMsg(fmt.Sprintf("%s%s.%d.%s", handedRoot, shareName(filter), meta.Sequence.Stream, memberToken(e.Client, filter)))
			handed.Data = msg.Data()
			if _, err := s.js.PublishMsg(starting(t), handed); err != nil {
				t.Fatal(err)
			}
		}
		_ = msg.Nak()
	}
	in = e.Subscribe(filter, 2, true)
	in.Want("each once", "1", "2")
	in.Quiet("no more", e.Root+"/x")
}

// What cannot be a subject is refused, and leaves nothing.
func TestShareTooLong(t *testing.T) {
	s := single(t).open(t)
	filter := "$share/g/" + strings.Repeat("%", maxSubject/3+1)
	if _, err := s.Subscribe(starting(t), "c", store.Subscription{Filter: filter, QoS: 1}, true, func(store.Delivery) {}); err == nil {
		t.Error("subscribed")
	}
	if names, err := s.consumerNames(starting(t)); err != nil || slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "guard_") }) {
		t.Errorf("%v, %v", names, err)
	}
}
