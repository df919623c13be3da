package runner

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/runner/client"
	"inflight/runner/result"
)

// samplesBeyond is the number of samples that a percentile of a cell needs beyond it.
const samplesBeyond = 10

// samplesBeyondBlock is the same for the p99 of a single run. It is lower, since that number never stands alone: it is one
// of the samples of an interval, which grows with its noise.
const samplesBeyondBlock = 2

// cells collects the cells of one pass.
type cells struct {
	plan  *Plan
	pass  *Pass
	byKey map[cellKey]*cell
}

func newCells(plan *Plan, pass *Pass) *cells {
	return &cells{plan: plan, pass: pass, byKey: map[cellKey]*cell{}}
}

// cell is a result.Cell with what cannot be summed once it is in there.
type cell struct {
	result.Cell
	ackService, receive, release, fence, ackResponse, endToEnd *hdrhistogram.Histogram

	sched           schedLatencies
	inFlightSeconds float64 // integral of the mean in-flight over the measured time
	cpuUnknown      bool    // a run lacks it, so the sum would be a part
	ownCPUUnknown   bool
	deliveries      int64
	receiving       time.Duration // that they took
	longest         time.Duration // run so far, of which the slope is
	bytes           int64         // of payloads
}

func (c *cells) cell(step *Step) *cell {
	key := step.key()
	if c.byKey[key] == nil {
		c.byKey[key] = &cell{Cell: result.Cell{
			Arm:         c.plan.Scenario.Arms[key.arm].Name,
			Pass:        c.pass.Number,
			Slot:        c.pass.Slots[key.arm],
			QoS:         key.point.QoS,
			Window:      key.point.Window,
			Connections: key.point.Connections,
			Payload:     key.point.Payload,
			Control:     key.control,
			RatePerS:    key.point.MeanRate(),
			Ramp:        key.point.Ramp(),
			Sizes:       key.point.Sizes,
		}}
		if !key.control {
			c.byKey[key].Client = c.plan.Scenario.Arms[key.arm].Library()
		}
	}
	return c.byKey[key]
}

// add counts one finished run.
func (c *cells) add(step *Step, m *measurement) {
	cell, s := c.cell(step), m.stats
	seconds := s.Duration.Seconds()
	cell.Messages += s.Messages
	cell.DurationNS += int64(s.Duration)
	cell.ThroughputPerS = perSecond(cell.Messages, time.Duration(cell.DurationNS))
	cell.ackService = merge(cell.ackService, s.AckService)
	cell.receive = merge(cell.receive, s.Receive)
	cell.release = merge(cell.release, s.Release)
	cell.fence = merge(cell.fence, s.Fence)

	cell.InFlight.Requested = step.Point.Window
	if step.Control {
		cell.InFlight.Requested = ControlWindow
	}
	cell.bytes += s.Bytes
	cell.addSpread(s.Spread)
	cell.inFlightSeconds += s.InFlightMean * seconds
	addOrder(&cell.Order, &s.Order)
	cell.ackResponse = merge(cell.ackResponse, s.AckResponse)
	cell.Late += s.Late
	cell.Missed += s.Missed
	cell.GeneratorCPU = sum(cell.GeneratorCPU, s.CPUSeconds, &cell.ownCPUUnknown)
	cell.sched = cell.sched.add(m.sched)
	cell.addUsage(m.usage)
	cell.addReception(m.reception)

	latency := s.AckService
	if latency == nil {
		latency = s.Fence
	}
	cell.Blocks = append(cell.Blocks, result.Block{
		Block:          step.Number,
		Position:       step.Position,
		StartedNS:      int64(m.started),
		DurationNS:     int64(s.Duration),
		Messages:       s.Messages,
		ThroughputPerS: perSecond(s.Messages, s.Duration),
		P99:            percentile(latency, 99, samplesBeyondBlock),
	})
}

// addSpread notes how far apart the connections of one run were.
func (c *cell) addSpread(s *client.Spread) {
	if s == nil {
		return
	}
	if c.FewestMessages == nil {
		c.FewestMessages, c.MostMessages = &s.Fewest, &s.Most
		c.InFlight.LowestMean, c.InFlight.HighestMean = s.InFlightLow, s.InFlightHigh
		return
	}
	fewest, most := min(*c.FewestMessages, s.Fewest), max(*c.MostMessages, s.Most)
	c.FewestMessages, c.MostMessages = &fewest, &most
	c.InFlight.LowestMean, c.InFlight.HighestMean = min(c.InFlight.LowestMean, s.InFlightLow), max(c.InFlight.HighestMean, s.InFlightHigh)
}

// addReception counts what the subscribers of one run got.
func (c *cell) addReception(r *reception) {
	if r == nil {
		return
	}
	c.Subscribers = r.subscribers
	c.deliveries += r.deliveries
	c.receiving += r.took
	c.endToEnd = merge(c.endToEnd, r.endToEnd)
	c.addLedger(&r.ledger)
}

func (c *cell) addLedger(l *result.Ledger) {
	if c.Ledger == nil {
		c.Ledger = &result.Ledger{}
	}
	c.Ledger.Add(l)
}

// tried adds what a trial of a search found: acknowledgements are checked there like anywhere, and so are deliveries.
func (c *cells) tried(step *Step, m *measurement) {
	cell := c.cell(step)
	addOrder(&cell.Order, &m.stats.Order)
	if m.reception != nil {
		cell.addLedger(&m.reception.ledger)
	}
}

// verified adds what the verification of the cell found. Acknowledgements are checked there like anywhere.
func (c *cells) verified(step *Step, ledger *result.Ledger, order *result.Order) {
	cell := c.cell(step)
	cell.addLedger(ledger)
	addOrder(&cell.Order, order)
}

// result is a copy of the cell as it is now, nil if nothing was measured.
func (c *cells) result(key cellKey) *result.Cell {
	cell := c.byKey[key]
	if cell == nil || len(cell.Blocks) == 0 {
		return nil
	}
	res := cell.Cell
	res.Nodes = slices.Clone(res.Nodes)
	for i := range res.Nodes {
		res.Nodes[i].Connections = connectionsTo(i, len(res.Nodes), res.Connections)
	}
	if res.Generator != nil {
		own := *res.Generator
		res.Generator = &own
	}
	res.Blocks = slices.Clone(res.Blocks)
	res.SchedLatencyP99 = cell.sched.p99()
	res.Latency = result.Latency{
		AckService: distribution(cell.ackService),
		Receive:    distribution(cell.receive),
		Release:    distribution(cell.release),
		Fence:      distribution(cell.fence),

		AckResponse: distribution(cell.ackResponse),
		EndToEnd:    distribution(cell.endToEnd),
	}
	if cell.receiving > 0 {
		rate := perSecond(cell.deliveries, cell.receiving)
		res.DeliveredPerS = &rate
	}
	if res.DurationNS > 0 && cell.bytes > 0 {
		rate := perSecond(cell.bytes, time.Duration(res.DurationNS))
		res.PayloadBytesPerS = &rate
	}
	cell.derive(&res)
	if seconds := time.Duration(res.DurationNS).Seconds(); seconds > 0 {
		res.InFlight.AchievedMean = cell.inFlightSeconds / seconds
	}
	if cell.ackService != nil && res.Connections > 0 {
		res.InFlight.Little = res.ThroughputPerS / float64(res.Connections) * cell.ackService.Mean() / float64(time.Second)
	}
	return &res
}

// connectionsTo is how many of all publishing connections go to node i of n: they take the nodes in turns.
func connectionsTo(i, n, all int) int { return (all - i + n - 1) / n }

// results are the cells in which something was measured: point by point, arm by arm, a control behind the first point that
// it belongs to.
func (c *cells) results() []result.Cell {
	var list []result.Cell
	seen := map[cellKey]bool{}
	for _, point := range c.plan.Scenario.Points() {
		for _, control := range []bool{false, true} {
			for arm := range c.plan.Scenario.Arms {
				key := (&Step{Arm: arm, Point: point, Control: control}).key()
				if res := c.result(key); res != nil && !seen[key] {
					list = append(list, *res)
				}
				seen[key] = true
			}
		}
	}
	return list
}

// addOrder adds the counts of o and keeps the first violation.
func addOrder(to, o *result.Order) {
	to.Checked += o.Checked
	to.Violations += o.Violations
	for kind, n := range o.ByType {
		if to.ByType == nil {
			to.ByType = map[string]int64{}
		}
		to.ByType[kind] += n
	}
	if to.First == "" {
		to.First = o.First
	}
}

// sum adds b to a; once a part is unknown, so is the sum.
func sum(a, b *float64, unknown *bool) *float64 {
	if b == nil {
		*unknown = true
	}
	if *unknown {
		return nil
	}
	total := *b
	if a != nil {
		total += *a
	}
	return &total
}

// merge adds b to a, either of which may be nil, and may keep b.
func merge(a, b *hdrhistogram.Histogram) *hdrhistogram.Histogram {
	if a == nil {
		return b
	}
	if b != nil {
		a.Merge(b)
	}
	return a
}

func perSecond(messages int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(messages) / d.Seconds()
}

// distribution summarises a histogram of nanoseconds, nil if it has no sample.
func distribution(h *hdrhistogram.Histogram) *result.Distribution {
	if h == nil || h.TotalCount() == 0 {
		return nil
	}
	return &result.Distribution{
		Count: h.TotalCount(),
		Mean:  int64(math.Round(h.Mean())),
		P50:   percentile(h, 50, samplesBeyond),
		P90:   percentile(h, 90, samplesBeyond),
		P99:   percentile(h, 99, samplesBeyond),
		P999:  percentile(h, 99.9, samplesBeyond),
		Max:   h.Max(),
	}
}

// percentile is absent when fewer than beyond samples lie above it.
func percentile(h *hdrhistogram.Histogram, q float64, beyond int64) *int64 {
	if h == nil {
		return nil
	}
	// The tiny term keeps 1,000 samples from having 9.999... of them beyond p99.
	if above := float64(h.TotalCount()) * (100 - q) / 100; above+1e-6 < float64(beyond) {
		return nil
	}
	v := h.ValueAtPercentile(q)
	return &v
}
