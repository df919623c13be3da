package runner

import (
	"time"

	"inflight/runner/result"
)

// What must be there before a number is divided by it: below, the memory that a process takes for whatever else it does is
// all that one would see.
const (
	minInFlight  = 1_000 // exchanges, all connections together
	minQueued    = 1_000
	minSlopeTime = 2 * time.Second
	minSlopeSize = 10 // samples
)

// addUsage counts what one run used.
func (c *cell) addUsage(u *usage) {
	if u == nil {
		c.CPUSeconds, c.cpuUnknown = nil, true
		return
	}
	all, disk := (*float64)(nil), (*int64)(nil)
	var threads, fds *int64
	unknown := len(u.nodes) == 0
	for i, n := range u.nodes {
		all = sum(all, n.CPUSeconds, &unknown)
		c.RSSPeak = higher(c.RSSPeak, n.RSSPeak)
		threads, fds, disk = plus(threads, n.Threads), plus(fds, n.FDs), plus(disk, n.DiskBytes)
		if i == len(c.Nodes) {
			c.Nodes = append(c.Nodes, n)
			continue
		}
		addNode(&c.Nodes[i], &n)
	}
	c.CPUSeconds = sum(c.CPUSeconds, all, &c.cpuUnknown)
	c.DiskBytesWritten = plus(c.DiskBytesWritten, disk)
	c.Threads, c.FDs = higher(c.Threads, threads), higher(c.FDs, fds)
	if c.Generator == nil {
		own := u.generator
		c.Generator = &own
	} else {
		addNode(c.Generator, &u.generator)
	}
	c.GeneratorRSSPeak = higher(c.GeneratorRSSPeak, u.generator.RSSPeak)
	c.RSSGrowth = higher(c.RSSGrowth, u.growth)
	c.QueuedPeak = max(c.QueuedPeak, u.queuedPeak)
	c.addSamples(u.samples)
}

// addNode adds another run of the same process.
func addNode(to, n *result.Node) {
	missing := to.CPUSeconds == nil
	to.CPUSeconds = sum(to.CPUSeconds, n.CPUSeconds, &missing)
	to.RSSPeak, to.Threads, to.FDs = higher(to.RSSPeak, n.RSSPeak), higher(to.Threads, n.Threads), higher(to.FDs, n.FDs)
	to.RSSGrowth = higher(to.RSSGrowth, n.RSSGrowth)
	to.DiskBytes, to.WriteCalls = plus(to.DiskBytes, n.DiskBytes), plus(to.WriteCalls, n.WriteCalls)
}

// addSamples appends the time line of one run, and takes the slopes of the longest.
func (c *cell) addSamples(samples []result.Sample) {
	if n := len(samples); n >= minSlopeSize {
		if took := time.Duration(samples[n-1].AtNS - samples[0].AtNS); took >= minSlopeTime && took > c.longest {
			c.longest = took
			c.addSlopes(samples)
		}
	}
	c.Samples = append(c.Samples, samples...)
	for before := 0; len(c.Samples) > maxSamples && len(c.Samples) != before; {
		before = len(c.Samples)
		c.Samples = thin(c.Samples)
	}
}

// addSlopes sets those of the nodes together, of each node, and of the load generator.
func (c *cell) addSlopes(samples []result.Sample) {
	c.RSSSlope = slope(samples, func(s *result.Sample) *int64 { return s.RSS })
	for i := range c.Nodes {
		c.Nodes[i].RSSSlope = slope(samples, func(s *result.Sample) *int64 {
			switch {
			case len(c.Nodes) == 1:
				return s.RSS
			case len(s.NodeRSS) != len(c.Nodes):
				return nil
			}
			return &s.NodeRSS[i]
		})
	}
	if c.Generator != nil {
		c.Generator.RSSSlope = slope(samples, func(s *result.Sample) *int64 { return s.GeneratorRSS })
	}
}

// slope is that of the line of least squares through a resident memory, in bytes per second; nil where a sample lacks it.
func slope(samples []result.Sample, rss func(*result.Sample) *int64) *float64 {
	var meanX, meanY float64
	n := float64(len(samples))
	for i := range samples {
		bytes := rss(&samples[i])
		if bytes == nil {
			return nil
		}
		meanX += float64(samples[i].AtNS-samples[0].AtNS) / 1e9 / n
		meanY += float64(*bytes) / n
	}
	var xy, xx float64
	for i := range samples {
		x := float64(samples[i].AtNS-samples[0].AtNS)/1e9 - meanX
		xy += x * (float64(*rss(&samples[i])) - meanY)
		xx += x * x
	}
	if xx == 0 {
		return nil
	}
	v := xy / xx
	return &v
}

// derive fills in what follows from the sums. The nodes and the generator of res are its own.
func (c *cell) derive(res *result.Cell) {
	res.CPUPer1000 = per1000(res.CPUSeconds, res.Messages)
	var writes int64
	told := len(res.Nodes) > 0
	for i := range res.Nodes {
		n := &res.Nodes[i]
		n.CPUPer1000 = per1000(n.CPUSeconds, res.Messages)
		if n.WriteCalls == nil {
			told = false
			continue
		}
		writes += *n.WriteCalls
	}
	if told {
		res.WriteCalls = &writes
	}
	if res.Generator != nil {
		res.Generator.CPUPer1000 = per1000(res.GeneratorCPU, res.Messages)
	}
	if res.Control {
		return
	}
	if n := res.InFlight.Requested * res.Connections; n >= minInFlight && res.Subscribers == 0 {
		res.BytesPerInFlight = each(res.RSSGrowth, int64(n))
		for i := range res.Nodes {
			res.Nodes[i].BytesPerInFlight = each(res.Nodes[i].RSSGrowth, int64(n))
		}
		if g := res.Generator; g != nil && g.RSSGrowth != nil && *g.RSSGrowth > 0 {
			g.BytesPerInFlight = each(g.RSSGrowth, int64(n))
		}
	}
	if res.QueuedPeak >= minQueued {
		res.BytesPerQueued = each(res.RSSGrowth, res.QueuedPeak)
	}
}

// per1000 is a time for 1,000 of so many messages, absent where it or they are.
func per1000(seconds *float64, messages int64) *float64 {
	if seconds == nil || messages <= 0 {
		return nil
	}
	v := *seconds * 1000 / float64(messages)
	return &v
}

// each is the n-th part of bytes, which may be absent.
func each(bytes *int64, n int64) *float64 {
	if bytes == nil {
		return nil
	}
	v := float64(*bytes) / float64(n)
	return &v
}

// plus adds b to a, either of which may be absent.
func plus(a, b *int64) *int64 {
	switch {
	case b == nil:
		return a
	case a == nil:
		n := *b
		return &n
	}
	n := *a + *b
	return &n
}
