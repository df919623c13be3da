package staged

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

func TestContract(t *testing.T) {
	m := single(t)
	storetest.Run(t, m.fixture)
}

// crash ends a store without its orderly end: nothing is discarded any more.
func crash(s *Store) { s.nc.Close() }

// restart stops the node as well and starts it again with the same directory.
func restart(t *testing.T, m *member, s *Store) *Store {
	t.Helper()
	s.Close()
	m.Stop()
	m.Start()
	return m.open(t)
}

// The longest topic that is taken is delivered both ways, and still there when the node starts again.
func TestLongestTopic(t *testing.T) {
	m := single(t)
	s := m.open(t)
	e := storetest.NewEnv(t, s)
	name := e.Root + "/" + strings.Repeat("n", maxSubject-len(e.Root)-1-len("t."))
	in := e.Subscribe(e.Root+"/#", 2, true)
	e.Transient(name, "transient")
	in.Want("QoS 0", "transient")
	for _, payload := range []string{"A", "B", "C"} {
		e.Publish(&store.Message{Topic: name, Payload: []byte(payload), QoS: 1})
	}
	in.Want("QoS 1", "A")
	in.Close()
	e = e.View(restart(t, m, s))
	in = e.Subscribe(e.Root+"/#", 2, true)
	in.Want("after a restart", "B", "C")
	in.Quiet("once each", e.Root+"/x")
	in.Close()
	if err := e.S.Transient(&store.Message{Topic: name + "n"}); err == nil {
		t.Error("a topic one byte longer was taken")
	}
}

// A released copy that is still staged is not taken for a pending exchange, be it pinned behind a withheld one.
func TestReleasedCopyIsRecognised(t *testing.T) {
	m := single(t)
	s := m.open(t)
	e := storetest.NewEnv(t, s)
	withheld := store.Held{ID: 1, Ref: e.Hold(1, e.Msg(2, "withheld"))}
	for id := uint16(2); id <= 4; id++ {
		msg := e.Msg(2, fmt.Sprint(id))
		e.Release(id, e.Hold(id, msg), msg)
	}
	crash(s)
	e = e.View(m.open(t))
	e.WantHeld("only the withheld one", withheld)
	// It is discarded all the same.
	awaitStaged(t, e.S.(*Store), e.Client, 1)
}

// awaitStaged waits until so many copies of a client are staged.
func awaitStaged(t *testing.T, s *Store, client string, want int) {
	t.Helper()
	for end := time.Now().Add(startUp); ; time.Sleep(10 * time.Millisecond) {
		n := 0
		for next := uint64(1); ; n++ {
			got, err := s.get(stagedStream, fmt.Sprintf(`{"seq":%d,"next_by_subj":"%s.>"}`, next, stagedRoot+hash(client)))
			if errors.Is(err, store.ErrNotFound) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			next = got.Message.Seq + 1
		}
		if n == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d copies are staged, want %d", n, want)
		}
	}
}

// What JetStream sends again, because nobody settled it in time, is not handed over again.
func TestRedeliveryIsRecognised(t *testing.T) {
	m := single(t)
	s := m.open(t)
	e := storetest.NewEnv(t, s)
	in := e.Subscribe(e.Root+"/x", 2, true)
	in.Keep = true
	e.Publish(e.Msg(1, "A"))
	in.Want("not settled", "A")
	ctx := starting(t)
	name := "c" + hash(e.Client, e.Root+"/x")
	consumer, err := s.js.PushConsumer(ctx, msgsStream, name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := consumer.CachedInfo().Config
	cfg.AckWait = 100 * time.Millisecond
	if _, err := s.js.UpdatePushConsumer(ctx, msgsStream, cfg); err != nil {
		t.Fatal(err)
	}
	for again := 0; again == 0; time.Sleep(10 * time.Millisecond) {
		if consumer, err = s.js.PushConsumer(ctx, msgsStream, name); err != nil {
			t.Fatal(err)
		}
		again = consumer.CachedInfo().NumRedelivered
	}
	in.Quiet("not again", e.Root+"/x")
	in.Close()
}

// Released copies go, in time and at an orderly end, whatever is withheld before them.
func TestDiscards(t *testing.T) {
	m := single(t)
	s := m.open(t)
	e := storetest.NewEnv(t, s)
	exchanges := func(n int) {
		for i := range n {
			msg := e.Msg(2, fmt.Sprint(i))
			id := uint16(i%7 + 100)
			e.Release(id, e.Hold(id, msg), msg)
		}
	}
	exchanges(50)
	awaitStaged(t, s, e.Client, 0)
	first := e.Msg(2, "first")
	ref := e.Hold(1, first)
	exchanges(50)
	awaitStaged(t, s, e.Client, 1)
	exchanges(5)
	s.Close()
	e = e.View(m.open(t))
	s = e.S.(*Store)
	awaitStaged(t, s, e.Client, 1) // before anybody asks what is held
	if held, err := s.Held(context.Background(), e.Client); err != nil || len(held) != 1 {
		t.Fatalf("held %v, %v; want the first", held, err)
	}
	e.Release(1, ref, first)
	awaitStaged(t, s, e.Client, 0)
}

// Replicas that a node of its own cannot have are refused with a hint, not by waiting.
func TestOpenWithTooManyReplicas(t *testing.T) {
	m := single(t)
	m.open(t)
	ctx, cancel := context.WithTimeout(context.Background(), startUp)
	defer cancel()
	begin := time.Now()
	s, err := Open(ctx, Config{Conn: m.Conn(t), Node: m.Config.Name, Replicas: 3})
	if err == nil {
		s.Close()
		t.Fatal("opened")
	}
	if ctx.Err() != nil {
		t.Errorf("refused only after %v: %v", time.Since(begin), err)
	}
	if !strings.Contains(err.Error(), "--replicas") {
		t.Errorf("error without a hint: %v", err)
	}
}

func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	nodes := trio(t)
	all := cluster(nodes)
	t.Run("a subscription that was just made is found by every node", func(t *testing.T) {
		var stores [3]*Store
		for i, n := range nodes {
			stores[i] = n.open(t)
		}
		for i := range 12 {
			if some, err := (streamInterest{stores[i%3]}).subscribed(starting(t)); some || err != nil {
				t.Fatalf("somebody subscribes: %v, %v", some, err)
			}
			cfg := jetstream.ConsumerConfig{Durable: fmt.Sprint("c", i), AckPolicy: jetstream.AckExplicitPolicy}
			if _, err := stores[i%3].js.CreateConsumer(starting(t), msgsStream, cfg); err != nil {
				t.Fatal(err)
			}
			if some, err := (streamInterest{stores[(i+1)%3]}).subscribed(starting(t)); !some || err != nil {
				t.Fatalf("it is found: %v, %v", some, err)
			}
			if err := stores[i%3].drop(starting(t), cfg.Durable); err != nil {
				t.Fatal(err)
			}
		}
	})
	storetest.RunCluster(t, all, func(t *testing.T) {
		t.Run("a node that is gone for longer than the stream remembers", func(t *testing.T) {
			a, b, c := all.Views(t)
			in := c.Subscribe(c.Root+"/x", 2, false)
			withheld, _ := released(a, 8, in)
			s := b.S.(*Store)
			forgetIDs(t, s)
			if err := s.sweepOld(starting(t)); err != nil { // a node that is there would still do it itself
				t.Fatal(err)
			}
			if _, pending, err := s.guardState(origin("n1")); err != nil || !pending {
				t.Errorf("pending %v, %v: what was just released is left to its node", pending, err)
			}
			if _, err := s.sweep(starting(t), time.Now()); err != nil {
				t.Fatal(err)
			}
			awaitStaged(t, s, b.Client, 1)
			awaitNothingKept(t, s, "n1")
			b.WantHeld("only the withheld one", withheld)
			c.S.(*Store).sweeps.last = time.Now().Add(-time.Hour)
			c.WantHeld("a node that has not looked for long looks first", withheld)
			if since := time.Since(c.S.(*Store).sweeps.last); since > sweepTrust {
				t.Errorf("it looked %v ago", since)
			}
		})
		t.Run("what came last is retained, whichever node wrote it", func(t *testing.T) {
			a, b, c := all.Views(t)
			race(t, 10, a, b, c)
		})
		t.Run("a feed waits for the end of the one on another node", func(t *testing.T) {
			a, b, _ := all.Views(t)
			old := a.Subscribe(a.Root+"/x", 2, true)
			old.Keep = true
			a.Publish(a.Msg(1, "A"))
			old.Want("not settled", "A")
			time.AfterFunc(200*time.Millisecond, old.Close)
			in := b.Subscribe(b.Root+"/x", 2, true)
			a.Publish(a.Msg(1, "B"))
			in.Want("what the other left, then what is new", "A", "B")
			in.Close()
			_ = b.S.Unsubscribe(context.Background(), b.Client, b.Root+"/x")
		})
	})
}

// An outbound record that is not answered for, and is stored all the same, is this node's own.
func TestOutboundInDoubt(t *testing.T) {
	t.Parallel()
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	put := func(data string) error {
		ch := make(chan error, 1)
		s.PutOutbound(e.Client, []byte(data), func(err error) { ch <- err })
		return <-ch
	}
	if err := put("1"); err != nil {
		t.Fatal(err)
	}
	for _, stored := range []bool{true, false} {
		// As if the answer had been lost: with what was asked, or alone.
		s.outbounds.do(e.Client, func(r *outRecord) {
			defer s.outbounds.over(r)
			r.doubt, r.doubted = true, []byte("2")
		})
		if stored {
			if _, err := s.nc.Request(outboundRoot+hash(e.Client), []byte("2"), startUp); err != nil {
				t.Fatal(err)
			}
		}
		if err := put("3"); err != nil {
			t.Errorf("stored %v: %v", stored, err)
		}
	}
	s.outbounds.do(e.Client, func(r *outRecord) {
		defer s.outbounds.over(r)
		r.doubt, r.doubted = true, []byte("4")
	})
	if _, err := s.nc.Request(outboundRoot+hash(e.Client), []byte("another's"), startUp); err != nil {
		t.Fatal(err)
	}
	if err := put("5"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("after another node's record: %v, want ErrConflict", err)
	}
	if got, err := s.Outbound(context.Background(), e.Client); err != nil || string(got) != "another's" {
		t.Errorf("%q, %v", got, err)
	}
}
