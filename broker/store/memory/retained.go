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

// retain keeps or removes the retained message of a topic. The lock is held.
func (s *Store) retain(m *store.Message) error {
	switch {
	case !m.Retain:
	case len(m.Payload) == 0:
		delete(s.retained, m.Topic)
	case s.retained[m.Topic] == nil && len(s.retained) >= MaxRetained:
		return fmt.Errorf("%d topics have a retained message, no room for another", MaxRetained)
	default:
		s.retained[m.Topic] = m
	}
	return nil
}

// Retained lists what matches. The list is taken at once and handed out without the lock, because each may block.
func (s *Store) Retained(ctx context.Context, filter string, each func(*store.Message) bool) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	var found []*store.Message
	if !strings.ContainsAny(filter, "+#") {
		if m := s.retained[filter]; m != nil {
			found = append(found, m)
		}
	} else {
		for name, m := range s.retained {
			if topic.Match(filter, name) {
				found = append(found, m)
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
