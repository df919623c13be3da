package memory

import (
	"bytes"
	"context"
	"math"
	"slices"

	"inflight/broker/store"
)

// clone copies a record and all that it points to.
func clone(rec *store.Session) store.Session {
	cp := *rec
	cp.Subscriptions = slices.Clone(rec.Subscriptions)
	if rec.Will != nil {
		will := *rec.Will
		will.Payload, will.Passed = bytes.Clone(will.Payload), bytes.Clone(will.Passed)
		cp.Will = &will
	}
	return cp
}

// Session reads a record.
func (s *Store) Session(_ context.Context, client string) (*store.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	rec, ok := s.sessions[client]
	if !ok {
		return nil, store.ErrNotFound
	}
	rec = clone(&rec)
	return &rec, nil
}

// Sessions reads all records. The list is taken at once and handed out without the lock.
func (s *Store) Sessions(ctx context.Context, each func(*store.Session) bool) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	all := make([]store.Session, 0, len(s.sessions))
	for _, rec := range s.sessions {
		all = append(all, clone(&rec))
	}
	s.mu.Unlock()
	for i := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !each(&all[i]) {
			return nil
		}
	}
	return nil
}

// PutSession writes a record.
func (s *Store) PutSession(_ context.Context, rec *store.Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	s.put(rec)
	return nil
}

// put writes a record. The lock is held.
func (s *Store) put(rec *store.Session) {
	s.revision++
	rec.Revision = s.revision
	s.sessions[rec.ClientID] = clone(rec)
}

// SwapSession writes a record over the one that it was made from.
func (s *Store) SwapSession(_ context.Context, rec *store.Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return store.ErrClosed
	case s.sessions[rec.ClientID].Revision != rec.Revision: // that of no record is 0
		return store.ErrConflict
	}
	s.put(rec)
	return nil
}

// DeleteSession removes a record of a revision.
func (s *Store) DeleteSession(_ context.Context, client string, revision uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	if revision == math.MaxUint64 || s.sessions[client].Revision == revision {
		delete(s.sessions, client)
	}
	return nil
}
