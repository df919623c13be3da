package runner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/broker/packet"
	"inflight/runner/client"
	"inflight/runner/ledger"
	"inflight/runner/result"
	"inflight/runner/target"
	"inflight/scenarios"
)

// audience is the subscribers of one run of the load: each gets everything, and has its own side of the ledger.
type audience struct {
	run         *run
	plan        client.Plan
	qos         byte
	kept        bool
	probes      *probes
	subscribers []*client.Subscriber
	addrs       []string // of the subscribers
	from        atomic.Int64
	shards      []shard
	lastRead    []lastRead
}

// shard is an end-to-end histogram that several subscribers share: one each would take 170 KB.
type shard struct {
	sync.Mutex
	h *hdrhistogram.Histogram
}

// lastRead is when a subscriber read its last delivery. It belongs to its goroutine until that has ended.
type lastRead struct {
	at time.Duration
	_  [56]byte // no cache line is shared
}

// maxShards bounds the end-to-end histograms of one run.
const maxShards = 16

// maxEndToEnd is the highest end-to-end latency that is told apart: a backlog may be long.
const maxEndToEnd = 10 * time.Minute

// gather makes the subscribers of a run and sees that each hears every node that will publish. It gives the plan its
// ledger. Subscriber 0 is on the last node, so that with more than one node what the first connection publishes crosses
// the cluster.
func (r *run) gather(ctx context.Context, broker *target.Broker, plan *client.Plan, step *Step) (_ *audience, err error) {
	s := &r.plan.Scenario
	plan.Payload = max(plan.Payload, ledger.TimedSize)
	plan.Epoch = time.Now()
	plan.Ledger = r.ledger(step, plan, s.Subscribers)
	a := &audience{
		run: r, plan: *plan, qos: byte(step.Point.QoS), kept: s.SubscriberSession == scenarios.SessionKept,
		probes: newProbes(*plan, s.Subscribers), shards: make([]shard, min(s.Subscribers, maxShards)), lastRead: make([]lastRead, s.Subscribers),
	}
	if s.SubscriberQoS != nil {
		a.qos = byte(*s.SubscriberQoS)
	}
	a.from.Store(int64(never))
	for i := range a.shards {
		a.shards[i].h = hdrhistogram.New(int64(time.Microsecond), int64(maxEndToEnd), 3)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.leave(context.WithoutCancel(ctx)))
		}
	}()
	addrs := broker.Addrs()
	for i := range s.Subscribers {
		addr := addrs[len(addrs)-1-i%len(addrs)]
		subscriber, err := client.SubscribeWith(ctx, a.options(i, addr, !a.kept), client.Subscription{
			Filter: a.probes.filter, QoS: a.qos, Epoch: plan.Epoch, Delay: max(0, s.SubscriberDelay), Handle: a.handler(i),
		})
		if err != nil {
			return nil, fmt.Errorf("subscriber %d of %d: %w", i+1, s.Subscribers, err)
		}
		a.subscribers, a.addrs = append(a.subscribers, subscriber), append(a.addrs, addr)
	}
	return a, r.probe(ctx, a.plan, a.probes, a.subscribers)
}

func (a *audience) options(i int, addr string, clean bool) client.Options {
	return client.Options{Addr: addr, ClientID: a.probes.clientID("s" + strconv.Itoa(i)), CleanSession: clean, Version: a.plan.Version}
}

// handler takes the deliveries of subscriber i.
func (a *audience) handler(i int) func(p *packet.Publish, now time.Duration) {
	inbox, shard, last := a.plan.Ledger.Inbox(i), &a.shards[i%len(a.shards)], &a.lastRead[i]
	return func(p *packet.Publish, now time.Duration) {
		if a.probes.arrived(i, p.Topic) {
			return
		}
		last.at = now
		if !inbox.Delivered(p.Payload, now) {
			return
		}
		if made, ok := ledger.MadeAt(p.Payload); ok && int64(made) >= a.from.Load() {
			shard.Lock()
			// The value is inside the range then, which is the only error there is.
			_ = shard.h.RecordValue(int64(min(max(now-made, 0), maxEndToEnd)))
			shard.Unlock()
		}
	}
}

// begin is called just before the load: what is published after the warm-up counts for the end-to-end latency.
func (a *audience) begin(warmup time.Duration) {
	a.from.Store(int64(time.Since(a.plan.Epoch) + warmup))
}

// counts are the deliveries so far, to all subscribers together, and the messages that the slowest has not processed.
func (a *audience) counts(published int64) (delivered, queued int64) {
	slowest := published
	for i, s := range a.subscribers {
		delivered += a.plan.Ledger.Inbox(i).Distinct()
		// A probe counts there as well: they are few, and not published by the load.
		slowest = min(slowest, s.Processed())
	}
	return delivered, max(0, published-slowest)
}

// await returns once every subscriber has everything, is through with it, and nothing more comes, or once nothing has come
// for the scenario's bound: what is missing then is lost.
func (a *audience) await(ctx context.Context, stats *client.Stats) error {
	s := &a.run.plan.Scenario
	idle := s.Drain
	if min(a.plan.QoS, int(a.qos)) == 0 {
		idle = min(idle, idleAtQoS0)
	}
	idle += max(0, s.SubscriberDelay)
	bound := drainTimes*s.Drain + time.Duration(stats.Published)*max(0, s.SubscriberDelay)
	owed := stats.Published * int64(len(a.subscribers))
	begun := time.Now()
	lastChange, before := begun, int64(-1)
	for {
		progress, behind := int64(0), false
		for i, subscriber := range a.subscribers {
			if err := subscriber.Err(); err != nil {
				return fmt.Errorf("subscriber %d: %w", i+1, err)
			}
			received, processed := subscriber.Received(), subscriber.Processed()
			progress += received + processed
			behind = behind || processed < received
		}
		now := time.Now()
		if progress != before {
			lastChange, before = now, progress
		}
		quiet := now.Sub(lastChange)
		if quiet >= idle || (quiet >= quietTime && !behind && a.plan.Ledger.Distinct() >= owed) {
			return nil
		}
		if now.Sub(begun) > bound {
			return fmt.Errorf("deliveries still coming after %v: %d of %d; publish less, or wait longer (drain)", bound, a.plan.Ledger.Distinct(), owed)
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// reception is what the subscribers of one run got.
type reception struct {
	subscribers int
	deliveries  int64         // distinct, to all of them together
	took        time.Duration // from the start of the load to the last of them
	endToEnd    *hdrhistogram.Histogram
	ledger      result.Ledger
}

// account closes the ledger; the subscribers have left. started is when the load began.
func (a *audience) account(stats *client.Stats, started time.Time) *reception {
	account := a.plan.Ledger.Account(stats.LastAck.Sub(a.plan.Epoch))
	if int(a.qos) != a.plan.QoS {
		qos := int(a.qos)
		account.DeliveredQoS = &qos
	}
	var last time.Duration
	for i := range a.lastRead {
		last = max(last, a.lastRead[i].at)
	}
	r := &reception{subscribers: len(a.subscribers), deliveries: account.Delivered, took: last - started.Sub(a.plan.Epoch), ledger: account}
	for i := range a.shards {
		r.endToEnd = merge(r.endToEnd, a.shards[i].h)
	}
	return r
}

// leave ends every subscriber, and the kept sessions with them.
func (a *audience) leave(ctx context.Context) error {
	var errs []error
	for i, s := range a.subscribers {
		if err := s.Stop(); err != nil {
			errs = append(errs, fmt.Errorf("stop subscriber %d: %w", i+1, err))
		}
		if !a.kept {
			continue
		}
		conn, err := client.Dial(ctx, a.options(i, a.addrs[i], true))
		if err == nil {
			err = conn.Disconnect()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("end the session of subscriber %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}
