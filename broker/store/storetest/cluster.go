package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"inflight/broker/store"
)

// Cluster is three nodes over the same data, with a store under test on each. Nodes are 0 to 2.
type Cluster struct {
	// Fixture is a store on node 0 for the contract. Its Reopen and Restart are not used.
	Fixture func(t *testing.T) *Fixture
	// Open opens a store on a node, to be closed at the end of t.
	Open func(t *testing.T, node int) store.Store
	// OpenReplicas opens a store on a node with so many replicas of its data.
	OpenReplicas func(t *testing.T, node, replicas int) (store.Store, error)
	// Crash ends a store without its orderly end.
	Crash func(s store.Store)
	// Stop stops a node, with its store open.
	Stop func(node int)
	// Busy says that a release may be refused while the same one is under way on another node.
	Busy bool
}

// RunCluster holds a store to the contract on a cluster, and to what a client finds that moves from node to node. own runs
// the implementation's own subtests, before node 0 is stopped for good.
func RunCluster(t *testing.T, c *Cluster, own func(t *testing.T)) {
	t.Run("contract", func(t *testing.T) {
		Run(t, func(t *testing.T) *Fixture {
			fx := c.Fixture(t)
			// What survives is found by every node.
			fx.Reopen = func(t *testing.T) store.Store { return c.Open(t, 1) }
			fx.Restart = nil
			return fx
		})
	})
	t.Run("other replicas are refused with a hint", c.otherReplicas)
	for _, sub := range []struct {
		name string
		run  func(t *testing.T, a, b, c *Env)
	}{
		{"held on one node, released from another", releasedElsewhere},
		{"a release that is retried on other nodes delivers once", c.retriedElsewhere},
		{"a node that ends after a release", c.endsAfterRelease},
		{"a feed moves from node to node and its session takes it along", feedMoves},
	} {
		t.Run(sub.name, func(t *testing.T) {
			a, b, third := c.Views(t)
			sub.run(t, a, b, third)
		})
	}
	own(t)
	t.Run("a node is killed", c.nodeKilled)
}

// Views are a subtest's views of the three nodes, with a store opened on each.
func (c *Cluster) Views(t *testing.T) (first, second, third *Env) {
	t.Helper()
	first = NewEnv(t, c.Open(t, 0))
	return first, first.View(c.Open(t, 1)), first.View(c.Open(t, 2))
}

func (c *Cluster) otherReplicas(t *testing.T) {
	s, err := c.OpenReplicas(t, 2, 1)
	if err == nil {
		s.Close()
		t.Fatal("opened")
	}
	if !strings.Contains(err.Error(), "--replicas") || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func releasedElsewhere(t *testing.T, a, b, c *Env) {
	zero, two := c.Subscribe(c.Root+"/x", 0, false), a.Subscribe(a.Root+"/#", 2, true)
	msg := a.Msg(2, "A")
	ref := a.Hold(1, msg)
	b.WantHeld("every node knows", store.Held{ID: 1, Ref: ref})
	got, err := b.Fetch(ref)
	if err != nil {
		t.Fatal(err)
	}
	b.Release(1, ref, got)
	two.Want("once", "A")
	zero.Want("once", "A")
	a.WantHeld("released")
	c.WantHeld("released")
	two.Quiet("once", a.Root+"/x")
	if d := zero.Next("fence"); string(d.Message.Payload) == "A" {
		t.Error("delivered again to the QoS 0 subscriber")
	}
	_ = a.S.Unsubscribe(a.context(), a.Client, a.Root+"/#")
}

func (c *Cluster) retriedElsewhere(t *testing.T, a, b, third *Env) {
	zero, two := third.Subscribe(third.Root+"/x", 0, false), b.Subscribe(b.Root+"/#", 2, false)
	for i := range 20 {
		id, msg := uint16(i+1), a.Msg(2, fmt.Sprint(i))
		ref := a.Hold(id, msg)
		views := []*Env{a, b, third}
		calls := make([]*call, len(views))
		var wg sync.WaitGroup
		for i, e := range views {
			wg.Go(func() { calls[i] = e.releasing(e.Client, id, ref, msg) })
		}
		wg.Wait()
		for i, e := range views {
			if _, _, err := e.wait(calls[i]); err != nil && c.Busy {
				t.Logf("release %d on node %d: %v", id, i, err) // the client comes again
			} else if err != nil {
				t.Errorf("release %d on node %d: %v", id, i, err)
			}
		}
		b.Release(id, ref, msg)
		two.Want("in order, once", fmt.Sprint(i))
		zero.Want("in order, once", fmt.Sprint(i))
	}
	two.Quiet("once", a.Root+"/x")
	a.WantHeld("nothing")
}

func (c *Cluster) endsAfterRelease(_ *testing.T, a, b, third *Env) {
	withheld := store.Held{ID: 9, Ref: a.Hold(9, a.Msg(2, "withheld"))}
	for id := uint16(1); id <= 8; id++ {
		msg := a.Msg(2, "A")
		a.Release(id, a.Hold(id, msg), msg)
	}
	c.Crash(a.S)
	b.WantHeld("RES-04 released is released", withheld)
	in := third.Subscribe(third.Root+"/x", 2, false)
	msg := b.Msg(2, "new")
	b.Release(3, b.Hold(3, msg), msg)
	in.Want("the identifier is free", "new")
	third.WantHeld("the withheld one", withheld)
}

func feedMoves(_ *testing.T, a, b, c *Env) {
	var want []string
	in := a.Subscribe(a.Root+"/x", 2, true)
	for i, e := range []*Env{b, c, a, c, b, a} {
		for j := range 5 {
			payload := fmt.Sprintf("%d.%d", i, j)
			e.Publish(e.Msg(1, payload))
			want = append(want, payload)
		}
		in.Want("the first three", want[:3]...) // settled at the last moment
		want = want[3:]
		in.Close()
		in = e.Subscribe(e.Root+"/x", 2, true)
	}
	in.Want("the rest, once", want...)
	in.Quiet("once each", a.Root+"/x")
	in.Close()
	_ = a.S.Unsubscribe(a.context(), a.Client, a.Root+"/x")
}

func (c *Cluster) nodeKilled(t *testing.T) {
	a, b, third := c.Views(t)
	in := a.Subscribe(a.Root+"/x", 2, true)
	in.Keep = true
	ma, mb := a.Msg(2, "A"), a.Msg(2, "B")
	ra, rb := a.Hold(1, ma), a.Hold(2, mb)
	a.Release(1, ra, ma)
	in.Want("not settled", "A")
	c.Stop(0)
	// Until there is a leader again, the client is refused and comes again.
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := b.S.Held(context.Background(), b.Client); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	b.WantHeld("E2E-07 the released one is not listed", store.Held{ID: 2, Ref: rb})
	b.Release(1, ra, ma) // the client did not get its PUBCOMP
	b.Release(2, rb, mb)
	moved := third.Subscribe(third.Root+"/x", 2, true)
	moved.Want("what the dead node had not settled, and the rest, once", "A", "B")
	moved.Quiet("once each", third.Root+"/x")
	b.WantHeld("nothing is left")
	moved.Close()
}
