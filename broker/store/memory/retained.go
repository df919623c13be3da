package memory

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"inflight/broker/store"
	"inflight/broker/topic"
)

// MaxRetained bounds the topics with a retained message. A message for a further one is refused, and so is not
// acknowledged.
const MaxRetained = 1_000_000

// retained is the retained message of a topic.
type retained struct {
	msg    *store.Message
	number uint64 // of the change that put it there
}

// retain keeps or removes the retained message of a topic. The lock is held.
func (s *Store) retain(m *store.Message) error {
	if !m.Retain {
		return nil
	}
	_, known := s.retained[m.Topic]
	switch {
	case len(m.Payload) == 0:
		delete(s.retained, m.Topic)
	case !known && len(s.retained) >= MaxRetained:
		return fmt.Errorf("%d topics have a retained message, no room for another", MaxRetained)
	default:
		s.changes++
		s.retained[m.Topic] = retained{m, s.changes}
	}
	return nil
}

// RetainedEnd is the number of the last change.
func (s *Store) RetainedEnd(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, store.ErrClosed
	}
	return s.changes, nil
}

// Retained lists what matches. The list is taken at once and handed out without the lock, because each may block.
func (s *Store) Retained(ctx context.Context, filter string, end uint64, each func(*store.Message) bool) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	var found []*store.Message
	if !strings.ContainsAny(filter, "+#") {
		if r, ok := s.retained[filter]; ok && r.number <= end {
			found = append(found, r.msg)
		}
	} else {
		for name, r := range s.retained {
			if r.number <= end && topic.Match(filter, name) {
				found = append(found, r.msg)
			}
		}
	}
	s.mu.Unlock()
	for _, m := range found {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !each(m) {
			return nil
		}
	}
	return nil
}

// PutOutbound keeps a record.
func (s *Store) PutOutbound(client string, data []byte, done func(error)) {
	s.mu.Lock()
	closed := s.closed
	switch {
	case closed:
	case data == nil:
		delete(s.outbound, client)
	default:
		s.outbound[client] = data
	}
	s.mu.Unlock()
	if closed {
		done(store.ErrClosed)
		return
	}
	done(nil)
}

// Outbound reads it.
func (s *Store) Outbound(_ context.Context, client string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	return bytes.Clone(s.outbound[client]), nil
}

// Again reads an unsettled message of a subscription's queue.
func (s *Store) Again(client, filter string, seq uint64, done func(*store.Message, error)) {
	s.mu.Lock()
	q, closed := s.queues[key(client, filter)], s.closed
	s.mu.Unlock()
	var m *store.Message
	if q != nil {
		m = q.at(seq)
	}
	switch {
	case closed:
		done(nil, store.ErrClosed)
	case m == nil:
		done(nil, store.ErrNotFound)
	default:
		done(m, nil)
	}
}
