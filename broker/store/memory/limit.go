package memory

import (
	"sync"

	"inflight/broker/store"
)

// entryCost is about what a queued message costs a queue beside the message, in bytes. It counts, so that a limit bounds
// small messages as well.
const entryCost = 64

// Limits bounds what a store queues.
type Limits struct {
	Bytes   int            // of the messages that wait for one session, all its subscriptions together; 0: unbounded
	Dropped func(qos byte) // called for each message that is dropped for one subscription; it must not block; may be nil
}

// Limit sets the limits. It is called before the first subscription.
func (s *Store) Limit(l Limits) {
	s.mu.Lock()
	s.limits = l
	s.mu.Unlock()
}

// budget is what one session has queued. It counts what the session would hold alone: a message that waits for many
// sessions is kept once and counted for each of them, and for each of their subscriptions.
type budget struct {
	limits Limits
	queues int // under Store.mu

	mu   sync.Mutex
	used int
	full bool // a message was dropped, and none was taken since
}

// budget returns the budget for one more queue of a client. The lock is held.
func (s *Store) budget(client string) *budget {
	b := s.budgets[client]
	if b == nil {
		b = &budget{limits: s.limits}
		s.budgets[client] = b
	}
	b.queues++
	return b
}

// take reports whether m still fits, and counts it then.
func (b *budget) take(m *store.Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := m.Size() + entryCost
	if b.limits.Bytes > 0 && b.used+n > b.limits.Bytes {
		return false
	}
	b.used += n
	b.full = false
	return true
}

func (b *budget) give(m *store.Message) {
	b.mu.Lock()
	b.used -= m.Size() + entryCost
	b.mu.Unlock()
}

// drop tells about a dropped message and reports whether it is the first one since a message found room: who is told
// once need not be told a million times.
func (b *budget) drop(qos byte) (first bool) {
	if b.limits.Dropped != nil {
		b.limits.Dropped(qos)
	}
	if qos == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	first, b.full = !b.full, true
	return first
}
