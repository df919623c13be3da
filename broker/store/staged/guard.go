package staged

import (
	"math"
	"slices"
	"sort"
	"sync"
)

// guard knows up to where this node's releases are done with: the staged copy is gone of each message that the node
// released to a sequence of the delivery stream at or below floor. What is above it must stay in that stream, because it
// is what says, after a crash, that the copy was released.
//
// Invariants: refs holds the releases that are not known to be done with, in ascending order; floor never reaches one of
// them, nor the sequence of one that is under way, nor one whose outcome is not known. Of these two it is known that the
// sequence, if there is one, is above every one that was acknowledged before it was sent.
type guard struct {
	mu    sync.Mutex
	refs  []guarded
	way   underway // releases
	doubt uint64   // floor of the oldest release whose outcome is not known; math.MaxUint64: none
	fails int      // counts such releases
	told  uint64   // floor that the stream was told
}

type guarded struct {
	seq  uint64 // in the delivery stream
	gone bool   // its staged copy
}

// newGuard returns the guard of a node that has nothing under way, and is done with everything up to floor.
func newGuard(floor uint64) *guard {
	return &guard{way: underway{highest: floor}, doubt: math.MaxUint64, told: floor}
}

// sent notes a release that is on its way. It is called before the message leaves.
func (g *guard) sent() (release uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.way.sent()
}

// released notes where a release went; 0 when it was a repetition that the stream has dropped.
func (g *guard) released(release, seq uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way.arrived(release, seq)
	if seq == 0 {
		return
	}
	i := len(g.refs)
	for i > 0 && g.refs[i-1].seq > seq {
		i--
	}
	g.refs = slices.Insert(g.refs, i, guarded{seq: seq})
}

// failed notes a release that the stream may have and may not have.
func (g *guard) failed(release uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doubt = min(g.doubt, g.way.arrived(release, 0))
	g.fails++
}

// doubtAt notes a release that went to seq, and of which not everything was done.
func (g *guard) doubtAt(seq uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doubt = min(g.doubt, seq-1)
	g.fails++
}

// gone notes that the staged copies of releases are gone.
func (g *guard) gone(seqs ...uint64) {
	if len(seqs) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, seq := range seqs {
		i := sort.Search(len(g.refs), func(i int) bool { return g.refs[i].seq >= seq })
		if i < len(g.refs) && g.refs[i].seq == seq {
			g.refs[i].gone = true
		}
	}
}

// floor returns up to where everything is done with, and whether the stream was told less.
func (g *guard) floor() (floor uint64, news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	floor = min(g.way.highest, g.way.limit(), g.doubt)
	n := 0
	for n < len(g.refs) && g.refs[n].seq <= floor && g.refs[n].gone {
		n++
	}
	g.refs = g.refs[n:]
	if len(g.refs) > 0 {
		floor = min(floor, g.refs[0].seq-1)
	}
	return floor, floor > g.told
}

// tell notes which floor the stream has.
func (g *guard) tell(floor uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = max(g.told, floor)
}

// doubts returns how many releases have had an outcome that is not known, and where to look for them; none when nothing
// is to be looked for.
func (g *guard) doubts() (fails int, above uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.doubt == math.MaxUint64 {
		return 0, 0
	}
	return g.fails, g.told
}

// cleared notes that the copies of everything that the stream has up to seq are gone, and that it has nothing else of
// those failures.
func (g *guard) cleared(fails int, seq uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.refs {
		if g.refs[i].seq <= seq {
			g.refs[i].gone = true
		}
	}
	g.way.highest = max(g.way.highest, seq)
	if g.fails == fails {
		g.doubt = math.MaxUint64
	}
}
