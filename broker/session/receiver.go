package session

import (
	"inflight/broker/packet"
	"inflight/broker/store"
)

// OpKind says what an Op asks of the store.
type OpKind byte

// The store operations of a receiver.
const (
	OpNone    OpKind = iota
	OpPublish        // QoS 1: make the message durable and deliver it
	OpHold           // QoS 2 PUBLISH: keep the message until PUBREL
	OpRelease        // PUBREL: deliver the held message and forget it
	OpFetch          // PUBREL of a message whose body is only in the store: read it back
)

// Op is a store operation to be started now. When it is done, hand it back to [Receiver.Done].
type Op struct {
	Kind OpKind
	ID   uint16
	Ref  store.Ref
	Msg  *store.Message

	slot Slot
	ex   *exchange
}

// state of a QoS 2 exchange; an absent one has no entry.
type state byte

const (
	storing   state = iota // the first PUBLISH is being stored; its PUBREC is not due yet
	held                   // stored; PUBREC is due or sent; waits for PUBREL
	releasing              // PUBREL arrived; delivery is under way
)

// exchange is one QoS 2 publication from PUBLISH to PUBCOMP.
type exchange struct {
	id       uint16
	state    state
	fetching bool
	msg      *store.Message // nil when only the store has the body
	ref      store.Ref
	recs     []Slot // PUBRECs that wait for the store
	comps    []Slot // PUBCOMPs that wait for the release
}

// pubrel reports whether the PUBREL has arrived, be it that the release still waits for the store.
func (ex *exchange) pubrel() bool { return ex.state == releasing || len(ex.comps) > 0 }

// Limits bounds what a Receiver keeps in memory beside the store.
type Limits struct {
	Copies int // message bodies of unreleased exchanges
	Bytes  int // their total size
}

// Receiver is the receiving side of one connection: QoS 1 publications and QoS 2 exchanges, keyed by Packet Identifier,
// section 4.3.3. It starts empty for a new session and from the store's list for a resumed one; the store is the source
// of truth between connections.
//
// An exchange goes absent -> storing -> held -> releasing -> absent:
//   - the first PUBLISH wins; any further one on the identifier before PUBREL, with DUP or without, gets its own PUBREC in
//     its own place and is otherwise ignored [MQTT-4.3.3-2];
//   - no PUBREC leaves before the first copy is durable;
//   - a PUBREL that overtakes its PUBREC waits for the store, then releases;
//   - a repeated PUBREL while releasing gets its own PUBCOMP once the one release is durable; an unknown identifier gets
//     its PUBCOMP at once [MQTT-4.3.3-2];
//   - a PUBLISH after the PUBREL is a new publication, also while the PUBREL still waits: the exchange that is being
//     released keeps its own reference and is no longer found under the identifier.
//
// Releases start in PUBREL order, also when a body must be fetched first: method A makes that the delivery order.
type Receiver struct {
	pipe   *Pipeline
	limits Limits
	byID   map[uint16]*exchange
	queue  []*exchange // releases that wait for an earlier one's body
	copies int
	bytes  int

	resumed int // exchanges that were there at the start
	// Unknown answers a PUBREL for an unknown Packet Identifier: Success in MQTT 3.1.1, which has no other answer, and
	// PacketIdentifierNotFound in 5.0.
	Unknown packet.ReasonCode
}

// NewReceiver returns a receiver that answers through pipe; resumed are the exchanges that the store holds.
func NewReceiver(pipe *Pipeline, limits Limits, resumed []store.Held) *Receiver {
	r := &Receiver{pipe: pipe, limits: limits, byID: make(map[uint16]*exchange)}
	for _, h := range resumed {
		r.byID[h.ID] = &exchange{id: h.ID, state: held, ref: h.Ref}
	}
	r.resumed = len(r.byID)
	return r
}

// Over reports whether one more PUBLISH of QoS 1 or 2 would exceed a Receive Maximum that the client was told: it counts
// what it has sent and not seen a PUBACK or PUBCOMP for, section 4.9. An exchange that an earlier connection began does
// not count, nor does a further copy, so that at no time more is counted here than there.
func (r *Receiver) Over(id uint16, qos byte, limit int) bool {
	if qos == 2 && r.Known(id) {
		return false
	}
	return r.pipe.Pubacks()+len(r.byID)-r.resumed >= limit
}

// Refuse answers a PUBLISH that is not accepted with a Reason Code of MQTT 5.0. A further copy of one that was accepted
// gets its PUBREC: that it was not allowed since changes nothing.
func (r *Receiver) Refuse(id uint16, qos byte, code packet.ReasonCode) {
	switch {
	case qos == 1:
		r.pipe.CompleteWith(r.pipe.Reserve(packet.PUBACK, id), code)
	case r.Known(id):
		r.Publish(id, qos, nil)
	default:
		r.pipe.CompleteWith(r.pipe.Reserve(packet.PUBREC, id), code)
	}
}

// Open is the number of exchanges that have no PUBCOMP yet.
func (r *Receiver) Open() int { return len(r.byID) }

// Publish takes a PUBLISH of QoS 1 or 2. m must own its bytes; it may be nil for an identifier for which Known is true.
func (r *Receiver) Publish(id uint16, qos byte, m *store.Message) Op {
	if qos == 1 {
		return Op{Kind: OpPublish, ID: id, Msg: m, slot: r.pipe.Reserve(packet.PUBACK, id)}
	}
	slot := r.pipe.Reserve(packet.PUBREC, id)
	if ex := r.byID[id]; ex != nil && !ex.pubrel() {
		if ex.state == held {
			r.pipe.Complete(slot)
		} else {
			ex.recs = append(ex.recs, slot)
		}
		return Op{}
	}
	ex := &exchange{id: id, state: storing, msg: m, recs: []Slot{slot}}
	r.byID[id] = ex
	r.copies++
	r.bytes += m.Size()
	return Op{Kind: OpHold, ID: id, Msg: m, ex: ex}
}

// Known reports whether a QoS 2 PUBLISH on this identifier is another copy of a publication that is already here.
func (r *Receiver) Known(id uint16) bool {
	ex := r.byID[id]
	return ex != nil && !ex.pubrel()
}

// Pubrel takes a PUBREL.
func (r *Receiver) Pubrel(id uint16) Op {
	slot := r.pipe.Reserve(packet.PUBCOMP, id)
	ex := r.byID[id]
	if ex == nil {
		r.pipe.CompleteWith(slot, r.Unknown)
		return Op{}
	}
	ex.comps = append(ex.comps, slot)
	if ex.state != held {
		return Op{}
	}
	return r.release(ex)
}

// release starts the delivery of a held exchange, or queues it behind one whose body is being fetched.
func (r *Receiver) release(ex *exchange) Op {
	ex.state = releasing
	if len(r.queue) > 0 {
		r.queue = append(r.queue, ex)
		return Op{}
	}
	if ex.msg == nil {
		r.queue = append(r.queue, ex)
		return r.fetch(ex)
	}
	return r.releaseOp(ex)
}

func (r *Receiver) fetch(ex *exchange) Op {
	ex.fetching = true
	return Op{Kind: OpFetch, ID: ex.id, Ref: ex.ref, ex: ex}
}

func (r *Receiver) releaseOp(ex *exchange) Op {
	return Op{Kind: OpRelease, ID: ex.id, Ref: ex.ref, Msg: ex.msg, ex: ex}
}

// Done takes the successful outcome of an operation: ref of a hold, m of a fetch. It appends the operations that must be
// started next, in order. A failed operation is not handed back: the connection is closed without the acknowledgement.
func (r *Receiver) Done(op Op, ref store.Ref, m *store.Message, next []Op) []Op {
	switch op.Kind {
	case OpPublish:
		r.pipe.Complete(op.slot)
	case OpHold:
		ex := op.ex
		ex.ref, ex.state = ref, held
		for _, slot := range ex.recs {
			r.pipe.Complete(slot)
		}
		ex.recs = nil
		if len(ex.comps) > 0 {
			if op := r.release(ex); op.Kind != OpNone {
				next = append(next, op)
			}
		} else if r.copies > r.limits.Copies || r.bytes > r.limits.Bytes {
			r.dropBody(ex)
		}
	case OpFetch:
		op.ex.fetching = false
		op.ex.msg = m
		r.copies++
		r.bytes += m.Size()
		for len(r.queue) > 0 {
			ex := r.queue[0]
			if ex.msg == nil {
				if !ex.fetching {
					next = append(next, r.fetch(ex))
				}
				break
			}
			r.queue = r.queue[1:]
			next = append(next, r.releaseOp(ex))
		}
	case OpRelease:
		ex := op.ex
		for _, slot := range ex.comps {
			r.pipe.Complete(slot)
		}
		ex.comps = nil
		r.dropBody(ex)
		if r.byID[ex.id] == ex {
			delete(r.byID, ex.id)
		}
	}
	return next
}

func (r *Receiver) dropBody(ex *exchange) {
	if ex.msg != nil {
		r.copies--
		r.bytes -= ex.msg.Size()
		ex.msg = nil
	}
}

// Corrupt takes a fetch whose stored bytes are no message. The exchange is forgotten, so that the client's next PUBREL
// gets a clean PUBCOMP; the caller drops the stored copy and closes the connection once.
func (r *Receiver) Corrupt(op Op) {
	if r.byID[op.ID] == op.ex {
		delete(r.byID, op.ID)
	}
}
