package staged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
)

// A session's Revision is the sequence of its record in INF_sessions.

// Session reads a session's record from the leader.
func (s *Store) Session(_ context.Context, client string) (*store.Session, error) {
	got, err := s.get(sessionsStream, `{"last_by_subj":"`+sessionsRoot+hash(client)+`"}`)
	if err != nil {
		return nil, err
	}
	if len(got.Message.Data) == 0 {
		return nil, store.ErrNotFound
	}
	rec, err := session(got)
	if err == nil && rec.ClientID != client {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return rec, nil
}

func session(got *stored) (*store.Session, error) {
	rec := &store.Session{Revision: got.Message.Seq}
	if err := json.Unmarshal(got.Message.Data, rec); err != nil {
		return nil, fmt.Errorf("session record: %w", store.ErrCorrupt)
	}
	return rec, nil
}

// Sessions reads the records one after the other from the leader. What is written meanwhile moves past the end.
func (s *Store) Sessions(ctx context.Context, each func(*store.Session) bool) error {
	end, err := s.lastSeq(sessionsStream)
	if err != nil {
		return fmt.Errorf("session records: %w", err)
	}
	for next := uint64(1); next <= end; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("session records: %w", err)
		}
		got, err := s.get(sessionsStream, fmt.Sprintf(`{"seq":%d,"next_by_subj":"%s*"}`, next, sessionsRoot))
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("session records: %w", err)
		}
		if next = got.Message.Seq + 1; next > end+1 {
			return nil
		}
		if len(got.Message.Data) == 0 {
			continue
		}
		rec, err := session(got)
		if err != nil {
			s.log.Error("session record is left out", "subject", got.Message.Subject, "error", err)
			continue
		}
		if !each(rec) {
			return nil
		}
	}
	return nil
}

// PutSession writes a session's record and waits until it is durable.
func (s *Store) PutSession(_ context.Context, rec *store.Session) error {
	return s.put(rec, nil)
}

// SwapSession writes a record on the condition that its subject still has the one that it was made from.
func (s *Store) SwapSession(_ context.Context, rec *store.Session) error {
	last := rec.Revision
	for {
		err := s.put(rec, nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(last, 10)}})
		if !wrongSequence(err) {
			return err
		}
		if rec.Revision > 0 || last > 0 {
			return store.ErrConflict
		}
		// No record may also be an empty one.
		got, err := s.get(sessionsStream, `{"last_by_subj":"`+sessionsRoot+hash(rec.ClientID)+`"}`)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return store.ErrConflict // it has just come and gone
		case err != nil:
			return fmt.Errorf("session record: %w", err)
		case len(got.Message.Data) > 0:
			return store.ErrConflict
		}
		last = got.Message.Seq
	}
}

func (s *Store) put(rec *store.Session, header nats.Header) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("session record: %w", err)
	}
	var seq uint64
	answer, err := s.askAgainWith(header, sessionsRoot+hash(rec.ClientID), data, false)
	if err == nil {
		seq, _, err = parsePubAck(answer)
	}
	if err != nil {
		return fmt.Errorf("session record: %w", err)
	}
	rec.Revision = seq
	return nil
}

// removedFor is how long the empty record stays that says that there is none. A purge in its place would be undone by a
// crash: JetStream notes what was purged, but not that an older record of the subject was replaced, so that after a
// restart it would be the last one. What was replaced is noted with the state of the whole stream, which is written every
// two to three minutes.
const removedFor = 15 * time.Minute

// DeleteSession writes an empty record in the place of one.
func (s *Store) DeleteSession(_ context.Context, client string, revision uint64) error {
	header := nats.Header{jetstream.MsgTTLHeader: {removedFor.String()}}
	if revision < math.MaxUint64 {
		header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(revision, 10))
	}
	answer, err := s.askAgainWith(header, sessionsRoot+hash(client), nil, false)
	if err == nil {
		_, _, err = parsePubAck(answer)
	}
	if err != nil && !wrongSequence(err) {
		return fmt.Errorf("session record: %w", err)
	}
	return nil
}

func wrongSequence(err error) bool {
	var api *apiError
	return errors.As(err, &api) && (api.ErrCode == codeWrongSequence || api.ErrCode == codeWrongSequence2)
}
