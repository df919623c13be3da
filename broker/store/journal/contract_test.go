package journal

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

func TestContract(t *testing.T) {
	m := single(t)
	storetest.Run(t, m.fixture)
}

// crash ends a store without its orderly end.
func crash(s *Store) { s.wire.nc.Close() }

// restart stops the node as well and starts it again with the same directory.
func restart(t *testing.T, m *member, s *Store, edit ...func(*Config)) *Store {
	t.Helper()
	s.Close()
	m.Stop()
	m.Start()
	return m.open(t, edit...)
}

// The longest topic of QoS 0 is delivered, a longer one refused; the others have no limit.
func TestLongestTopic(t *testing.T) {
	e := storetest.NewEnv(t, single(t).open(t))
	name := e.Root + "/" + strings.Repeat("n", maxSubject-len(e.Root)-1-len("t."))
	in := e.Subscribe(e.Root+"/#", 2, true)
	e.Transient(name, "transient")
	in.Want("QoS 0", "transient")
	if err := e.S.Transient(&store.Message{Topic: name + "n"}); err == nil {
		t.Error("a topic one byte longer was taken at QoS 0")
	}
	e.Publish(&store.Message{Topic: name + "n", Payload: []byte("stored"), QoS: 1})
	in.Want("QoS 1", "stored")
	in.Close()
}

// What is larger than the journal can take is refused, and harms nobody.
func TestTooLarge(t *testing.T) {
	e := storetest.NewEnv(t, single(t).open(t))
	in := e.Subscribe(e.Root+"/x", 2, false)
	done := make(chan error, 2)
	big := &store.Message{Topic: e.Root + "/x", Payload: make([]byte, 8<<20), QoS: 2}
	e.S.Publish(big, func(_ store.Ref, err error) { done <- err })
	e.S.Hold(e.Client, 1, big, func(_ store.Ref, err error) { done <- err })
	for range 2 {
		if err := <-done; err == nil || !strings.Contains(err.Error(), "limit") {
			t.Errorf("error %v, want one that names the limit", err)
		}
	}
	big.Payload = big.Payload[:7<<20]
	e.Publish(big)
	in.Next("just below the limit")
	in.Quiet("nothing else", e.Root+"/x")
}

// Replicas that a node of its own cannot have are refused with a hint, not by waiting.
func TestOpenWithTooManyReplicas(t *testing.T) {
	m := single(t)
	ctx, cancel := context.WithTimeout(context.Background(), startUp)
	defer cancel()
	s, err := Open(ctx, Config{Conn: m.Conn(t), Replicas: 3})
	if err == nil {
		s.Close()
		t.Fatal("opened")
	}
	if ctx.Err() != nil || !strings.Contains(err.Error(), "--replicas") {
		t.Errorf("error %v, want one with a hint and at once", err)
	}
}

// A claim fences off what other stores have under way for the client.
func TestClaim(t *testing.T) {
	m := single(t)
	a, b := m.open(t), m.open(t)
	claims(t, storetest.NewEnv(t, a), storetest.NewEnv(t, b))
}

func claims(t *testing.T, a, b *storetest.Env) {
	ctx := starting(t)
	claim := func(e *storetest.Env) {
		t.Helper()
		if err := e.S.(store.Claimer).Claim(ctx, a.Client); err != nil {
			t.Fatal(err)
		}
	}
	hold := func(e *storetest.Env, id uint16, payload string) (store.Ref, error) {
		type answer struct {
			ref store.Ref
			err error
		}
		ch := make(chan answer, 1)
		e.S.Hold(a.Client, id, a.Msg(2, payload), func(ref store.Ref, err error) { ch <- answer{ref, err} })
		got := <-ch
		return got.ref, got.err
	}
	watch := b.SubscribeAs(a.Client+"-watch", a.Root+"/x", 2, false)
	claim(a)
	in := a.SubscribeAs(a.Client, a.Root+"/x", 2, true)
	in.Keep = true
	ra, err := hold(a, 1, "A")
	if err != nil {
		t.Fatal(err)
	}
	a.Publish(a.Msg(1, "1"))
	in.Want("delivered to its owner", "1")
	watch.Want("and to others", "1")

	claim(b)
	if _, err := hold(a, 2, "late"); !errors.Is(err, errFenced) {
		t.Errorf("a hold of the former owner: %v, want it fenced off", err)
	}
	done := make(chan error, 1)
	a.S.Release(a.Client, 1, ra, a.Msg(2, "A"), func(_ store.Ref, err error) { done <- err })
	if err := <-done; !errors.Is(err, errFenced) {
		t.Errorf("a release of the former owner: %v, want it fenced off", err)
	}
	for what, err := range map[string]error{
		"forget":      a.S.Forget(ctx, a.Client),
		"put session": a.S.PutSession(ctx, &store.Session{ClientID: a.Client}),
		"unsubscribe": a.S.Unsubscribe(ctx, a.Client, a.Root+"/x"),
	} {
		if !errors.Is(err, errFenced) {
			t.Errorf("%s of the former owner: %v, want it fenced off", what, err)
		}
	}
	if _, err := a.S.Subscribe(ctx, a.Client, store.Subscription{Filter: a.Root + "/y", QoS: 1}, true, func(store.Delivery) {}); !errors.Is(err, errFenced) {
		t.Errorf("a subscription of the former owner: %v", err)
	}
	b.WantHeld("what was acknowledged", store.Held{ID: 1, Ref: ra})
	next := b.SubscribeAs(a.Client, a.Root+"/x", 2, true)
	b.Publish(a.Msg(1, "2"))
	next.Want("the new owner has the feed", "1", "2")
	b.Release(1, ra, a.Msg(2, "A"))
	next.Want("and the exchanges", "A")
	watch.Want("which others see once", "2", "A")
	watch.Quiet("nothing of the former owner", a.Root+"/x")
	select {
	case d := <-in.Deliveries():
		t.Errorf("the former owner got %q", d.Message.Payload)
	default:
	}
	// After the end of the session nothing of an owner counts, late as it may be.
	if err := b.S.DeleteSession(ctx, a.Client, 1<<63); err != nil {
		t.Fatal(err)
	}
	if _, err := hold(a, 3, "late"); !errors.Is(err, errFenced) {
		t.Errorf("a hold after the session: %v", err)
	}
	claim(a)
	if _, err := hold(a, 3, "again"); err != nil {
		t.Errorf("a hold of a new claim: %v", err)
	}
	if err := a.S.Forget(ctx, a.Client); err != nil {
		t.Error(err)
	}
	next.Close()
}

func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	nodes := trio(t)
	all := cluster(nodes)
	storetest.RunCluster(t, all, func(t *testing.T) {
		t.Run("claims", func(t *testing.T) {
			a, b, _ := all.Views(t)
			claims(t, a, b)
		})
		t.Run("a feed takes over from the one on another node", func(t *testing.T) {
			a, b, _ := all.Views(t)
			old := a.Subscribe(a.Root+"/x", 2, true)
			old.Keep = true
			a.Publish(a.Msg(1, "A"))
			old.Want("not settled", "A")
			in := b.Subscribe(b.Root+"/x", 2, true)
			a.Publish(a.Msg(1, "B"))
			in.Want("what the other left, then what is new", "A", "B")
			select {
			case d := <-old.Deliveries():
				t.Errorf("the old feed got %q", d.Message.Payload)
			case <-time.After(50 * time.Millisecond):
			}
			in.Close()
			_ = b.S.Unsubscribe(context.Background(), b.Client, b.Root+"/x")
		})
	})
}
