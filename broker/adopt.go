package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"inflight/broker/store"
)

// A session that ends some time, or has a will, is looked after by its node once its connection is gone. When the node is
// gone as well, another one adopts the session: it writes itself into the record in the place of that node, and from then on
// publishes the will and ends the session when that is due. Of several nodes that try, the store lets one write. A session
// that is kept for ever and has no will needs nobody.
//
// An adopted session has no connection and no feeds; whoever connects finds it in the store as ever, after asking this node
// to let go of it. What is done with it is done under the lock of its identifier and after reading its record again.

// orphan is a session that this node looks after and does not serve.
type orphan struct {
	mu    sync.Mutex // held while something is done with it
	gone  bool       // nothing more is to be done
	timer *time.Timer
}

// adopt takes the sessions of a node that is gone, or of this one before it was started; ended is when their connections
// ended, as far as is known. gone is asked before each.
func (s *Server) adopt(ctx context.Context, node string, ended time.Time, gone func(context.Context) bool) error {
	adopted := 0
	err := s.store.Sessions(ctx, func(rec *store.Session) bool {
		if rec.Node != node || isNode(rec) || rec.Will == nil && rec.Expiry == nil && !rec.Clean {
			return ctx.Err() == nil
		}
		if node == s.cfg.Node && !rec.Updated.Before(s.metrics.epoch) {
			return ctx.Err() == nil // it was written since
		}
		if !gone(ctx) {
			return false
		}
		taken, err := s.adoptOne(ctx, rec, ended)
		if err != nil {
			s.log.Warn("adopt session", "client", short(rec.ClientID), "node", node, "error", err)
		}
		if taken {
			adopted++
		}
		return ctx.Err() == nil && !errors.Is(err, store.ErrClosed)
	})
	if adopted > 0 {
		s.log.Info("sessions of a node that is gone are looked after here", "node", node, "sessions", adopted)
	}
	return err
}

// adoptOne writes this node into a session's record, unless somebody else was faster.
func (s *Server) adoptOne(ctx context.Context, rec *store.Session, ended time.Time) (bool, error) {
	unlock := s.lockID(rec.ClientID)
	defer unlock()
	if s.client(rec.ClientID) != nil {
		return false, nil // it is served here
	}
	if rec.Ended == nil {
		ended = ended.UTC()
		rec.Ended = &ended
	}
	rec.Node = s.cfg.Node
	switch err := s.store.SwapSession(ctx, rec); {
	case errors.Is(err, store.ErrConflict):
		return false, nil
	case err != nil:
		return false, err
	}
	s.attendLater(rec.ClientID, nextDue(rec))
	return true, nil
}

// nextDue is when something is to be done with a session whose connection has ended.
func nextDue(rec *store.Session) time.Time {
	due := *rec.Ended
	switch {
	case rec.Will != nil:
		return due.Add(willDelay(rec.Will, rec.Clean, rec.Expiry)) // not after its end
	case rec.Expiry != nil && !rec.Clean:
		return due.Add(time.Duration(*rec.Expiry) * time.Second)
	}
	return due
}

// attendLater sees to it that attend runs at a time, once, whatever was planned before.
func (s *Server) attendLater(id string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return // another node, or this one when it is back
	}
	if old := s.orphans[id]; old != nil {
		old.timer.Stop()
	}
	o := &orphan{}
	o.timer = time.AfterFunc(time.Until(at), func() { s.attend(id, o) })
	s.orphans[id] = o
}

// attend publishes the will of an adopted session and ends it, if that is due.
func (s *Server) attend(id string, o *orphan) {
	unlock := s.lockID(id)
	defer unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone || !s.forgetOrphan(id, o) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	again, err := s.attendTo(ctx, id)
	switch {
	case errors.Is(err, store.ErrClosed):
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		s.attended(id)
	case err != nil:
		level := slog.LevelDebug // one line tells of all that fail at the same time, and of their next attempts
		if s.overdue.add(id) {
			level = slog.LevelWarn
		}
		s.log.Log(ctx, level, "session of a node that is gone: tried again until it works", "client", short(id), "error", err)
		s.attendLater(id, time.Now().Add(willRetry))
	default:
		s.attended(id)
		if !again.IsZero() {
			s.attendLater(id, again)
		}
	}
}

// attended notes that nothing is overdue for a session any more.
func (s *Server) attended(id string) {
	if n := s.overdue.remove(id); n > 0 {
		s.log.Info("sessions of nodes that are gone are looked after again", "sessions", n)
	}
}

// overdue are the sessions for which the store did not do what was due. It is asked again for each, every willRetry: a store
// that is busy, or away, must not fill the log.
type overdue struct {
	mu    sync.Mutex
	ids   map[string]struct{}
	total int // since there were none
}

// add reports whether there was none before.
func (o *overdue) add(id string) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.ids[id]; known {
		return false
	}
	if o.ids == nil {
		o.ids = make(map[string]struct{})
	}
	o.ids[id] = struct{}{}
	o.total++
	return len(o.ids) == 1
}

// remove returns how many there have been when this was the last of them, else 0.
func (o *overdue) remove(id string) (over int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.ids[id]; !known {
		return 0
	}
	if delete(o.ids, id); len(o.ids) > 0 {
		return 0
	}
	over, o.total = o.total, 0
	return over
}

// attendTo returns when something is to be done next; zero: never.
func (s *Server) attendTo(ctx context.Context, id string) (again time.Time, err error) {
	rec, err := s.store.Session(ctx, id)
	if err != nil {
		return time.Time{}, err
	}
	if rec.Node != s.cfg.Node || s.client(id) != nil {
		return time.Time{}, nil // it was resumed
	}
	if err := s.claim(ctx, id); err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	if rec.Ended == nil {
		ended := now.UTC()
		rec.Ended = &ended
	}
	if willDue(rec, now) {
		if err := s.publishWill(ctx, rec); err != nil {
			return time.Time{}, err
		}
	}
	if !rec.Lives(now) {
		s.log.Debug("session expired", "client", id)
		if err := s.forget(ctx, id, nil, rec); err != nil {
			return time.Time{}, err
		}
		return time.Time{}, s.store.DeleteSession(ctx, id, rec.Revision)
	}
	if rec.Will == nil && rec.Expiry == nil {
		return time.Time{}, nil
	}
	return nextDue(rec), nil
}

// forgetOrphan takes o out of the table, and reports whether it was there.
func (s *Server) forgetOrphan(id string, o *orphan) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.orphans[id] != o {
		return false
	}
	delete(s.orphans, id)
	return true
}

// drop lets go of an adopted session and waits until nothing is done with it any more. It must not be called by attend.
func (s *Server) drop(id string) {
	s.mu.Lock()
	o := s.orphans[id]
	delete(s.orphans, id)
	s.mu.Unlock()
	if o != nil {
		o.timer.Stop()
		o.mu.Lock()
		o.gone = true
		o.mu.Unlock()
		s.attended(id) // by whoever takes it
	}
}

// dropOrphans lets go of all of them: the broker goes down.
func (s *Server) dropOrphans() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, o := range s.orphans {
		o.timer.Stop()
		delete(s.orphans, id)
	}
}
