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
	to.DiskBytes, to.WriteCalls = plus(to.DiskBytes, n.DiskBytes), plus(to.WriteCalls, n.WriteCalls)
}

// addSamples appends the time line of one run, and takes the slope of the longest.
func (c *cell) addSamples(samples []result.Sample) {
	if n := len(samples); n >= minSlopeSize {
		if took := time.Duration(samples[n-1].AtNS - samples[0].AtNS); took >= minSlopeTime && took > c.longest {
			c.longest = took
			c.RSSSlope = slope(samples)
		}
	}
	c.Samples = append(c.Samples, samples...)
	for before := 0; len(c.Samples) > maxSamples && len(c.Samples) != before; {
		before = len(c.Samples)
		c.Samples = thin(c.Samples)
	}
}

// slope is that of the line of least squares through the resident memory, in bytes per second; nil where a sample lacks it.
func slope(samples []result.Sample) *float64 {
	var meanX, meanY float64
	n := float64(len(samples))
	for _, s := range samples {
		if s.RSS == nil {
			return nil
		}
		meanX += float64(s.AtNS-samples[0].AtNS) / 1e9 / n
		meanY += float64(*s.RSS) / n
	}
	var xy, xx float64
	for _, s := range samples {
		x := float64(s.AtNS-samples[0].AtNS)/1e9 - meanX
		xy += x * (float64(*s.RSS) - meanY)
		xx += x * x
	}
	if xx == 0 {
		return nil
	}
	v := xy / xx
	return &v
}

// derive fills in what follows from the sums.
func (c *cell) derive(res *result.Cell) {
	if res.CPUSeconds != nil && res.Messages > 0 {
		v := *res.CPUSeconds * 1000 / float64(res.Messages)
		res.CPUPer1000 = &v
	}
	if res.RSSGrowth == nil || res.Control {
		return
	}
	if n := res.InFlight.Requested * res.Connections; n >= minInFlight && res.Subscribers == 0 {
		v := float64(*res.RSSGrowth) / float64(n)
		res.BytesPerInFlight = &v
	}
	if res.QueuedPeak >= minQueued {
		v := float64(*res.RSSGrowth) / float64(res.QueuedPeak)
		res.BytesPerQueued = &v
	}
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
