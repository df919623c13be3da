package session

import "inflight/broker/packet"

// Slot is the place of one response in the pipeline.
type Slot struct {
	lane byte
	seq  uint64
}

const (
	lanePuback = iota
	lanePubrec
	lanePubcomp
	lanes
)

var laneType = [lanes]packet.Type{packet.PUBACK, packet.PUBREC, packet.PUBCOMP}

// Pipeline orders the responses of one connection. Every acknowledged packet reserves a slot when it arrives, before
// its store operation starts; operations complete in any order; responses leave as the contiguous completed prefix.
//
// The naive way is to run the operation inside the read loop and to answer when it is done: the order is right for free,
// and throughput is one operation per round trip of the storage, whatever the client's window. Answering in the order of
// completion is fast and wrong: a client sends its PUBRELs in PUBREC order, so disordered PUBRECs become disordered
// deliveries [MQTT-4.6.0-6].
//
// Invariants, per packet type (a lane):
//   - slots are numbered in arrival order without gaps, and each is reserved once and completed at most once;
//   - a response is appended only when its own slot and every earlier one of its lane are complete;
//   - a lane holds exactly the slots from the first incomplete one on.
//
// Lanes do not wait for each other: nothing orders a PUBACK after an earlier PUBREC.
type Pipeline struct {
	lane    [lanes]ring
	pending int
}

// ring holds the open slots of a lane: seq numbers base, base+1, ... in buf from head on.
type ring struct {
	buf  []entry // length is a power of two, or zero
	head int
	n    int
	base uint64
}

type entry struct {
	id   uint16
	done bool
	code packet.ReasonCode
	next uint32 // how many slots further the next one of its chain is; 0: it is the last
}

// chain is a list of slots of one lane that complete together: the copies of one PUBLISH, or the PUBRELs of one release.
// It is kept in the slots themselves, which are there until they are complete.
type chain struct {
	first, last uint64
	any         bool
}

// join adds a slot that was just reserved.
func (p *Pipeline) join(c *chain, s Slot) {
	if c.any {
		p.lane[s.lane].at(c.last).next = uint32(s.seq - c.last)
	} else {
		c.first, c.any = s.seq, true
	}
	c.last = s.seq
}

// completeAll completes the slots of a chain, which is empty after that.
func (p *Pipeline) completeAll(lane byte, c *chain) {
	for seq := c.first; c.any; {
		e := p.lane[lane].at(seq)
		e.done = true
		c.any = e.next > 0
		seq += uint64(e.next)
	}
}

func (r *ring) push(id uint16) uint64 {
	if r.n == len(r.buf) {
		grown := make([]entry, max(16, 2*len(r.buf)))
		for i := range r.n {
			grown[i] = r.buf[(r.head+i)&(len(r.buf)-1)]
		}
		r.buf, r.head = grown, 0
	}
	r.buf[(r.head+r.n)&(len(r.buf)-1)] = entry{id: id}
	r.n++
	return r.base + uint64(r.n) - 1
}

func (r *ring) at(seq uint64) *entry {
	if seq < r.base || seq >= r.base+uint64(r.n) {
		return nil
	}
	return &r.buf[(r.head+int(seq-r.base))&(len(r.buf)-1)]
}

func (r *ring) pop() (entry, bool) {
	if r.n == 0 || !r.buf[r.head].done {
		return entry{}, false
	}
	e := r.buf[r.head]
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	r.base++
	return e, true
}

// Reserve takes the next slot for a response of type t (PUBACK, PUBREC or PUBCOMP) with this Packet Identifier.
func (p *Pipeline) Reserve(t packet.Type, id uint16) Slot {
	var lane byte
	switch t {
	case packet.PUBREC:
		lane = lanePubrec
	case packet.PUBCOMP:
		lane = lanePubcomp
	}
	p.pending++
	return Slot{lane: lane, seq: p.lane[lane].push(id)}
}

// Complete marks a slot: its response may leave once all earlier ones of its type may. Completing a slot twice changes
// nothing.
func (p *Pipeline) Complete(s Slot) { p.CompleteWith(s, packet.Success) }

// CompleteWith is Complete with a Reason Code, which only MQTT 5.0 has.
func (p *Pipeline) CompleteWith(s Slot, code packet.ReasonCode) {
	if e := p.lane[s.lane].at(s.seq); e != nil && !e.done {
		e.done, e.code = true, code
	}
}

// Append appends every response that may leave now, per packet type in arrival order, and frees its slot.
func (p *Pipeline) Append(b []byte) []byte {
	for i := range p.lane {
		for {
			e, ok := p.lane[i].pop()
			if !ok {
				break
			}
			p.pending--
			if e.code == packet.Success {
				b = packet.AppendAck(b, laneType[i], e.id) // the same in both versions
			} else {
				b = packet.V5.AppendAck(b, laneType[i], packet.Ack{ID: e.id, Code: e.code})
			}
		}
	}
	return b
}

// Pending is the number of slots whose response has not left.
func (p *Pipeline) Pending() int { return p.pending }

// Pubacks is the number of PUBACKs among them.
func (p *Pipeline) Pubacks() int { return p.lane[lanePuback].n }
