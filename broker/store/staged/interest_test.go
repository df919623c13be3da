package staged

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

// metaModel is a cluster as the protocol of the record of interest sees it: a record that all nodes read and write one after
// the other, and a list of consumers whose newest changes the member that answers may not have heard of.
type metaModel struct {
	record  interestRecord
	changes []change // in the order in which they were made
	applied int      // of them, by the member that answers
	stored  int      // messages in the delivery stream
	actors  []*actor
	quit    chan struct{}
}

// change is that of the list of consumers.
type change struct {
	consumer int
	gone     bool
}

// actor runs in its own goroutine, one step at a time, between which any other may run.
type actor struct {
	m         *metaModel
	turn, end chan struct{}
	ended     bool

	consumer int  // of a subscriber
	told     bool // its client was told that it is subscribed
	after    int  // what it is owed comes after this message
}

func (m *metaModel) start(run func(a *actor)) {
	a := &actor{m: m, turn: make(chan struct{}), end: make(chan struct{}), consumer: len(m.actors) + 1}
	m.actors = append(m.actors, a)
	go func() {
		defer close(a.end)
		a.wait()
		run(a)
	}()
}

func (a *actor) wait() {
	select {
	case <-a.turn:
	case <-a.m.quit:
		runtime.Goexit()
	}
}

// step lets others run. A node may also die there.
func (a *actor) step() {
	select {
	case a.end <- struct{}{}:
	case <-a.m.quit:
		runtime.Goexit()
	}
	a.wait()
}

// run lets an actor do one step.
func (a *actor) run() {
	a.turn <- struct{}{}
	_, going := <-a.end
	a.ended = !going
}

func (a *actor) read() (interestRecord, error) {
	defer a.step()
	return a.m.record, nil
}

func (a *actor) swap(old interestRecord, is interest) (interestRecord, error) {
	defer a.step()
	if a.m.record.seq != old.seq {
		return interestRecord{}, store.ErrConflict
	}
	a.m.record = interestRecord{is, old.seq + 1}
	return a.m.record, nil
}

func (a *actor) subscribed(context.Context) (bool, error) {
	probe := len(a.m.changes) // the member that answers hears of what was before it
	a.step()
	a.m.applied = max(a.m.applied, probe)
	defer a.step()
	there := make(map[int]bool)
	for _, c := range a.m.changes[:a.m.applied] {
		there[c.consumer] = !c.gone
	}
	for _, is := range there {
		if is {
			return true, nil
		}
	}
	return false, nil
}

func (a *actor) change(gone bool) { a.m.changes = append(a.m.changes, change{a.consumer, gone}) }

// subscribe is what a node does for a client that comes and goes.
func (a *actor) subscribe() {
	a.change(false)
	a.step()
	if declare(context.Background(), a) != nil {
		return
	}
	a.told, a.after = true, a.m.stored
	a.step()
	a.told = false
	a.change(true)
}

// look is what a node does to see whether the last one is gone.
func (a *actor) look() {
	if rec, _ := a.read(); rec.is != unwanted {
		_, _ = leave(context.Background(), a, rec)
	}
}

// release is a node that releases messages and purges what it is done with.
func (a *actor) release(t *rapid.T) {
	for range 4 {
		a.m.stored++
		floor := a.m.stored
		a.step()
		if rec, _ := a.read(); rec.is != unwanted {
			continue
		}
		for _, sub := range a.m.actors {
			if sub.told && floor > sub.after {
				t.Errorf("up to %d is purged, and somebody is owed what comes after %d", floor, sub.after)
			}
		}
	}
}

// Whoever does what when, and dies where: nothing is purged that a subscriber is owed. And once all of them are gone, that is
// found out.
func TestInterestModel(t *testing.T) {
	for range 20 { // what would be wrong shows in one of a thousand
		rapid.Check(t, modelInterest)
	}
}

func modelInterest(t *rapid.T) {
	m := &metaModel{quit: make(chan struct{})}
	defer close(m.quit)
	if rapid.Bool().Draw(t, "wanted before") {
		m.record = interestRecord{wanted, 1}
	} else {
		m.record = interestRecord{is: unwanted}
	}
	m.start(func(a *actor) { a.release(t) })
	for range rapid.IntRange(1, 3).Draw(t, "subscribers") {
		m.start((*actor).subscribe)
	}
	for range rapid.IntRange(1, 3).Draw(t, "nodes that look") {
		m.start((*actor).look)
	}
	for {
		var going []*actor
		for _, a := range m.actors {
			if !a.ended {
				going = append(going, a)
			}
		}
		if len(going) == 0 {
			break
		}
		a := rapid.SampledFrom(going).Draw(t, "who")
		switch rapid.IntRange(0, 19).Draw(t, "what") {
		case 0: // its node dies; what was subscribed there goes after a while, unless it is kept
			a.ended = true
			a.told = a.told && rapid.Bool().Draw(t, "kept")
			if !a.told {
				a.change(true)
			}
		case 1, 2, 3:
			m.applied = min(m.applied+1, len(m.changes))
		default:
			a.run()
		}
	}
	owed := false
	for _, a := range m.actors {
		owed = owed || a.told
	}
	last := len(m.actors)
	m.start((*actor).look)
	for a := m.actors[last]; !a.ended; {
		a.run()
	}
	if unwanted := m.record.is == unwanted; unwanted == owed {
		t.Fatalf("in the end it is %s, and somebody subscribes: %v", m.record.is, owed)
	}
}

// wantInterest reads the record.
func wantInterest(t *testing.T, reason string, s *Store, want interest) interestRecord {
	t.Helper()
	rec, err := streamInterest{s}.read()
	if err != nil || rec.is != want {
		t.Fatalf("%s: %s, %v; want %s", reason, rec.is, err, want)
	}
	return rec
}

// awaitUnwanted waits until nobody is known to subscribe.
func awaitUnwanted(t *testing.T, s *Store) {
	t.Helper()
	for end := time.Now().Add(startUp); ; time.Sleep(10 * time.Millisecond) {
		if err := s.lookAround(starting(t)); err != nil {
			t.Fatal(err)
		}
		if rec, err := (streamInterest{s}).read(); err == nil && rec.is == unwanted {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the last subscription is gone and the record does not say so")
		}
	}
}

// The record follows the subscriptions, and what is released is kept for those that are there and away.
func TestInterest(t *testing.T) {
	t.Parallel()
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	release := func(from, to int) (payloads []string) {
		for i := from; i < to; i++ {
			m := e.Msg(2, fmt.Sprint(i))
			e.Release(uint16(i), e.Hold(uint16(i), m), m)
			payloads = append(payloads, fmt.Sprint(i))
		}
		return payloads
	}
	wantInterest(t, "nobody has ever subscribed", s, unwanted)
	release(1, 20)
	awaitNothingKept(t, s, "n1")
	in := e.Subscribe(e.Root+"/x", 2, true)
	wantInterest(t, "somebody has", s, wanted)
	in.Close()
	kept := release(20, 40)
	if err := s.lookAround(starting(t)); err != nil {
		t.Fatal(err)
	}
	wantInterest(t, "its client is away", s, wanted)
	awaitNothingKept(t, s, "n1")
	in = e.Subscribe(e.Root+"/x", 2, true)
	in.Want("kept for it", kept...)
	in.Close()
	if err := s.Unsubscribe(starting(t), e.Client, e.Root+"/x"); err != nil {
		t.Fatal(err)
	}
	awaitUnwanted(t, s)
	release(40, 60)
	awaitNothingKept(t, s, "n1")
	in = e.Subscribe("$share/g/"+e.Root+"/x", 2, false)
	wantInterest(t, "a shared one", s, wanted)
	in.Want("after it", release(60, 62)...)
	in.Close()
	awaitUnwanted(t, s)
}

// A node that looks finds a consumer whose client was told, and one that was made at any time before it looked.
func TestLeaveFindsWhoSubscribes(t *testing.T) {
	t.Parallel()
	m := single(t)
	s := m.open(t)
	e := storetest.NewEnv(t, s)
	in := streamInterest{s}
	// Its node dies after it has made the consumer.
	if _, err := s.js.CreateConsumer(starting(t), msgsStream, jetstream.ConsumerConfig{Durable: "c1", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	rec, err := in.swap(wantInterest(t, "at first", s, unwanted), wanted)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := leave(starting(t), in, rec); left || err != nil {
		t.Fatalf("left %v, %v", left, err)
	}
	// Somebody subscribes while a node is looking, and that node dies.
	if rec, err = in.swap(wantInterest(t, "found", s, wanted), leaving); err != nil {
		t.Fatal(err)
	}
	feed := e.Subscribe(e.Root+"/x", 1, true)
	wantInterest(t, "declared", s, wanted)
	if _, err := in.swap(rec, unwanted); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("the end of that look: %v, want a conflict", err)
	}
	feed.Close()
	// The record is lost, and the kept session is not.
	err = gather(1, func(_ int, done func(error)) { s.purging(sessionsStream, interestSubject, 0, done) })[0]
	if err != nil {
		t.Fatal(err)
	}
	wantInterest(t, "lost", s, unwanted)
	s = m.open(t)
	// A look that was given up is taken over, after a while.
	if _, err = in.swap(wantInterest(t, "put right by the start", s, wanted), leaving); err != nil {
		t.Fatal(err)
	}
	if err := s.lookAround(starting(t)); err != nil {
		t.Fatal(err)
	}
	wantInterest(t, "left to the other node", s, leaving)
	s.looking.mu.Lock()
	s.looking.since = s.looking.since.Add(-interestPatience)
	s.looking.mu.Unlock()
	if err := s.Unsubscribe(starting(t), e.Client, e.Root+"/x"); err != nil {
		t.Fatal(err)
	}
	if err := s.drop(starting(t), "c1"); err != nil {
		t.Fatal(err)
	}
	awaitUnwanted(t, s)
}
