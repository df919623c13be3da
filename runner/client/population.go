package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"inflight/runner/load"
	"inflight/runner/result"
)

// maxDials bounds how many connections are being made at the same time: a listen backlog is short, and a broker that
// makes streams for a session answers slowly.
const maxDials = 16

// Connections are ramped: the first ones at once, further ones so many a second. More at a time measure the broker's listen
// backlog and its authentication, and some brokers refuse clients that come too fast.
const (
	rampBurst = 500
	rampPerS  = 2_000
)

// Population is a set of open publishing connections. It belongs to one goroutine.
type Population struct {
	plan    Plan
	epoch   time.Time
	payload []byte // of every message, where it is not stamped
	pubs    []*publisher
	recs    []*recorder
	running atomic.Pointer[schedule] // the Run under way, of all connections together
}

// Open checks the plan and dials every connection. On an error none stays open.
func Open(ctx context.Context, plan Plan) (*Population, error) {
	plan = plan.WithDefaults()
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	p := &Population{plan: plan, epoch: plan.Epoch, payload: make([]byte, plan.Payload), pubs: make([]*publisher, plan.Connections)}
	for i := range p.payload {
		p.payload[i] = byte('a' + i%26)
	}
	for range min(plan.Connections, 4*runtime.GOMAXPROCS(0)) {
		p.recs = append(p.recs, &recorder{})
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxDials)
	begun := time.Now()
	for i := range p.pubs {
		if i >= rampBurst {
			due := begun.Add(time.Duration(i-rampBurst) * time.Second / rampPerS)
			sleepUntil(due, ctx.Done())
		}
		group.Go(func() error { return p.open(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		for _, pub := range p.pubs {
			if pub != nil {
				_ = pub.conn.Close()
			}
		}
		return nil, err
	}
	return p, nil
}

func (p *Population) open(ctx context.Context, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn, err := Dial(ctx, Options{
		Addr: p.plan.Addrs[i%len(p.plan.Addrs)], ClientID: p.plan.ClientID(i), CleanSession: true,
		Timeout: p.plan.DialTimeout, Username: p.plan.Username, Password: p.plan.Password,
		// Only acknowledgements are read: with ten thousand connections the usual buffers would be most of our memory.
		Version:    p.plan.Version,
		ReadBuffer: min(max(8*p.plan.Window, minBuffer), readBuffer),
	})
	if err != nil {
		return fmt.Errorf("connection %d of %d: %w", i+1, len(p.pubs), err)
	}
	if err := conn.allows(p.plan.QoS, p.plan.Window); err != nil {
		return errors.Join(err, conn.Close())
	}
	pub, err := newPublisher(conn, p.epoch, &p.plan, i, p.payload, p.recs[i%len(p.recs)])
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	p.pubs[i] = pub
	return nil
}

// Run puts the plan's load on the connections: warm-up, measured time, drain. It may be called again on the same
// connections, but not after an error. When ctx ends, or a connection fails, it returns at once what was measured so far
// together with the error. Acknowledgements that are missing after the drain are no error: Published and Acknowledged
// tell.
func (p *Population) Run(ctx context.Context) (*Stats, error) {
	for _, rec := range p.recs {
		rec.latencies = newLatencies(&p.plan)
	}
	start := time.Since(p.epoch)
	s := schedule{start: start, from: start + p.plan.Warmup, drain: max(p.plan.Drain, 0), stall: p.plan.StallTimeout}
	s.to = load.Forever
	if p.plan.Duration > 0 {
		s.to = s.from + p.plan.Duration
	}
	s.pace = load.Turn{Pace: p.plan.Pace(), Of: 1}
	p.running.Store(&s)
	all := make([]counts, len(p.pubs))
	finished := make(chan struct{})
	var to time.Time
	if s.to != load.Forever {
		to = p.epoch.Add(s.to)
	}
	cpu := WatchCPU(p.epoch.Add(s.from), to, finished)
	err := p.runAll(ctx, s, all)
	close(finished)
	stats := p.sum(s, all, err)
	stats.CPUSeconds = <-cpu
	return stats, err
}

// runAll runs every connection's loop; the first one that fails ends the others.
func (p *Population) runAll(ctx context.Context, s schedule, all []counts) error {
	for _, pub := range p.pubs {
		pub.cancelled.Store(false)
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	cancelled := make(chan struct{})
	stop := context.AfterFunc(inner, func() {
		defer close(cancelled)
		for _, pub := range p.pubs {
			pub.cancel()
		}
	})
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for i, pub := range p.pubs {
		wg.Go(func() {
			c, err := pub.run(p.share(s, i))
			all[i] = c
			if err != nil {
				once.Do(func() {
					first = fmt.Errorf("connection %d of %d to %s: %w", i+1, len(p.pubs), pub.conn.addr, err)
					cancel()
				})
			}
		})
	}
	wg.Wait()
	if !stop() {
		<-cancelled
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return first
}

// Published is the number of messages written so far, in all Runs; it may be called from any goroutine.
func (p *Population) Published() (n int64) {
	for _, pub := range p.pubs {
		n += pub.written.Load()
	}
	return n
}

// Due is the number of messages that the schedule of an open loop wants written by now, in the Run under way or the last one;
// 0 for a closed loop, and before any Run. It may be called from any goroutine.
func (p *Population) Due() int64 {
	s := p.running.Load()
	if s == nil || !s.open() {
		return 0
	}
	due := s.due(min(time.Since(p.epoch), s.to-1))
	if p.plan.MaxMessages > 0 {
		due = min(due, p.plan.MaxMessages)
	}
	return due
}

// share is the schedule of connection i: MaxMessages are split evenly, the first ones take the rest; the connections take
// turns in the schedule of an open loop.
func (p *Population) share(s schedule, i int) schedule {
	s.pace.Number, s.pace.Of = int64(i), int64(len(p.pubs))
	s.quota = -1
	if p.plan.MaxMessages > 0 {
		n := int64(len(p.pubs))
		s.quota = p.plan.MaxMessages / n
		if int64(i) < p.plan.MaxMessages%n {
			s.quota++
		}
	}
	return s
}

func (p *Population) sum(s schedule, all []counts, err error) *Stats {
	stats := &Stats{}
	var end, lastAck time.Duration
	early := true
	for _, c := range all {
		stats.Messages += c.messages
		stats.Bytes += c.bytes
		stats.Published += c.published
		stats.Acknowledged += c.acknowledged
		stats.Late += c.late
		stats.Missed += c.missed
		stats.InFlightMean += c.inFlight / float64(len(all))
		addOrder(&stats.Order, &c.order)
		lastAck = max(lastAck, c.lastAck)
		end = max(end, c.end)
		early = early && c.early
	}
	stats.Spread = spreadOf(all)
	if lastAck > 0 {
		stats.LastAck = p.epoch.Add(lastAck)
	}
	if err == nil && early {
		end = lastAck // all messages were published: the time afterwards is not part of the measurement
	}
	stats.Duration = max(0, min(end, s.to)-s.from)
	l := newLatencies(&p.plan)
	for _, rec := range p.recs {
		l.merge(&rec.latencies)
	}
	stats.AckService, stats.Receive, stats.Release, stats.Fence = l.ack, l.receive, l.release, l.fence
	stats.AckResponse = l.response
	return stats
}

func spreadOf(all []counts) *Spread {
	if len(all) < 2 {
		return nil
	}
	s := &Spread{InFlightLow: all[0].inFlight, InFlightHigh: all[0].inFlight, Fewest: all[0].messages, Most: all[0].messages}
	for _, c := range all[1:] {
		s.InFlightLow, s.InFlightHigh = min(s.InFlightLow, c.inFlight), max(s.InFlightHigh, c.inFlight)
		s.Fewest, s.Most = min(s.Fewest, c.messages), max(s.Most, c.messages)
	}
	return s
}

func addOrder(sum *result.Order, o *load.Order) {
	sum.Checked += o.Checked
	sum.Violations += o.Violations
	for name, n := range map[string]int64{"PUBACK": o.PUBACK, "PUBREC": o.PUBREC, "PUBCOMP": o.PUBCOMP} {
		if n > 0 {
			if sum.ByType == nil {
				sum.ByType = map[string]int64{}
			}
			sum.ByType[name] += n
		}
	}
	if sum.First == "" {
		sum.First = o.First
	}
}

// WatchCPU returns the processor time of this process from one instant to another, or, when to is zero, until finished is
// closed; nil if the system does not tell it or finished was closed before from.
func WatchCPU(from, to time.Time, finished <-chan struct{}) <-chan *float64 {
	out := make(chan *float64, 1)
	go func() {
		if !sleepUntil(from, finished) {
			out <- nil
			return
		}
		before, ok := cpuTime()
		if to.IsZero() {
			<-finished
		} else {
			sleepUntil(to, finished)
		}
		after, ok2 := cpuTime()
		if !ok || !ok2 {
			out <- nil
			return
		}
		used := (after - before).Seconds()
		out <- &used
	}()
	return out
}

// sleepUntil reports whether t came before finished.
func sleepUntil(t time.Time, finished <-chan struct{}) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-finished:
		return false
	}
}

// Close sends DISCONNECT on each connection and closes it.
func (p *Population) Close() error {
	var errs []error
	for _, pub := range p.pubs {
		errs = append(errs, pub.conn.Disconnect())
	}
	return errors.Join(errs...)
}
