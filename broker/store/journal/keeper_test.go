package journal

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

// await waits until a condition holds.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(startUp); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// logged collects what a store says.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) config(c *Config) { c.Log = slog.New(slog.NewTextHandler(l, nil)) }

// small makes snapshots frequent.
func small(c *Config) { c.Every = 64 << 10 }

func (s *Store) journalFirst() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st.journal.first
}

func (s *Store) snapshotOf() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st.encode(nil)
}

// traffic publishes until the journal has been trimmed so many times.
func traffic(t *testing.T, e *storetest.Env, times int) {
	t.Helper()
	s := e.S.(*Store)
	for ; times > 0; times-- {
		first := s.journalFirst()
		await(t, "the journal is trimmed", func() bool {
			for range 50 {
				e.Publish(&store.Message{Topic: "elsewhere", Payload: make([]byte, 1000), QoS: 1})
			}
			return s.journalFirst() > first
		})
	}
}

// A journal stays short, whatever it is needed for: a session that is away, a held message, a retained one.
func TestJournalIsTrimmed(t *testing.T) {
	m := single(t)
	s := m.open(t, small)
	e := storetest.NewEnv(t, s)
	ctx := starting(t)
	in := e.Subscribe(e.Root+"/#", 2, true)
	in.Close()
	var want []string
	for i := range 30 {
		want = append(want, strconv.Itoa(i))
		e.Publish(&store.Message{Topic: e.Root + "/x", Payload: []byte(want[i]), QoS: 1, Retain: i%3 == 0})
	}
	held := e.Msg(2, "held")
	ref := e.Hold(7, held)
	for range 3 {
		e.Publish(&store.Message{Topic: "retained/" + e.Root, Payload: []byte("kept"), QoS: 1, Retain: true})
	}
	if err := s.PutSession(ctx, &store.Session{ClientID: e.Client, Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	early := s.position()
	traffic(t, e, 6)
	await(t, "what was needed is carried forward", func() bool {
		if s.journalFirst() > early {
			return true
		}
		traffic(t, e, 1)
		return false
	})
	info, err := s.wire.info(ctx, journalStream)
	if err != nil {
		t.Fatal(err)
	}
	if info.first <= early || info.last-info.first > 3000 {
		t.Errorf("the stream has %d to %d, all began before %d", info.first, info.last, early)
	}
	await(t, "old snapshots are removed", func() bool {
		all, err := s.manifests(ctx)
		return err == nil && len(all) == keepSnapshots
	})
	verify := func(e *storetest.Env) {
		t.Helper()
		e.WantHeld("its Ref stays", store.Held{ID: 7, Ref: ref})
		got, err := e.Fetch(ref)
		if err != nil || string(got.Payload) != "held" {
			t.Errorf("held message %+v, %v", got, err)
		}
		end, err := e.S.RetainedEnd(ctx)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		err = e.S.Retained(ctx, "retained/#", end, func(m *store.Message) bool {
			n++
			return string(m.Payload) == "kept"
		})
		if err != nil || n != 1 {
			t.Errorf("%d retained messages, %v", n, err)
		}
		if rec, err := e.S.Session(ctx, e.Client); err != nil || rec.Node != "n1" {
			t.Errorf("session %+v, %v", rec, err)
		}
	}
	verify(e)
	before := s.snapshotOf()
	s = restart(t, m, s, small)
	e = e.View(s)
	if st, err := restore(before); err != nil || st.tree.Len() != s.st.tree.Len() || len(st.allHeld()) != len(s.st.allHeld()) {
		t.Errorf("after the restart the state is another one: %v", err)
	}
	verify(e)
	in = e.Subscribe(e.Root+"/#", 2, true)
	in.Want("the whole backlog", want...)
	e.Release(7, ref, held)
	in.Want("and what was held", "held")
	in.Quiet("once each", e.Root+"/x")
	e.S.(*Store).commit.settleNow()
	in.Close()
	if err := e.S.Unsubscribe(ctx, e.Client, e.Root+"/#"); err != nil {
		t.Error(err)
	}
}

// A store that was away for longer than the journal reaches back goes on from a snapshot, with its feeds.
func TestFallenBehind(t *testing.T) {
	m := single(t)
	var log logged
	a, b := m.open(t, small), m.open(t, small, log.config)
	e := storetest.NewEnv(t, a)
	v := e.View(b)
	in := v.Subscribe(e.Root+"/#", 2, true)
	e.Publish(e.Msg(1, "1"))
	in.Want("live", "1")
	b.applying.Lock()
	if err := b.heard.Unsubscribe(); err != nil { // it hears nothing and has to read
		t.Fatal(err)
	}
	for i := range 20 {
		e.Publish(e.Msg(1, strconv.Itoa(i+2)))
	}
	traffic(t, e, 5)
	b.applying.Unlock()
	for i := range 20 {
		in.Want("what it has missed", strconv.Itoa(i+2))
	}
	if !log.has("was behind the journal") {
		t.Error("it had all of it, so nothing was tested")
	}
	e.Publish(e.Msg(1, "fence"))
	in.Want("goes on", "fence")
	await(t, "both have the same state", func() bool { return bytes.Equal(a.snapshotOf(), b.snapshotOf()) })
	in.Close()
}

// The end of the journal is lost while the store runs, as it can be when a majority loses what it did not sync. It goes
// on from what is left, under another author, with its feeds.
func TestJournalGoesBack(t *testing.T) {
	m := single(t)
	var log logged
	s := m.open(t, small, log.config)
	e := storetest.NewEnv(t, s)
	ctx := starting(t)
	in := e.Subscribe(e.Root+"/x", 2, true)
	kept := e.SubscribeAs(e.Client+"-kept", e.Root+"/y", 2, true)
	traffic(t, e, 3)
	all, err := s.manifests(ctx)
	if err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	back := all[len(all)-1].Applied + 1
	young := e.SubscribeAs(e.Client+"-young", e.Root+"/x", 2, true) // after the snapshot: it is lost
	e.Publish(e.Msg(1, "1"))
	in.Want("before", "1")
	young.Want("before", "1")
	if err := s.wire.js.DeleteStream(ctx, journalStream); err != nil {
		t.Fatal(err)
	}
	c := s.wire.config(journalStream)
	c.FirstSeq = back
	if _, err := s.wire.js.CreateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
	outcome := make(chan error, 1)
	await(t, "messages are taken again", func() bool {
		s.Publish(e.Msg(1, "2"), func(_ store.Ref, err error) { outcome <- err })
		return <-outcome == nil && log.has("the end of the journal is lost")
	})
	e.Publish(e.Msg(1, "3"))
	for d := in.Next("goes on"); string(d.Message.Payload) != "3"; d = in.Next("goes on") {
		d.Settle()
	}
	if !log.has("a subscription is lost") || !log.has("does not know this node any more") {
		t.Errorf("nobody is told: %s", log.String())
	}
	for _, feed := range []*storetest.Inbox{in, kept, young} {
		feed.Close()
	}
}

// The end of the journal can be lost with a machine that did not sync: a snapshot that is ahead of it must not be used.
func TestLostEnd(t *testing.T) {
	m := single(t)
	s := m.open(t, small)
	e := storetest.NewEnv(t, s)
	in := e.Subscribe(e.Root+"/x", 2, true)
	in.Close()
	e.Publish(e.Msg(1, "1"))
	traffic(t, e, 2)
	s.Close()
	// A snapshot of the future stands for a journal whose end is gone.
	var log logged
	s = m.open(t) // takes no snapshot of its own, which would be a newer one
	ahead := newState()
	ahead.applied = s.position() + 10_000
	if err := s.save(starting(t), ahead.applied, ahead.encode(nil)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = m.open(t, small, log.config)
	if !log.has("its end is lost") {
		t.Error("nobody is told")
	}
	e = e.View(s)
	in = e.Subscribe(e.Root+"/x", 2, true)
	in.Want("from the older snapshot", "1")
	in.Quiet("once", e.Root+"/x")
	in.Close()
}

// A snapshot with a wrong bit is left out, and the one before it used.
func TestCorruptSnapshot(t *testing.T) {
	m := single(t)
	s := m.open(t)
	e := storetest.NewEnv(t, s)
	in := e.Subscribe(e.Root+"/x", 2, true)
	in.Close()
	if err := s.shorten(starting(t)); err != nil {
		t.Fatal(err)
	}
	e.Publish(e.Msg(1, "1"))
	bad := s.snapshotOf()
	bad[len(bad)/2] ^= 1
	if err := s.save(starting(t), s.position(), bad); err != nil {
		t.Fatal(err)
	}
	var log logged
	s = restart(t, m, s, log.config)
	if !log.has("snapshot is left out") {
		t.Error("nobody is told")
	}
	e = e.View(s)
	in = e.Subscribe(e.Root+"/x", 2, true)
	in.Want("from the snapshot before", "1")
	in.Close()
}

// A journal that is deleted under the running broker is made anew with the sessions that are known.
func TestJournalDeleted(t *testing.T) {
	m := single(t)
	var log logged
	lost := make(chan byte, 100)
	s := m.open(t, log.config, func(c *Config) { c.Dropped = func(qos byte) { lost <- qos }; c.Timeout = 2 * time.Second })
	e := storetest.NewEnv(t, s)
	ctx := starting(t)
	live := e.Subscribe(e.Root+"/x", 2, true)
	away := e.SubscribeAs(e.Client+"-away", e.Root+"/x", 2, true)
	away.Close()
	if err := s.PutSession(ctx, &store.Session{ClientID: e.Client, Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	e.Publish(e.Msg(1, "lost for who is away"))
	live.Want("before", "lost for who is away")
	if err := s.wire.js.DeleteStream(ctx, journalStream); err != nil {
		t.Fatal(err)
	}
	// What is under way now is refused or waits; nothing is acknowledged that is not kept.
	outcome := make(chan error, 1)
	s.Publish(e.Msg(1, "under way"), func(_ store.Ref, err error) { outcome <- err })
	if err := <-outcome; err == nil {
		live.Want("acknowledged and delivered", "under way")
	}
	await(t, "the journal is there again", func() bool {
		s.Publish(e.Msg(1, "after"), func(_ store.Ref, err error) { outcome <- err })
		return <-outcome == nil
	})
	if !log.has("the journal was deleted") {
		t.Error("nobody is told")
	}
	for d := live.Next("after"); string(d.Message.Payload) != "after"; d = live.Next("after") {
		d.Settle()
	}
	live.Close()
	if rec, err := s.Session(ctx, e.Client); err != nil || rec.Node != "n1" {
		t.Errorf("session %+v, %v", rec, err)
	}
	s = restart(t, m, s, log.config, func(c *Config) { c.Dropped = func(qos byte) { lost <- qos } })
	e = e.View(s)
	away = e.SubscribeAs(e.Client+"-away", e.Root+"/x", 2, true)
	for d := away.Next("after"); string(d.Message.Payload) != "after"; d = away.Next("after") {
		d.Settle()
	}
	if qos := <-lost; qos != 1 || !log.has("gone from the journal") {
		t.Error("a lost message is not counted and told")
	}
	away.Close()
}

// A full journal takes no messages; what makes room is taken, and then the messages as well.
func TestFullJournal(t *testing.T) {
	m := single(t)
	s := m.open(t, func(c *Config) { c.MaxBytes, c.Timeout = 300<<10, 30*time.Second })
	e := storetest.NewEnv(t, s)
	in := e.Subscribe(e.Root+"/x", 2, true)
	in.Keep = true
	payload := strings.Repeat("x", 4000)
	const n = 200
	var mu sync.Mutex
	acknowledged := 0
	go func() {
		for range n {
			s.Publish(e.Msg(1, payload), func(_ store.Ref, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					acknowledged++
				}
			})
		}
	}()
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return acknowledged
	}
	await(t, "the journal is full", func() bool {
		s.commit.mu.Lock()
		defer s.commit.mu.Unlock()
		return s.commit.full()
	})
	got := 0
	for ; got < 20; got++ {
		in.Next("before it was full")
	}
	time.Sleep(100 * time.Millisecond)
	stuck := count()
	if stuck > 150 {
		t.Fatalf("%d messages were taken by a full journal", stuck)
	}
	if info, err := s.wire.info(starting(t), journalStream); err != nil || info.last > 400 {
		t.Errorf("journal %+v, %v", info, err)
	}
	if err := s.PutSession(starting(t), &store.Session{ClientID: e.Client}); err != nil {
		t.Errorf("what brings no message is refused: %v", err)
	}
	in.Close()
	in = e.Subscribe(e.Root+"/x", 2, true)
	for range n {
		d := in.Next(fmt.Sprintf("%d acknowledged", count()))
		d.Settle()
	}
	await(t, "all are acknowledged", func() bool { return count() == n })
	in.Close()
}

// A message that waits for many sessions is in memory once, and beyond the limits not at all.
func TestBodiesInMemory(t *testing.T) {
	m := single(t)
	s := m.open(t, func(c *Config) { c.CacheBytes, c.FeedBytes = 100_000, 40_000 })
	e := storetest.NewEnv(t, s)
	gate := make(chan struct{})
	var got [5][]string
	var wg sync.WaitGroup
	const n = 200
	wg.Add(len(got) * n)
	for i := range got {
		feed, err := s.Subscribe(starting(t), fmt.Sprint(e.Client, i), store.Subscription{Filter: e.Root + "/x", QoS: 2}, i%2 == 0, func(d store.Delivery) {
			<-gate
			got[i] = append(got[i], string(d.Message.Payload[:4]))
			d.Settle()
			wg.Done()
		})
		if err != nil {
			t.Fatal(err)
		}
		defer feed.Close()
	}
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("%04d", i))
		e.Publish(e.Msg(1, want[i]+strings.Repeat("x", 1000)))
	}
	s.mu.Lock()
	used := s.st.cache.used
	for f := range s.open {
		if f.cached > s.cfg.FeedBytes {
			t.Errorf("a feed has %d bytes in memory, limit %d", f.cached, s.cfg.FeedBytes)
		}
	}
	s.mu.Unlock()
	if used > 45_000 || used < 30_000 {
		t.Errorf("%d bytes are in memory, want what one feed may have: all want the same", used)
	}
	close(gate)
	wg.Wait()
	for i := range got {
		if strings.Join(got[i], " ") != strings.Join(want, " ") {
			t.Errorf("feed %d got %v", i, got[i])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st.cache.used != 0 {
		t.Errorf("%d bytes stay in memory", s.st.cache.used)
	}
}

func TestSnapshotErrors(t *testing.T) {
	good := newState().encode(nil)
	for n := range good {
		if _, err := restore(good[:n]); err == nil {
			t.Errorf("%d of %d bytes are a snapshot", n, len(good))
		}
	}
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := restore(b); err == nil {
			t.Errorf("bit %d is wrong and nobody sees it", bit)
		}
	}
}
