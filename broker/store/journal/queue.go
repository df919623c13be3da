package journal

import (
	"iter"
	"math"
	"sort"
)

// blockEntries is how many entries a block has room for: so many that a block and what the allocator adds are 768 bytes,
// which is one of its sizes.
const blockEntries = 61

// queue is what a subscription has not settled, in order. It is made of blocks, so that it grows without being copied and
// shrinks without being made anew, and takes 12 bytes and a bit for an entry. Queues are most of what a backlog costs where
// many subscriptions get each message. The zero queue is empty.
//
// Invariants:
//   - no block is empty but one that is alone: it is kept for what comes next;
//   - the first block has an unsettled entry, unless it is alone. Others may have none.
type queue struct {
	blocks []*block
	live   int // unsettled entries
}

// block is a part of a queue. The position of an entry is base and its offset: a delivery too far from the first one begins
// a block.
type block struct {
	base   pos
	cached uint64 // a bit for each entry: the cache has its body
	offset [blockEntries]uint32
	used   uint16             // entries, settled or not
	live   uint16             // that are not settled
	msgs   [blockEntries]*msg // nil: settled
}

// entry is a message in a queue. It is good until something is taken out of the queue.
type entry struct {
	b *block
	i int
}

// pos is that of the record that delivered it.
func (e entry) pos() pos { return e.b.base + pos(e.b.offset[e.i]) }

// msg is nil when the entry is settled.
func (e entry) msg() *msg { return e.b.msgs[e.i] }

// cached reports whether the cache has its body.
func (e entry) cached() bool { return e.b.cached&(1<<e.i) != 0 }

func (e entry) setCached(is bool) {
	if e.b.cached &^= 1 << e.i; is {
		e.b.cached |= 1 << e.i
	}
}

// push adds a message behind all others: p is above the positions that there are.
func (q *queue) push(p pos, m *msg) entry {
	b := q.last()
	if b == nil || b.used == blockEntries || b.used > 0 && p-b.base > math.MaxUint32 {
		b = &block{}
		q.blocks = append(q.blocks, b)
	}
	if b.used == 0 {
		b.base = p
	}
	e := entry{b, int(b.used)}
	b.offset[e.i], b.msgs[e.i] = uint32(p-b.base), m
	b.used++
	b.live++
	q.live++
	return e
}

func (q *queue) last() *block {
	if len(q.blocks) == 0 {
		return nil
	}
	return q.blocks[len(q.blocks)-1]
}

// after is where the first entry behind a position is: its block and its place there.
func (q *queue) after(p pos) (at, i int) {
	// The last block that begins at p or before, or the first one.
	at = max(sort.Search(len(q.blocks), func(i int) bool { return q.blocks[i].base > p })-1, 0)
	if at == len(q.blocks) {
		return at, 0
	}
	b := q.blocks[at]
	i = sort.Search(int(b.used), func(i int) bool { return entry{b, i}.pos() > p })
	return at, i
}

// find returns the unsettled entry at a position, if there is one.
func (q *queue) find(p pos) (entry, bool) {
	if p == 0 {
		return entry{}, false
	}
	at, i := q.after(p - 1)
	if at == len(q.blocks) {
		return entry{}, false
	}
	if i == int(q.blocks[at].used) { // the next block begins there, or it is nowhere
		at, i = at+1, 0
	}
	if at == len(q.blocks) || q.blocks[at].used == 0 {
		return entry{}, false
	}
	e := entry{q.blocks[at], i}
	return e, e.pos() == p && e.msg() != nil
}

// behind goes over the unsettled entries behind a position, in order. They may be settled meanwhile, but not dropped.
func (q *queue) behind(p pos) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		at, i := q.after(p)
		for ; at < len(q.blocks); at, i = at+1, 0 {
			for b := q.blocks[at]; i < int(b.used); i++ {
				if b.msgs[i] != nil && !yield(entry{b, i}) {
					return
				}
			}
		}
	}
}

// all goes over the unsettled entries.
func (q *queue) all() iter.Seq[entry] { return q.behind(0) }

// settle takes the message out of an entry; trim then gives up the blocks that are not needed.
func (q *queue) settle(e entry) {
	e.b.msgs[e.i] = nil
	e.b.live--
	q.live--
}

// trim gives up the blocks at the front that have nothing unsettled.
func (q *queue) trim() {
	for len(q.blocks) > 0 && q.blocks[0].live == 0 {
		if len(q.blocks) == 1 {
			q.blocks[0].used = 0
			return
		}
		q.blocks[0] = nil
		q.blocks = q.blocks[1:]
	}
}

// cut takes all entries behind a position out of the queue. Nothing of them is needed any more.
func (q *queue) cut(p pos) {
	at, i := q.after(p)
	if at == len(q.blocks) {
		return
	}
	for _, b := range q.blocks[at+1:] {
		q.live -= int(b.live)
	}
	clear(q.blocks[at+1:])
	q.blocks = q.blocks[:at+1]
	b := q.blocks[at]
	for j := i; j < int(b.used); j++ {
		if b.msgs[j] != nil {
			q.settle(entry{b, j})
		}
	}
	if b.used = uint16(i); i == 0 && at > 0 {
		q.blocks[at] = nil
		q.blocks = q.blocks[:at]
	}
	q.trim()
}
