package staged

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

func TestAwaited(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		left    int
		come    []uint64 // 0: the next one is settled
		missing bool     // before the last one that comes
	}{
		{"nothing was sent and not settled", 0, []uint64{11}, false},
		{"everything comes again", 3, []uint64{2, 5, 10, 11, 12}, false},
		{"one is missing at the end", 3, []uint64{2, 5, 11}, true},
		{"all are missing", 3, []uint64{11}, true},
		{"the missing one was settled meanwhile", 3, []uint64{2, 5, 0, 10, 11}, false},
		{"another one was settled, after it had come", 3, []uint64{2, 5, 0, 2, 11}, true},
		{"settled, and comes all the same", 3, []uint64{0, 2, 2, 5, 11}, true},
		{"settled twice", 3, []uint64{2, 0, 5, 0, 5, 11}, true},
		{"once more, as it was not settled in time", 3, []uint64{2, 2, 5, 11}, true},
		{"a settled one that is new", 1, []uint64{0, 12, 11}, true},
	} {
		a := awaited{left: tc.left, upTo: 10}
		ok := true
		for i := 0; i < len(tc.come); i++ {
			if !ok {
				t.Errorf("%s: %d is said to be missing something", tc.reason, tc.come[i-1])
			}
			if tc.come[i] == 0 {
				i++
				a.settle(tc.come[i])
				continue
			}
			ok = a.came(tc.come[i])
		}
		if ok == tc.missing {
			t.Errorf("%s: missing is %v, want %v", tc.reason, !ok, tc.missing)
		}
	}
}

// gappy is a feed that loses deliveries on their way when it is told to.
type gappy struct {
	*feed
	ch   chan store.Delivery
	hold chan struct{} // while it is not closed, nothing is taken
}

func openGappy(t *testing.T, s *Store, client, filter string, durable bool) *gappy {
	t.Helper()
	g := &gappy{ch: make(chan store.Delivery, 1<<10), hold: make(chan struct{})}
	opened, err := s.Subscribe(starting(t), client, store.Subscription{Filter: filter, QoS: 2}, durable, func(d store.Delivery) {
		<-g.hold
		g.ch <- d
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	switch f := opened.(type) {
	case *groupMember:
		g.feed = f.feed
	case *feed:
		g.feed = f
	}
	return g
}

// loses publishes numbered messages of which some are lost: the feed takes nothing, and few have room before it.
func (g *gappy) loses(t *testing.T, e *storetest.Env, from, to int) {
	t.Helper()
	sub := g.subs[len(g.subs)-1]
	if err := sub.SetPendingLimits(3, -1); err != nil {
		t.Fatal(err)
	}
	publishesTwo(e, from, to)
	eventually(t, "some are lost", func() bool { return dropped(sub) > 0 })
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	close(g.hold)
}

// wants takes numbered messages, in order, and settles them.
func (g *gappy) wants(t *testing.T, reason string, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		select {
		case d := <-g.ch:
			d.Settle()
			if got := string(d.Message.Payload); got != fmt.Sprint(i) {
				t.Fatalf("%s: got %s, want %d", reason, got, i)
			}
		case <-time.After(startUp):
			t.Fatalf("%s: %d did not come", reason, i)
		}
	}
}

// What is lost on its way comes before what is behind it, once, at once and not after ackWait.
func TestLostDelivery(t *testing.T) {
	t.Parallel()
	s := single(t).open(t)
	for _, tc := range []struct {
		name    string
		filter  func(e *storetest.Env) string
		durable bool
	}{
		{"of a kept session", func(e *storetest.Env) string { return e.Root + "/#" }, true},
		{"of a clean session", func(e *storetest.Env) string { return e.Root + "/#" }, false},
		{"of a shared subscription", shareOf, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := storetest.NewEnv(t, s)
			begin := time.Now()
			g := openGappy(t, s, e.Client, tc.filter(e), tc.durable)
			g.loses(t, e, 1, 20)
			// One more: that a delivery was lost is told by the next one.
			publishesTwo(e, 21, 22)
			g.wants(t, "lost and not", 1, 22)
			publishesTwo(e, 23, 25)
			g.wants(t, "after it", 23, 25)
			if len(g.ch) > 0 {
				t.Errorf("%d more came", len(g.ch))
			}
			if took := time.Since(begin); took > ackWait/2 {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// Numbers that begin anew, as those of a new leader do, lose nothing and repeat nothing.
func TestLostNumber(t *testing.T) {
	t.Parallel()
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	g := openGappy(t, s, e.Client, e.Root+"/#", true)
	close(g.hold)
	publishesTwo(e, 1, 3)
	g.wants(t, "before", 1, 3)
	g.mu.Lock()
	g.next += 7
	g.mu.Unlock()
	publishesTwo(e, 4, 9)
	g.wants(t, "after", 4, 9)
}

// What is to come again and does not, because the consumer's leader has changed meanwhile, is asked for once more.
func TestLostAgain(t *testing.T) {
	t.Parallel()
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	g := openGappy(t, s, e.Client, e.Root+"/#", true)
	close(g.hold)
	publishesTwo(e, 1, 3)
	for range 3 {
		<-g.ch // not settled
	}
	g.Close()
	g = openGappy(t, s, e.Client, e.Root+"/#", true)
	g.mu.Lock()
	g.awaited.left++
	g.mu.Unlock()
	close(g.hold)
	publishesTwo(e, 4, 6)
	g.wants(t, "everything once", 1, 6)
	if g.mu.Lock(); g.round == 0 {
		t.Error("it was not asked for")
	}
	g.mu.Unlock()
}

// A node that was cut off does not take the consumer back from the one that went on with the session.
func TestLostElsewhere(t *testing.T) {
	t.Parallel()
	m := single(t)
	old, s := m.open(t), m.open(t)
	e := storetest.NewEnv(t, s)
	g := openGappy(t, old, e.Client, e.Root+"/#", true)
	close(g.hold)
	publishesTwo(e, 1, 1)
	g.wants(t, "before", 1, 1)
	// The interest of the old feed goes, and it does not know.
	if err := g.subs[len(g.subs)-1].Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	h := openGappy(t, s, e.Client, e.Root+"/#", true)
	close(h.hold)
	g.mu.Lock()
	g.turnLocked()
	g.mu.Unlock()
	g.turning.workers.Wait()
	consumer, err := s.js.PushConsumer(starting(t), msgsStream, consumerName(e.Client, e.Root+"/#"))
	if err != nil {
		t.Fatal(err)
	}
	if to := consumer.CachedInfo().Config.DeliverSubject; to != h.cfg.DeliverSubject {
		t.Errorf("it sends to %s, want %s", to, h.cfg.DeliverSubject)
	}
	publishesTwo(e, 2, 4)
	h.wants(t, "here", 2, 4)
	if len(g.ch) > 0 {
		t.Errorf("%d came to the old one", len(g.ch))
	}
}

// A consumer's leader that changes under load: every message, in order, once.
func TestLostLeaders(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	nodes := trio(t)
	s := nodes[0].open(t)
	e := storetest.NewEnv(t, s)
	const total = 200
	var feeds []*gappy
	for i, filter := range []string{e.Root + "/#", shareOf(e)} {
		g := openGappy(t, nodes[1].open(t), fmt.Sprint(e.Client, i), filter, true)
		close(g.hold)
		feeds = append(feeds, g)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		publishesTwo(e, 1, total)
	}()
	ctx := starting(t)
	for range 4 {
		for i, g := range feeds {
			names := []string{g.cfg.Durable}
			if i == 1 {
				names = append(names, shareName(shareOf(e)))
			}
			for _, name := range names {
				_, _ = s.nc.RequestWithContext(ctx, "$JS.API.CONSUMER.LEADER.STEPDOWN."+msgsStream+"."+name, nil)
			}
		}
		select {
		case <-done:
		case <-time.After(300 * time.Millisecond):
		}
	}
	<-done
	feeds[0].wants(t, "plain", 1, total)
	// A group's consumer gives what it pulled for a leader that is gone to the next one, so the order is not kept there.
	var got, want []string
	for i := 1; i <= total; i++ {
		want = append(want, fmt.Sprint(i))
		select {
		case d := <-feeds[1].ch:
			got = append(got, string(d.Message.Payload))
			d.Settle()
		case <-time.After(startUp):
			t.Fatalf("shared: %d of %d came", len(got), total)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("shared: not each once")
	}
}

// A feed that is closed while deliveries show that one was lost: what they begin is over when Close returns.
func TestTurningEndsWithItsFeed(t *testing.T) {
	t.Parallel()
	for i := range 40 {
		f := (&Store{}).newFeed(1, nil)
		var running atomic.Int32
		var begin sync.WaitGroup
		for range 4 {
			begin.Go(func() {
				for f.turning.ctx.Err() == nil {
					f.turning.work(func() {
						running.Add(1)
						runtime.Gosched()
						running.Add(-1)
					})
				}
			})
		}
		for range i % 20 {
			runtime.Gosched()
		}
		f.turning.stop()
		if n := running.Load(); n != 0 {
			t.Fatalf("%d are under way after the end", n)
		}
		begin.Wait()
		if n := running.Load(); n != 0 {
			t.Fatalf("%d have begun after the end", n)
		}
	}
}
