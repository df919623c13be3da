package staged

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
	// orphanAfter removes the consumer of a session that was not durable and whose node died.
	orphanAfter = time.Minute
	// askAgain is how long one request about a consumer may take before it is made again, because it can get lost with the
	// leader that it went to. askLongest bounds what that grows to, see longer.
	askAgain   = 2 * time.Second
	askLongest = 20 * time.Second
	// droppableQueue and droppableBytes bound the messages of one subscription that are delivered at QoS 0 and that the
	// session has not taken; further ones are dropped.
	droppableQueue = 4096
	droppableBytes = 32 << 20
)

// feedRoot is where JetStream sends the deliveries of a consumer.
const feedRoot = "inf.d."

// feed is one subscription: a push consumer of the delivery stream, and a plain subscription for QoS 0 publications. A
// pull consumer would lose time with its requests: the first one can find nobody there yet.
//
// Invariant: of what its consumer has, a feed has handed over everything up to one sequence, in order, and nothing after
// it. A delivery can be lost on its way: with a connection between two nodes, or because the consumer's leader changed
// after it was noted and before it was sent. The next one's number tells; from there on nothing is taken until the consumer
// was made to begin anew, see turn. To go on, and take the lost one when it comes again after ackWait, would break the
// order, and one number could not say any more what of a subscription was sent (see session.Source): who finds the
// session on another node would send once more what was sent after the lost one, or leave that out.
type feed struct {
	store   *Store
	cfg     jetstream.ConsumerConfig // of its consumer; DeliverSubject is where the feed listens
	subs    []*nats.Subscription     // the last one is of DeliverSubject
	deliver func(store.Delivery)
	qos     byte
	remove  func()
	member  *groupMember // of a shared subscription, else nil

	handing sync.Mutex // held while a delivery is handed over: they come one at a time, whatever the subject
	turning turning

	mu    sync.Mutex
	high  uint64              // sequence of the last message that was handed over
	open  map[uint64]struct{} // those up to it that are not settled
	last  string              // where the last settled one was acknowledged
	next  uint64              // number that the consumer gives its next delivery
	round int                 // counts the DeliverSubjects: what comes late on an earlier one is not looked at

	awaited awaited
}

func (s *Store) newFeed(qos byte, deliver func(store.Delivery)) *feed {
	f := &feed{store: s, deliver: deliver, qos: qos, open: make(map[uint64]struct{}), next: 1}
	f.turning.ctx, f.turning.end = context.WithCancel(context.Background())
	return f
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
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxAckPending: ackPending,
		MaxDeliver:    -1,
	}
	if sub.QoS == 0 {
		cfg.AckPolicy, cfg.MaxAckPending, cfg.AckWait = jetstream.AckNonePolicy, 0, 0
	}
	f := s.newFeed(sub.QoS, deliver)
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
	for limit := askAgain; ; {
		attempt, cancel := context.WithTimeout(ctx, limit)
		err := ask(attempt)
		cancel()
		limit = longer(limit, err)
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

// longer returns how long the next attempt may take: half as long again after one that was not answered. A server that is
// busy may need more time for each of them than the first had, and would never be waited for.
func longer(limit time.Duration, err error) time.Duration {
	if errors.Is(err, context.DeadlineExceeded) {
		return min(limit+limit/2, askLongest)
	}
	return limit
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

// stored takes a message of the delivery stream that came on the subject of a round.
func (f *feed) stored(round int, m *nats.Msg) {
	f.handing.Lock()
	defer f.handing.Unlock()
	settle := func() {}
	var back func()
	var seq uint64
	if f.qos > 0 {
		meta, err := m.Metadata()
		if err != nil {
			return // not a delivery
		}
		seq = meta.Sequence.Stream
		if !f.fresh(round, seq, meta.Sequence.Consumer, m) {
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
	f.deliver(store.Delivery{Message: msg, QoS: min(msg.QoS, f.qos), Seq: seq, Settle: settle, Back: back})
}

// fresh reports whether a message was not handed over before, and is to be now. JetStream sends again what is not settled
// in time, and what was settled when that was lost; neither may reach the subscriber twice. A number that is not the next
// one says that a delivery was lost, as does a new message while others are to come again: the consumer is to begin anew.
func (f *feed) fresh(round int, seq, number uint64, m *nats.Msg) bool {
	f.mu.Lock()
	if round != f.round {
		f.mu.Unlock()
		return false
	}
	if number != f.next || !f.awaited.came(seq) {
		f.turnLocked()
		f.mu.Unlock()
		f.store.log.Debug("a delivery was lost on its way", "subject", m.Subject)
		return false
	}
	f.next++
	known := seq <= f.high
	_, open := f.open[seq]
	if !known {
		f.high = seq
		f.open[seq] = struct{}{}
	}
	f.mu.Unlock()
	switch {
	case !known:
		return true
	case open:
		_ = m.InProgress()
	case f.member != nil:
		f.member.settledBefore(seq, m)
		_ = m.InProgress()
	default:
		_ = m.Ack()
	}
	return false
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
	delete(f.open, seq)
	f.awaited.settle(seq)
}

// Close stops the feed. deliver may still be running; what it has taken and not settled comes again in the next feed.
func (f *feed) Close() {
	f.turning.stop()
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
