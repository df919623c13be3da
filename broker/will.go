package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"inflight/broker/packet"
	"inflight/broker/store"
)

// The will of a connection is in its session's record from the CONNECT on, so that it outlives its node. It leaves the
// record when it is withdrawn, and when it was published; who does either writes the record over the one that was read, so
// that of several nodes one decides. See adopt.go for the wills of nodes that are gone.

// willID is the Packet Identifier under which a will of QoS 2 is held while it is published: one that no client has
// [MQTT-2.3.1-1].
const willID = 0

// willRetry is after how long a will, or the end of a session, is tried again that the store did not take.
const willRetry = time.Second

// newWill is the will of a CONNECT; nil if it has none.
func newWill(w *packet.Will) *store.Will {
	if w == nil {
		return nil
	}
	will := &store.Will{Topic: w.Topic, Payload: w.Payload, QoS: w.QoS, Retain: w.Retain}
	if p := w.Properties; p != nil {
		will.Delay, will.Passed = p.WillDelay.Or(0), p.Passed()
		if p.MessageExpiry.Set {
			expiry := p.MessageExpiry.Value
			will.Expiry = &expiry
		}
	}
	return will
}

// willDelay is how long after the end of its connection the will of a session is due: after its delay or with the end of
// the session, whatever comes first [MQTT-3.1.3-9]. A session whose record says nothing of an expiry ends never, or at once.
func willDelay(w *store.Will, clean bool, expiry *uint32) time.Duration {
	delay := w.Delay
	if expiry != nil {
		delay = min(delay, *expiry)
	}
	if clean || w.Ref != 0 { // or it is being published already
		delay = 0
	}
	return time.Duration(delay) * time.Second
}

// willDue reports whether the will in the record of a session whose connection has ended is to be published at now.
func willDue(rec *store.Session, now time.Time) bool {
	if rec.Will == nil {
		return false
	}
	return rec.Ended == nil || !now.Before(rec.Ended.Add(willDelay(rec.Will, rec.Clean, rec.Expiry)))
}

// endWill decides about the will at the end of its connection, before the session is anybody else's: it is withdrawn by a
// DISCONNECT [MQTT-3.14.4-3] and when the client's right to it is gone, and published else [MQTT-3.1.2-8], at once or after
// its delay. Where the broker goes down it stays in the record: the node that finds this one gone publishes it, or this one
// when it is back. Of a store that goes down as well it would reach nobody. Only the reader calls it.
func (c *conn) endWill(why error) {
	cl := c.client
	cl.mu.Lock()
	w := cl.will
	if w == nil || cl.conn != c {
		cl.mu.Unlock()
		return
	}
	if why == errShutdown {
		if !cl.srv.durable() {
			cl.will = nil
		}
		cl.mu.Unlock()
		return
	}
	cl.left = time.Now()
	withdrawn := why == errDisconnect || !c.rights().CanPublish(w.Topic)
	if withdrawn {
		cl.will = nil
	}
	var expiry *uint32
	if cl.expiry != neverExpires {
		expiry = &cl.expiry
	}
	delay := willDelay(w, cl.expiry == 0, expiry)
	cl.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), cl.srv.cfg.StoreTimeout)
	defer cancel()
	if withdrawn || delay > 0 {
		if err := cl.save(ctx); err != nil {
			cl.srv.log.Warn("will", "client", cl.id, "withdrawn", withdrawn, "error", err)
		}
		c.recorded = true
	} else if err := cl.publishWill(ctx); err != nil {
		cl.srv.log.Warn("will", "client", cl.id, "error", err)
		delay = willRetry
	} else {
		c.recorded = true
	}
	cl.awaitWill(delay)
}

// awaitWill publishes the will later, if there still is one, unless it is dropped before.
func (cl *client) awaitWill(delay time.Duration) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if w := cl.will; w != nil && !cl.ended {
		cl.willTimer = time.AfterFunc(delay, func() { cl.lateWill(w) })
	}
}

// lateWill publishes a will whose delay is over, unless the session was resumed meanwhile.
func (cl *client) lateWill(w *store.Will) {
	unlock := cl.srv.lockID(cl.id)
	defer unlock()
	cl.mu.Lock()
	due := cl.will == w && !cl.ended
	cl.mu.Unlock()
	if !due || cl.srv.client(cl.id) != cl {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cl.srv.cfg.StoreTimeout)
	defer cancel()
	switch err := cl.publishWill(ctx); {
	case errors.Is(err, store.ErrClosed):
	case err != nil:
		cl.srv.log.Warn("will", "client", cl.id, "error", err)
		cl.awaitWill(willRetry)
	}
}

// stopWill keeps the will from being published by this client. cl.mu is held.
func (cl *client) stopWill() {
	cl.will = nil
	if cl.willTimer != nil {
		cl.willTimer.Stop()
		cl.willTimer = nil
	}
}

// publishWill publishes the will that the session still has, and takes it out of the record.
func (cl *client) publishWill(ctx context.Context) error {
	cl.saving.Lock()
	defer cl.saving.Unlock()
	rec := cl.record()
	if rec.Will == nil {
		return nil
	}
	rec.Revision = cl.revision
	err := cl.srv.publishWill(ctx, rec)
	cl.revision = rec.Revision
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if err == nil || errors.Is(err, store.ErrConflict) {
		cl.stopWill()
	} else if cl.will != nil {
		cl.will = rec.Will // how far it got
	}
	return err
}

// publishWill publishes the will of a session's record, which must be as it was read or written last, and takes it out of
// the record. ErrConflict says that another node has the session, and decides.
//
// A will of QoS 2 is published once, whoever of those that try crashes in the middle: its held copy is named in the record
// before it is released, and what is not held any more was released. One of QoS 1 may come again after a crash; one of
// QoS 0 is taken out of the record first and may get lost then.
func (s *Server) publishWill(ctx context.Context, rec *store.Session) error {
	will, m := rec.Will, willMessage(rec, time.Now())
	switch will.QoS {
	case 0:
		if err := s.putWill(ctx, rec, nil); err != nil {
			return err
		}
		return s.store.Transient(m)
	case 1:
		if _, err := result(func(done store.Done) { s.store.Publish(m, done) }); err != nil {
			return err
		}
		return s.putWill(ctx, rec, nil)
	}
	released := false
	if will.Ref == 0 {
		ref, err := result(func(done store.Done) { s.store.Hold(rec.ClientID, willID, m, done) })
		if err != nil {
			return err
		}
		decided := *will
		decided.Ref = ref
		if err := s.putWill(ctx, rec, &decided); err != nil {
			if errors.Is(err, store.ErrConflict) {
				s.store.Discard(rec.ClientID, ref)
			}
			return err
		}
	} else {
		held, err := s.store.Held(ctx, rec.ClientID)
		if err != nil {
			return err
		}
		released = !slices.Contains(held, store.Held{ID: willID, Ref: will.Ref})
	}
	if !released {
		_, err := result(func(done store.Done) { s.store.Release(rec.ClientID, willID, rec.Will.Ref, m, done) })
		if err != nil {
			return err
		}
	}
	return s.putWill(ctx, rec, nil)
}

// putWill writes a session's record with another will. rec keeps the old one when that fails.
func (s *Server) putWill(ctx context.Context, rec *store.Session, will *store.Will) error {
	old := rec.Will
	rec.Will = will
	err := s.swap(ctx, rec)
	if err != nil {
		rec.Will = old
	}
	return err
}

// swap writes a record over the one that it was made from. A write whose answer was lost is no conflict: the record is
// this node's then.
func (s *Server) swap(ctx context.Context, rec *store.Session) error {
	err := s.store.SwapSession(ctx, rec)
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	now, readErr := s.store.Session(ctx, rec.ClientID)
	if readErr != nil || now.Node != s.cfg.Node {
		return err
	}
	rec.Revision = now.Revision
	return s.store.SwapSession(ctx, rec)
}

// willMessage is the will as it is published at now, which is when its Message Expiry Interval begins, section 3.1.3.2.4.
// Its publisher is named where a subscription of its own, or one to come, is without local messages.
func willMessage(rec *store.Session, now time.Time) *store.Message {
	w := rec.Will
	m := &store.Message{Topic: w.Topic, Payload: w.Payload, QoS: w.QoS, Retain: w.Retain, Passed: w.Passed}
	if w.Expiry != nil {
		m.Expires = now.UnixMilli() + int64(*w.Expiry)*1000
	}
	local := w.Retain
	for _, sub := range rec.Subscriptions {
		local = local || sub.NoLocal
	}
	if local {
		m.From = rec.ClientID
	}
	return m
}

// result runs a store operation to its end, which the store sees to.
func result(start func(store.Done)) (store.Ref, error) {
	type outcome struct {
		ref store.Ref
		err error
	}
	ch := make(chan outcome, 1)
	start(func(ref store.Ref, err error) { ch <- outcome{ref, err} })
	o := <-ch
	return o.ref, o.err
}
