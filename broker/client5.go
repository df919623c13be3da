package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"inflight/broker/store"
)

// client5 is what a session has for MQTT 5.0, under client.mu. A session of 3.1.1 is one whose Session Expiry Interval is 0
// or that never expires.
type client5 struct {
	expiry      uint32      // Session Expiry Interval in seconds
	left        time.Time   // when the connection ended; zero while there is one
	expiryTimer *time.Timer // runs while the connection is gone, if the session expires
	will        *store.Will // neither published nor withdrawn
	willTimer   *time.Timer // runs while the connection is gone and the will waits for its delay

	noLocal atomic.Bool // a subscription wants to know who publishes
}

// begin notes the Session Expiry Interval and the will of a new connection; the will of the one before, if it still waits
// for its delay, is dropped [MQTT-3.1.3-9]. It reports whether the session's record says something else.
func (cl *client) begin(c *conn) (changed bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	changed = cl.expiry != c.expiry || cl.will != nil || c.will != nil || !cl.left.IsZero() && cl.expiry != neverExpires
	cl.expiry, cl.left = c.expiry, time.Time{}
	cl.stopExpiry()
	cl.will = c.will
	return changed
}

// stopExpiry keeps a session from expiring, and its will from being published. cl.mu is held.
func (cl *client) stopExpiry() {
	if cl.expiryTimer != nil {
		cl.expiryTimer.Stop()
		cl.expiryTimer = nil
	}
	cl.stopWill()
}

// leave ends the time of a connection; a session that expires begins to.
func (cl *client) leave(c *conn) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.conn != c {
		return
	}
	cl.conn = nil
	if cl.left.IsZero() {
		cl.left = time.Now()
	}
	if cl.expiry > 0 && cl.expiry != neverExpires && !cl.ended {
		cl.expiryTimer = time.AfterFunc(time.Until(cl.left.Add(time.Duration(cl.expiry)*time.Second)), func() { cl.srv.expire(cl) })
	}
}

// lives reports whether the session can be resumed at now.
func (cl *client) lives(now time.Time) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.livesLocked(now)
}

func (cl *client) livesLocked(now time.Time) bool {
	switch cl.expiry {
	case 0:
		return false
	case neverExpires:
		return true
	}
	return cl.left.IsZero() || now.Before(cl.left.Add(time.Duration(cl.expiry)*time.Second))
}

// recordEnd puts into a session's record when it ends, and when its will is due. cl.mu is held.
func (cl *client) recordEnd(rec *store.Session) {
	if !cl.clean && cl.expiry != neverExpires {
		expiry := cl.expiry
		rec.Expiry = &expiry
	}
	if cl.will != nil {
		will := *cl.will
		rec.Will = &will
	}
	if !cl.left.IsZero() && (rec.Expiry != nil || rec.Will != nil) {
		left := cl.left.UTC()
		rec.Ended = &left
	}
}

// expire ends a session whose Session Expiry Interval has passed [MQTT-3.1.2-23].
func (s *Server) expire(cl *client) {
	unlock := s.lockID(cl.id)
	defer unlock()
	cl.mu.Lock()
	resumed := cl.conn != nil || cl.ended || cl.livesLocked(time.Now())
	cl.mu.Unlock()
	if resumed || s.client(cl.id) != cl {
		return
	}
	s.log.Debug("session expired", "client", cl.id)
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	if err := cl.save(ctx); errors.Is(err, errTakenOver) {
		s.let(cl) // what there is of the session is another node's
		return
	}
	s.endSession(ctx, cl, true)
}

// configure applies the options of a SUBSCRIBE to a subscription. cl.mu is held.
func (cl *client) configure(sub *subscription, s store.Subscription) {
	sub.opts, sub.src.ID = s, s.ID
	any := s.NoLocal
	for _, other := range cl.subs {
		any = any || other.opts.NoLocal
	}
	cl.noLocal.Store(any)
}

// wanted reports whether a delivery is still to be sent, and sets how long it lives: not after its expiry
// [MQTT-3.3.2-5], and not to its publisher where a subscription is without local ones [MQTT-3.8.3-3]. cl.mu is held.
func (cl *client) wanted(sub *subscription, d *store.Delivery) bool {
	m := d.Message
	if m.Expires != 0 {
		if d.Left = m.Left(time.Now()); d.Left == 0 {
			return false
		}
	}
	return m.From == "" || !sub.opts.NoLocal || m.From != cl.id
}

// dispatch sends a delivery for which there is room, if the subscriber takes a packet of its size [MQTT-3.1.2-25].
// cl.mu is held.
func (cl *client) dispatch(c *conn, sub *subscription, d store.Delivery) {
	d.Retain = d.Retain || sub.opts.RetainAsPublished && d.Message.Retain // [MQTT-3.3.1-12] [MQTT-3.3.1-13]
	if !cl.sender.Fits(sub.src, &d) {
		cl.srv.log.Debug("message is larger than the subscriber takes", "client", cl.id, "topic", d.Message.Topic)
		d.Settle()
		return
	}
	cl.send(c, sub, d)
}
