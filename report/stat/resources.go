package stat

import (
	"inflight/runner/result"
)

// Resources are what one arm at one point took and delivered, pooled over the passes. Peaks are the highest of any pass, rates,
// latencies and sizes per message the geometric mean, counts the sum. What was not measured is nil or 0.
type Resources struct {
	Client             string   // that carried the load; "" for the wire client
	Throughput         *float64 // messages per second
	PayloadPerS        *float64 // bytes of payload per second
	DeliveredPerS      *float64 // messages per second, all subscribers together
	EndToEnd50         *float64 // nanoseconds
	EndToEnd99         *float64
	Response50         *float64 // nanoseconds, open loop: from the intended instant
	Response99         *float64
	Late, Missed       int64
	Open               bool // an open loop
	RSSPeak, RSSGrowth *int64
	RSSSlope           *float64 // bytes per second, the highest
	QueuedPeak         int64
	BytesPerQueued     *float64
	BytesPerInFlight   *float64
	CPUPer1000         *float64 // seconds of all nodes for 1,000 messages
	GeneratorPer1000   *float64 // the same of the load generator
	DiskBytes          *int64
	DiskPerMessage     *float64 // bytes
	Threads, FDs       *int64
	GeneratorRSSPeak   *int64
	WritesPerMessage   *float64 // system calls that write, of all nodes, to sockets as well
}

// ResourcesOf returns those of arm at point, or nil when it has no cells there.
func ResourcesOf(r *result.Result, arm string, point Point) *Resources {
	cells := cellsOf(r, arm, point)
	if len(cells) == 0 {
		return nil
	}
	out := &Resources{Open: point.Rate > 0, Client: cells[0].Client}
	value := func(of func(*result.Cell) *float64) *float64 {
		return geometricMean(cells, func(c *result.Cell) float64 {
			if v := of(c); v != nil {
				return *v
			}
			return 0
		})
	}
	percentile := func(of func(*result.Cell) *result.Distribution, p func(*result.Distribution) *int64) *float64 {
		return geometricMean(cells, func(c *result.Cell) float64 {
			if d := of(c); d != nil {
				return nanoseconds(p(d))
			}
			return 0
		})
	}
	p50 := func(d *result.Distribution) *int64 { return d.P50 }
	p99 := func(d *result.Distribution) *int64 { return d.P99 }
	endToEnd := func(c *result.Cell) *result.Distribution { return c.Latency.EndToEnd }
	response := func(c *result.Cell) *result.Distribution { return c.Latency.AckResponse }
	out.EndToEnd50, out.EndToEnd99 = percentile(endToEnd, p50), percentile(endToEnd, p99)
	out.Response50, out.Response99 = percentile(response, p50), percentile(response, p99)
	out.Throughput = value(func(c *result.Cell) *float64 { return &c.ThroughputPerS })
	out.PayloadPerS = value(func(c *result.Cell) *float64 { return c.PayloadBytesPerS })
	out.DeliveredPerS = value(func(c *result.Cell) *float64 { return c.DeliveredPerS })
	out.BytesPerQueued = value(func(c *result.Cell) *float64 { return c.BytesPerQueued })
	out.BytesPerInFlight = value(func(c *result.Cell) *float64 { return c.BytesPerInFlight })
	var messages, written int64
	for _, c := range cells {
		out.Late += c.Late
		out.Missed += c.Missed
		out.QueuedPeak = max(out.QueuedPeak, c.QueuedPeak)
		out.RSSPeak, out.RSSGrowth = highest(out.RSSPeak, c.RSSPeak), highest(out.RSSGrowth, c.RSSGrowth)
		out.Threads, out.FDs = highest(out.Threads, c.Threads), highest(out.FDs, c.FDs)
		out.GeneratorRSSPeak = highest(out.GeneratorRSSPeak, c.GeneratorRSSPeak)
		if c.RSSSlope != nil && (out.RSSSlope == nil || *c.RSSSlope > *out.RSSSlope) {
			out.RSSSlope = c.RSSSlope
		}
		if c.DiskBytesWritten != nil {
			messages += c.Messages
			written += *c.DiskBytesWritten
			out.DiskBytes = &written
		}
	}
	if out.DiskBytes != nil && messages > 0 {
		v := float64(written) / float64(messages)
		out.DiskPerMessage = &v
	}
	out.WritesPerMessage = thousandth(per1000(cells, writes))
	out.CPUPer1000 = per1000(cells, func(c *result.Cell) *float64 { return c.CPUSeconds })
	out.GeneratorPer1000 = per1000(cells, func(c *result.Cell) *float64 { return c.GeneratorCPU })
	return out
}

// cellsOf are the measured cells of arm at point, one for each pass.
func cellsOf(r *result.Result, arm string, point Point) (cells []*result.Cell) {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Arm == arm && !c.Control && PointOf(c) == point {
			cells = append(cells, c)
		}
	}
	return cells
}

// writes is how often the nodes of a cell wrote; nil where one does not tell.
func writes(c *result.Cell) *float64 {
	if len(c.Nodes) == 0 {
		return nil
	}
	var all float64
	for _, n := range c.Nodes {
		if n.WriteCalls == nil {
			return nil
		}
		all += float64(*n.WriteCalls)
	}
	return &all
}

// per1000 is the sum of a time, or of something else that adds up, for 1,000 of the messages of the same cells; nil if a cell lacks it.
func per1000(cells []*result.Cell, of func(*result.Cell) *float64) *float64 {
	var seconds float64
	var messages int64
	for _, c := range cells {
		v := of(c)
		if v == nil {
			return nil
		}
		seconds += *v
		messages += c.Messages
	}
	if messages == 0 {
		return nil
	}
	v := seconds * 1000 / float64(messages)
	return &v
}

func highest(a, b *int64) *int64 {
	if a == nil || (b != nil && *b > *a) {
		return b
	}
	return a
}

// Gap is how much of its throughput at QoS 1 an arm keeps at QoS 2, all else being equal.
type Gap struct {
	Arm   string
	Point Point // at QoS 2
	Ratio float64
	Sound bool // neither cell is incorrect
}

// Gaps returns those of every arm at every point that was measured at both.
func Gaps(r *result.Result) []Gap {
	var gaps []Gap
	for _, arm := range r.Arms {
		for _, point := range Points(r) {
			if point.QoS != 2 {
				continue
			}
			below := point
			below.QoS = 1
			one, two := Summarise(r, arm.Name, below), Summarise(r, arm.Name, point)
			if one == nil || two == nil || one.Throughput == nil || two.Throughput == nil {
				continue
			}
			gaps = append(gaps, Gap{
				Arm: arm.Name, Point: point, Ratio: two.Throughput.Value / one.Throughput.Value, Sound: !one.Incorrect && !two.Incorrect,
			})
		}
	}
	return gaps
}
