package journal

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
)

const (
	// sure is how many polls in a row must find the same before it is believed.
	sure = 2
	// patience is how many of them wait for the snapshot of the node that makes a journal anew.
	patience = 5
	// repairWait bounds one attempt to repair.
	repairWait = 30 * time.Second
)

// poll asks the stream's leader whether this node has missed something, and repairs what does not fit.
func (s *Store) poll() {
	at := s.position()
	info, err := s.wire.info(s.life, journalStream)
	s.applying.Lock()
	defer s.applying.Unlock()
	switch {
	case errors.Is(err, errNoJournal):
		s.behind = 0
		if s.missing++; s.missing >= sure {
			s.missing = 0
			s.remake()
		}
		return
	case err != nil:
		return // nobody leads, or the answer is late
	case info.last < at:
		s.missing = 0
		if s.behind++; s.behind < sure {
			return
		}
		s.rebuild()
	}
	s.missing, s.behind = 0, 0
	s.catchUp(info.last)
}

// skip is called when the journal goes on only at seq: what is before was trimmed, or the journal was made anew. A
// snapshot leads there. It reports whether the state has moved on. applying is held.
func (s *Store) skip(seq uint64) bool {
	ctx, cancel := context.WithTimeout(s.life, repairWait)
	defer cancel()
	info, err := s.wire.info(ctx, journalStream)
	var st *state
	if err == nil {
		st, err = s.tryLoad(ctx, &info)
	}
	if err != nil {
		s.log.Warn("journal", "error", err)
		return false
	}
	if st.applied > s.st.applied && st.applied+1 >= seq {
		s.log.Info("this node was behind the journal and goes on from a snapshot", "applied", s.st.applied, "snapshot", st.applied)
		s.replace(st)
		return true
	}
	if s.gap++; s.gap <= patience {
		time.Sleep(time.Second) // the snapshot may be on its way
		return false
	}
	s.gap = 0
	s.log.Error("a part of the journal is lost", "from", s.st.applied+1, "to", seq-1)
	s.mu.Lock()
	s.st.applied = seq - 1
	s.mu.Unlock()
	return true
}

// rebuild applies the journal anew, because its end was lost and there may be another one. applying is held.
func (s *Store) rebuild() {
	s.behind = 0
	s.log.Error("the end of the journal is lost, and acknowledged messages with it", "applied", s.st.applied)
	ctx, cancel := context.WithTimeout(s.life, repairWait)
	defer cancel()
	st, err := s.fit(ctx)
	if err != nil {
		s.log.Error("the journal cannot be applied anew", "error", err)
		return
	}
	s.replace(st)
	s.acked.Store(0)
}

// replace goes on with another state. What is on its way may be part of it already; nobody knows at which position.
func (s *Store) replace(st *state) {
	s.adopt(st)
	s.out = s.commit.lost(st.last(s.commit.author), errUnknown, s.out[:0])
	report(s.out)
}

// remake makes the journal anew after somebody has deleted it under the running nodes. The node that makes it gives its
// own state to all as a snapshot: sessions and subscriptions go on, and of the messages those that are not in memory are
// lost. applying is held.
func (s *Store) remake() {
	ctx, cancel := context.WithTimeout(s.life, repairWait)
	defer cancel()
	c := s.wire.config(journalStream)
	c.FirstSeq = s.st.applied + jump
	_, err := s.wire.js.CreateStream(ctx, c)
	switch {
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		return // another node was first: its snapshot leads on
	case err != nil:
		if !errors.Is(err, store.ErrClosed) {
			s.log.Error("the journal was deleted and cannot be made anew", "error", err)
		}
		return
	}
	s.log.Error("the journal was deleted: it was made anew with the sessions that are known, messages that are not in memory are lost")
	s.mu.Lock()
	s.st.applied = c.FirstSeq - 1
	data := s.st.encode(nil)
	applied := s.st.applied
	s.mu.Unlock()
	s.acked.Store(0)
	if err := s.save(ctx, applied, data); err != nil {
		s.log.Error("snapshot for the new journal", "error", err)
	}
}
