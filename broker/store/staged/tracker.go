package staged

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pinnedAfter is how long released copies wait behind one that is not released before they are discarded by
	// identifier. A client may withhold a PUBREL for ever; what it released meanwhile must not pile up, nor outlive
	// DuplicateWindow.
	pinnedAfter = time.Second
	// maxPins bounds the identifiers of a client in one round.
	maxPins = 1024
)

// tracker knows which staged messages of one client can be discarded together. A purge of the client's subject removes
// every message below a sequence, so the bound must be at or below the oldest message that may still be needed.
//
// Invariants: refs holds the acknowledged sequences that are not known to be discarded, in ascending order; bound never
// passes an unreleased one, nor one whose sequence is not known yet.
type tracker struct {
	client string
	leases atomic.Int32 // who uses it; see Store.lease

	mu       sync.Mutex
	subject  string // inf.h.<client>
	refs     []ref
	way      underway // holds
	purged   uint64   // bound of the last purge
	released int      // refs marked released
	queued   bool     // waits for the purger, or is being purged

	front uint64    // the unreleased sequence that others wait behind, 0: none
	since time.Time // since when
}

type ref struct {
	seq      uint64
	msg      uint64 // where this node has released it to: a sequence of the delivery stream; 0: it has not, as far as it knows
	id       uint16 // Packet Identifier
	released bool
}

// pin is an identifier all of whose copies below bound can go.
type pin struct {
	id    uint16
	bound uint64
}

// sent notes a hold that is on its way. It is called before the message leaves.
func (t *tracker) sent() (hold uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.way.sent()
}

// held notes its sequence; 0 when it failed.
func (t *tracker) held(hold uint64, id uint16, seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.way.arrived(hold, seq)
	if seq == 0 {
		return
	}
	i := len(t.refs)
	for i > 0 && t.refs[i-1].seq > seq {
		i--
	}
	if i > 0 && t.refs[i-1].seq == seq {
		return
	}
	t.refs = slices.Insert(t.refs, i, ref{seq: seq, id: id})
}

// find returns the place of a sequence in refs, or -1.
func (t *tracker) find(seq uint64) int {
	i := sort.Search(len(t.refs), func(i int) bool { return t.refs[i].seq >= seq })
	if i < len(t.refs) && t.refs[i].seq == seq {
		return i
	}
	return -1
}

// release marks a sequence as discardable; msg is where this node has released it to, or 0. It reports whether the
// sequence is known here, how many such there are, and whether the client must be queued for the purger.
func (t *tracker) release(seq, msg uint64) (known bool, released int, queue bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.find(seq)
	if i < 0 {
		return false, t.released, false
	}
	if r := &t.refs[i]; !r.released {
		r.released = true
		t.released++
	}
	if msg > 0 {
		t.refs[i].msg = msg
	}
	queue = !t.queued
	t.queued = true
	return true, t.released, queue
}

// isReleased reports whether this node has seen the release of seq become durable.
func (t *tracker) isReleased(seq uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.find(seq)
	return seq < t.purged || i >= 0 && t.refs[i].released
}

// bound returns the sequence below which everything can go; 0 when there is nothing to purge.
func (t *tracker) bound() (bound uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	limit := t.way.limit()
	for _, r := range t.refs {
		if !r.released || r.seq > limit {
			break
		}
		bound = r.seq + 1
	}
	return bound
}

// gone forgets what was purged below bound, and returns where it had been released to.
func (t *tracker) gone(bound uint64) (msgs []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.purged = max(t.purged, bound)
	n := 0
	for n < len(t.refs) && t.refs[n].seq < bound {
		msgs = t.refs[n].forget(msgs)
		if t.refs[n].released {
			t.released--
		}
		n++
	}
	t.refs = t.refs[n:]
	return msgs
}

// forget adds where r was released to.
func (r *ref) forget(msgs []uint64) []uint64 {
	if r.msg > 0 {
		msgs = append(msgs, r.msg)
	}
	return msgs
}

// pinned returns what can be discarded by identifier because it has waited long enough behind an unreleased message, or
// at once. Of one identifier nothing goes that is not older than its oldest unreleased copy.
func (t *tracker) pinned(now time.Time, atOnce bool) []pin {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released == 0 || t.refs[0].released {
		t.front = 0
		return nil
	}
	if t.front != t.refs[0].seq {
		t.front, t.since = t.refs[0].seq, now
	}
	if !atOnce && now.Sub(t.since) < pinnedAfter {
		return nil
	}
	t.since = now
	known := t.way.limit()
	blocked := make(map[uint16]bool)
	at := make(map[uint16]int)
	var pins []pin
	for _, r := range t.refs {
		switch {
		case r.seq > known:
			return pins
		case !r.released:
			blocked[r.id] = true
		case blocked[r.id]:
		default:
			i, ok := at[r.id]
			if !ok {
				if len(pins) == maxPins {
					continue
				}
				i, at[r.id] = len(pins), len(pins)
				pins = append(pins, pin{id: r.id})
			}
			pins[i].bound = r.seq + 1
		}
	}
	return pins
}

// unpin forgets what was discarded by identifier, and returns where it had been released to.
func (t *tracker) unpin(pins []pin) (msgs []uint64) {
	bounds := make(map[uint16]uint64, len(pins))
	for _, p := range pins {
		bounds[p.id] = p.bound
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.refs[:0]
	for _, r := range t.refs {
		if r.released && r.seq < bounds[r.id] {
			t.released--
			msgs = r.forget(msgs)
			continue
		}
		kept = append(kept, r)
	}
	t.refs = kept
	return msgs
}

// rest ends a purge and reports whether another one is worth while.
func (t *tracker) rest() (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued = t.released > 0
	return t.queued
}

// reset starts again from what the stream holds, in ascending order; the released ones are to be discarded. It returns
// where those had been released to that are gone.
func (t *tracker) reset(found []ref) (queue bool, msgs []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.refs
	t.refs, t.released, t.purged, t.front = nil, 0, 0, 0
	for _, r := range found {
		for len(old) > 0 && old[0].seq < r.seq {
			msgs = old[0].forget(msgs)
			old = old[1:]
		}
		if len(old) > 0 && old[0].seq == r.seq {
			r.msg, r.released = old[0].msg, r.released || old[0].released
			old = old[1:]
		}
		t.refs = append(t.refs, r)
		t.way.highest = max(t.way.highest, r.seq)
		if r.released {
			t.released++
		}
	}
	for _, r := range old {
		msgs = r.forget(msgs)
	}
	queue = t.released > 0 && !t.queued
	t.queued = t.queued || queue
	return queue, msgs
}

// idle reports whether nothing is held, under way, or waiting to be discarded.
func (t *tracker) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.refs) == 0 && t.way.idle() && !t.queued
}
