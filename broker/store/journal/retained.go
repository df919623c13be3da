package journal

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"inflight/broker/store"
	"inflight/broker/topic"
)

// Transient delivers a QoS 0 message by plain NATS; one that is to be retained goes to the journal as well.
func (s *Store) Transient(m *store.Message) error {
	if s.closed() {
		return store.ErrClosed
	}
	subject := topic.Subject(m.Topic)
	if len(subject) > maxSubject {
		return fmt.Errorf("topic %.100q...: as a subject it takes %d bytes, limit %d", m.Topic, len(subject), maxSubject)
	}
	if m.Retain {
		s.bring(m, "", func(b []byte) []byte { return append(b, byte(kindRetain)) }, op{fn: func(_ pos, err error) {
			if err != nil && !errors.Is(err, store.ErrClosed) {
				s.log.Warn("retained message of QoS 0", "topic", m.Topic, "error", err)
			}
		}})
	}
	data := store.Encode(make([]byte, 0, 4+m.Size()), m)
	if err := s.wire.nc.Publish(transient+subject, data); err != nil {
		return ended(err)
	}
	return s.inTurn(m.Topic, data)
}

// RetainedEnd is the position of the last change of a retained message.
func (s *Store) RetainedEnd(ctx context.Context) (uint64, error) {
	if _, err := s.sync(ctx); err != nil {
		return 0, fmt.Errorf("end of the retained messages: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(s.st.changes), nil
}

// Retained reads the retained messages one after the other, in the order in which they were retained, so that no more
// than one of them is in memory.
func (s *Store) Retained(ctx context.Context, filter string, end uint64, each func(*store.Message) bool) error {
	if s.closed() {
		return store.ErrClosed
	}
	type found struct {
		topic  string
		change pos
	}
	var list []found
	s.mu.Lock()
	if !strings.ContainsAny(filter, "+#") {
		if r, ok := s.st.retained[filter]; ok {
			list = append(list, found{filter, r.change})
		}
	} else {
		for name, r := range s.st.retained {
			if uint64(r.change) <= end && topic.Match(filter, name) {
				list = append(list, found{name, r.change})
			}
		}
	}
	s.mu.Unlock()
	sort.Slice(list, func(i, j int) bool { return list[i].change < list[j].change })
	for _, f := range list {
		if uint64(f.change) > end {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		m, err := s.lookUp(ctx, func() *msg {
			if r, ok := s.st.retained[f.topic]; ok && r.change == f.change {
				return r.msg
			}
			return nil
		})
		switch {
		case errors.Is(err, store.ErrNotFound):
			continue // another one took its place
		case errors.Is(err, store.ErrCorrupt):
			s.log.Error("retained message is left out", "topic", f.topic, "error", err)
			continue
		case err != nil:
			return fmt.Errorf("retained messages of %.100q: %w", filter, err)
		}
		if !each(m) {
			return nil
		}
	}
	return nil
}
