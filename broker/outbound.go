package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"inflight/broker/session"
	"inflight/broker/store"
)

// recordDelay is how long a record waits that nothing waits for: acknowledgements gather.
const recordDelay = 50 * time.Millisecond

// outbound keeps the record of what a kept session has sent up to date, so that any node can go on with the same
// identifiers [MQTT-4.4.0-1]. It is part of a client and under its lock.
//
// Nothing waits for the store but the packets themselves: PUBLISHes above QoS 0 and PUBRELs gather while a record is
// being written, one at a time, and leave together once the next one is durable. A PUBLISH must wait, because its
// identifier must be found after a crash, and a PUBREL, because after it the receiver has forgotten the identifier (see
// [session.Sender.Version]). For the same reason a QoS 2 message is settled only after the record says that it was
// received: until then the store still has it. A clean session, and a store that does not outlive its process, keep no
// record and pay nothing.
type outbound struct {
	on      bool
	durable uint64 // Sender.Version of the last record
	writing bool
	failing bool   // the last record could not be written
	held    []byte // packets that wait for the next record
	leaving int    // bytes that wait for the one under way
	settle  []func()
	timer   *time.Timer // a record that nothing waits for
}

// size is how many bytes wait.
func (o *outbound) size() int { return len(o.held) + o.leaving }

func (o *outbound) stopTimer() {
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
}

// later puts a settling off until the next record is durable.
func (o *outbound) later(settle func()) func() { return func() { o.settle = append(o.settle, settle) } }

// send sends a delivery for which there is room. cl.mu is held.
func (cl *client) send(c *conn, sub *subscription, d store.Delivery) {
	o := &cl.out
	if !o.on || d.QoS == 0 {
		c.out = cl.sender.Send(c.out, sub.src, d)
		c.signal()
		return
	}
	if d.QoS == 2 {
		d.Settle = o.later(d.Settle)
	}
	o.held = cl.sender.Send(o.held, sub.src, d)
	cl.flush(false)
}

// pubrec takes a PUBREC. cl.mu is held.
func (cl *client) pubrec(c *conn, id uint16) (err error) {
	if !cl.out.on {
		c.out, err = cl.sender.Pubrec(c.out, id)
		c.signal()
		return err
	}
	cl.out.held, err = cl.sender.Pubrec(cl.out.held, id)
	cl.flush(false)
	return err
}

// more sends again what a resumed session still owes, if the window has room for it now. cl.mu is held.
func (cl *client) more(c *conn) {
	if !cl.sender.Owes() {
		return
	}
	if !cl.out.on {
		c.out = cl.sender.More(c.out, time.Now())
		c.signal()
		return
	}
	cl.out.held = cl.sender.More(cl.out.held, time.Now())
	cl.flush(false)
}

// resend begins a connection with what a resumed session owes. cl.mu is held.
func (cl *client) resend(c *conn, present bool) {
	o := &cl.out
	o.held = nil // of the connection before; the sender has it
	switch {
	case !present:
	case !o.on:
		c.out = cl.sender.Resend(c.out, time.Now())
	default:
		o.held = cl.sender.Resend(nil, time.Now())
		cl.flush(false)
	}
}

// flush starts a record if there is something to record, or lets go what needs none. cl.mu is held.
func (cl *client) flush(lazy bool) {
	o := &cl.out
	if o.writing || !o.on {
		return
	}
	if cl.sender.Version() == o.durable && !lazy {
		cl.release(cl.conn, o.held, o.settle)
		o.held, o.settle = o.held[:0], nil
		return
	}
	o.stopTimer()
	held, settle, version, c := o.held, o.settle, cl.sender.Version(), cl.conn
	o.writing, o.leaving, o.held, o.settle = true, len(held), nil, nil
	done := func(err error) { cl.recorded(c, version, held, settle, err) }
	// The answer may come before PutOutbound has returned, and the lock is held here.
	cl.srv.store.PutOutbound(cl.id, cl.sender.Record(nil), func(err error) { go done(err) })
}

// flushed waits until everything so far is durable. cl.mu is held.
func (cl *client) flushed() error {
	o := &cl.out
	version := cl.sender.Version()
	o.failing = false
	cl.flush(false)
	for o.on && o.durable < version && !cl.ended {
		if o.failing {
			return errors.New("outbound state could not be recorded")
		}
		cl.wake.Wait()
	}
	return nil
}

// recorded takes the outcome of a record. When it was not written, what waits for it never leaves on this connection.
func (cl *client) recorded(c *conn, version uint64, held []byte, settle []func(), err error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	o := &cl.out
	o.writing, o.leaving, o.failing = false, 0, err != nil
	if err != nil {
		o.settle = append(settle, o.settle...)
		if !errors.Is(err, store.ErrClosed) {
			cl.srv.log.Warn("outbound state", "client", cl.id, "error", err)
		}
		if errors.Is(err, store.ErrConflict) && !cl.ended {
			go cl.srv.lose(cl, errTakenOver) // what this node has of the session is of before
		}
		if c != nil {
			c.close(fmt.Errorf("store: %w", err))
		}
		if cl.conn == c || cl.ended {
			cl.wake.Broadcast()
			return
		}
	} else {
		o.durable = version
		cl.release(c, held, settle)
	}
	if len(o.held) > 0 || len(o.settle) > 0 || cl.sender.Version() != o.durable {
		cl.flush(false)
	}
	cl.wake.Broadcast()
}

// release lets packets leave, if their connection is still the session's, and settles. cl.mu is held.
func (cl *client) release(c *conn, held []byte, settle []func()) {
	if c != nil && cl.conn == c && len(held) > 0 {
		c.out = append(c.out, held...)
		c.signal()
	}
	for _, f := range settle {
		f()
	}
}

// recordLater sees to a record that nothing waits for. cl.mu is held.
func (cl *client) recordLater() {
	o := &cl.out
	if !o.on || o.timer != nil {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(recordDelay, func() {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		if o.timer == t && !cl.ended {
			o.timer = nil
			if o.writing {
				cl.recordLater() // the one under way began earlier
				return
			}
			cl.flush(true)
		}
	})
	o.timer = t
}

// settled waits until no record is under way, and returns the state of a session whose connection is gone: as what is in
// memory is newer than the last record, the node that goes on with the session takes it from here.
func (cl *client) settled() []byte {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if !cl.out.on {
		return nil
	}
	cl.out.stopTimer()
	for cl.out.writing {
		cl.wake.Wait()
	}
	for _, settle := range cl.out.settle { // of a record that failed; what is handed over says so
		settle()
	}
	cl.out.settle = nil
	return cl.sender.Record(nil)
}

// recordAll writes, at a shutdown, the records that nothing waits for, and gives up after a moment: a cluster may be
// going down as well. What is lost then is sent once more.
func (s *Server) recordAll(clients map[string]*client) {
	var wg sync.WaitGroup
	for _, cl := range clients {
		cl.mu.Lock()
		due := cl.out.timer != nil && !cl.out.writing
		cl.out.stopTimer()
		if due {
			wg.Add(1)
			s.store.PutOutbound(cl.id, cl.sender.Record(nil), func(error) { wg.Done() })
		}
		cl.mu.Unlock()
	}
	written := make(chan struct{})
	go func() {
		wg.Wait()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(shutdownWait):
	}
}

// shutdownWait bounds what an orderly end waits for that can be done without.
const shutdownWait = 500 * time.Millisecond

func (s *Server) putOutbound(id string, data []byte) error {
	ch := make(chan error, 1)
	s.store.PutOutbound(id, data, func(err error) { ch <- err })
	return <-ch
}

// resume makes the client of a session that this node finds in the store. state is what the node that had it handed over;
// without it the store's record counts, and the bodies of what is outstanding are read again, all at the same time.
func (s *Server) resume(ctx context.Context, rec *store.Session, state []byte) (*client, error) {
	// Also where it was handed over: from here on this node replaces the record, and what the other one may still have
	// under way does not.
	recorded, err := s.store.Outbound(ctx, rec.ClientID)
	if err != nil {
		return nil, err
	}
	handed := len(state) > 0
	if !handed {
		state = recorded
	}
	sender, missing, err := session.Restore(s.cfg.Outbound, state)
	if err != nil {
		// Nothing can be made of it. What is not settled the store delivers again, under new identifiers.
		s.log.Error("outbound state is dropped", "client", rec.ClientID, "error", err)
		sender = session.NewSender(s.cfg.Outbound)
	}
	if handed {
		// The last record may be older: the store may have refused one because this node had claimed the session. A PUBREL
		// that left now, and a node that then went on from that record, would send the PUBLISH once more.
		sender.Unrecorded()
	}
	cl := newClient(s, rec.ClientID, false)
	cl.sender = sender
	if err := s.again(rec.ClientID, sender, missing); err != nil {
		return nil, err
	}
	for i, sub := range rec.Subscriptions {
		if _, err := cl.subscribe(ctx, sub); err != nil {
			cl.end()
			return nil, fmt.Errorf("subscription %d of %d: %w", i+1, len(rec.Subscriptions), err)
		}
	}
	return cl, nil
}

// again reads the missing bodies. The store bounds each read.
func (s *Server) again(id string, sender *session.Sender, missing []session.Missing) error {
	bodies := make([]*store.Message, len(missing))
	errs := make([]error, len(missing))
	var wg sync.WaitGroup
	wg.Add(len(missing))
	for i, m := range missing {
		s.store.Again(id, m.Filter, m.Seq, func(body *store.Message, err error) {
			bodies[i], errs[i] = body, err
			wg.Done()
		})
	}
	wg.Wait()
	for i, m := range missing {
		switch err := errs[i]; {
		case err == nil:
			sender.Found(m.ID, bodies[i])
		case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrCorrupt):
			sender.Lost(m.ID)
		default:
			return fmt.Errorf("read message %d of the delivery: %w", m.Seq, err)
		}
	}
	return nil
}
