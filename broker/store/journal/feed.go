package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/store"
	"inflight/broker/topic"
)

const (
	// takeEntries and takeBytes bound what a feed takes out of its queue at a time.
	takeEntries = 64
	takeBytes   = 256 << 10
	// transientQueue bounds the QoS 0 messages of one subscription that the session has not taken; further ones are dropped.
	transientQueue = 4096
	// maxSubject is how long a topic of QoS 0 may be as a subject, in bytes: the server ends a connection that sends more
	// than its limit for one line.
	maxSubject = 60_000
	// settleSoon deliveries of one feed that are settled do not wait for the next batch, or for the ticker.
	settleSoon = 512
	// goneWait is how long a feed waits before it asks again for a message that could not be read.
	goneWait = 100 * time.Millisecond
)

var feedKey atomic.Uint64 // makes the keys of feeds in their tree; nothing depends on its value

// feed hands the queue of one subscription to a session. A durable one reads the subscription's queue in the state; one
// that keeps nothing has a queue of its own.
type feed struct {
	s       *Store
	client  string
	filter  string
	key     string // in Store.feeds
	qos     byte
	deliver func(store.Delivery)
	plain   []*nats.Subscription // QoS 0 publications
	tell    chan struct{}
	stopped chan struct{}
	over    chan struct{} // closed when run has returned
	once    sync.Once
	share   *share // of a shared subscription, else nil

	// Under Store.mu.
	sub    *subscription // nil: it keeps nothing, or another feed has taken over
	queue  queue
	cursor pos // of the last entry that was taken
	cached int // bytes that the cache has for it
	waking bool
	full   bool // a message was dropped

	settleMu sync.Mutex
	number   pos // of the subscription; of one that is not shared it does not change
	settled  settled
	settles  bool // something was settled since the feed was opened
	isDirty  bool // in Store.dirty
}

// Subscribe starts the feed of one subscription.
func (s *Store) Subscribe(ctx context.Context, client string, sub store.Subscription, durable bool, deliver func(store.Delivery)) (store.Feed, error) {
	f := &feed{
		s: s, client: client, filter: sub.Filter, qos: sub.QoS, deliver: deliver, key: strconv.FormatUint(feedKey.Add(1), 36),
		tell: make(chan struct{}, 1), stopped: make(chan struct{}), over: make(chan struct{}),
	}
	fail := func(err error) (store.Feed, error) {
		f.unplug()
		return nil, fmt.Errorf("subscribe to %.100q: %w", sub.Filter, ended(err))
	}
	if s.closed() {
		return fail(store.ErrClosed)
	}
	if _, _, shared := topic.Shared(sub.Filter); shared {
		if err := f.join(ctx, sub, durable); err != nil {
			return fail(err)
		}
		return f, nil
	}
	if err := f.listen(ctx); err != nil {
		return fail(err)
	}
	if sub.QoS == 0 {
		durable = false // what a QoS 0 subscription misses while it is away is not kept
	}
	attach := f.attach
	r := &record{kind: kindSync}
	if durable {
		opts, err := json.Marshal(sub)
		if err != nil {
			return fail(err)
		}
		attach = f.attachDurable
		r = s.of(client, kindSubscribe)
		r.data = opts
	}
	// The record of a feed that keeps nothing says what is before it: that it must not get.
	p, err := s.do(ctx, r)
	if err == nil {
		err = attach(p)
	}
	if err != nil {
		return fail(err)
	}
	return f, nil
}

// listen takes QoS 0 publications.
func (f *feed) listen(ctx context.Context) error {
	for _, subject := range topic.SubjectFilter(f.filter) {
		if len(subject) > maxSubject {
			return fmt.Errorf("as a subject it takes %d bytes, limit %d", len(subject), maxSubject)
		}
		sub, err := f.s.wire.nc.Subscribe(transient+subject, f.transient)
		if err != nil {
			return err
		}
		f.plain = append(f.plain, sub)
		if err := sub.SetPendingLimits(transientQueue, -1); err != nil {
			return err
		}
	}
	return f.s.wire.flush(ctx)
}

// transient takes a QoS 0 publication.
func (f *feed) transient(m *nats.Msg) {
	if msg, err := store.Decode(m.Data); err == nil {
		f.deliver(store.Delivery{Message: msg, Settle: func() {}})
	}
}

// attach puts a feed that keeps nothing where messages find it.
func (f *feed) attach(pos) error {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return store.ErrClosed
	}
	s.feeds.Add(f.filter, f.key, f)
	s.open[f] = struct{}{}
	go f.run()
	return nil
}

// attachDurable connects a feed with its subscription, unless another one was opened since.
func (f *feed) attachDurable(p pos) error {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return store.ErrClosed
	}
	sess := s.st.sessions[f.client]
	if sess == nil || sess.subs[f.filter] == nil || sess.subs[f.filter].opened != p {
		return errFenced
	}
	sub := sess.subs[f.filter]
	f.sub, f.number = sub, sub.number
	sub.feed = f
	s.open[f] = struct{}{}
	go f.run()
	return nil
}

// rebind connects the feed with another state. Store.mu is held.
func (f *feed) rebind(old, st *state) {
	if f.share != nil {
		f.detach(old)
		f.s.seatAgain(f)
		return
	}
	if f.sub == nil {
		return
	}
	f.detach(old)
	sess := st.sessions[f.client]
	if sess == nil || sess.subs[f.filter] == nil || sess.subs[f.filter].number != f.number {
		f.s.log.Error("a subscription is lost with the end of the journal", "client", f.client, "filter", f.filter)
		return
	}
	f.sub = sess.subs[f.filter]
	f.sub.feed = f
	f.cursor = min(f.cursor, at(st.applied+1, 0)-1) // what the state does not know was never delivered
	f.wake()
}

// detach takes the feed off its subscription: it delivers nothing any more. Store.mu is held.
func (f *feed) detach(st *state) {
	if f.sub != nil {
		for e := range f.sub.queue.all() {
			st.uncache(f.sub, e)
		}
		f.sub.feed = nil
		f.sub = nil
	}
}

func (f *feed) wake() {
	select {
	case f.tell <- struct{}{}:
	default:
	}
}

// item is an entry that was taken.
type item struct {
	pos  pos
	m    *msg
	body *store.Message // nil: it is to be read
}

// take takes entries, in order.
func (f *feed) take(items []item) []item {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	f.waking = false
	q := &f.queue
	if f.sub != nil {
		q = &f.sub.queue
	}
	room := takeBytes
	for e := range q.behind(f.cursor) {
		m := e.msg()
		f.cursor = e.pos()
		items = append(items, item{pos: f.cursor, m: m, body: m.body})
		room -= int(m.size)
		if e.cached() {
			e.setCached(false)
			s.st.cache.drop(m)
			f.cached -= int(m.size)
		}
		if f.sub == nil {
			q.settle(e)
		}
		if len(items) == takeEntries || room <= 0 {
			break
		}
	}
	if f.sub == nil {
		q.trim()
	}
	return items
}

// run delivers until the feed is closed.
func (f *feed) run() {
	defer close(f.over)
	read := f.s.newReader()
	var items []item
	f.wake() // what was queued before
	for {
		select {
		case <-f.stopped:
			return
		case <-f.tell:
		}
		for {
			if items = f.take(items[:0]); len(items) == 0 {
				break
			}
			if f.share != nil && !f.own(items) {
				continue
			}
			for i := range items {
				if !f.handOver(&items[i], read) {
					f.returns(items[i:])
					return
				}
				items[i] = item{}
			}
		}
	}
}

// handOver delivers one entry; false when the feed was closed.
func (f *feed) handOver(it *item, read *reader) bool {
	body := it.body
	for body == nil {
		var err error
		body, err = f.read(it, read)
		if err == nil {
			break
		}
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) {
			f.s.cfg.Dropped(it.m.qos)
			f.s.log.Error("a queued message is gone from the journal and dropped", "client", f.client, "filter", f.filter, "error", err)
			f.settle(it.pos)
			return !f.isStopped()
		}
		select {
		case <-f.stopped:
			return false
		case <-time.After(goneWait):
		}
	}
	if f.isStopped() {
		return false
	}
	d := store.Delivery{Message: body, QoS: min(body.QoS, f.qos), Settle: func() {}}
	p := it.pos
	switch {
	case f.share != nil && f.qos == 0:
		d.Back = func() {} // it was given to this member for good
	case f.share != nil:
		d.Seq, d.Settle = uint64(p), func() { f.settle(p) }
		d.Back = func() { f.returns([]item{{pos: p}}) }
	case f.number != 0:
		d.Seq, d.Settle = uint64(p), func() { f.settle(p) }
	}
	f.deliver(d)
	return true
}

func (f *feed) isStopped() bool {
	select {
	case <-f.stopped:
		return true
	default:
		return false
	}
}

// read reads the body of an entry from the journal.
func (f *feed) read(it *item, read *reader) (*store.Message, error) {
	for last := pos(0); ; {
		f.s.mu.Lock()
		p := it.m.pos // it may have been carried
		f.s.mu.Unlock()
		if p == 0 || p == last {
			return nil, store.ErrNotFound
		}
		m, err := read.message(f.s.life, p)
		if !errors.Is(err, store.ErrNotFound) {
			return m, err
		}
		last = p
	}
}

// settle notes that a delivery need not come again. It goes to the journal with the next batch, or with the next
// tick.
func (f *feed) settle(p pos) {
	if f.share == nil && f.number == 0 {
		return
	}
	f.settleMu.Lock()
	f.settled.add(p)
	f.settles = true
	many := f.settled.n == settleSoon
	first := !f.isDirty
	f.isDirty = true
	f.settleMu.Unlock()
	if first {
		f.s.settleLater(f)
	}
	if many {
		f.s.commit.settleNow()
	}
}

// settleLater sees to it that what feeds have settled is sent.
func (s *Store) settleLater(f *feed) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	s.dirty = append(s.dirty, f)
}

// drainSettled hands over what was settled, until add says that there is no more room.
func (s *Store) drainSettled(add func(w who, sub pos, deliveries []byte) (room bool)) {
	s.dirtyMu.Lock()
	dirty := s.dirty
	s.dirty = nil
	s.dirtyMu.Unlock()
	for i, f := range dirty {
		f.settleMu.Lock()
		b, number := f.settled.b, f.number
		f.settled, f.isDirty = settled{}, false
		f.settleMu.Unlock()
		if !add(s.who(f.client), number, b) {
			s.dirtyMu.Lock()
			s.dirty = append(dirty[i+1:len(dirty):len(dirty)], s.dirty...)
			s.dirtyMu.Unlock()
			return
		}
	}
}

// Close stops the feed; what was settled by then is in the journal when it returns. deliver may still be running.
func (f *feed) Close() {
	f.stop()
	if f.share != nil {
		f.leave()
	}
	f.settleMu.Lock()
	settles := f.settles || f.share != nil
	f.settles = false
	f.settleMu.Unlock()
	if settles {
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		_, _ = f.s.sync(ctx)
	}
}

func (f *feed) stop() {
	f.once.Do(func() {
		close(f.stopped)
		f.unplug()
		s := f.s
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, f)
		f.detach(s.st)
		if f.share == nil && f.number == 0 {
			s.feeds.Remove(f.filter, f.key)
			for e := range f.queue.all() {
				if e.cached() {
					s.st.cache.drop(e.msg())
				}
			}
			f.queue = queue{}
		}
	})
}

func (f *feed) unplug() {
	for _, sub := range f.plain {
		_ = sub.Unsubscribe()
	}
}

// Unsubscribe forgets a durable subscription and its queue.
func (s *Store) Unsubscribe(ctx context.Context, client, filter string) error {
	r := s.of(client, kindUnsubscribe)
	r.data = []byte(filter)
	if _, err := s.do(ctx, r); err != nil {
		return fmt.Errorf("unsubscribe from %.100q: %w", filter, err)
	}
	return nil
}
