package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inflight/broker/packet"
	"inflight/broker/store"
	"inflight/broker/store/memory"
)

// dying connects with a will whose payload is the Client Identifier. A Session Expiry Interval of 0 asks for a Clean Start.
func dying(t *testing.T, s *Server, id string, qos byte, delay, expiry uint32) *peer5 {
	t.Helper()
	return connect5(t, s, dyingConnect(id, qos, delay, expiry), false)
}

func dyingConnect(id string, qos byte, delay, expiry uint32) *packet.Connect {
	return &packet.Connect{
		ClientID: id, CleanSession: expiry == 0, Properties: &props{SessionExpiry: packet.Some(expiry)},
		Will: &packet.Will{Topic: "will/" + id, Payload: []byte(id), QoS: qos, Properties: &props{WillDelay: packet.Some(delay)}},
	}
}

// casualties are clients whose node is about to go, each with a will that is due or not. It returns when the client "cut
// before" was cut.
func casualties(t *testing.T, s *Server) (cut time.Time) {
	t.Helper()
	for qos := range byte(3) {
		dying(t, s, fmt.Sprintf("clean%d", qos), qos, 0, 0)
		dying(t, s, fmt.Sprintf("kept%d", qos), qos, 0, 1000)
		dying(t, s, fmt.Sprintf("delayed%d", qos), qos, 4, 1000)
	}
	dying(t, s, "ends", 2, 1000, 3) // with its session
	p := dial(t, s)
	p.send(packet.AppendConnect(nil, &packet.Connect{ClientID: "old", Will: &packet.Will{Topic: "will/old", Payload: []byte("old"), QoS: 1}}))
	p.want("CONNACK present=false code=0")
	expires := connect5(t, s, &packet.Connect{ClientID: "expires", Properties: &props{SessionExpiry: packet.Some[uint32](3)}}, false)
	expires.subscribe(0, packet.Subscription{Filter: "queue", QoS: 1})
	stays := connect5(t, s, &packet.Connect{ClientID: "stays", Properties: &props{SessionExpiry: packet.Some[uint32](1000)}}, false)
	stays.subscribe(0, packet.Subscription{Filter: "queue", QoS: 1})

	// What must not be published.
	dying(t, s, "comes back", 2, 1000, 1000)
	dying(t, s, "leaves", 2, 0, 1000).leave(packet.Disconnect{})
	dying(t, s, "leaves for ever", 2, 0, 0).leave(packet.Disconnect{})
	away(t, s, "leaves")
	away(t, s, "leaves for ever")
	waiting := dying(t, s, "cut before", 1, 6, 1000)
	cut = time.Now()
	waiting.cut() // its delay runs already
	away(t, s, "cut before")
	return cut
}

// beaten is when a node has last said in the store that it is there: until then its sessions had connections.
func beaten(t *testing.T, s *Server) time.Time {
	t.Helper()
	var rec *store.Session
	eventually(t, func() (ok bool) {
		var err error
		rec, err = s.store.Session(t.Context(), nodePrefix+s.cfg.Node)
		return err == nil
	})
	return rec.Updated
}

// wills reads what a watcher with QoS 2 gets until it has what is wanted, and looks whether more come. What may come is no
// error.
func (p *peer) wills(want, may []string, more time.Duration) map[string]time.Time {
	p.t.Helper()
	at := make(map[string]time.Time)
	end := time.Now().Add(patience)
	for {
		_ = p.nc.SetReadDeadline(end)
		f, err := p.rd.Next()
		if err != nil {
			break
		}
		switch f.Type() {
		case packet.PUBLISH:
			m, err := packet.ParsePublish(f)
			if err != nil {
				p.t.Fatal(err)
			}
			if id := string(m.Payload); at[id].IsZero() {
				at[id] = time.Now()
			} else {
				p.t.Errorf("the will of %q came twice", id)
			}
			if m.QoS == 1 {
				p.send(ack(packet.PUBACK, m.ID))
			} else if m.QoS == 2 {
				p.send(ack(packet.PUBREC, m.ID))
			}
			if lacking(at, want) == 0 {
				end = time.Now().Add(more)
			}
		case packet.PUBREL:
			id, _ := packet.ParseAck(f)
			p.send(ack(packet.PUBCOMP, id))
		}
	}
	got := slices.Sorted(maps.Keys(at))
	for _, id := range got {
		if !slices.Contains(want, id) && !slices.Contains(may, id) {
			p.t.Errorf("a will of %q", id)
		}
	}
	if lacking(at, want) > 0 {
		p.t.Errorf("wills of %q, want %q", got, want)
	}
	return at
}

func lacking(at map[string]time.Time, want []string) (n int) {
	for _, id := range want {
		if at[id].IsZero() {
			n++
		}
	}
	return n
}

var (
	published  = []string{"clean1", "clean2", "kept1", "kept2", "delayed1", "delayed2", "ends", "old", "cut before"}
	published0 = []string{"clean0", "kept0", "delayed0"} // at QoS 0
)

// survives checks on a node what is left of the sessions, after all wills.
func survives(t *testing.T, s *Server) {
	t.Helper()
	connect5(t, s, &packet.Connect{ClientID: "stays", Properties: &props{SessionExpiry: packet.Some[uint32](1000)}}, true)
	for _, id := range []string{"expires", "ends", "clean0", "clean1", "clean2", "leaves for ever"} {
		eventually(t, func() bool {
			rec, err := s.store.Session(t.Context(), id)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
			return rec == nil
		})
	}
	for _, id := range []string{"kept2", "delayed2", "leaves", "cut before"} {
		connect5(t, s, dyingConnect(id, 0, 1000, 1000), true)
	}
}

// A node that failed, or was shut down, and comes back adopts its own sessions.
func TestWillsAfterARestart(t *testing.T) { t.Parallel(); eachDurable(t, testWillsAfterARestart) }

func testWillsAfterARestart(t *testing.T, on string) {
	if testing.Short() {
		t.Skip("waits for will delays; run without -short")
	}
	for name, end := range map[string]func(*Server){"crash": crash, "shutdown": (*Server).Shutdown, "drain": func(s *Server) {
		s.Drain(context.Background())
		s.Shutdown()
	}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Listen: "127.0.0.1:0", Store: on, StoreDir: t.TempDir(), Pipeline: true, Log: testLog(t)}
			s := start(t, cfg)
			w := connect(t, s, "w", "keep")
			w.subscribe("will/#", 2)
			casualties(t, s)
			there := beaten(t, s)
			end(s)

			// Of QoS 0 only what is published after the watcher is back reaches it.
			s = start(t, cfg)
			w = connect(t, s, "w", "keep", "present")
			connect5(t, s, dyingConnect("comes back", 2, 1000, 1000), true)
			seen := w.wills(published, published0, 3*time.Second)
			if took := seen["delayed2"].Sub(there); took < 4*time.Second {
				t.Errorf("a will with a delay of 4 s came %v after the node was there", took)
			}
			survives(t, s)
		})
	}
}

// A node of a cluster that fails, or is shut down, leaves its sessions to the others.
func TestWillsInACluster(t *testing.T) { t.Parallel(); eachDurable(t, testWillsInACluster) }

func testWillsInACluster(t *testing.T, on string) {
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	for name, tc := range map[string]struct {
		end  func(*Server)
		gone time.Duration // until the others know
	}{
		"crash":    {crash, nodeGone},
		"shutdown": {(*Server).Shutdown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := cluster(t, with(on))
			w := connect(t, nodes[1], "w")
			w.subscribe("will/#", 2)
			cut := casualties(t, nodes[0])
			there := beaten(t, nodes[0])
			tc.end(nodes[0])
			connect5(t, nodes[2], dyingConnect("comes back", 2, 1000, 1000), true)
			seen := w.wills(append(published0, published...), nil, 3*time.Second)
			for id, least := range map[string]time.Duration{"kept2": tc.gone, "delayed0": tc.gone + 4*time.Second, "delayed2": tc.gone + 4*time.Second} {
				if took := seen[id].Sub(there); took < least {
					t.Errorf("%s came %v after the node was there, want %v at least", id, took, least)
				}
			}
			if took := seen["cut before"].Sub(cut); took < 6*time.Second {
				t.Errorf("a will with a delay of 6 s came %v after its connection was cut", took)
			}
			survives(t, nodes[2])
		})
	}
}

// A node that is not heard of loses its sessions, and finds out: with the next write of a record, or when it is back and
// looks.
func TestNodeThatIsTakenForGone(t *testing.T) {
	t.Parallel()
	eachDurable(t, testNodeThatIsTakenForGone)
}

func testNodeThatIsTakenForGone(t *testing.T, on string) {
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	nodes := cluster(t, with(on))
	w := connect(t, nodes[1], "w")
	w.subscribe("will/#", 2)
	writes := dying(t, nodes[0], "writes", 2, 1000, 1000)
	looks := dying(t, nodes[0], "looks", 2, 1000, 1000)
	stays := connect(t, nodes[0], "stays", "keep") // nobody needs to adopt it
	nodes[0].presence.end()
	time.Sleep(nodeGone - time.Second)
	for _, id := range []string{"writes", "looks"} {
		eventually(t, func() bool {
			rec, err := nodes[0].store.Session(t.Context(), id)
			return err == nil && rec.Node != "n1" && rec.Ended != nil
		})
	}
	writes.send(packet.V5.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: "a"}}}))
	writes.wantEnd(packet.SessionTakenOver)
	nodes[0].checkSessions(t.Context())
	looks.wantEnd(packet.SessionTakenOver)
	stays.send(packet.AppendEmpty(nil, packet.PINGREQ))
	stays.want("PINGRESP")
	for i, id := range []string{"writes", "looks"} {
		connect5(t, nodes[i], dyingConnect(id, 2, 1000, 1000), true)
	}
	w.wantQuiet()
}

// silent is a store that does not find sessions while it is away.
type silent struct {
	store.Store
	away atomic.Bool
}

func (s *silent) Session(ctx context.Context, id string) (*store.Session, error) {
	if s.away.Load() {
		return nil, context.DeadlineExceeded
	}
	return s.Store.Session(ctx, id)
}

// A store that does not answer fails every session that this node looks after, again and again. The log has one line of it,
// and one when it is over.
func TestOverdueSessionsAreSaidOnce(t *testing.T) {
	t.Parallel()
	st := &silent{Store: memory.Open(nil)}
	defer st.Close()
	st.away.Store(true)
	var log lockedBuffer
	s := &Server{
		cfg: Config{Node: "b", StoreTimeout: patience}, log: slog.New(slog.NewTextHandler(&log, nil)), store: st,
		clients: map[string]*client{}, orphans: map[string]*orphan{}, locks: map[string]*idLock{},
	}
	defer s.dropOrphans()
	ended := time.Now().Add(-time.Minute)
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprint("c", i))
		rec := &store.Session{ClientID: ids[i], Node: "b", Ended: &ended, Will: &store.Will{Topic: "w", QoS: 1}}
		if err := st.PutSession(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		s.attendLater(ids[i], time.Now().Add(time.Hour))
	}
	due := func() { // those whose timers have not been faster
		for _, id := range ids {
			s.mu.Lock()
			o := s.orphans[id]
			s.mu.Unlock()
			if o != nil && o.timer.Stop() {
				s.attend(id, o)
			}
		}
	}
	const (
		fails = "tried again until it works"
		works = `"sessions of nodes that are gone are looked after again" sessions=20`
	)
	for range 3 {
		due()
	}
	if text := log.String(); strings.Count(text, fails) != 1 || strings.Contains(text, works) {
		t.Errorf("three times twenty sessions failed, the log has\n%s", text)
	}
	s.drop(ids[0]) // its client has come
	st.away.Store(false)
	due()
	eventually(t, func() bool { return strings.Count(log.String(), works) == 1 })
	if n := strings.Count(log.String(), fails); n != 1 {
		t.Errorf("said %d times that they fail, want once", n)
	}
	var o overdue // the next outage is another one
	if !o.add("a") || o.add("a") || o.add("b") || o.remove("a") != 0 || o.remove("c") != 0 || o.remove("b") != 2 || !o.add("a") || o.remove("a") != 1 {
		t.Error("two outages are not told apart")
	}
}

// halting is a store that fails from its n-th operation on, after that one took effect or before.
type halting struct {
	store.Store
	left  int
	after bool
}

var errHalt = errors.New("the node failed")

func (h *halting) step(do func() error) error {
	h.left--
	if h.left < 0 || h.left == 0 && !h.after {
		return errHalt
	}
	if err := do(); err != nil || h.left > 0 {
		return err
	}
	return errHalt
}

func (h *halting) SwapSession(ctx context.Context, rec *store.Session) error {
	return h.step(func() error { return h.Store.SwapSession(ctx, rec) })
}

func (h *halting) Transient(m *store.Message) error {
	return h.step(func() error { return h.Store.Transient(m) })
}

func (h *halting) Publish(m *store.Message, done store.Done) {
	done(0, h.step(func() error { _, err := result(func(done store.Done) { h.Store.Publish(m, done) }); return err }))
}

func (h *halting) Hold(client string, id uint16, m *store.Message, done store.Done) {
	var ref store.Ref
	err := h.step(func() (err error) {
		ref, err = result(func(done store.Done) { h.Store.Hold(client, id, m, done) })
		return err
	})
	done(ref, err)
}

func (h *halting) Release(client string, id uint16, ref store.Ref, m *store.Message, done store.Done) {
	done(ref, h.step(func() error {
		_, err := result(func(done store.Done) { h.Store.Release(client, id, ref, m, done) })
		return err
	}))
}

// Whatever step of it a node fails at, another one brings the publication of a will to its end: once at QoS 2. So does the
// node itself, where it only did not hear that a step took effect.
func TestWillPublishedByANodeThatFails(t *testing.T) {
	t.Parallel()
	for qos, bounds := range [][2]int{{0, 1}, {1, 2}, {1, 1}} {
		for step := 1; step <= 5; step++ {
			for mode := range 4 {
				after, itself := mode&1 > 0, mode&2 > 0
				t.Run(fmt.Sprintf("QoS %d, step %d, took effect %v, itself %v", qos, step, after, itself), func(t *testing.T) {
					st := memory.Open(nil)
					defer st.Close()
					got := make(chan string, 10)
					feed, err := st.Subscribe(t.Context(), "w", store.Subscription{Filter: "#", QoS: 2}, true, func(d store.Delivery) {
						got <- string(d.Message.Payload)
						d.Settle()
					})
					if err != nil {
						t.Fatal(err)
					}
					defer feed.Close()
					ended := time.Now()
					rec := &store.Session{ClientID: "c", Node: "a", Ended: &ended, Will: &store.Will{Topic: "w", Payload: []byte("will"), QoS: byte(qos)}}
					if err := st.PutSession(t.Context(), rec); err != nil {
						t.Fatal(err)
					}
					first := &Server{cfg: Config{Node: "a"}, store: &halting{Store: st, left: step, after: after}}
					failed := first.publishWill(t.Context(), rec)
					if failed != nil && !errors.Is(failed, errHalt) {
						t.Fatal(failed)
					}
					second := &Server{cfg: Config{Node: "b"}, store: st}
					now, err := st.Session(t.Context(), "c")
					if err != nil {
						t.Fatal(err)
					}
					if itself {
						second.cfg.Node, now = "a", rec // as it believes it to be
					}
					if now.Will != nil {
						if err := second.publishWill(t.Context(), now); err != nil {
							t.Fatal(err)
						}
					}
					if now, err = st.Session(t.Context(), "c"); err != nil || now.Will != nil {
						t.Fatalf("the record still has the will: %v, %v", now, err)
					}
					for _, fence := range []byte{0, 1} {
						m := &store.Message{Topic: "w", Payload: []byte("fence"), QoS: fence}
						if _, err := result(func(done store.Done) { st.Publish(m, done) }); err != nil {
							t.Fatal(err)
						}
					}
					n := 0
					for fences := 0; fences < 2; {
						if <-got == "fence" {
							fences++
						} else {
							n++
						}
					}
					if n < bounds[0] || n > bounds[1] {
						t.Errorf("published %d times, want %d to %d", n, bounds[0], bounds[1])
					}
					if n == 0 && failed == nil {
						t.Error("not published, and nobody failed")
					}
				})
			}
		}
	}
}

// Of two nodes that publish one will at the same time, one does.
func TestWillOfTwoNodes(t *testing.T) {
	t.Parallel()
	st := memory.Open(nil)
	defer st.Close()
	n := make(chan string, 100)
	feed, err := st.Subscribe(t.Context(), "w", store.Subscription{Filter: "#", QoS: 2}, true, func(d store.Delivery) {
		n <- string(d.Message.Payload)
		d.Settle()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	for i := range 20 {
		rec := &store.Session{ClientID: "c", Node: "a", Will: &store.Will{Topic: "w", Payload: fmt.Append(nil, i), QoS: 2}}
		if err := st.PutSession(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 2)
		for _, node := range []string{"b", "c"} {
			mine := *rec
			s := &Server{cfg: Config{Node: node}, store: st}
			go func() { errs <- s.publishWill(context.Background(), &mine) }()
		}
		first, second := <-errs, <-errs
		if (first == nil) == (second == nil) || first != nil && !errors.Is(first, store.ErrConflict) || second != nil && !errors.Is(second, store.ErrConflict) {
			t.Fatalf("%v and %v, want one conflict", first, second)
		}
		if got := <-n; got != fmt.Sprint(i) {
			t.Fatalf("got will %s, want %d", got, i)
		}
	}
	held, err := st.Held(t.Context(), "c")
	if err != nil || len(held) != 0 {
		t.Errorf("held %v, %v: want nothing left", held, err)
	}
}
