package memory

import (
	"log/slog"
	"slices"
	"sync"

	"inflight/broker/store"
)

// groupCredit is how many messages of a group wait for one member at most. A member that has as many is passed over until
// its session takes one: what waits for a slow member another one could have had.
const groupCredit = 256

// group is what the subscriptions $share/{ShareName}/{filter} of a ShareName and a filter have in common. It hands each
// message to one member, in turn.
//
// Invariant: an entry is in the pool or in the queue of one member, never in two places. What a member's session has taken
// stays that member's [MQTT-4.8.2-4]; the rest goes back to the pool when the member is not connected any more.
//
// The lock comes after Store.mu and before those of the queues.
type group struct {
	key, inner string // in the tree
	filter     string // of the subscriptions
	log        *slog.Logger
	budget     *budget // of everything that waits, taken or not

	mu    sync.Mutex
	all   map[*queue]bool // members, connected or kept
	ring  []*queue        // the connected ones, in the order in which they came
	next  int             // of ring, whose turn it is
	quick int             // the same for QoS 0 publications
	pool  []*entry        // what no member has room for, oldest first
}

// accept takes a message for one of the members.
func (g *group) accept(m *store.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.QoS == 0 {
		if n := len(g.ring); n > 0 {
			q := g.ring[g.quick%n]
			g.quick = (g.quick + 1) % n
			q.push(m)
		}
		return
	}
	if len(g.pool) >= MaxQueued || !g.budget.take(m) {
		if g.budget.drop(m.QoS) {
			g.log.Warn("queue of a shared subscription is full, messages are dropped", "filter", g.filter)
		}
		return
	}
	g.pool = append(g.pool, &entry{msg: m})
	g.dispatch()
}

// dispatch hands out what the connected members have room for. The lock is held.
func (g *group) dispatch() {
	for len(g.pool) > 0 {
		q := g.turn()
		if q == nil {
			return
		}
		e := g.pool[0]
		g.pool[0] = nil
		g.pool = g.pool[1:]
		if !q.assign(e) { // a QoS 0 subscription: nothing of it is kept
			m := e.msg
			g.budget.give(m)
			q.push(m)
		}
	}
}

// turn returns the next connected member that has room, or nil. The lock is held.
func (g *group) turn() *queue {
	n := len(g.ring)
	for i := range n {
		at := (g.next + i) % n
		if g.ring[at].room() {
			g.next = (at + 1) % n
			return g.ring[at]
		}
	}
	return nil
}

// joined makes a member connected.
func (g *group) joined(q *queue) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all[q] = true
	if !slices.Contains(g.ring, q) {
		g.ring = append(g.ring, q)
	}
	g.dispatch()
}

// left ends that: what the member's session has not taken is for the others.
func (g *group) left(q *queue) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.ring, q)
	if i < 0 {
		return
	}
	g.ring = slices.Delete(g.ring, i, i+1)
	if g.next > i {
		g.next--
	}
	g.pool = append(q.untaken(), g.pool...)
	g.dispatch()
}

// gone forgets a member and reports whether it was the last. A message of QoS 1 that it has not acknowledged is for
// another one, one of QoS 2 must not be [MQTT-4.8.2-5].
func (g *group) gone(q *queue) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, q)
	var again []*entry
	for _, m := range q.abandon() {
		if m.QoS == 1 {
			again = append(again, &entry{msg: m})
		} else {
			g.budget.give(m)
		}
	}
	g.pool = append(again, g.pool...)
	g.dispatch()
	return len(g.all) == 0
}

// taken makes room.
func (g *group) taken() {
	g.mu.Lock()
	if len(g.pool) > 0 {
		g.dispatch()
	}
	g.mu.Unlock()
}

// back takes an entry that a member's session took and did not send.
func (g *group) back(q *queue, f *feed, e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m, counted := q.withdraw(f, e)
	if m == nil || !counted && !g.budget.take(m) {
		return
	}
	g.pool = append([]*entry{{msg: m}}, g.pool...)
	g.dispatch()
}
