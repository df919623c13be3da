package staged

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"inflight/broker/store"
	"inflight/broker/topic"
)

const (
	// ackPending bounds the messages of one subscription that JetStream has sent and nobody has settled: what a feed holds
	// in memory. It is above the session's window, which decides.
	ackPending = 2048
	// ackWait is after how long JetStream sends an unsettled message again: only one that was lost between two nodes is
	// news, the others are recognised (see feed.fresh).
	ackWait = 30 * time.Second
	// remembered is how many settled messages a feed recognises when their settling was lost and they come again.
	remembered = 4 * ackPending
	// orphanAfter removes the consumer of a session that was not durable and whose node died.
	orphanAfter = time.Minute
	// askAgain is how long one request about a consumer may take.
	askAgain = 2 * time.Second
	// droppableQueue and droppableBytes bound the messages of one subscription that are delivered at QoS 0 and that the
	// session has not taken; further ones are dropped.
	droppableQueue = 4096
	droppableBytes = 32 << 20
)

// feedRoot is where JetStream sends the deliveries of a consumer.
const feedRoot = "inf.d."

// feed is one subscription: a push consumer of the delivery stream, and a plain subscription for QoS 0 publications. A
// pull consumer would lose time with its requests: the first one can find nobody there yet.
type feed struct {
	store   *Store
	subs    []*nats.Subscription
	deliver func(store.Delivery)
	qos     byte
	remove  func()
	member  *groupMember // of a shared subscription, else nil

	mu      sync.Mutex
	seen    map[uint64]bool // by stream sequence: false until it is settled
	settled []uint64        // the settled ones in seen, oldest first
	last    string          // where the last settled one was acknowledged
	next    uint64          // number that the consumer gives its next delivery; 0: none came yet
	gap     bool            // one was missed: it comes again, later
}

// Subscribe starts the feed of one subscription.
func (s *Store) Subscribe(ctx context.Context, client string, sub store.Subscription, durable bool, deliver func(store.Delivery)) (store.Feed, error) {
	if _, _, shared := topic.Shared(sub.Filter); shared {
		return s.share(ctx, client, sub, durable, deliver)
	}
	if sub.QoS == 0 {
		durable = false // what a QoS 0 subscription misses while it is away is not kept
	}
	cfg := jetstream.ConsumerConfig{
		Durable:       consumerName(client, sub.Filter),
		DeliverPolicy: jetstream.DeliverNewPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxAckPending: ackPending,
		MaxDeliver:    -1,
	}
	if sub.QoS == 0 {
		cfg.AckPolicy, cfg.MaxAckPending, cfg.AckWait = jetstream.AckNonePolicy, 0, 0
	}
	f := &feed{store: s, deliver: deliver, qos: sub.QoS, seen: make(map[uint64]bool)}
	fail := func(err error) (store.Feed, error) {
		f.Close()
		return nil, fmt.Errorf("subscribe to %.100q: %w", sub.Filter, ended(err))
	}
	for _, subject := range topic.SubjectFilter(sub.Filter) {
		if len(subject) > s.maxSubject {
			return fail(fmt.Errorf("as a subject it takes %d bytes, limit %d", len(subject), s.maxSubject))
		}
		cfg.FilterSubjects = append(cfg.FilterSubjects, anyOrigin+subject)
		if err := f.listen(transient+subject, true, f.transient); err != nil {
			return fail(err)
		}
	}
	name, err := s.begin(ctx, f, cfg, durable)
	if err != nil {
		return fail(err)
	}
	if !durable {
		f.remove = func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
			defer cancel()
			if err := s.drop(ctx, name); err != nil {
				s.log.Warn("remove subscription", "filter", sub.Filter, "error", err)
			}
		}
	}
	return f, nil
}

// begin lets a consumer send to a feed, and returns the consumer's name: that of cfg, with something after it for one that
// is not durable.
func (s *Store) begin(ctx context.Context, f *feed, cfg jetstream.ConsumerConfig, durable bool) (name string, err error) {
	name = cfg.Durable
	unique := nuid.Next()
	cfg.DeliverSubject = feedRoot + name + "." + unique
	if !durable {
		name += "_" + unique
		cfg.Name, cfg.Durable, cfg.InactiveThreshold = name, "", orphanAfter
	}
	// Interest first, then the consumer: it sends to nobody otherwise.
	if err := f.listen(cfg.DeliverSubject, f.qos == 0, f.stored); err != nil {
		return "", err
	}
	if err := s.nc.FlushWithContext(ctx); err != nil {
		return "", err
	}
	if durable {
		err = s.consumer(ctx, f, cfg)
	} else {
		err = s.create(ctx, cfg)
	}
	if err == nil {
		err = s.declare(ctx)
	}
	return name, err
}

// consumer creates the consumer of a subscription, or turns one that exists to the feed's own subject. JetStream then
// sends again exactly what was sent and not settled, in order, and what is new after it. The subject must be another one
// each time: with interest in the old one the consumer would go on with what is new at once.
func (s *Store) consumer(ctx context.Context, f *feed, cfg jetstream.ConsumerConfig) error {
	for asked := false; ; {
		var old jetstream.PushConsumer
		err := persist(ctx, func(ctx context.Context) (err error) {
			old, err = s.js.PushConsumer(ctx, msgsStream, cfg.Durable)
			return err
		})
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return s.create(ctx, cfg)
		}
		if err != nil {
			return err
		}
		next := old.CachedInfo().Config
		if next.DeliverSubject == cfg.DeliverSubject {
			return nil
		}
		if asked {
			// The update was taken and the consumer's leader has not followed: it still saw interest in the old subject.
			// A further update must be another one.
			if err := f.move(ctx, &cfg); err != nil {
				return err
			}
		}
		next.DeliverSubject = cfg.DeliverSubject
		err = persist(ctx, func(ctx context.Context) error {
			_, err := s.js.UpdatePushConsumer(ctx, msgsStream, next)
			return err
		})
		asked = err == nil
		if asked {
			continue // and see
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != codeConsumerInUse {
			return err
		}
		// The end of the feed that was there before has not reached every node.
		select {
		case <-ctx.Done():
			return fmt.Errorf("an earlier feed of this subscription is still open: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// create creates a consumer. A repetition with the same configuration changes nothing.
func (s *Store) create(ctx context.Context, cfg jetstream.ConsumerConfig) error {
	return persist(ctx, func(ctx context.Context) error {
		_, err := s.js.CreatePushConsumer(ctx, msgsStream, cfg)
		return err
	})
}

// drop removes a consumer, if there is one.
func (s *Store) drop(ctx context.Context, name string) error {
	err := persist(ctx, func(ctx context.Context) error { return s.js.DeleteConsumer(ctx, msgsStream, name) })
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	if err == nil {
		s.lookSoon()
	}
	return err
}

// persist asks again when there is no answer, or that of a cluster without a leader. A cluster does not answer a question
// about a consumer that is just coming or going: no member takes it for its own.
func persist(ctx context.Context, ask func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, askAgain)
		err := ask(attempt)
		cancel()
		var api *jetstream.APIError
		unavailable := errors.As(err, &api) && api.ErrorCode == codeUnavailable
		if !unavailable && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// move changes the subject that a feed is to get its deliveries on.
func (f *feed) move(ctx context.Context, cfg *jetstream.ConsumerConfig) error {
	n := len(f.subs) - 1
	_ = f.subs[n].Unsubscribe()
	f.subs = f.subs[:n]
	cfg.DeliverSubject = feedRoot + cfg.Durable + "." + nuid.Next()
	if err := f.listen(cfg.DeliverSubject, f.qos == 0, f.stored); err != nil {
		return err
	}
	return f.store.nc.FlushWithContext(ctx)
}

// listen takes what comes on a subject. What may not be dropped is bounded by ackPending.
func (f *feed) listen(subject string, droppable bool, handle nats.MsgHandler) error {
	sub, err := f.store.nc.Subscribe(subject, handle)
	if err != nil {
		return err
	}
	f.subs = append(f.subs, sub)
	if droppable {
		return f.store.drops.bound(sub)
	}
	return sub.SetPendingLimits(-1, -1)
}

// drops counts what was dropped because a session did not take it.
type drops struct {
	mu    sync.Mutex
	open  map[*nats.Subscription]struct{}
	ended int64 // by those that are not open any more
}

// bound bounds what waits for one subscription, until end.
func (d *drops) bound(sub *nats.Subscription) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = make(map[*nats.Subscription]struct{})
	}
	d.open[sub] = struct{}{}
	return sub.SetPendingLimits(droppableQueue, droppableBytes)
}

func (d *drops) end(sub *nats.Subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.open[sub]; ok {
		delete(d.open, sub)
		d.ended += dropped(sub)
	}
}

func dropped(sub *nats.Subscription) int64 {
	n, err := sub.Dropped()
	if err != nil {
		return 0
	}
	return int64(n)
}

// Dropped is how many messages were not delivered at QoS 0 because their session was too slow to take them.
func (s *Store) Dropped() int64 {
	s.drops.mu.Lock()
	defer s.drops.mu.Unlock()
	n := s.drops.ended
	for sub := range s.drops.open {
		n += dropped(sub)
	}
	return n
}

// transient takes a QoS 0 publication.
func (f *feed) transient(m *nats.Msg) {
	if msg, err := store.Decode(m.Data); err == nil {
		f.deliver(store.Delivery{Message: msg, Settle: func() {}})
	}
}

// stored takes a message of the delivery stream.
func (f *feed) stored(m *nats.Msg) {
	settle := func() {}
	var back func()
	var seq uint64
	var gap bool
	if f.qos > 0 {
		meta, err := m.Metadata()
		if err != nil {
			return // not a delivery
		}
		seq = meta.Sequence.Stream
		fresh := false
		if fresh, gap = f.fresh(seq, meta.Sequence.Consumer, m); !fresh {
			return
		}
		settle = func() { f.settle(seq, m) }
		if f.member != nil {
			ok := false
			if settle, back, ok = f.member.arrived(f, seq, m); !ok {
				return
			}
		}
	}
	msg, err := store.Decode(m.Data)
	if err != nil {
		f.store.log.Error("stored delivery is corrupt and dropped", "subject", m.Subject, "error", err)
		settle()
		return
	}
	if f.member != nil {
		f.member.busy.Store(true)
		defer f.member.busy.Store(false)
	}
	f.deliver(store.Delivery{Message: msg, QoS: min(msg.QoS, f.qos), Seq: seq, Gap: gap, Settle: settle, Back: back})
}

// fresh reports whether a message was not handed over before. JetStream sends again what is not settled in time, and
// what was settled when that was lost; neither may reach the subscriber twice. gap says that a delivery was lost on the
// way since the feed was opened, as its number tells: its message comes again later.
func (f *feed) fresh(seq, number uint64, m *nats.Msg) (fresh, gap bool) {
	f.mu.Lock()
	if f.next > 0 && number != f.next {
		f.gap = true
	}
	f.next, gap = number+1, f.gap
	settled, known := f.seen[seq]
	if !known {
		f.seen[seq] = false
	}
	f.mu.Unlock()
	switch {
	case !known:
		return true, gap
	case settled && f.member == nil:
		_ = m.Ack()
	default:
		_ = m.InProgress()
	}
	return false, gap
}

func (f *feed) settle(seq uint64, m *nats.Msg) {
	f.mark(seq)
	f.mu.Lock()
	f.last = m.Reply
	f.mu.Unlock()
	_ = m.Ack()
}

// mark notes that a delivery was settled.
func (f *feed) mark(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[seq] = true
	f.settled = append(f.settled, seq)
	if len(f.settled) > remembered {
		for _, old := range f.settled[:remembered/2] {
			delete(f.seen, old)
		}
		f.settled = append(f.settled[:0], f.settled[remembered/2:]...)
	}
}

// Close stops the feed. deliver may still be running; what it has taken and not settled comes again in the next feed.
func (f *feed) Close() {
	for _, sub := range f.subs {
		f.store.drops.end(sub)
		_ = sub.Unsubscribe()
	}
	f.mu.Lock()
	last := f.last
	f.last = ""
	f.mu.Unlock()
	switch {
	case f.remove != nil:
	case last != "":
		// Acknowledgements are taken in order and not answered. Once this repeated one is, all of them count, and the feed
		// that comes next gets none of them again.
		_, _ = f.store.nc.Request(last, nil, closeWait)
	default:
		_ = f.store.nc.FlushTimeout(closeWait)
	}
	if f.remove != nil {
		f.remove()
	}
}

// Unsubscribe removes the durable consumer of a subscription.
func (s *Store) Unsubscribe(ctx context.Context, client, filter string) error {
	forget := func() error { return s.drop(ctx, consumerName(client, filter)) }
	if _, _, shared := topic.Shared(filter); shared {
		forget = func() error { return s.unshare(ctx, client, filter) }
	}
	if err := forget(); err != nil {
		return fmt.Errorf("unsubscribe from %.100q: %w", filter, ended(err))
	}
	return nil
}
