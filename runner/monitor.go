package runner

import (
	"context"
	"time"

	"inflight/runner/result"
	"inflight/runner/target"
)

// Limits of what is kept of a cell's time line.
const (
	pulseEvery = 100 * time.Millisecond
	maxSamples = 120 // of a cell; above it every second one is dropped
)

// loadCounts is what a monitor notes beside what the processes use.
type loadCounts struct {
	published, delivered int64
	due                  int64 // messages that the schedule of an open loop wanted published
	queued               int64 // messages that were published and not yet processed by every subscriber
}

// usage is what broker and generator used in one run of the load.
type usage struct {
	nodes      []result.Node
	generator  result.Node
	samples    []result.Sample
	queuedPeak int64
	growth     *int64 // of the resident memory of all nodes, from the start of the run to its peak; bytes
	ownGrowth  *int64 // of the load generator's, to the highest of its samples
}

// monitor watches the processes of one broker, and our own, beside one run of the load.
type monitor struct {
	broker *target.Broker
	own    processes // of the load generator
	times  loadTimes
	whole  bool              // the run is measured to its end, not for times.measured
	count  func() loadCounts // nil: no time line is kept
	epoch  time.Time         // of the samples

	peaks     bool           // those of the broker were reset
	atStart   []target.Pulse // of the nodes; nil if not known
	ownRSS    *int64         // of the load generator before its publishers connected
	before    []target.Usage
	ownBefore target.Usage
	use       usage
	cancel    context.CancelFunc
	done      chan struct{}
}

// watchUsage begins to watch beside a run that is about to start. stop must be called when it is over, and its connections
// still open.
func watchUsage(
	ctx context.Context, broker *target.Broker, own processes, ownRSS *int64, times loadTimes, whole bool, epoch time.Time, count func() loadCounts,
) *monitor {
	m := &monitor{
		broker: broker, own: own, ownRSS: ownRSS, times: times, whole: whole || times.measured == 0, count: count, epoch: epoch,
		done: make(chan struct{}),
	}
	m.peaks = broker.ResetPeaks()
	m.atStart = broker.Pulses()
	ctx, m.cancel = context.WithCancel(ctx)
	go m.watch(ctx)
	return m
}

// stop ends the watch. A run that ended early is read at its end.
func (m *monitor) stop() *usage {
	m.cancel()
	<-m.done
	return &m.use
}

func (m *monitor) watch(ctx context.Context) {
	defer close(m.done)
	if m.pulses(ctx, m.times.warmup) {
		return // cut off before anything was measured
	}
	m.before, m.ownBefore = m.broker.Usage(), m.own.usage()
	measured := m.times.measured
	if m.whole {
		measured = never
	}
	m.pulses(ctx, measured)
	m.pulse()
	m.finish(m.broker.Usage(), m.own.usage())
}

// never is a time that no run takes.
const never = 1000 * time.Hour

// pulses takes samples for that long, and reports whether ctx ended before.
func (m *monitor) pulses(ctx context.Context, d time.Duration) (ended bool) {
	if d <= 0 {
		return ctx.Err() != nil
	}
	end := time.NewTimer(d)
	defer end.Stop()
	ticker := time.NewTicker(pulseEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return true
		case <-end.C:
			return false
		case <-ticker.C:
			m.pulse()
		}
	}
}

func (m *monitor) pulse() {
	if m.count == nil {
		return
	}
	n := m.count()
	m.use.queuedPeak = max(m.use.queuedPeak, n.queued)
	s := result.Sample{AtNS: int64(time.Since(m.epoch)), Published: n.published, Due: n.due, Delivered: n.delivered, GeneratorRSS: m.own.rss()}
	addPulses(&s, m.broker.Pulses())
	if s.GeneratorRSS != nil && m.ownRSS != nil {
		growth := max(0, *s.GeneratorRSS-*m.ownRSS)
		m.use.ownGrowth = higher(m.use.ownGrowth, &growth)
	}
	m.use.samples = thin(append(m.use.samples, s))
}

// addPulses notes what the nodes use, which is absent where one does not tell.
func addPulses(s *result.Sample, nodes []target.Pulse) {
	if len(nodes) == 0 {
		return
	}
	var all target.Pulse
	for _, p := range nodes {
		all.RSS += p.RSS
		all.CPUSeconds += p.CPUSeconds
		if len(nodes) > 1 {
			s.NodeRSS = append(s.NodeRSS, p.RSS)
		}
	}
	s.RSS, s.CPU = &all.RSS, &all.CPUSeconds
}

// thin drops every second sample but the last once there are too many.
func thin(samples []result.Sample) []result.Sample {
	if len(samples) <= maxSamples {
		return samples
	}
	kept := samples[:0]
	for i, s := range samples {
		if i%2 == 0 || i == len(samples)-1 {
			kept = append(kept, s)
		}
	}
	return kept
}

func (m *monitor) finish(after []target.Usage, own target.Usage) {
	m.use.nodes = usedSince(m.before, after)
	m.use.generator = difference(&m.ownBefore, &own)
	m.use.generator.RSSGrowth = m.use.ownGrowth
	if !m.peaks || len(m.atStart) != len(after) {
		return
	}
	var growth int64
	for i := range after {
		if after[i].RSSPeak == nil {
			return
		}
		grown := *after[i].RSSPeak - m.atStart[i].RSS
		growth += grown
		grown = max(0, grown)
		m.use.nodes[i].RSSGrowth = &grown
	}
	growth = max(0, growth)
	m.use.growth = &growth
}

// usedSince is the difference of two readings of the nodes. What either cannot tell is absent.
func usedSince(before, after []target.Usage) []result.Node {
	var nodes []result.Node
	for i := range after {
		var b target.Usage
		if i < len(before) && before[i].Name == after[i].Name {
			b = before[i]
		}
		nodes = append(nodes, difference(&b, &after[i]))
	}
	return nodes
}

// difference is what a process used between two readings, and the most that it had at either.
func difference(before, after *target.Usage) result.Node {
	n := result.Node{Name: after.Name, RSSPeak: after.RSSPeak, Threads: higher(before.Threads, after.Threads), FDs: higher(before.FDs, after.FDs)}
	if before.CPUSeconds != nil && after.CPUSeconds != nil {
		used := *after.CPUSeconds - *before.CPUSeconds
		n.CPUSeconds = &used
	}
	n.DiskBytes = less(after.DiskBytes, before.DiskBytes)
	n.WriteCalls = less(after.WriteCalls, before.WriteCalls)
	return n
}

// higher is the higher of two numbers, each of which may be absent.
func higher(a, b *int64) *int64 {
	if a == nil || (b != nil && *b > *a) {
		return b
	}
	return a
}

// less is a minus b, absent if either is.
func less(a, b *int64) *int64 {
	if a == nil || b == nil {
		return nil
	}
	n := *a - *b
	return &n
}
