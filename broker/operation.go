package broker

import (
	"errors"
	"time"

	"inflight/broker/session"
	"inflight/broker/store"
)

// maxFreeOperations bounds the operations that a connection keeps for the next ones.
const maxFreeOperations = 1024

// operation is a store operation of a connection and its outcome. It is used again: what the store calls at its end is made
// once. A store reports each operation once, so nothing refers to one that the writer has taken.
type operation struct {
	c       *conn
	op      session.Op
	started time.Duration // 0: not timed

	ref store.Ref
	msg *store.Message
	err error

	stored  store.Done // the methods of these names, bound
	fetched func(*store.Message, error)
	next    *operation
}

// start begins a store operation. client.mu is held, so that operations begin in the order in which the state machines
// ask for them.
func (c *conn) start(op session.Op) {
	if op.Kind == session.OpNone || c.stopped {
		return
	}
	c.ops++
	o := c.free
	if o == nil {
		o = &operation{c: c}
		o.stored, o.fetched = o.wasStored, o.wasFetched
	} else {
		c.free, o.next = o.next, nil
		c.spare--
	}
	o.op, o.started = op, c.startTiming()
	switch op.Kind {
	case session.OpPublish:
		c.srv.store.Publish(op.Msg, o.stored)
	case session.OpHold:
		c.srv.store.Hold(c.client.id, op.ID, op.Msg, o.stored)
	case session.OpRelease:
		c.srv.store.Release(c.client.id, op.ID, op.Ref, op.Msg, o.stored)
	case session.OpFetch:
		c.srv.store.Fetch(op.Ref, o.fetched)
	}
}

// put takes an operation back. client.mu is held.
func (c *conn) put(o *operation) {
	o.op, o.ref, o.msg, o.err = session.Op{}, 0, nil, nil
	if c.spare < maxFreeOperations {
		o.next, c.free = c.free, o
		c.spare++
	}
}

func (o *operation) wasStored(ref store.Ref, err error) {
	o.ref, o.err = ref, err
	o.finish()
}

func (o *operation) wasFetched(m *store.Message, err error) {
	o.msg, o.err = m, err
	o.finish()
}

// finish queues an operation for the writer. It is called by the store and blocks on nothing.
func (o *operation) finish() {
	c := o.c
	c.srv.metrics.timed(o.op.Kind, o.started)
	c.doneMu.Lock()
	first := len(c.done) == 0
	c.done = append(c.done, o)
	c.doneMu.Unlock()
	if first { // the writer was told of the others, and has not taken them
		c.signal()
	}
}

// take hands one outcome to the receiver. A failed operation gets no acknowledgement: the error closes the connection
// and the client tries again. client.mu is held.
func (c *conn) take(o *operation, next []session.Op) ([]session.Op, error) {
	switch {
	case o.err == nil:
		return c.recv.Done(o.op, o.ref, o.msg, next), nil
	case o.op.Kind == session.OpFetch && errors.Is(o.err, store.ErrCorrupt):
		// It can never be delivered. Without the copy the client's next PUBREL converges to a PUBCOMP.
		c.recv.Corrupt(o.op)
		c.srv.log.Error("held message is corrupt and dropped", "client", c.client.id, "packet identifier", o.op.ID)
		c.srv.store.Discard(c.client.id, o.op.Ref)
		return next, o.err
	default:
		return next, o.err
	}
}
