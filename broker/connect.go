package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/packet"
	"inflight/broker/store"
)

// takeoverSubject and the node's name is where a node is asked to give a session up.
const takeoverSubject = "inf.c.takeover."

// takeoverTimeout bounds how long the node that had a session may take to finish what was under way there.
const takeoverTimeout = 15 * time.Second

// takeoverProbe is how often a node that has been asked is asked whether it is still there.
const takeoverProbe = 200 * time.Millisecond

// connectTries bounds how often a CONNECT begins anew because another node wrote the session's record meanwhile: one that
// adopts it, or one that serves the same client.
const connectTries = 3

// connect finds or makes the session of a CONNECT and attaches c to it. The node that served it before, this one or
// another, has given it up and finished its store operations when connect reads the store.
func (s *Server) connect(ctx context.Context, c *conn, p *packet.Connect) error {
	unlock := s.lockID(p.ClientID)
	defer unlock()
	for try := 1; ; try++ {
		err := s.tryConnect(ctx, c, p)
		if err == nil {
			s.drop(p.ClientID)
			return nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, errTakenOver) || try == connectTries {
			return err
		}
	}
}

func (s *Server) tryConnect(ctx context.Context, c *conn, p *packet.Connect) error {
	old := s.client(p.ClientID)
	var rec *store.Session
	var state []byte
	var err error
	if old != nil {
		old.kick(errTakenOver)
	} else if rec, state, err = s.find(ctx, p); err != nil {
		return err
	}
	// Of a record that is written between the two the save tells, which is a swap.
	if err := s.claim(ctx, p.ClientID); err != nil {
		return err
	}
	if old != nil && !p.CleanSession {
		if err := s.stillServes(ctx, old); err != nil {
			return err
		}
	}
	now := time.Now()
	present := !p.CleanSession && (old != nil && old.lives(now) || rec != nil && rec.Lives(now))
	present = present && c.mayResume(old, rec)
	if err := s.lastWill(ctx, old, rec, present, now); err != nil {
		return err
	}
	cl := old
	var held []store.Held
	switch {
	case !present:
		if old != nil || rec != nil {
			if err := s.forget(ctx, p.ClientID, old, rec); err != nil {
				return err
			}
		}
		cl = newClient(s, p.ClientID, c.expiry == 0)
		if old != nil {
			cl.revision = old.revision
		}
	default:
		if cl == nil {
			if cl, err = s.resume(ctx, rec, state); err != nil {
				return fmt.Errorf("resume session: %w", err)
			}
		}
		if held, err = s.store.Held(ctx, p.ClientID); err != nil {
			return fmt.Errorf("resume session: %w", err)
		}
		for _, h := range held {
			if h.ID == willID {
				s.store.Discard(p.ClientID, h.Ref) // of a will about which another node was faster
			}
		}
		if err := cl.rejoin(ctx); err != nil {
			return fmt.Errorf("resume session: %w", err)
		}
	}
	if rec != nil {
		cl.revision = rec.Revision
	}
	if changed := cl.begin(c); old == nil || !present || changed {
		if err := cl.save(ctx); err != nil {
			s.dropClient(cl)
			cl.end()
			return err
		}
		s.setClient(p.ClientID, cl)
	}
	c.attach(cl, present, held)
	return nil
}

// stillServes makes sure that no other node has gone on with a kept session since this one served it: that node may not have
// been able to ask this one for it. What is in memory here is then of before, and sending it again would be sending twice.
func (s *Server) stillServes(ctx context.Context, cl *client) error {
	if cl.clean || s.nc == nil {
		return nil
	}
	rec, err := s.store.Session(ctx, cl.id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("read session: %w", err)
	}
	cl.saving.Lock()
	current := err == nil && rec.Node == s.cfg.Node && rec.Revision == cl.revision
	cl.saving.Unlock()
	if current {
		return nil
	}
	s.let(cl)
	return errTakenOver
}

// claim fences off what other nodes may still have under way for a client, where the store can.
func (s *Server) claim(ctx context.Context, id string) error {
	if c, ok := s.store.(store.Claimer); ok {
		return c.Claim(ctx, id)
	}
	return nil
}

// find reads the record of a session that this node does not serve, after the node that does has let go of it. state is
// what that node had in memory.
func (s *Server) find(ctx context.Context, p *packet.Connect) (rec *store.Session, state []byte, err error) {
	read := func() {
		if rec, err = s.store.Session(ctx, p.ClientID); errors.Is(err, store.ErrNotFound) {
			rec, err = nil, nil
		} else if err != nil {
			err = fmt.Errorf("read session: %w", err)
		}
	}
	if read(); rec == nil {
		return nil, nil, err
	}
	ended := time.Now()
	if rec.Node == s.cfg.Node && rec.Updated.Before(s.metrics.epoch) && !s.lastBeat.IsZero() {
		ended = s.lastBeat // it was this node's, before it was started
	}
	if rec.Node != s.cfg.Node {
		if state, err = s.takeOver(ctx, rec.Node, p.ClientID); err != nil {
			return nil, nil, fmt.Errorf("take session over from node %s: %w", rec.Node, err)
		}
		// What the other node wrote while it let go counts.
		if read(); rec == nil {
			return nil, nil, err
		}
		ended = time.Now()
	}
	if rec.Ended == nil {
		rec.Ended = &ended
	}
	return rec, state, nil
}

// lastWill publishes the will that a session still has, if it is due now that its client is back: when the session ends
// here, or the client is too late for the will's delay.
func (s *Server) lastWill(ctx context.Context, old *client, rec *store.Session, present bool, now time.Time) error {
	var err error
	switch {
	case old != nil:
		if last := old.record(); last.Will != nil && (!present || willDue(last, now)) {
			err = old.publishWill(ctx)
		}
	case rec != nil:
		if rec.Will != nil && (!present || willDue(rec, now)) {
			err = s.publishWill(ctx, rec)
		}
	}
	if err != nil {
		return fmt.Errorf("will of the connection before: %w", err)
	}
	return nil
}

// forget drops everything that an earlier session of the same identifier left.
func (s *Server) forget(ctx context.Context, id string, old *client, rec *store.Session) error {
	var subs []store.Subscription
	kept := false
	if old != nil {
		subs, kept = old.record().Subscriptions, !old.clean
		old.settled() // or its last record would come after the removal
		old.end()
		s.dropClient(old)
	} else {
		subs, kept = rec.Subscriptions, !rec.Clean
	}
	if kept {
		if err := s.putOutbound(id, nil); err != nil {
			return fmt.Errorf("drop old session: %w", err)
		}
	}
	for _, sub := range subs {
		if err := s.store.Unsubscribe(ctx, id, sub.Filter); err != nil {
			return fmt.Errorf("drop old session: %w", err)
		}
	}
	if err := s.store.Forget(ctx, id); err != nil {
		return fmt.Errorf("drop old session: %w", err)
	}
	return nil
}

// detach ends what is left of a session that ends with its connection, once that is finished. If another connection got
// hold of the identifier first, on this node or another, it has cleaned up, and the record is its own. When the broker
// shuts down the record stays: the next session of the identifier cleans up behind it.
func (s *Server) detach(c *conn) {
	cl := c.client
	cl.mu.Lock()
	expiry := cl.expiry
	cl.mu.Unlock()
	if expiry == neverExpires || expiry == 0 && c.cause() == errShutdown {
		return
	}
	unlock := s.lockID(cl.id)
	defer unlock()
	cl.mu.Lock()
	connected := cl.conn != nil
	expiry = cl.expiry
	cl.mu.Unlock()
	if connected || s.client(cl.id) != cl {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	if expiry > 0 {
		if c.recorded {
			return
		}
		if err := cl.save(ctx); err != nil {
			s.log.Warn("end of connection", "client", cl.id, "error", err)
		}
		return
	}
	s.endSession(ctx, cl, c.recv.Open() > 0)
}

// endSession forgets a session of this node; its will, if it still has one, is due. The lock of its identifier is held.
func (s *Server) endSession(ctx context.Context, cl *client, held bool) {
	err := cl.publishWill(ctx)
	switch {
	case err != nil:
		s.let(cl)
	case !cl.clean:
		err = s.forget(ctx, cl.id, cl, nil)
	case s.dropClient(cl):
		cl.end()
		if held {
			err = s.store.Forget(ctx, cl.id)
		}
	default:
		return
	}
	if err == nil {
		err = s.store.DeleteSession(ctx, cl.id, cl.revision)
	}
	switch {
	case err == nil, errors.Is(err, store.ErrClosed):
	case errors.Is(err, store.ErrConflict): // another node has it
	default:
		s.log.Warn("end of session", "client", cl.id, "error", err)
		s.attendLater(cl.id, time.Now().Add(willRetry))
	}
}

// let lets go of a session that another node has, or will find in the store.
func (s *Server) let(cl *client) {
	if s.dropClient(cl) {
		cl.end()
	}
}

// takeOver asks another node to let go of a session, and returns its outbound state, if the node has it in memory. A
// node that is not there any more has let go.
func (s *Server) takeOver(ctx context.Context, node, id string) ([]byte, error) {
	if s.nc == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
	defer cancel()
	gone := make(chan struct{})
	go func() {
		// A node that goes away after it was asked does not answer, and nobody says so.
		tick := time.NewTicker(takeoverProbe)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			probe, stop := context.WithTimeout(ctx, time.Second)
			_, err := s.nc.RequestWithContext(probe, takeoverSubject+node, nil)
			stop()
			if errors.Is(err, nats.ErrNoResponders) {
				close(gone)
				cancel()
				return
			}
		}
	}()
	m, err := s.nc.RequestWithContext(ctx, takeoverSubject+node, []byte(id))
	select {
	case <-gone:
		return nil, nil
	default:
	}
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// serveTakeovers answers other nodes. It does not take the identifier's lock: two nodes that connect the same identifier
// at the same time would wait for each other.
func (s *Server) serveTakeovers() error {
	_, err := s.nc.Subscribe(takeoverSubject+s.cfg.Node, func(m *nats.Msg) {
		go func() {
			var state []byte // an empty identifier is a probe: there is no such client
			id := string(m.Data)
			s.drop(id)
			if cl := s.client(id); cl != nil {
				cl.kick(errTakenOver)
				if s.dropClient(cl) {
					state = cl.settled()
					cl.end()
				}
			}
			if err := m.Respond(state); err != nil {
				s.log.Warn("takeover", "error", err)
			}
		}()
	})
	if err != nil {
		return fmt.Errorf("listen for takeovers: %w", err)
	}
	return s.nc.Flush()
}
