package session

// table finds what is under way by its Packet Identifier. It is a map for that one purpose: numbers that mostly follow each
// other, entries that come and go with each message, and nothing to allocate once it has its size.
//
// Invariants: keys and vals have the same length, 1<<bits, or zero; at most half of the entries are taken; 0 is a free
// entry, for no packet has that identifier [MQTT-2.3.1-1]; an entry is at or after its home, with no free one between.
type table[T any] struct {
	keys []uint16
	vals []*T
	n    int
	bits byte
}

// tableKept is how many entries a table keeps room for while it is empty: what a burst needed must not be held for ever.
const tableKept = 4096

func (t *table[T]) len() int { return t.n }

// home spreads identifiers that follow each other evenly: without runs of entries, removing one moves hardly any other.
func (t *table[T]) home(id uint16) int {
	const golden = 2_654_435_769 // 1<<32 divided by the golden ratio
	return int(uint32(id) * golden >> (32 - t.bits))
}

// find returns the place of id, or the free one where it belongs. The table must not be of length zero.
func (t *table[T]) find(id uint16) int {
	mask := len(t.keys) - 1
	i := t.home(id)
	for t.keys[i] != id && t.keys[i] != 0 {
		i = (i + 1) & mask
	}
	return i
}

// get returns what is under id, or nil.
func (t *table[T]) get(id uint16) *T {
	if t.n == 0 || id == 0 {
		return nil
	}
	return t.vals[t.find(id)]
}

// put puts v, which is not nil, under id, which is not 0, in place of what was there.
func (t *table[T]) put(id uint16, v *T) {
	if 2*(t.n+1) > len(t.keys) {
		t.grow()
	}
	i := t.find(id)
	if t.keys[i] == 0 {
		t.n++
	}
	t.keys[i], t.vals[i] = id, v
}

func (t *table[T]) grow() {
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

// remove forgets what is under id.
func (t *table[T]) remove(id uint16) {
	if t.n == 0 || id == 0 {
		return
	}
	i := t.find(id)
	if t.keys[i] == 0 {
		return
	}
	if t.n--; t.n == 0 && len(t.keys) > tableKept {
		*t = table[T]{}
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

// each visits everything, in no order. The table must not be changed meanwhile.
func (t *table[T]) each(visit func(id uint16, v *T)) {
	for i, id := range t.keys {
		if id != 0 {
			visit(id, t.vals[i])
		}
	}
}
