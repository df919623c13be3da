package ids

// Table finds what is under way by its Packet Identifier. It is a map for that one purpose: numbers that mostly follow each
// other, entries that come and go with each message, and nothing to allocate once it has its size. The zero Table is empty
// and ready. It is not safe for concurrent use.
//
// Invariants: keys and vals have the same length, 1<<bits, or zero; at most half of the entries are taken; 0 is a free
// entry, for no packet has that identifier [MQTT-2.3.1-1], and what is under 0 all the same has a place of its own; an entry
// is at or after its home, with no free one between.
type Table[T any] struct {
	keys []uint16
	vals []*T
	none *T // under 0
	n    int
	bits byte
}

// tableKept is how many entries a table keeps room for while it is empty: what a burst needed must not be held for ever.
const tableKept = 4096

// Len is the number of entries.
func (t *Table[T]) Len() int {
	if t.none != nil {
		return t.n + 1
	}
	return t.n
}

// home spreads identifiers that follow each other evenly: without runs of entries, removing one moves hardly any other.
func (t *Table[T]) home(id uint16) int {
	const golden = 2_654_435_769 // 1<<32 divided by the golden ratio
	return int(uint32(id) * golden >> (32 - t.bits))
}

// find returns the place of id, or the free one where it belongs. The table must not be of length zero.
func (t *Table[T]) find(id uint16) int {
	mask := len(t.keys) - 1
	i := t.home(id)
	for t.keys[i] != id && t.keys[i] != 0 {
		i = (i + 1) & mask
	}
	return i
}

// Get returns what is under id, or nil.
func (t *Table[T]) Get(id uint16) *T {
	switch {
	case id == 0:
		return t.none
	case t.n == 0:
		return nil
	}
	return t.vals[t.find(id)]
}

// Put puts v, which is not nil, under id in place of what was there.
func (t *Table[T]) Put(id uint16, v *T) {
	if id == 0 {
		t.none = v
		return
	}
	if 2*(t.n+1) > len(t.keys) {
		t.grow()
	}
	i := t.find(id)
	if t.keys[i] == 0 {
		t.n++
	}
	t.keys[i], t.vals[i] = id, v
}

func (t *Table[T]) grow() {
	old := *t
	t.bits = max(3, old.bits+1)
	t.keys, t.vals = make([]uint16, 1<<t.bits), make([]*T, 1<<t.bits)
	for i, id := range old.keys {
		if id != 0 {
			j := t.find(id)
			t.keys[j], t.vals[j] = id, old.vals[i]
		}
	}
}

// Remove forgets what is under id.
func (t *Table[T]) Remove(id uint16) {
	if id == 0 {
		t.none = nil
	}
	if t.n == 0 || id == 0 {
		return
	}
	i := t.find(id)
	if t.keys[i] == 0 {
		return
	}
	if t.n--; t.n == 0 && len(t.keys) > tableKept {
		*t = Table[T]{none: t.none}
		return
	}
	// What follows moves up where it may, so that no search ends too early.
	mask := len(t.keys) - 1
	for j := (i + 1) & mask; t.keys[j] != 0; j = (j + 1) & mask {
		if home := t.home(t.keys[j]); (j-home)&mask >= (j-i)&mask {
			t.keys[i], t.vals[i] = t.keys[j], t.vals[j]
			i = j
		}
	}
	t.keys[i], t.vals[i] = 0, nil
}

// Each visits everything, in no order. The table must not be changed meanwhile.
func (t *Table[T]) Each(visit func(id uint16, v *T)) {
	if t.none != nil {
		visit(0, t.none)
	}
	for i, id := range t.keys {
		if id != 0 {
			visit(id, t.vals[i])
		}
	}
}
