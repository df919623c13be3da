package session

import (
	"inflight/broker/ids"
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
	held                   // stored; PUBREC is due or sent
	fetching               // it is the next to be released, and its body is being read back
	releasing              // delivery is under way
)

// exchange is one QoS 2 publication from PUBLISH to PUBCOMP.
type exchange struct {
	id    uint16
	state state
	msg   *store.Message // nil when only the store has the body
	ref   store.Ref
	recs  chain     // PUBRECs that wait for the store
	comps chain     // PUBCOMPs that wait for the release; there are some once the PUBREL has arrived
	next  *exchange // of the queue, or of the free ones
}

// maxFree is how many exchanges, or outgoing messages, a connection keeps for the next ones. In a window that is larger
// some of them cost an allocation.
const maxFree = 1024

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
//   - a PUBREL that overtakes its PUBREC waits for the store, and later PUBRELs wait behind it;
//   - a repeated PUBREL while releasing gets its own PUBCOMP once the one release is durable; an unknown identifier gets
//     its PUBCOMP at once [MQTT-4.3.3-2];
//   - a PUBLISH after the PUBREL is a new publication, also while the PUBREL still waits: the exchange that is being
//     released keeps its own reference and is no longer found under the identifier.
//
// Releases start in PUBREL order, whatever the order in which bodies become durable or are read back: with method A that
// is the order of delivery, and it is the order of the PUBRELs that the client may count on [MQTT-4.6.0-6]. So each PUBREL
// takes its place in a queue when it arrives, and a release starts when it is at the front and its body is at hand.
type Receiver struct {
	pipe   *Pipeline
	limits Limits
	byID   ids.Table[exchange]
	first  *exchange // of the queue: PUBREL has arrived, the release has not started
	last   *exchange
	copies int
	bytes  int

	free  *exchange
	spare int // how many are free

	resumed int // exchanges that were there at the start
	// Unknown answers a PUBREL for an unknown Packet Identifier: Success in MQTT 3.1.1, which has no other answer, and
	// PacketIdentifierNotFound in 5.0.
	Unknown packet.ReasonCode
}

// NewReceiver returns a receiver that answers through pipe; resumed are the exchanges that the store holds.
func NewReceiver(pipe *Pipeline, limits Limits, resumed []store.Held) *Receiver {
	r := &Receiver{pipe: pipe, limits: limits}
	for _, h := range resumed {
		if h.ID != 0 { // no client's
			r.byID.Put(h.ID, &exchange{id: h.ID, state: held, ref: h.Ref})
		}
	}
	r.resumed = r.byID.Len()
	return r
}

// Over reports whether one more PUBLISH of QoS 1 or 2 would exceed a Receive Maximum that the client was told: it counts
// what it has sent and not seen a PUBACK or PUBCOMP for, section 4.9. An exchange that an earlier connection began does
// not count, nor does a further copy, so that at no time more is counted here than there.
func (r *Receiver) Over(id uint16, qos byte, limit int) bool {
	if qos == 2 && r.Known(id) {
		return false
	}
	return r.pipe.Pubacks()+r.byID.Len()-r.resumed >= limit
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
func (r *Receiver) Open() int { return r.byID.Len() }

// Publish takes a PUBLISH of QoS 1 or 2. m must own its bytes; it may be nil for an identifier for which Known is true.
func (r *Receiver) Publish(id uint16, qos byte, m *store.Message) Op {
	if qos == 1 {
		return Op{Kind: OpPublish, ID: id, Msg: m, slot: r.pipe.Reserve(packet.PUBACK, id)}
	}
	slot := r.pipe.Reserve(packet.PUBREC, id)
	if ex := r.byID.Get(id); ex != nil && !ex.comps.any {
		if ex.state == held {
			r.pipe.Complete(slot)
		} else {
			r.pipe.join(&ex.recs, slot)
		}
		return Op{}
	}
	ex := r.take()
	ex.id, ex.state, ex.msg = id, storing, m
	r.pipe.join(&ex.recs, slot)
	r.byID.Put(id, ex)
	r.copies++
	r.bytes += m.Size()
	return Op{Kind: OpHold, ID: id, Msg: m, ex: ex}
}

// Known reports whether a QoS 2 PUBLISH on this identifier is another copy of a publication that is already here.
func (r *Receiver) Known(id uint16) bool {
	ex := r.byID.Get(id)
	return ex != nil && !ex.comps.any
}

// Pubrel takes a PUBREL.
func (r *Receiver) Pubrel(id uint16) Op {
	slot := r.pipe.Reserve(packet.PUBCOMP, id)
	ex := r.byID.Get(id)
	if ex == nil {
		r.pipe.CompleteWith(slot, r.Unknown)
		return Op{}
	}
	again := ex.comps.any
	r.pipe.join(&ex.comps, slot)
	if again {
		return Op{}
	}
	if r.first != nil {
		r.last.next, r.last = ex, ex
		return Op{}
	}
	r.first, r.last = ex, ex
	return r.front()
}

// front starts what the first exchange of the queue needs next: nothing while an operation of its own is under way.
func (r *Receiver) front() Op {
	ex := r.first
	switch {
	case ex == nil || ex.state != held:
		return Op{}
	case ex.msg == nil:
		ex.state = fetching
		return Op{Kind: OpFetch, ID: ex.id, Ref: ex.ref, ex: ex}
	}
	r.first, ex.next = ex.next, nil
	ex.state = releasing
	return Op{Kind: OpRelease, ID: ex.id, Ref: ex.ref, Msg: ex.msg, ex: ex}
}

// advance starts every release whose turn it is.
func (r *Receiver) advance(next []Op) []Op {
	for {
		op := r.front()
		if op.Kind == OpNone {
			return next
		}
		next = append(next, op)
	}
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
		r.pipe.completeAll(lanePubrec, &ex.recs)
		if ex.comps.any {
			return r.advance(next)
		}
		if r.copies > r.limits.Copies || r.bytes > r.limits.Bytes {
			r.dropBody(ex)
		}
	case OpFetch:
		op.ex.state, op.ex.msg = held, m
		r.copies++
		r.bytes += m.Size()
		return r.advance(next)
	case OpRelease:
		ex := op.ex
		r.pipe.completeAll(lanePubcomp, &ex.comps)
		r.dropBody(ex)
		if r.byID.Get(ex.id) == ex {
			r.byID.Remove(ex.id)
		}
		r.put(ex)
	}
	return next
}

// take returns an empty exchange.
func (r *Receiver) take() *exchange {
	ex := r.free
	if ex == nil {
		return new(exchange)
	}
	r.free, ex.next = ex.next, nil
	r.spare--
	return ex
}

// put takes an exchange back that nothing refers to any more.
func (r *Receiver) put(ex *exchange) {
	if r.spare == maxFree {
		return
	}
	*ex = exchange{next: r.free}
	r.free = ex
	r.spare++
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
	if r.byID.Get(op.ID) == op.ex {
		r.byID.Remove(op.ID)
	}
}
