package session

import (
	"fmt"

	"inflight/broker/packet"
	"inflight/broker/store"
)

var opNames = map[OpKind]string{OpPublish: "publish", OpHold: "hold", OpRelease: "release", OpFetch: "fetch"}

// link is a client and a store around a Receiver. The store does what it is asked in the order of the calls; the test says
// when it reports each.
type link struct {
	t         tester
	limits    Limits
	pipe      *Pipeline
	r         *Receiver
	started   []string // since the last wantOps
	open      []Op     // started, not reported
	next      []Op
	sent      []string // since the last want
	bodies    map[store.Ref]*store.Message
	ids       map[store.Ref]uint16
	order     []store.Ref // held and not released, oldest first
	lastRef   store.Ref
	refs      map[*exchange]store.Ref
	delivered []string // payloads, in the order in which they were released or published
	corrupt   map[store.Ref]bool
}

var roomy = Limits{Copies: 1000, Bytes: 1 << 20}

func newLink(t tester, limits Limits) *link {
	l := &link{
		t: t, limits: limits, bodies: make(map[store.Ref]*store.Message), ids: make(map[store.Ref]uint16),
		refs: make(map[*exchange]store.Ref), corrupt: make(map[store.Ref]bool),
	}
	l.connect()
	return l
}

// connect starts a connection that resumes what the store holds: the newest copy of each identifier.
func (l *link) connect() {
	newest := make(map[uint16]store.Ref)
	for _, ref := range l.order {
		newest[l.ids[ref]] = ref
	}
	var held []store.Held
	var order []store.Ref
	for _, ref := range l.order {
		if newest[l.ids[ref]] == ref {
			held = append(held, store.Held{ID: l.ids[ref], Ref: ref})
			order = append(order, ref)
		}
	}
	l.order = order // an older copy is discarded
	l.pipe = &Pipeline{}
	l.r = NewReceiver(l.pipe, l.limits, held)
	l.open, l.started, l.sent = nil, nil, nil
}

// cut ends the connection: operations that are under way take effect, nobody hears of it.
func (l *link) cut() { l.connect() }

func (l *link) start(op Op) {
	switch op.Kind {
	case OpNone:
		return
	case OpPublish:
		l.delivered = append(l.delivered, string(op.Msg.Payload))
	case OpHold:
		l.lastRef++
		l.refs[op.ex] = l.lastRef
		l.bodies[l.lastRef], l.ids[l.lastRef] = op.Msg, op.ID
		l.order = append(l.order, l.lastRef)
	case OpRelease:
		for i, ref := range l.order {
			if ref == op.Ref {
				l.order = append(l.order[:i:i], l.order[i+1:]...)
				if op.Msg == nil {
					l.t.Fatalf("release %d without a message", op.ID)
				}
				if op.Msg != l.bodies[ref] {
					l.t.Fatalf("release %d of ref %d with the message %q, held is %q", op.ID, ref, op.Msg.Payload, l.bodies[ref].Payload)
				}
				l.delivered = append(l.delivered, string(op.Msg.Payload))
				break
			}
		}
	}
	l.open = append(l.open, op)
	l.started = append(l.started, fmt.Sprintf("%s %d", opNames[op.Kind], op.ID))
}

// publish sends a PUBLISH. The caller of a Receiver makes no copy of a message that it knows.
func (l *link) publish(id uint16, qos byte, payload string) {
	var m *store.Message
	if qos == 1 || !l.r.Known(id) {
		m = &store.Message{Topic: "t", Payload: []byte(payload), QoS: qos}
	}
	l.start(l.r.Publish(id, qos, m))
	l.flush()
}

func (l *link) p1(id uint16, payload string) { l.publish(id, 1, payload) }
func (l *link) p2(id uint16, payload string) { l.publish(id, 2, payload) }
func (l *link) pubrel(ids ...uint16) {
	for _, id := range ids {
		l.start(l.r.Pubrel(id))
	}
	l.flush()
}

// report reports the oldest open operation of that name.
func (l *link) report(names ...string) {
	l.t.Helper()
	for _, name := range names {
		found := false
		for i, op := range l.open {
			if fmt.Sprintf("%s %d", opNames[op.Kind], op.ID) == name {
				l.reportAt(i)
				found = true
				break
			}
		}
		if !found {
			l.t.Fatalf("no operation %q is open", name)
		}
	}
}

func (l *link) reportAt(i int) {
	op := l.open[i]
	l.open = append(l.open[:i:i], l.open[i+1:]...)
	var ref store.Ref
	var m *store.Message
	switch op.Kind {
	case OpHold:
		ref = l.refs[op.ex]
	case OpFetch:
		if l.corrupt[op.Ref] {
			l.r.Corrupt(op)
			return
		}
		if m = l.bodies[op.Ref]; m == nil {
			l.t.Fatalf("fetch %d of ref %d, which was never held", op.ID, op.Ref)
		}
	}
	l.next = l.r.Done(op, ref, m, l.next[:0])
	for _, op := range l.next {
		if op.Kind == OpNone {
			l.t.Fatal("Done returned an operation that is none")
		}
		l.start(op)
	}
	l.flush()
}

// flush takes what may leave now.
func (l *link) flush() { l.sent = append(l.sent, text(l.t, l.pipe.Append(nil))...) }

func (l *link) want(reason, packets string) {
	l.t.Helper()
	if got := list(l.sent); got != packets {
		l.t.Fatalf("%s: sent %s, want %s", reason, got, packets)
	}
	l.sent = nil
}

func (l *link) wantOps(reason, ops string) {
	l.t.Helper()
	if got := list(l.started); got != ops {
		l.t.Fatalf("%s: started %s, want %s", reason, got, ops)
	}
	l.started = nil
}

func (l *link) wantDelivered(reason, payloads string) {
	l.t.Helper()
	if got := list(l.delivered); got != payloads {
		l.t.Fatalf("%s: delivered %s, want %s", reason, got, payloads)
	}
}

// wantIdle checks that the connection has nothing left: no slot, no exchange, no body, no operation.
func (l *link) wantIdle() {
	l.t.Helper()
	if n := l.pipe.Pending(); n != 0 {
		l.t.Errorf("%d responses never left", n)
	}
	if n := l.r.Open(); n != 0 {
		l.t.Errorf("%d exchanges are still open", n)
	}
	if len(l.open) != 0 {
		l.t.Errorf("%d operations are still open", len(l.open))
	}
	if l.r.copies != 0 || l.r.bytes != 0 {
		l.t.Errorf("%d copies of %d bytes are still counted", l.r.copies, l.r.bytes)
	}
	if l.r.first != nil {
		l.t.Errorf("releases are still queued")
	}
}

// laneText is for failures of models.
func laneText(p *Pipeline) string {
	var s string
	for i := range p.lane {
		s += fmt.Sprintf("%v: %d open from slot %d; ", []packet.Type{packet.PUBACK, packet.PUBREC, packet.PUBCOMP}[i], p.lane[i].n, p.lane[i].base)
	}
	return s
}
