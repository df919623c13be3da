package staged

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
	"inflight/broker/topic"
)

const (
	// feedBuffer is how many messages a feed asks JetStream for ahead of what the session has taken.
	feedBuffer = 256
	// ackPending bounds the messages of one subscription that are sent and not settled. It is above every window, so that
	// the session's window decides.
	ackPending = 70_000
	// ackWait is never waited out: on a live connection nothing is sent again, a resumed session does it itself.
	ackWait = 24 * time.Hour
	// orphanAfter removes the consumer of a session that was not durable and whose node died.
	orphanAfter = time.Minute
	// transientQueue bounds the QoS 0 messages of one subscription that the session has not taken; further ones are dropped.
	transientQueue = 4096
)

// feed is one subscription: a consumer of the delivery stream, and a plain subscription for QoS 0 publications.
type feed struct {
	consume jetstream.ConsumeContext
	subs    []*nats.Subscription
	remove  func()
}

// Subscribe starts the feed of one subscription.
func (s *Store) Subscribe(ctx context.Context, client string, sub store.Subscription, durable bool, deliver func(store.Delivery)) (store.Feed, error) {
	cfg := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverNewPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxAckPending: ackPending,
		MaxDeliver:    -1,
	}
	subjects := topic.SubjectFilter(sub.Filter)
	for _, subject := range subjects {
		cfg.FilterSubjects = append(cfg.FilterSubjects, msgsRoot+subject)
	}
	if sub.QoS == 0 {
		cfg.AckPolicy, cfg.MaxAckPending, cfg.AckWait = jetstream.AckNonePolicy, 0, 0
		durable = false // what a QoS 0 subscription misses while it is away is not kept
	}
	name := consumerName(client, sub.Filter)
	if durable {
		cfg.Durable = name
	} else {
		cfg.Name, cfg.InactiveThreshold = name+"_"+nats.NewInbox()[7:15], orphanAfter
	}
	consumer, err := s.consumer(ctx, name, cfg, durable)
	if err != nil {
		return nil, fmt.Errorf("subscribe to %q: %w", sub.Filter, err)
	}
	f := &feed{}
	if !durable {
		f.remove = func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
			defer cancel()
			if err := s.js.DeleteConsumer(ctx, msgsStream, cfg.Name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				s.log.Warn("remove subscription", "filter", sub.Filter, "error", err)
			}
		}
	}
	for _, subject := range subjects {
		plain, err := s.nc.Subscribe(transient+subject, func(m *nats.Msg) {
			if msg, err := store.Decode(m.Data); err == nil {
				deliver(store.Delivery{Message: msg, Settle: func() {}})
			}
		})
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("subscribe to %q: %w", sub.Filter, err)
		}
		_ = plain.SetPendingLimits(transientQueue, -1)
		f.subs = append(f.subs, plain)
	}
	f.consume, err = consumer.Consume(func(m jetstream.Msg) {
		settle := func() {}
		if sub.QoS > 0 {
			settle = func() { _ = m.Ack() }
		}
		msg, err := store.Decode(m.Data())
		if err != nil {
			s.log.Error("stored delivery is dropped", "subject", m.Subject(), "error", err)
			settle()
			return
		}
		deliver(store.Delivery{Message: msg, QoS: min(msg.QoS, sub.QoS), Settle: settle})
	}, jetstream.PullMaxMessages(feedBuffer), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		s.log.Warn("feed", "filter", sub.Filter, "error", err)
	}))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("subscribe to %q: %w", sub.Filter, err)
	}
	// The plain subscription must be known to the node before the caller reports success.
	if err := s.nc.FlushWithContext(ctx); err != nil {
		f.Close()
		return nil, fmt.Errorf("subscribe to %q: %w", sub.Filter, err)
	}
	return f, nil
}

// consumer creates the consumer of a subscription. A durable one that exists is continued behind what was settled:
// what was sent and not settled comes again.
func (s *Store) consumer(ctx context.Context, name string, cfg jetstream.ConsumerConfig, durable bool) (jetstream.Consumer, error) {
	if durable {
		old, err := s.js.Consumer(ctx, msgsStream, name)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, err
		}
		if err == nil {
			info := old.CachedInfo()
			if info.NumAckPending == 0 && !info.PushBound {
				return old, nil
			}
			cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, info.AckFloor.Stream+1
			// The second consumer keeps the interest in the messages while the first is replaced.
			keep := cfg
			keep.Durable, keep.Name, keep.InactiveThreshold = "", name+"_keep", orphanAfter
			if _, err := s.js.CreateOrUpdateConsumer(ctx, msgsStream, keep); err != nil {
				return nil, err
			}
			if err := s.js.DeleteConsumer(ctx, msgsStream, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return nil, err
			}
			defer func() { _ = s.js.DeleteConsumer(ctx, msgsStream, keep.Name) }()
		}
	}
	return s.js.CreateConsumer(ctx, msgsStream, cfg)
}

func consumerName(client, filter string) string { return "c" + hash(client, filter) }

// Close stops the feed. deliver may still be running; it is not called again after it has returned.
func (f *feed) Close() {
	for _, sub := range f.subs {
		_ = sub.Unsubscribe()
	}
	if f.consume != nil {
		f.consume.Stop()
	}
	if f.remove != nil {
		f.remove()
	}
}

// Unsubscribe removes the durable consumer of a subscription.
func (s *Store) Unsubscribe(ctx context.Context, client, filter string) error {
	err := s.js.DeleteConsumer(ctx, msgsStream, consumerName(client, filter))
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("unsubscribe from %q: %w", filter, err)
	}
	return nil
}
