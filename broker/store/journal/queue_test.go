package journal

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// A queue against a plain list: whatever is pushed, settled in any order and cut off, both hold the same.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var model []entryModel
		next := pos(0)
		some := func(what string) int { return rapid.IntRange(0, len(model)-1).Draw(t, what) }
		push := func(t *rapid.T) {
			// Deliveries are neighbours mostly; some are so far apart that an offset does not reach.
			far := rapid.SampledFrom([]pos{1, 1, 1, 1, 3, 1 << 16, math.MaxUint32, math.MaxUint32 + 1, 1 << 40}).Draw(t, "distance")
			for range rapid.IntRange(1, 2*blockEntries).Draw(t, "how many") {
				next += far
				m := &msg{pos: next}
				e := q.push(next, m)
				model = append(model, entryModel{pos: next, m: m})
				if far%2 == 1 {
					e.setCached(true)
					model[len(model)-1].cached = true
				}
				far = 1
			}
		}
		settle := func(i int) {
			e, ok := q.find(model[i].pos)
			if !ok || e.msg() != model[i].m || e.cached() != model[i].cached {
				t.Fatalf("position %d is not found, or is another entry", model[i].pos)
			}
			e.setCached(false)
			q.settle(e)
			q.trim()
			if _, again := q.find(model[i].pos); again {
				t.Fatalf("position %d is found after it was settled", model[i].pos)
			}
			model = slices.Delete(model, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": push,
			"settle the first ones": func(t *rapid.T) {
				for range rapid.IntRange(0, len(model)).Draw(t, "how many") {
					settle(0)
				}
			},
			"settle any": func(t *rapid.T) {
				for n := rapid.IntRange(0, len(model)).Draw(t, "how many"); n > 0; n-- {
					settle(some("which"))
				}
			},
			"cut": func(t *rapid.T) {
				p := pos(0)
				if len(model) > 0 {
					p = model[some("behind which")].pos - rapid.SampledFrom([]pos{0, 1}).Draw(t, "itself too")
				}
				for i, e := range model {
					if e.pos > p {
						for e := range q.behind(p) {
							e.setCached(false)
						}
						model = model[:i]
						break
					}
				}
				q.cut(p)
			},
			"miss": func(t *rapid.T) {
				p := pos(rapid.Uint64Range(0, uint64(next)+2).Draw(t, "position"))
				known := slices.ContainsFunc(model, func(e entryModel) bool { return e.pos == p })
				if _, ok := q.find(p); ok != known {
					t.Fatalf("position %d: found %v, is there %v", p, ok, known)
				}
			},
			"": func(t *rapid.T) {
				from := pos(0)
				if len(model) > 0 && rapid.Bool().Draw(t, "behind one") {
					from = model[some("which")].pos
				}
				var got []entryModel
				for e := range q.behind(from) {
					got = append(got, entryModel{e.pos(), e.msg(), e.cached()})
				}
				var want []entryModel
				for _, e := range model {
					if e.pos > from {
						want = append(want, e)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("behind %d: %d entries, want %d, or others", from, len(got), len(want))
				}
				checkBlocks(t, &q, len(model))
			},
		})
	})
}

type entryModel struct {
	pos    pos
	m      *msg
	cached bool
}

// checkBlocks looks at the invariants of a queue.
func checkBlocks(t *rapid.T, q *queue, live int) {
	n := 0
	for i, b := range q.blocks {
		inBlock := 0
		for j := range b.msgs {
			if b.msgs[j] != nil {
				inBlock++
			}
			if b.msgs[j] != nil && j >= int(b.used) || b.msgs[j] == nil && b.cached&(1<<j) != 0 {
				t.Fatalf("block %d has something at %d, where nothing is", i, j)
			}
		}
		if inBlock != int(b.live) || len(q.blocks) > 1 && (b.used == 0 || i == 0 && b.live == 0) {
			t.Fatalf("block %d of %d: %d used, %d unsettled, counts %d", i, len(q.blocks), b.used, inBlock, b.live)
		}
		n += inBlock
	}
	if n != live || q.live != live {
		t.Fatalf("%d unsettled, counts %d, want %d", n, q.live, live)
	}
}

// A queue takes memory for what is in it, whatever went through it, and is not made anew as it grows.
func TestQueueMemory(t *testing.T) {
	const long, through = 100 * blockEntries, 10_000 * blockEntries
	if size := unsafe.Sizeof(block{}) + 8; unsafe.Sizeof(uintptr(0)) == 8 && size > 768 { // objects with pointers have a header of 8 bytes
		t.Errorf("a block takes %d bytes, and the allocator has room for 768, then for 896", size)
	}
	var q queue
	next, first := pos(0), pos(1)
	m := &msg{}
	push := func() {
		next++
		q.push(next, m)
	}
	settle := func() {
		e, _ := q.find(first)
		q.settle(e)
		q.trim()
		first++
	}
	for range long {
		push()
	}
	for next < through {
		push()
		settle()
		if len(q.blocks) > 102 {
			t.Fatalf("%d entries take %d blocks", q.live, len(q.blocks))
		}
	}
	allocs := testing.AllocsPerRun(100, func() {
		for range blockEntries {
			push()
			settle()
		}
	})
	if allocs > 2 { // the block, and now and then the list of blocks
		t.Errorf("%.1f allocations for a block of entries", allocs)
	}
	for first <= next {
		settle()
	}
	if len(q.blocks) != 1 || cap(q.blocks) > 256 || q.live != 0 {
		t.Errorf("%d blocks, room for %d, %d entries: want the last block", len(q.blocks), cap(q.blocks), q.live)
	}
}
