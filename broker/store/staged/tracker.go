package staged

import (
	"math"
	"sort"
	"sync"
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
// Invariants: refs holds the acknowledged, undiscarded sequences in ascending order; bound never passes an unreleased
// one, nor one whose sequence is not known yet. Of a hold that is under way it is known that its sequence will be above
// every sequence that was acknowledged before it was sent (floor).
type tracker struct {
	mu       sync.Mutex
	subject  string // inf.h.<client>
	refs     []ref
	pending  []*hold // holds under way, in the order in which they were sent
	highest  uint64  // highest acknowledged sequence
	purged   uint64  // bound of the last purge
	released int     // refs marked released
	queued   bool    // waits for the purger, or is being purged

	front uint64    // the unreleased sequence that others wait behind, 0: none
	since time.Time // since when
}

type ref struct {
	seq      uint64
	id       uint16 // Packet Identifier
	released bool
}

// pin is an identifier all of whose copies below bound can go.
type pin struct {
	id    uint16
	bound uint64
}

type hold struct {
	floor uint64
	done  bool
}

// sent notes a hold that is on its way. It is called before the message leaves.
func (t *tracker) sent() *hold {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := &hold{floor: t.highest}
	t.pending = append(t.pending, h)
	return h
}

// held notes its sequence; 0 when it failed.
func (t *tracker) held(h *hold, id uint16, seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.done = true
	for len(t.pending) > 0 && t.pending[0].done {
		t.pending = t.pending[1:]
	}
	if seq > 0 {
		t.insert(seq, id)
	}
}

func (t *tracker) insert(seq uint64, id uint16) {
	t.highest = max(t.highest, seq)
	i := len(t.refs)
	for i > 0 && t.refs[i-1].seq > seq {
		i--
	}
	if i > 0 && t.refs[i-1].seq == seq {
		return
	}
	t.refs = append(t.refs, ref{})
	copy(t.refs[i+1:], t.refs[i:])
	t.refs[i] = ref{seq: seq, id: id}
}

// release marks a sequence as discardable and reports how many such there are and whether the client must be queued for
// the purger.
func (t *tracker) release(seq uint64) (released int, queue bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := sort.Search(len(t.refs), func(i int) bool { return t.refs[i].seq >= seq })
	if i < len(t.refs) && t.refs[i].seq == seq && !t.refs[i].released {
		t.refs[i].released = true
		t.released++
	}
	queue = !t.queued
	t.queued = true
	return t.released, queue
}

// isReleased reports whether this node has seen the release of seq become durable.
func (t *tracker) isReleased(seq uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := sort.Search(len(t.refs), func(i int) bool { return t.refs[i].seq >= seq })
	return seq < t.purged || i < len(t.refs) && t.refs[i].seq == seq && t.refs[i].released
}

// bound drops the released prefix and returns the sequence below which everything can go; 0 when there is nothing to
// purge.
func (t *tracker) bound() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var bound uint64
	for len(t.refs) > 0 && t.refs[0].released {
		if len(t.pending) > 0 && t.refs[0].seq > t.pending[0].floor {
			break
		}
		bound = t.refs[0].seq + 1
		t.refs = t.refs[1:]
		t.released--
	}
	if bound <= t.purged {
		return 0
	}
	t.purged = bound
	return bound
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
	known := uint64(math.MaxUint64) // no hold under way can get a sequence at or below it
	if len(t.pending) > 0 {
		known = t.pending[0].floor
	}
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

// unpin forgets what was discarded by identifier.
func (t *tracker) unpin(pins []pin) {
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
			continue
		}
		kept = append(kept, r)
	}
	t.refs = kept
}

// rest ends a purge and reports whether another one is worth while.
func (t *tracker) rest() (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued = t.released > 0
	return t.queued
}

// reset starts again from what the stream holds, in ascending order; the released ones are to be discarded.
func (t *tracker) reset(found []ref) (queue bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refs, t.released, t.purged, t.front = nil, 0, 0, 0
	for _, r := range found {
		t.refs = append(t.refs, r)
		t.highest = max(t.highest, r.seq)
		if r.released {
			t.released++
		}
	}
	queue = t.released > 0 && !t.queued
	t.queued = t.queued || queue
	return queue
}

// idle reports whether nothing is held, under way, or waiting to be discarded.
func (t *tracker) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.refs) == 0 && len(t.pending) == 0 && !t.queued
}
