package memory

import (
	"log/slog"
	"sync"

	"inflight/broker/store"
)

// queue is what one subscription has not settled, in order. Entries before next were handed to the feed; a feed that is
// opened again starts with the oldest unsettled one.
type queue struct {
	client string
	log    *slog.Logger
	budget *budget // shared by the queues of the session, or of the group
	group  *group  // of a shared subscription, else nil

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
	taken   bool // it was handed to a feed
}

func newQueue(client string, b *budget, g *group) *queue {
	q := &queue{client: client, budget: b, group: g}
	q.wake = sync.NewCond(&q.mu)
	return q
}

// accept queues m, or drops it where there is no room.
func (q *queue) accept(m *store.Message) {
	if !q.push(m) && q.budget.drop(m.QoS) {
		q.log.Warn("queue is full, messages are dropped", "client", q.client, "filter", q.sub.Filter,
			"messages", MaxQueued, "bytes", q.budget.limits.Bytes)
	}
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

// assign queues an entry of the group, unless nothing is kept here.
func (q *queue) assign(e *entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sub.QoS == 0 {
		return false
	}
	q.entries = append(q.entries, e)
	q.wake.Signal()
	return true
}

// room reports whether the group may hand out to this member.
func (q *queue) room() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sub.QoS == 0 {
		return q.feed != nil && len(q.feed.quick) < cap(q.feed.quick)
	}
	return len(q.entries)-(q.next-q.base) < groupCredit
}

// untaken removes the entries that no feed has taken, and returns them. They are the last ones.
func (q *queue) untaken() []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.entries)
	for n > 0 && !q.entries[n-1].taken {
		n--
	}
	rest := append([]*entry(nil), q.entries[n:]...)
	q.entries = q.entries[:n]
	return rest
}

// abandon removes a queue of a group and returns the messages that were not settled.
func (q *queue) abandon() (unsettled []*store.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone = true
	for _, e := range q.entries {
		if !e.settled {
			unsettled = append(unsettled, e.msg)
			e.settled = e.msg.QoS == 1 // the group has it again
		}
	}
	return unsettled
}

// withdraw takes an entry back that feed f took and did not send, unless another feed has it by now. One of a feed that is
// still open is only marked: what is not taken goes back with its end. counted says that the budget still knows it.
func (q *queue) withdraw(f *feed, e *entry) (m *store.Message, counted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch last := len(q.entries) - 1; {
	case e.settled:
		return nil, false
	case q.gone:
	case q.feed == f:
		e.taken = false
		return nil, false
	case q.feed != nil || last < 0 || q.entries[last] != e:
		return nil, false
	default:
		q.entries = q.entries[:last]
		q.next = min(q.next, q.base+last)
	}
	m, e.settled, e.msg = e.msg, true, nil
	return m, !q.gone
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
		e.taken = true
		d.QoS = min(e.msg.QoS, q.sub.QoS)
		q.mu.Unlock()
		if q.group != nil {
			d.Back = func() { q.group.back(q, f, e) }
			q.group.taken()
		}
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
	last := f.q.feed == nil
	f.q.mu.Unlock()
	if !already {
		close(f.done)
		if last && f.q.group != nil {
			f.q.group.left(f.q)
		}
		f.remove()
	}
}
