package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"inflight/broker/store"
)

// A session's Revision is the position of its record.

// Session reads a session's record.
func (s *Store) Session(ctx context.Context, client string) (*store.Session, error) {
	if err := s.current(ctx, client); err != nil {
		return nil, fmt.Errorf("session record: %w", err)
	}
	s.mu.Lock()
	var kept keptRecord
	if sess := s.st.sessions[client]; sess != nil {
		kept = keptRecord{sess.record, sess.revision}
	}
	s.mu.Unlock()
	if kept.data == nil {
		return nil, store.ErrNotFound
	}
	return kept.decode()
}

// keptRecord is a session's record as it is kept. The bytes are never changed.
type keptRecord struct {
	data     []byte
	revision pos
}

func (k keptRecord) decode() (*store.Session, error) {
	var rec store.Session
	if err := json.Unmarshal(k.data, &rec); err != nil {
		return nil, fmt.Errorf("session record: %w", store.ErrCorrupt)
	}
	rec.Revision = uint64(k.revision)
	return &rec, nil
}

// Sessions reads all records. The list is taken at once and handed out without the lock.
func (s *Store) Sessions(ctx context.Context, each func(*store.Session) bool) error {
	if _, err := s.sync(ctx); err != nil {
		return fmt.Errorf("session records: %w", err)
	}
	s.mu.Lock()
	all := make([]keptRecord, 0, len(s.st.sessions))
	for _, sess := range s.st.sessions {
		if sess.record != nil {
			all = append(all, keptRecord{sess.record, sess.revision})
		}
	}
	s.mu.Unlock()
	for _, kept := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec, err := kept.decode()
		if err != nil {
			s.log.Error("session record is left out", "revision", uint64(kept.revision), "error", err)
			continue
		}
		if !each(rec) {
			return nil
		}
	}
	return nil
}

// PutSession writes a session's record.
func (s *Store) PutSession(ctx context.Context, rec *store.Session) error {
	return s.put(ctx, rec, s.of(rec.ClientID, kindSession))
}

// SwapSession writes it in the place of the one that it was made from. It needs no claim: of all nodes that swap the same
// record, or whose claim wrote it anew, one is the first in the journal.
func (s *Store) SwapSession(ctx context.Context, rec *store.Session) error {
	return s.put(ctx, rec, &record{kind: kindSwap, client: []byte(rec.ClientID), ref: pos(rec.Revision)})
}

func (s *Store) put(ctx context.Context, rec *store.Session, r *record) error {
	data, err := json.Marshal(rec)
	if err == nil {
		r.data = data
		var p pos
		if p, err = s.do(ctx, r); err == nil {
			rec.Revision = uint64(p)
			return nil
		}
	}
	return fmt.Errorf("session record: %w", err)
}

// DeleteSession removes a record that is not newer, and with it the claim.
func (s *Store) DeleteSession(ctx context.Context, client string, revision uint64) error {
	r := s.of(client, kindSessionGone)
	if revision != math.MaxUint64 {
		r = &record{kind: kindSessionGone, client: []byte(client)}
	}
	r.ref = pos(revision)
	if _, err := s.do(ctx, r); err != nil {
		return fmt.Errorf("session record: %w", err)
	}
	s.mu.Lock()
	_, claimed := s.st.epochs[s.who(client).epoch]
	s.mu.Unlock()
	if !claimed {
		s.epochMu.Lock()
		delete(s.epochs, client)
		s.epochMu.Unlock()
	}
	return nil
}
