package journal

// extent is what the journal holds: how large each batch is, and which messages of it are still needed.
type extent struct {
	first uint64 // sequence of the first batch
	slots []slot // one for each batch from there on
	low   int    // no batch before this one has a needed message
	bytes int64  // of all batches
	live  int64  // of the needed messages
	room  int    // messages that the last batch brings
}

type slot struct {
	bytes int32
	sum   uint32   // the batch's checksum: by it a journal is recognised
	live  int32    // needed messages
	msgs  []*msg   // all that were ever needed; nil once none is
	held  *brought // nil: nothing
}

// push adds the next batch. Sequences in between that are not there are empty ones.
func (x *extent) push(seq uint64, size int, sum uint32) {
	if len(x.slots) == 0 {
		x.first = seq
	}
	for x.first+uint64(len(x.slots)) < seq {
		x.slots = append(x.slots, slot{})
	}
	x.slots = append(x.slots, slot{bytes: int32(size), sum: sum})
	x.bytes += int64(size)
}

// differs reports whether the batch at seq is known to be another one.
func (x *extent) differs(seq uint64, data []byte) bool {
	i := seq - x.first
	return i < uint64(len(x.slots)) && x.slots[i].bytes > 0 && x.slots[i].sum != checksum(data)
}

func (x *extent) slot(m *msg) *slot { return x.batch(m.pos.seq()) }

// batch is the slot of a batch; nil when there is none.
func (x *extent) batch(seq uint64) *slot {
	i := seq - x.first
	if i >= uint64(len(x.slots)) {
		return nil
	}
	return &x.slots[i]
}

// add notes that a message is needed.
func (x *extent) add(m *msg) {
	if s := x.slot(m); s != nil {
		if s.live++; s.msgs == nil {
			s.msgs = make([]*msg, 0, max(x.room, 1))
		}
		s.msgs = append(s.msgs, m)
		x.live += int64(m.size)
	}
}

// remove notes that it is not needed any more.
func (x *extent) remove(m *msg) {
	s := x.slot(m)
	if s == nil {
		return
	}
	if s.live--; s.live == 0 {
		s.msgs = nil
	}
	x.live -= int64(m.size)
}

// find returns the needed message whose bytes are at p; nil when there is none.
func (x *extent) find(p pos) *msg {
	i := p.seq() - x.first
	if i >= uint64(len(x.slots)) {
		return nil
	}
	for _, m := range x.slots[i].msgs {
		if m.pos == p && m.refs > 0 {
			return m
		}
	}
	return nil
}

// lowest is the sequence of the first batch with a needed message, or the last one: its records may still bring some.
func (x *extent) lowest() uint64 {
	for x.low < len(x.slots)-1 && x.slots[x.low].live == 0 {
		x.low++
	}
	return x.first + uint64(x.low)
}

// trim forgets the batches below seq; never one that is needed, nor the last one.
func (x *extent) trim(seq uint64) {
	seq = min(seq, x.lowest())
	if len(x.slots) == 0 || seq <= x.first {
		return
	}
	n := min(int(seq-x.first), len(x.slots)-1)
	for _, s := range x.slots[:n] {
		x.bytes -= int64(s.bytes)
	}
	x.slots = append(x.slots[:0:0], x.slots[n:]...)
	x.first += uint64(n)
	x.low -= n
}

// since is the sequence from which on the batches have at most so many bytes together.
func (x *extent) since(limit int64) uint64 {
	i := len(x.slots)
	for i > 0 && limit >= int64(x.slots[i-1].bytes) {
		i--
		limit -= int64(x.slots[i].bytes)
	}
	return x.first + uint64(i)
}

// oldest lists needed messages of the batches below seq, oldest first, of about so many bytes.
func (x *extent) oldest(seq uint64, limit int) (out []*msg) {
	for i := int(x.lowest() - x.first); i < len(x.slots) && x.first+uint64(i) < seq && limit > 0; i++ {
		for _, m := range x.slots[i].msgs {
			if m.refs > 0 && m.pos.seq() == x.first+uint64(i) {
				out = append(out, m)
				limit -= int(m.size)
			}
		}
	}
	return out
}
