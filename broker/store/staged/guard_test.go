package staged

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

func TestGuardFloor(t *testing.T) {
	g := newGuard(10)
	want := func(reason string, floor uint64, news bool) {
		t.Helper()
		if f, n := g.floor(); f != floor || n != news {
			t.Fatalf("%s: floor %d, news %v; want %d, %v", reason, f, n, floor, news)
		}
	}
	want("nothing released", 10, false)
	a, b := g.sent(), g.sent()
	g.released(b, 13)
	g.gone(13)
	want("an earlier one is under way and may be 11 or 12", 10, false)
	g.released(a, 12)
	want("its copy is there", 11, true)
	g.gone(12)
	want("both are done with", 13, true)
	g.tell(13)
	want("the stream knows", 13, false)
	c := g.sent()
	g.released(c, 0)
	want("a repetition went nowhere", 13, false)
	d, e := g.sent(), g.sent()
	g.failed(d)
	g.released(e, 20)
	g.gone(20)
	want("where d went is not known", 13, false)
	fails, above := g.doubts()
	if fails != 1 || above != 13 {
		t.Fatalf("%d in doubt above %d, want 1 above 13", fails, above)
	}
	f := g.sent()
	g.cleared(fails, 21)
	want("found, but f is under way: it was sent after 20", 20, true)
	g.failed(f)
	g.cleared(fails, 22)
	want("f is in doubt, and that was not about it", 20, true)
	fails, _ = g.doubts()
	g.cleared(fails, 23)
	want("found as well", 23, true)
	if fails, _ = g.doubts(); fails != 0 {
		t.Fatalf("%d are in doubt, want none", fails)
	}
	h := g.sent()
	g.released(h, 30)
	g.doubtAt(30)
	want("not everything was done", 29, true)
	fails, _ = g.doubts()
	g.cleared(fails, 31)
	want("it is now", 31, true)
}

// Whatever the order of answers, failures and discards: the floor never reaches a message whose copy is there, and in the
// end it reaches the last one.
func TestGuardModel(t *testing.T) {
	type release struct {
		number, seq uint64 // seq 0: the stream does not have it
		gone        bool
	}
	rapid.Check(t, func(t *rapid.T) {
		g := newGuard(0)
		var last uint64
		var flying, arrived, answered, all []*release
		take := func(t *rapid.T, from *[]*release, first bool) *release {
			if len(*from) == 0 {
				t.Skip("no release is in this state")
			}
			i := 0
			if !first {
				i = rapid.IntRange(0, len(*from)-1).Draw(t, "which")
			}
			r := (*from)[i]
			*from = append((*from)[:i:i], (*from)[i+1:]...)
			return r
		}
		actions := map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				floor, _ := g.floor()
				for _, r := range all {
					if r.seq > 0 && r.seq <= floor && !r.gone {
						t.Fatalf("floor %d, and the copy of %d is there", floor, r.seq)
					}
				}
			},
			"send": func(*rapid.T) {
				r := &release{number: g.sent()}
				flying, all = append(flying, r), append(all, r)
			},
			"arrive": func(t *rapid.T) {
				r := take(t, &flying, true)
				if rapid.IntRange(0, 4).Draw(t, "lost") > 0 {
					last += rapid.Uint64Range(1, 3).Draw(t, "gap")
					r.seq = last
				}
				arrived = append(arrived, r)
			},
			"answer": func(t *rapid.T) {
				r := take(t, &arrived, false)
				if r.seq == 0 || rapid.IntRange(0, 4).Draw(t, "answer lost") == 0 {
					g.failed(r.number)
					return
				}
				g.released(r.number, r.seq)
				answered = append(answered, r)
			},
			"discard": func(t *rapid.T) {
				r := take(t, &answered, false)
				r.gone = true
				g.gone(r.seq)
			},
			"search": func(*rapid.T) {
				fails, _ := g.doubts()
				if fails == 0 || len(flying) > 0 {
					return // the fence is behind what was sent before
				}
				last++
				for _, r := range all {
					r.gone = r.gone || r.seq > 0
				}
				g.cleared(fails, last)
			},
			"tell": func(*rapid.T) { floor, _ := g.floor(); g.tell(floor) },
		}
		t.Repeat(actions)
		for len(flying) > 0 {
			actions["arrive"](t)
		}
		for len(arrived) > 0 {
			actions["answer"](t)
		}
		for len(answered) > 0 {
			actions["discard"](t)
		}
		actions["search"](t)
		if floor, _ := g.floor(); floor != max(last, 0) && floor < g.way.highest {
			t.Fatalf("floor %d in the end, want %d", floor, g.way.highest)
		}
		if len(g.refs) > 0 {
			t.Fatalf("%d releases are left", len(g.refs))
		}
	})
}

// released releases messages behind one that is withheld, so that their copies stay for a while, ends the store as a
// crash does, and returns the withheld one and what was released.
func released(e *storetest.Env, n int, subscribed ...*storetest.Inbox) (withheld store.Held, refs map[uint16]store.Ref) {
	e.Helper()
	withheld = store.Held{ID: 1, Ref: e.Hold(1, e.Msg(2, "withheld"))}
	refs = make(map[uint16]store.Ref)
	for id := uint16(2); int(id) < n+2; id++ {
		msg := e.Msg(2, fmt.Sprint(id))
		refs[id] = e.Hold(id, msg)
		e.Release(id, refs[id], msg)
	}
	for _, in := range subscribed {
		for id := uint16(2); int(id) < n+2; id++ {
			in.Want("delivered and settled", fmt.Sprint(id))
		}
	}
	crash(e.S.(*Store))
	return withheld, refs
}

// awaitNothingKept waits until the delivery stream keeps nothing of a node.
func awaitNothingKept(t *testing.T, s *Store, node string) {
	t.Helper()
	for end := time.Now().Add(startUp); ; time.Sleep(20 * time.Millisecond) {
		_, pending, err := s.guardState(origin(node))
		if err == nil && !pending {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the guard of %s keeps messages: %v", node, err)
		}
	}
}

// awaitKept waits until the delivery stream says that it keeps something of a node: it counts a moment later.
func awaitKept(t *testing.T, s *Store, node string) {
	t.Helper()
	for end := time.Now().Add(startUp); ; time.Sleep(5 * time.Millisecond) {
		_, pending, err := s.guardState(origin(node))
		if err == nil && pending {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the guard of %s keeps nothing: %v", node, err)
		}
	}
}

// forgetIDs makes the delivery stream forget every message id, as it does when the duplicate window is over.
func forgetIDs(t *testing.T, s *Store) {
	t.Helper()
	stream, err := s.js.Stream(starting(t), msgsStream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	for _, window := range []time.Duration{100 * time.Millisecond, DuplicateWindow} {
		cfg.Duplicates = window
		if _, err := s.js.UpdateStream(starting(t), cfg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// What is released and acknowledged by every subscriber, and not discarded when the only node goes down, is discarded
// before the node serves again. Nothing else could tell: the stream does not know the id any more.
func TestReleasedBeforeACrash(t *testing.T) {
	m := single(t)
	e := storetest.NewEnv(t, m.open(t))
	in := e.Subscribe(e.Root+"/x", 2, false)
	withheld, refs := released(e, 50, in)
	m.Stop()
	m.Start()
	s := m.open(t)
	e = e.View(s)
	awaitStaged(t, s, e.Client, 1) // nobody has asked what is held
	e.WantHeld("only the withheld one", withheld)
	in = e.Subscribe(e.Root+"/x", 2, false)
	for id, ref := range refs {
		e.Release(id, ref, e.Msg(2, fmt.Sprint(id))) // PUBREL again
	}
	in.Quiet("nothing again", e.Root+"/x")
	awaitNothingKept(t, s, "n1")
	got, err := e.Fetch(withheld.Ref)
	if err != nil {
		t.Fatal(err)
	}
	e.Release(1, withheld.Ref, got)
	in.Want("now", "withheld")
	awaitNothingKept(t, s, "n1")
}

// The same where nobody subscribes, and what was released before is purged.
func TestReleasedToNobodyBeforeACrash(t *testing.T) {
	t.Parallel()
	m := single(t)
	s := m.open(t)
	e := storetest.NewEnv(t, s)
	for id := uint16(1); id < 10; id++ {
		msg := e.Msg(2, fmt.Sprint(id))
		e.Release(id, e.Hold(id, msg), msg)
	}
	awaitNothingKept(t, s, "n1")
	last := uint64(9)
	for range 3 {
		away := s.guard.sent() // a release without an answer: the store says by itself that it is done with nothing above
		withheld := store.Held{ID: 20, Ref: e.Hold(20, e.Msg(2, "withheld"))}
		for id := uint16(21); id < 26; id++ {
			msg := e.Msg(2, fmt.Sprint(id))
			e.Release(id, e.Hold(id, msg), msg)
		}
		err := gather(1, func(_ int, done func(error)) { s.letDeliveriesGo(last+2, done) })[0]
		if err != nil {
			t.Fatal(err)
		}
		stream, err := s.js.Stream(starting(t), msgsStream)
		if err != nil {
			t.Fatal(err)
		}
		if first := stream.CachedInfo().State.FirstSeq; first != last+3 {
			t.Fatalf("the stream begins at %d, want %d: above what is done with", first, last+3)
		}
		last += 5
		s.guard.released(away, 0)
		s.Discard(e.Client, withheld.Ref)
		awaitNothingKept(t, s, "n1")
	}
	withheld, _ := released(e, 5)
	m.Stop()
	m.Start()
	s = m.open(t)
	wantInterest(t, "nobody has ever subscribed", s, unwanted)
	awaitStaged(t, s, e.Client, 1)
	e.View(s).WantHeld("only the withheld one", withheld)
}

// The same with the node still there and the store gone, after the duplicate window: the table has forgotten all of them.
func TestReleasedBeforeTheDuplicateWindow(t *testing.T) {
	m := single(t)
	e := storetest.NewEnv(t, m.open(t))
	withheld, _ := released(e, 20)
	s := m.open(t)
	e = e.View(s)
	forgetIDs(t, s)
	e.WantHeld("only the withheld one", withheld)
	awaitStaged(t, s, e.Client, 1)
}

// A release without an answer is searched for, and what was released with it does not stay in the stream for ever.
func TestReleaseInDoubt(t *testing.T) {
	m := single(t)
	s := m.open(t)
	e := storetest.NewEnv(t, s)
	in := e.Subscribe(e.Root+"/x", 2, false)
	msg := e.Msg(2, "A")
	ref := e.Hold(1, msg)
	// It arrives, and the store is told that there is no answer.
	at := make(chan error, 1)
	release := s.guard.sent()
	e.S.Release(e.Client, 1, ref, msg, func(_ store.Ref, err error) { at <- err })
	if err := <-at; err != nil {
		t.Fatal(err)
	}
	s.guard.failed(release)
	in.Want("delivered", "A")
	for id := uint16(2); id < 10; id++ {
		m := e.Msg(2, fmt.Sprint(id))
		e.Release(id, e.Hold(id, m), m)
		in.Want("others go on", fmt.Sprint(id))
	}
	awaitNothingKept(t, s, "n1")
	if fails, _ := s.guard.doubts(); fails != 0 {
		t.Errorf("%d are in doubt", fails)
	}
	awaitStaged(t, s, e.Client, 0)
}

// A release of what this store never held, nor asked for, is discarded as well.
func TestReleaseOfAStray(t *testing.T) {
	m := single(t)
	e := storetest.NewEnv(t, m.open(t))
	msg := e.Msg(2, "A")
	ref := e.Hold(1, msg)
	s := m.open(t)
	e = e.View(s)
	in := e.Subscribe(e.Root+"/x", 2, false)
	e.Release(1, ref, msg)
	in.Want("delivered", "A")
	awaitStaged(t, s, e.Client, 0)
	awaitNothingKept(t, s, "n1")
}

// After a power cut the stream can end before the guard's floor. What is released then must be kept all the same.
func TestGuardAboveTheEndOfTheStream(t *testing.T) {
	m := single(t)
	s := m.open(t)
	own := origin("n1")
	if err := gather(1, func(_ int, done func(error)) { s.resetGuard(own, 1000, done) })[0]; err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = m.open(t)
	floor, _, err := s.guardState(own)
	if err != nil || floor != 0 {
		t.Fatalf("floor %d, %v; want 0", floor, err)
	}
	e := storetest.NewEnv(t, s)
	withheld, _ := released(e, 5)
	e = e.View(m.open(t))
	e.WantHeld("only the withheld one", withheld)
}

// Idle trackers are dropped.
func TestTrackersGo(t *testing.T) {
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	for i := range 20 {
		client := fmt.Sprint(e.Client, i)
		if _, err := s.Held(context.Background(), client); err != nil {
			t.Fatal(err)
		}
		v := e.View(s)
		v.Client = client
		msg := v.Msg(2, "A")
		v.Release(1, v.Hold(1, msg), msg)
	}
	for end := time.Now().Add(startUp); ; time.Sleep(10 * time.Millisecond) {
		s.mu.RLock()
		n := len(s.trackers)
		s.mu.RUnlock()
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d trackers are left", n)
		}
	}
}

// A stream of another layout is refused by a sentence that says what to do.
func TestOtherLayouts(t *testing.T) {
	m := single(t)
	s := m.open(t)
	stream, err := s.js.Stream(starting(t), stagedStream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	s.Close()
	js := m.open(t).js // what changes the streams
	for _, test := range []struct{ reason, layout, says string }{
		{"the first one had no mark", "", "made by an older inflight (layout 1, "},
		{"a newer one", "99", `made by another inflight (layout "99", `},
		{"ours, and somebody has changed it", layout, "exists with another configuration"},
	} {
		cfg.Metadata = map[string]string{layoutKey: test.layout}
		cfg.Description = "changed"
		if test.layout == "" {
			cfg.Metadata = nil
		}
		if _, err := js.UpdateStream(starting(t), cfg); err != nil {
			t.Fatal(err)
		}
		s, err := Open(starting(t), Config{Conn: m.Conn(t), Node: "n1"})
		if err == nil {
			s.Close()
			t.Fatalf("%s: opened", test.reason)
		}
		for _, want := range []string{test.says, "use another --store-dir"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q, want %q in it", test.reason, err, want)
			}
		}
	}
	if _, err := Open(starting(t), Config{Conn: m.Conn(t)}); err == nil {
		t.Error("a store of no node was opened")
	}
}

// The sweeper looks for old releases only.
func TestSweepOld(t *testing.T) {
	m := single(t)
	e := storetest.NewEnv(t, m.open(t))
	s := m.openAs(t, "n2")
	released(e, 3)
	awaitKept(t, s, "n1")
	if err := s.sweepOld(starting(t)); err != nil {
		t.Fatal(err)
	}
	if _, pending, err := s.guardState(origin("n1")); err != nil || !pending {
		t.Errorf("pending %v, %v: what was just released is left to its node", pending, err)
	}
	s.cfg.Timeout = 200 * time.Millisecond // a question that cannot be asked is asked again for so long
	s.nc.Close()
	if err := s.sweepOld(starting(t)); err == nil {
		t.Error("no error without a connection")
	}
	s.sweeps.last = time.Time{}
	if _, err := s.Held(context.Background(), e.Client); err == nil {
		t.Error("held without a look at what was released")
	}
}
