package memory

import (
	"context"
	"log/slog"
	"sort"
	"sync"

	"inflight/broker/store"
	"inflight/broker/topic"
)

// MaxQueued bounds the messages that one subscription queues; further ones are dropped for it and logged.
const MaxQueued = 4_000_000

// Store implements [store.Store] in memory.
type Store struct {
	log *slog.Logger

	mu       sync.Mutex
	closed   bool
	next     store.Ref
	held     map[string]map[store.Ref]heldMessage
	sessions map[string]store.Session
	revision uint64              // of the last change of a session
	outbound map[string][]byte   // by Client Identifier
	retained map[string]retained // by topic
	changes  uint64              // of retained
	tree     topic.Tree[input]
	queues   map[string]*queue // by client and filter
	groups   map[string]*group // by the filter of their subscriptions
	limits   Limits
	budgets  map[string]*budget // by Client Identifier: of the sessions that have queues
}

type heldMessage struct {
	id  uint16
	msg *store.Message
}

// Open returns an empty store.
func Open(log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Store{
		log: log, held: make(map[string]map[store.Ref]heldMessage), sessions: make(map[string]store.Session),
		outbound: make(map[string][]byte), retained: make(map[string]retained),
		queues: make(map[string]*queue), groups: make(map[string]*group), budgets: make(map[string]*budget),
	}
}

// input is what takes the messages of one subscription, or of several that share them.
type input interface {
	accept(m *store.Message)
}

func key(client, filter string) string { return client + "\x00" + filter }

// deliver queues m for every matching subscription. The lock is held.
func (s *Store) deliver(m *store.Message) {
	s.tree.Match(m.Topic, func(_ string, in input) { in.accept(m) })
}

// Publish delivers at once.
func (s *Store) Publish(m *store.Message, done store.Done) {
	done(0, s.publish(m))
}

// Transient delivers to open feeds only.
func (s *Store) Transient(m *store.Message) error { return s.publish(m) }

func (s *Store) publish(m *store.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	if err := s.retain(m); err != nil {
		return err
	}
	s.deliver(m)
	return nil
}

// Hold keeps the message under a new Ref.
func (s *Store) Hold(client string, id uint16, m *store.Message, done store.Done) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		done(0, store.ErrClosed)
		return
	}
	s.next++
	ref := s.next
	if s.held[client] == nil {
		s.held[client] = make(map[store.Ref]heldMessage)
	}
	s.held[client][ref] = heldMessage{id: id, msg: m}
	s.mu.Unlock()
	done(ref, nil)
}

// Release delivers a held message once: a Ref that is not held any more delivers nothing.
func (s *Store) Release(client string, _ uint16, ref store.Ref, _ *store.Message, done store.Done) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		done(0, store.ErrClosed)
		return
	}
	var err error
	if h, ok := s.held[client][ref]; ok {
		if err = s.retain(h.msg); err == nil {
			s.drop(client, ref)
			s.deliver(h.msg)
		}
	}
	s.mu.Unlock()
	done(ref, err)
}

// Fetch reads a held message back.
func (s *Store) Fetch(ref store.Ref, done func(*store.Message, error)) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		done(nil, store.ErrClosed)
		return
	}
	var found *store.Message
	for _, refs := range s.held {
		if h, ok := refs[ref]; ok {
			found = h.msg
		}
	}
	s.mu.Unlock()
	if found == nil {
		done(nil, store.ErrNotFound)
		return
	}
	done(found, nil)
}

// drop forgets a held message, and the client with its last one. The lock is held.
func (s *Store) drop(client string, ref store.Ref) {
	delete(s.held[client], ref)
	if len(s.held[client]) == 0 {
		delete(s.held, client)
	}
}

// Discard forgets a held message.
func (s *Store) Discard(client string, ref store.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(client, ref)
}

// Held lists what is held for a client, oldest first. A newer message under the same identifier replaces an older one,
// which is dropped.
func (s *Store) Held(_ context.Context, client string) ([]store.Held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	newest := make(map[uint16]store.Ref)
	for ref, h := range s.held[client] {
		newest[h.id] = max(newest[h.id], ref)
	}
	var held []store.Held
	for ref, h := range s.held[client] {
		if newest[h.id] != ref {
			s.drop(client, ref)
			continue
		}
		held = append(held, store.Held{ID: h.id, Ref: ref})
	}
	sort.Slice(held, func(i, j int) bool { return held[i].Ref < held[j].Ref })
	return held, nil
}

// Forget drops what is held for a client.
func (s *Store) Forget(_ context.Context, client string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	delete(s.held, client)
	return nil
}

// Subscribe starts or continues a feed.
func (s *Store) Subscribe(_ context.Context, client string, sub store.Subscription, durable bool, deliver func(store.Delivery)) (store.Feed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	q := s.queues[key(client, sub.Filter)]
	if q == nil {
		q = s.queue(client, sub.Filter)
		s.queues[key(client, sub.Filter)] = q
	}
	q.mu.Lock()
	q.sub = sub
	q.mu.Unlock()
	f := q.open(deliver, func() {
		if !durable || sub.QoS == 0 {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.remove(client, sub.Filter)
		}
	})
	if q.group != nil {
		q.group.joined(q)
	}
	return f, nil
}

// queue makes the queue of a new subscription. The lock is held.
func (s *Store) queue(client, filter string) *queue {
	share, inner, shared := topic.Shared(filter)
	if !shared {
		q := newQueue(client, s.budget(client), nil)
		q.log = s.log
		s.tree.Add(filter, client, q)
		return q
	}
	g := s.groups[filter]
	if g == nil {
		g = &group{
			key: "\x00" + share, inner: inner, filter: filter, log: s.log, // no Client Identifier has U+0000
			budget: &budget{limits: s.limits}, all: make(map[*queue]bool),
		}
		s.groups[filter] = g
		s.tree.Add(inner, g.key, g)
	}
	return newQueue(client, g.budget, g)
}

// remove forgets a queue. The lock is held.
func (s *Store) remove(client, filter string) {
	q := s.queues[key(client, filter)]
	if q == nil {
		return
	}
	delete(s.queues, key(client, filter))
	if g := q.group; g != nil {
		if g.gone(q) {
			delete(s.groups, filter)
			s.tree.Remove(g.inner, g.key)
		}
		return
	}
	q.discard()
	if q.budget.queues--; q.budget.queues == 0 {
		delete(s.budgets, client)
	}
	s.tree.Remove(filter, client)
}

// Unsubscribe forgets a subscription and its queue.
func (s *Store) Unsubscribe(_ context.Context, client, filter string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	s.remove(client, filter)
	return nil
}

// Durability is memory.
func (s *Store) Durability() string { return "memory" }

// Close ends every feed and refuses further work.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	queues := s.queues
	s.queues = map[string]*queue{}
	s.mu.Unlock()
	for _, q := range queues {
		q.mu.Lock()
		f := q.feed
		q.mu.Unlock()
		if f != nil {
			f.Close()
		}
	}
}
