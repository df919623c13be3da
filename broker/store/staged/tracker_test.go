package staged

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// staging is a tracker with the holds that a test has sent, by name.
type staging struct {
	t     *testing.T
	tr    tracker
	holds map[string]uint64
	ids   map[string]uint16
	now   time.Time
}

func newStaging(t *testing.T) *staging {
	return &staging{t: t, holds: make(map[string]uint64), ids: make(map[string]uint16), now: time.Unix(1000, 0)}
}

func (s *staging) sent(id uint16, names ...string) {
	for _, name := range names {
		s.holds[name], s.ids[name] = s.tr.sent(), id
	}
}

func (s *staging) held(name string, seq uint64) { s.tr.held(s.holds[name], s.ids[name], seq) }

// hold holds messages that are acknowledged in order, each under an identifier of its own.
func (s *staging) hold(seqs ...uint64) {
	for _, seq := range seqs {
		name := fmt.Sprint("seq ", seq)
		s.sent(uint16(seq), name)
		s.held(name, seq)
	}
}

func (s *staging) release(seqs ...uint64) {
	for _, seq := range seqs {
		s.tr.release(seq, 0)
	}
}

func (s *staging) wantBound(reason string, bound uint64) {
	s.t.Helper()
	got := s.tr.bound()
	if got != bound {
		s.t.Fatalf("%s: bound %d, want %d", reason, got, bound)
	}
	s.tr.gone(got)
}

func (s *staging) wantPins(reason string, atOnce bool, want ...pin) {
	s.t.Helper()
	if got := s.tr.pinned(s.now, atOnce); fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Fatalf("%s: %v can go, want %v", reason, got, want)
	}
}

func TestTrackerBound(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(s *staging)
	}{
		{"nothing held, nothing to purge", func(s *staging) { s.wantBound("empty", 0) }},
		{"nothing released, nothing to purge", func(s *staging) {
			s.hold(5, 6)
			s.wantBound("held", 0)
		}},
		{"the released prefix goes", func(s *staging) {
			s.hold(5, 7, 9)
			s.release(5, 7)
			s.wantBound("below the oldest unreleased", 8)
			s.wantBound("once", 0)
		}},
		{"an unreleased message protects what follows", func(s *staging) {
			s.hold(5, 7, 9)
			s.release(7, 9)
			s.wantBound("5 is needed", 0)
			s.release(5)
			s.wantBound("all", 10)
		}},
		{"a hold under way protects what may be above it", func(s *staging) {
			s.hold(5)
			s.sent(1, "unknown")
			s.sent(2, "later")
			s.held("later", 9) // acknowledged before the earlier one
			s.release(5, 9)
			s.wantBound("the unknown one is above 5 and may be below 9", 6)
			s.wantBound("nothing more", 0)
			s.held("unknown", 8)
			s.wantBound("8 is not released", 0)
			s.release(8)
			s.wantBound("all", 10)
		}},
		{"a hold under way from the start protects everything", func(s *staging) {
			s.sent(1, "unknown")
			s.hold(5)
			s.release(5)
			s.wantBound("it may be anything", 0)
			s.held("unknown", 4)
			s.release(4)
			s.wantBound("all", 6)
		}},
		{"a hold that failed protects nothing", func(s *staging) {
			s.sent(1, "fails")
			s.hold(5)
			s.release(5)
			s.wantBound("under way", 0)
			s.held("fails", 0)
			s.wantBound("failed", 6)
		}},
		{"acknowledgements in any order", func(s *staging) {
			s.sent(1, "a", "b", "c")
			s.held("c", 12)
			s.held("a", 10)
			s.release(10, 12)
			s.wantBound("b is above 0", 0)
			s.held("b", 11)
			s.wantBound("a", 11)
			s.release(11)
			s.wantBound("all", 13)
		}},
		{"releases of unknown and released sequences count for nothing", func(s *staging) {
			s.hold(5, 6)
			s.release(1, 6, 6, 99)
			if s.tr.released != 1 {
				s.t.Fatalf("%d are released, want 1", s.tr.released)
			}
			s.release(5)
			s.wantBound("all", 7)
			s.release(5, 6)
			s.wantBound("gone already", 0)
			if s.tr.released != 0 {
				s.t.Fatalf("%d are released, want 0", s.tr.released)
			}
		}},
		{"a restart begins with what the stream holds", func(s *staging) {
			s.hold(1, 2)
			s.tr.reset([]ref{{seq: 10, id: 1, released: true}, {seq: 11, id: 2}, {seq: 12, id: 3, released: true}})
			s.wantBound("10", 11)
			s.hold(20)
			s.release(20, 11)
			s.wantBound("all", 21)
		}},
		{"what was acknowledged last need not be the highest", func(s *staging) {
			s.sent(1, "a", "b")
			s.held("b", 12)
			s.held("a", 10)
			s.sent(2, "next")
			if floor := s.tr.way.limit(); floor != 12 {
				s.t.Fatalf("floor %d, want 12", floor)
			}
		}},
		{"the highest sequence outlives a restart", func(s *staging) {
			s.hold(50)
			s.tr.reset(nil)
			s.sent(1, "next")
			if floor := s.tr.way.limit(); floor != 50 {
				s.t.Fatalf("floor %d, want 50", floor)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(newStaging(t)) })
	}
}

func TestTrackerPinned(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(s *staging)
	}{
		{"nothing waits behind nothing", func(s *staging) {
			s.wantPins("empty", true)
			s.hold(1)
			s.wantPins("not released", true)
			s.release(1)
			s.wantPins("a prefix is no pin", true)
		}},
		{"what waits long enough goes by identifier", func(s *staging) {
			s.hold(1, 2, 3)
			s.release(2, 3)
			s.wantPins("it has just begun to wait", false)
			s.now = s.now.Add(pinnedAfter - 1)
			s.wantPins("a nanosecond too early", false)
			s.now = s.now.Add(1)
			s.wantPins("long enough", false, pin{2, 3}, pin{3, 4})
			s.wantPins("not again at once, the purge may have failed", false)
			s.now = s.now.Add(pinnedAfter)
			s.wantPins("again later", false, pin{2, 3}, pin{3, 4})
			s.tr.unpin([]pin{{2, 3}, {3, 4}})
			s.wantPins("gone", true)
			s.release(1)
			s.wantBound("what is left", 2)
		}},
		{"the wait begins again when another message is the first", func(s *staging) {
			s.hold(1, 2, 3)
			s.release(3)
			s.wantPins("behind 1", false)
			s.now = s.now.Add(pinnedAfter)
			s.release(1)
			s.wantBound("1", 2)
			s.wantPins("behind 2 now", false)
		}},
		{"the newest released copy decides", func(s *staging) {
			s.hold(1)
			for seq := uint64(10); seq < 13; seq++ {
				s.sent(7, fmt.Sprint(seq))
				s.held(fmt.Sprint(seq), seq)
				s.release(seq)
			}
			s.wantPins("one purge for the identifier", true, pin{7, 13})
		}},
		{"an unreleased copy of the identifier protects itself", func(s *staging) {
			s.hold(1)
			s.sent(7, "a", "b", "c")
			s.held("a", 10)
			s.held("b", 11)
			s.held("c", 12)
			s.release(10, 12)
			s.wantPins("below 11 only", true, pin{7, 11})
		}},
		{"a hold under way protects what may be above it", func(s *staging) {
			s.hold(1, 2)
			s.sent(2, "unknown")
			s.sent(2, "later")
			s.held("later", 9)
			s.release(2, 9)
			s.wantPins("2 only", true, pin{2, 3})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(newStaging(t)) })
	}
}

// stagedCopy is a copy in the model's stream.
type stagedCopy struct {
	seq      uint64
	id       uint16
	h        uint64
	acked    bool // the store knows its sequence
	failed   bool // the store was told that the hold failed
	released bool
}

// trackerModel is a stream that keeps what a tracker's purges leave.
type trackerModel struct {
	tr      tracker
	now     time.Time
	lastSeq uint64
	flying  []*stagedCopy // sent, not in the stream yet; in order
	stream  []*stagedCopy
	known   []*stagedCopy // in the stream, not acknowledged
	queued  bool
}

func (m *trackerModel) send(t *rapid.T) {
	m.flying = append(m.flying, &stagedCopy{id: rapid.Uint16Range(1, 3).Draw(t, "id"), h: m.tr.sent()})
}

// arrive lets the stream take the oldest hold under way. Other clients take sequences in between.
func (m *trackerModel) arrive(t *rapid.T) {
	if len(m.flying) == 0 {
		t.Skip("nothing is under way")
	}
	c := m.flying[0]
	m.flying = m.flying[1:]
	m.lastSeq += rapid.Uint64Range(1, 3).Draw(t, "gap")
	c.seq = m.lastSeq
	m.stream = append(m.stream, c)
	m.known = append(m.known, c)
}

// acknowledge reports the sequence of a hold, in any order; or its failure, though the stream has it.
func (m *trackerModel) acknowledge(t *rapid.T) {
	if len(m.known) == 0 {
		t.Skip("nothing to acknowledge")
	}
	i := rapid.IntRange(0, len(m.known)-1).Draw(t, "hold")
	c := m.known[i]
	m.known = append(m.known[:i:i], m.known[i+1:]...)
	if rapid.IntRange(0, 9).Draw(t, "answer") == 0 {
		c.failed = true
		m.tr.held(c.h, c.id, 0)
		return
	}
	c.acked = true
	m.tr.held(c.h, c.id, c.seq)
}

func (m *trackerModel) release(t *rapid.T) {
	var which []*stagedCopy
	for _, c := range m.stream {
		if c.acked && !c.released {
			which = append(which, c)
		}
	}
	if len(which) == 0 {
		t.Skip("nothing to release")
	}
	m.releaseCopy(t, rapid.SampledFrom(which).Draw(t, "copy"))
}

func (m *trackerModel) releaseCopy(t *rapid.T, c *stagedCopy) {
	c.released = true
	if _, _, queue := m.tr.release(c.seq, 0); queue {
		if m.queued {
			t.Fatal("queued twice")
		}
		m.queued = true
	}
}

// purge is a round of the purger.
func (m *trackerModel) purge(t *rapid.T) {
	if !m.queued {
		t.Skip("not queued")
	}
	m.round(t, rapid.Bool().Draw(t, "last"))
}

func (m *trackerModel) round(t *rapid.T, atOnce bool) {
	if bound := m.tr.bound(); bound > 0 {
		m.check(t) // while the purge is under way
		if rapid.IntRange(0, 9).Draw(t, "purge fails") > 0 {
			m.remove(t, func(c *stagedCopy) bool { return c.seq < bound })
			m.tr.gone(bound)
		}
	}
	m.now = m.now.Add(100 * time.Millisecond)
	if pins := m.tr.pinned(m.now, atOnce); len(pins) > 0 {
		for _, p := range pins {
			m.remove(t, func(c *stagedCopy) bool { return c.id == p.id && c.seq < p.bound })
		}
		m.tr.unpin(pins)
	}
	m.queued = m.tr.rest()
}

func (m *trackerModel) remove(t *rapid.T, which func(*stagedCopy) bool) {
	var kept []*stagedCopy
	for _, c := range m.stream {
		if !which(c) {
			kept = append(kept, c)
			continue
		}
		if !c.released && !c.failed {
			t.Fatalf("the purge took sequence %d of identifier %d (acknowledged %v), which is not released", c.seq, c.id, c.acked)
		}
	}
	m.stream = kept
}

func (m *trackerModel) check(t *rapid.T) {
	for _, c := range m.stream {
		if c.acked && !c.released && m.tr.isReleased(c.seq) {
			t.Fatalf("sequence %d counts as released", c.seq)
		}
		if c.acked && c.released && !m.tr.isReleased(c.seq) {
			t.Fatalf("sequence %d is released, and that is forgotten before it is discarded", c.seq)
		}
	}
	released := 0
	for _, r := range m.tr.refs {
		if r.released {
			released++
		}
	}
	if released != m.tr.released {
		t.Fatalf("%d are released, the count is %d", released, m.tr.released)
	}
}

// restart is a resumed session: Held reads the stream and tells the tracker. No operation is under way then.
func (m *trackerModel) restart(t *rapid.T) {
	if len(m.flying)+len(m.known) > 0 {
		t.Skip("operations are under way")
	}
	var found []ref
	for _, c := range m.stream {
		c.acked, c.failed = true, false
		found = append(found, ref{seq: c.seq, id: c.id, released: c.released})
	}
	if queue, _ := m.tr.reset(found); queue {
		if m.queued {
			t.Fatal("queued twice")
		}
		m.queued = true
	}
}

// Whatever the order of answers, releases and purges: no purge takes a message that may still be needed, and in the end
// nothing is left.
func TestTrackerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &trackerModel{now: time.Unix(1000, 0)}
		t.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"send":     m.send,
			"arrive":   m.arrive,
			"answer":   m.acknowledge,
			"release":  m.release,
			"release+": m.release,
			"purge":    m.purge,
			"restart":  m.restart,
		})
		for len(m.flying) > 0 {
			m.arrive(t)
		}
		for len(m.known) > 0 {
			m.acknowledge(t)
		}
		withheld, withheldID := -1, uint16(0)
		for i, c := range m.stream {
			if c.acked && !c.released {
				if withheld < 0 {
					withheld, withheldID = i, c.id // the oldest PUBREL never comes
					continue
				}
				m.releaseCopy(t, c)
			}
		}
		for i := 0; m.queued && i < 100; i++ {
			m.round(t, false)
		}
		// A copy must outlive an older unreleased one of its identifier: the newest is the one that counts.
		left := false
		for _, c := range m.stream {
			if c.released && (withheld < 0 || c.id != withheldID) {
				t.Fatalf("sequence %d was released and is left", c.seq)
			}
			left = left || c.released
		}
		if m.queued != left {
			t.Fatalf("queued is %v with copies to discard %v", m.queued, left)
		}
		m.check(t)
	})
}
