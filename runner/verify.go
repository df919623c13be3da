package runner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"inflight/broker/packet"
	"inflight/runner/client"
	"inflight/runner/ledger"
	"inflight/runner/result"
	"inflight/runner/target"
)

// Limits of a verification block.
const (
	verifyMessages = 50_000                 // published at most, whatever the time
	probeEvery     = 200 * time.Millisecond // a probe that has not come through by then is sent again
	quietTime      = 100 * time.Millisecond // after the last expected delivery, for a second copy of one
	idleAtQoS0     = time.Second            // where a message may be lost, none is waited for longer
	drainTimes     = 3                      // deliveries that keep coming are waited for so many times the scenario's bound
	pollEvery      = 2 * time.Millisecond
)

// verify publishes at the step's point with a subscriber at the same QoS, and accounts for every message. The subscriber
// is on the last node and the publishers on all others, so that with more than one node every message crosses the cluster.
func (r *run) verify(ctx context.Context, broker *target.Broker, step *Step) (_ *result.Ledger, _ *result.Order, err error) {
	addrs := broker.Addrs()
	subscriberAddr := addrs[len(addrs)-1]
	if len(addrs) > 1 {
		addrs = addrs[:len(addrs)-1]
	}
	plan := r.clientPlan(addrs, step, loadTimes{measured: r.plan.Scenario.Verify})
	plan.MaxMessages = verifyMessages
	plan.Payload = max(plan.Payload, ledger.HeaderSize)
	plan.Ledger = r.ledger(step, &plan, 1)

	start := time.Now()
	probes := newProbes(plan, 1)
	subscriber, err := client.Subscribe(ctx, client.Options{
		Addr:         subscriberAddr,
		ClientID:     probes.clientID("s"),
		CleanSession: true,
		Version:      plan.Version,
	}, probes.filter, byte(plan.QoS), func(p *packet.Publish) {
		if !probes.arrived(0, p.Topic) {
			plan.Ledger.Delivered(p.Payload, time.Since(start))
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("subscribe: %w", err)
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, subscriber.Stop())
		}
	}()
	if err := r.probe(ctx, plan, probes, []*client.Subscriber{subscriber}); err != nil {
		return nil, nil, err
	}
	population, err := r.open(ctx, step, plan)
	if err != nil {
		return nil, nil, fmt.Errorf("publish: %w", err)
	}
	stats, err := runAndClose(ctx, &plan, population)
	if err != nil {
		return nil, nil, fmt.Errorf("publish: %w", err)
	}
	if stats.Published == 0 {
		return nil, nil, errors.New("publish: not one message went out")
	}
	if err := r.awaitDeliveries(ctx, plan, stats, subscriber); err != nil {
		return nil, nil, err
	}
	stopped = true
	if err := subscriber.Stop(); err != nil {
		return nil, nil, fmt.Errorf("stop the subscriber: %w", err)
	}
	account := plan.Ledger.Account(stats.LastAck.Sub(start))
	return &account, &stats.Order, nil
}

// publish runs a plan once on connections of its own, with the wire client.
func publish(ctx context.Context, plan client.Plan) (*client.Stats, error) {
	population, err := client.Open(ctx, plan)
	if err != nil {
		return nil, err
	}
	return runAndClose(ctx, &plan, population)
}

// probes are the messages that show that a subscription is in force on every publisher's node. They have topics of their
// own and no place in the ledger.
type probes struct {
	filter string
	name   string
	topics []string                 // by publishers' address
	seen   map[string][]atomic.Bool // by topic and subscriber
}

func newProbes(plan client.Plan, subscribers int) *probes {
	p := &probes{seen: map[string][]atomic.Bool{}}
	base := plan.Topic(0)
	base = base[:len(base)-1] // the topic of connection 0 ends in "0"
	p.filter = base + "+"
	if plan.Topics > 1 {
		p.filter = base + "#"
	}
	p.name = plan.ClientID(0)
	p.name = p.name[:len(p.name)-2] // and its client in "c0"
	for i := range min(len(plan.Addrs), plan.Connections) {
		topic := base + "probe" + strconv.Itoa(i)
		p.topics = append(p.topics, topic)
		p.seen[topic] = make([]atomic.Bool, subscribers)
	}
	return p
}

// clientID is the Client Identifier of a part of this verification.
func (p *probes) clientID(suffix string) string { return p.name + suffix }

// arrived notes a delivery of a probe to a subscriber and reports whether it was one. It belongs to the subscriber's
// goroutine.
func (p *probes) arrived(subscriber int, topic []byte) bool {
	seen := p.seen[string(topic)]
	if seen != nil {
		seen[subscriber].Store(true)
	}
	return seen != nil
}

// heard reports whether a probe has come to every subscriber.
func (p *probes) heard(topic string) bool {
	seen := p.seen[topic]
	for i := range seen {
		if !seen[i].Load() {
			return false
		}
	}
	return true
}

// probe publishes to each node until the subscribers have heard from it. A SUBACK says that the subscriber's own node knows
// the subscription; the others of a cluster learn of it a little later.
func (r *run) probe(ctx context.Context, plan client.Plan, probes *probes, subscribers []*client.Subscriber) error {
	bound := r.plan.Scenario.Drain
	for i, topic := range probes.topics {
		deadline := time.Now().Add(bound)
		for !probes.heard(topic) {
			if time.Now().After(deadline) {
				return fmt.Errorf("subscription not in force: no probe from %s to the subscriber came through in %v", plan.Addrs[i], bound)
			}
			one := plan
			one.Addrs = plan.Addrs[i : i+1]
			one.Connections, one.Window, one.MaxMessages = 1, 1, 1
			one.Duration, one.Warmup, one.Ledger, one.Topics, one.Rate = 0, 0, nil, 1, 0
			one.Topic = func(int) string { return topic }
			one.ClientID = func(int) string { return probes.clientID("p" + strconv.Itoa(i)) }
			if _, err := publish(ctx, one); err != nil {
				return fmt.Errorf("publish a probe to %s: %w", plan.Addrs[i], err)
			}
			for sent := time.Now(); !probes.heard(topic) && time.Since(sent) < probeEvery; {
				for _, subscriber := range subscribers {
					if err := subscriber.Err(); err != nil {
						return fmt.Errorf("subscriber: %w", err)
					}
				}
				if err := sleep(ctx, pollEvery); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// awaitDeliveries returns once everything published has been delivered and nothing more comes, or once nothing has come
// for the scenario's bound: what is missing then is lost. A broker that is merely slow is not called lossy: deliveries
// that still come after several times that bound are an error, not a loss.
func (r *run) awaitDeliveries(ctx context.Context, plan client.Plan, stats *client.Stats, subscriber *client.Subscriber) error {
	idle := r.plan.Scenario.Drain
	if plan.QoS == 0 {
		idle = min(idle, idleAtQoS0)
	}
	begun := time.Now()
	lastChange, received := begun, subscriber.Received()
	for {
		if err := subscriber.Err(); err != nil {
			return fmt.Errorf("subscriber: %w", err)
		}
		now := time.Now()
		if n := subscriber.Received(); n != received {
			lastChange, received = now, n
		}
		quiet := now.Sub(lastChange)
		if quiet >= idle || (quiet >= quietTime && plan.Ledger.Distinct() >= stats.Published) {
			return nil
		}
		if bound := drainTimes * r.plan.Scenario.Drain; now.Sub(begun) > bound {
			return fmt.Errorf("deliveries still coming after %v: %d of %d messages delivered; publish for a shorter time (verify) or wait longer (drain)",
				bound, plan.Ledger.Distinct(), stats.Published)
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}
