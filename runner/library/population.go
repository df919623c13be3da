package library

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"inflight/runner/client"
)

// maxDials bounds how many connections are being made at the same time.
const maxDials = 16

// watchEvery is how often a run looks for connections on which nothing comes any more.
const watchEvery = 200 * time.Millisecond

// session is one open connection of a library in this process.
type session interface {
	// load publishes what the lane gives out, with the plan's window, until there is no more and all of it is acknowledged, or
	// ctx ends. It returns an error of the connection or of a publish; what the end of ctx made fail is none.
	load(ctx context.Context, l *lane) error
	close() error
}

// dialer makes connection i of a plan. lost is told when the connection ends by itself, from any goroutine.
type dialer func(ctx context.Context, plan *client.Plan, i int, lost func(error)) (session, error)

// population is a set of connections of a library in this process.
type population struct {
	plan     client.Plan
	sessions []session
	lanes    []*lane
	recs     []*recorder
	begun    atomic.Int64 // when Run began, since the plan's Epoch; 0: not yet

	mu   sync.Mutex
	fail context.CancelCauseFunc // of the run that is under way
	gone error                   // what ended a connection, first
}

// errDrained ends what waits for acknowledgements once the plan's Drain is over. It is no error of the run.
var errDrained = errors.New("drained")

func open(ctx context.Context, plan client.Plan, dial dialer) (*population, error) {
	p := &population{plan: plan, sessions: make([]session, plan.Connections), lanes: make([]*lane, plan.Connections)}
	body := make([]byte, plan.Payload)
	for i := range body {
		body[i] = byte('a' + i%26)
	}
	for range min(plan.Connections, 4*runtime.GOMAXPROCS(0)) {
		p.recs = append(p.recs, newRecorder(&p.plan))
	}
	group, dialing := errgroup.WithContext(ctx)
	group.SetLimit(maxDials)
	for i := range p.sessions {
		group.Go(func() error {
			if err := dialing.Err(); err != nil {
				return err
			}
			s, err := dial(dialing, &p.plan, i, p.lost)
			if err != nil {
				return fmt.Errorf("connection %d of %d to %s: %w", i+1, plan.Connections, addr(&p.plan, i), err)
			}
			p.sessions[i] = s
			p.lanes[i] = newLane(&p.plan, i, body, p.recs[i%len(p.recs)])
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func addr(plan *client.Plan, i int) string { return plan.Addrs[i%len(plan.Addrs)] }

// lost ends the run under way, or the next one.
func (p *population) lost(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone == nil {
		p.gone = fmt.Errorf("the connection ended: %w", err)
	}
	if p.fail != nil {
		p.fail(p.gone)
	}
}

// Run puts the plan's load on the connections: warm-up, measured time, drain.
func (p *population) Run(ctx context.Context) (*client.Stats, error) {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	p.mu.Lock()
	p.fail = fail
	if p.gone != nil {
		fail(p.gone)
	}
	p.mu.Unlock()
	c := clock{epoch: p.plan.Epoch, to: math.MaxInt64}
	c.start = c.now()
	p.begun.Store(int64(c.start))
	c.from = c.start + p.plan.Warmup
	var to time.Time
	if p.plan.Duration > 0 {
		c.to = c.from + p.plan.Duration
		to = c.epoch.Add(c.to)
	}
	finished := make(chan struct{})
	cpu := client.WatchCPU(c.epoch.Add(c.from), to, finished)
	p.load(running, c, fail)
	end := c.now()
	close(finished)
	err := context.Cause(running)
	stats := p.sum(c, end, err)
	stats.CPUSeconds = <-cpu
	return stats, err
}

// load runs every lane; the first that fails ends the others.
func (p *population) load(ctx context.Context, c clock, fail context.CancelCauseFunc) {
	var lanes sync.WaitGroup
	for i, s := range p.sessions {
		draining, drained := context.WithCancelCause(ctx)
		drain := time.AfterFunc(math.MaxInt64, func() { drained(errDrained) })
		l := p.lanes[i]
		l.begin(c, func() { drain.Reset(max(0, p.plan.Drain)) })
		end := time.AfterFunc(c.to-c.now(), l.end) // also when every place of the window is taken
		lanes.Go(func() {
			defer end.Stop()
			defer drained(nil)
			defer drain.Stop()
			if err := s.load(draining, l); err != nil {
				fail(fmt.Errorf("connection %d of %d to %s: %w", i+1, len(p.sessions), addr(&p.plan, i), err))
			}
		})
	}
	watched, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { p.watch(watched, fail) })
	lanes.Wait()
	stop()
	watcher.Wait()
}

// watch ends a run of which a connection has been silent for the plan's StallTimeout.
func (p *population) watch(ctx context.Context, fail context.CancelCauseFunc) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for i, l := range p.lanes {
			if silent, n := l.silence(); silent >= p.plan.StallTimeout {
				fail(fmt.Errorf("connection %d of %d to %s: stalled: %d exchanges outstanding for %v, and nothing is acknowledged",
					i+1, len(p.lanes), addr(&p.plan, i), n, silent.Round(time.Millisecond)))
				return
			}
		}
	}
}

// sum adds the lanes up. They have ended, but for one whose library does not return.
func (p *population) sum(c clock, end time.Duration, err error) *client.Stats {
	stats := &client.Stats{}
	var lastAck, area time.Duration
	early := true
	for _, l := range p.lanes {
		l.mu.Lock()
		stats.Messages += l.messages
		stats.Bytes += l.bytes
		stats.Published += l.published
		stats.Acknowledged += l.acknowledged
		stats.Late += l.late
		stats.Missed += l.missed()
		lastAck = max(lastAck, l.lastAck)
		area += l.area
		early = early && l.stop < c.to
		l.mu.Unlock()
	}
	if lastAck > 0 {
		stats.LastAck = c.epoch.Add(lastAck)
	}
	if err == nil && early {
		end = lastAck // all messages were published: the time afterwards is not part of the measurement
	}
	stats.Duration = max(0, min(end, c.to)-c.from)
	if stats.Duration > 0 {
		stats.InFlightMean = float64(area) / float64(stats.Duration) / float64(len(p.lanes))
	}
	for i, r := range p.recs {
		if i == 0 {
			stats.AckService, stats.AckResponse = r.service, r.response
			continue
		}
		stats.AckService.Merge(r.service)
		if r.response != nil {
			stats.AckResponse.Merge(r.response)
		}
	}
	return stats
}

// Published is the number of messages published so far.
func (p *population) Published() (n int64) {
	for _, l := range p.lanes {
		n += l.soFar()
	}
	return n
}

// Due is the number of messages that an open loop wants published by now.
func (p *population) Due() int64 {
	begun := time.Duration(p.begun.Load())
	if begun == 0 {
		return 0
	}
	return due(&p.plan, time.Since(p.plan.Epoch)-begun)
}

// Close disconnects. What ends a connection from here on is no longer told.
func (p *population) Close() error {
	p.mu.Lock()
	p.fail, p.gone = nil, errors.New("closed")
	p.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(maxDials)
	for _, s := range p.sessions {
		if s != nil {
			group.Go(s.close)
		}
	}
	return group.Wait()
}
