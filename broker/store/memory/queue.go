package memory

import (
	"sync"

	"inflight/broker/store"
)

// queue is what one subscription has not settled, in order. Entries before next were handed to the feed; a feed that is
// opened again starts with the oldest unsettled one.
type queue struct {
	client string
	budget *budget // shared by the queues of the session

	mu      sync.Mutex
	wake    *sync.Cond
	sub     store.Subscription
	entries []*entry
	base    int // number of the first entry
	next    int // number of the next entry to hand out
	feed    *feed
	gone    bool // removed: the budget has everything back
}

type entry struct {
	msg     *store.Message // nil once it is settled
	settled bool
}

func newQueue(client string, b *budget) *queue {
	q := &queue{client: client, budget: b}
	q.wake = sync.NewCond(&q.mu)
	return q
}

// push queues m, or hands a QoS 0 message over if somebody is there. It reports whether there was room.
func (q *queue) push(m *store.Message) bool {
	q.mu.Lock()
	if m.QoS == 0 || q.sub.QoS == 0 {
		f := q.feed
		q.mu.Unlock()
		if f != nil {
			f.transient(store.Delivery{Message: m, Settle: func() {}})
		}
		return true
	}
	defer q.mu.Unlock()
	if len(q.entries) >= MaxQueued || !q.budget.take(m) {
		return false
	}
	q.entries = append(q.entries, &entry{msg: m})
	q.wake.Signal()
	return true
}

// at returns the unsettled message with number seq, which is its entry's plus one; nil when there is none.
func (q *queue) at(seq uint64) *store.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := int(seq) - 1 - q.base
	if i < 0 || i >= len(q.entries) {
		return nil
	}
	return q.entries[i].msg
}

// settle marks an entry and drops the settled prefix. The message goes at once: an unsettled one before it must not keep
// all that follow in memory.
func (q *queue) settle(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !e.settled && !q.gone {
		q.budget.give(e.msg)
	}
	e.settled, e.msg = true, nil
	n := 0
	for n < len(q.entries) && q.entries[n].settled {
		q.entries[n] = nil
		n++
	}
	q.entries = q.entries[n:]
	q.base += n
	q.next = max(q.next, q.base)
}

// discard gives the budget back what the queue still holds; the queue is not used any more.
func (q *queue) discard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone {
		return
	}
	q.gone = true
	for _, e := range q.entries {
		if !e.settled {
			q.budget.give(e.msg)
		}
	}
}

// transientQueue bounds the QoS 0 messages that wait for a feed; further ones are dropped.
const transientQueue = 4096

// feed hands the entries of a queue to one session.
type feed struct {
	q      *queue
	closed bool
	done   chan struct{}
	quick  chan store.Delivery
	remove func()
}

func (q *queue) open(deliver func(store.Delivery), remove func()) *feed {
	f := &feed{q: q, done: make(chan struct{}), quick: make(chan store.Delivery, transientQueue), remove: remove}
	q.mu.Lock()
	q.feed = f
	q.next = q.base
	q.mu.Unlock()
	go f.run(deliver)
	go f.runTransient(deliver)
	return f
}

func (f *feed) transient(d store.Delivery) {
	select {
	case f.quick <- d:
	default:
		f.q.budget.drop(0)
	}
}

func (f *feed) runTransient(deliver func(store.Delivery)) {
	for {
		select {
		case <-f.done:
			return
		case d := <-f.quick:
			deliver(d)
		}
	}
}

func (f *feed) run(deliver func(store.Delivery)) {
	q := f.q
	for {
		q.mu.Lock()
		for !f.closed && q.next-q.base >= len(q.entries) {
			q.wake.Wait()
		}
		if f.closed {
			q.mu.Unlock()
			return
		}
		e := q.entries[q.next-q.base]
		q.next++
		d := store.Delivery{Message: e.msg, Seq: uint64(q.next), Settle: func() { q.settle(e) }}
		if e.settled {
			q.mu.Unlock()
			continue
		}
		d.QoS = min(e.msg.QoS, q.sub.QoS)
		q.mu.Unlock()
		deliver(d)
	}
}

// Close stops the feed; a running deliver may still return.
func (f *feed) Close() {
	f.q.mu.Lock()
	already := f.closed
	f.closed = true
	if f.q.feed == f {
		f.q.feed = nil
	}
	f.q.wake.Broadcast()
	f.q.mu.Unlock()
	if !already {
		close(f.done)
		f.remove()
	}
}
