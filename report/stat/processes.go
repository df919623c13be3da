package stat

import (
	"slices"

	"inflight/runner/result"
)

// Process is what one process took under the load of an arm at a point, pooled over the passes as Resources are: a node of the
// broker, or the load generator.
type Process struct {
	Name               string
	RSSPeak, RSSGrowth *int64
	RSSSlope           *float64 // bytes per second, the highest
	BytesPerInFlight   *float64
	CPUPer1000         *float64 // seconds
	DiskPerMessage     *float64 // bytes
	WritesPerMessage   *float64
	Threads, FDs       *int64
}

// ProcessesOf returns the nodes of arm at point in their order, and behind them the load generator; nothing of a run that did
// not tell them apart.
func ProcessesOf(r *result.Result, arm string, point Point) []Process {
	cells := cellsOf(r, arm, point)
	var all []Process
	for _, c := range cells {
		for i := range c.Nodes {
			name := c.Nodes[i].Name
			if slices.ContainsFunc(all, func(p Process) bool { return p.Name == name }) {
				continue
			}
			all = append(all, process(name, cells, func(c *result.Cell) *result.Node {
				for k := range c.Nodes {
					if c.Nodes[k].Name == name {
						return &c.Nodes[k]
					}
				}
				return nil
			}))
		}
	}
	if slices.ContainsFunc(cells, func(c *result.Cell) bool { return c.Generator != nil }) {
		all = append(all, process("generator", cells, func(c *result.Cell) *result.Node { return c.Generator }))
	}
	return all
}

func process(name string, cells []*result.Cell, of func(*result.Cell) *result.Node) Process {
	p := Process{Name: name}
	for _, c := range cells {
		n := of(c)
		if n == nil {
			continue
		}
		p.RSSPeak, p.RSSGrowth = highest(p.RSSPeak, n.RSSPeak), highest(p.RSSGrowth, n.RSSGrowth)
		p.Threads, p.FDs = highest(p.Threads, n.Threads), highest(p.FDs, n.FDs)
		if n.RSSSlope != nil && (p.RSSSlope == nil || *n.RSSSlope > *p.RSSSlope) {
			p.RSSSlope = n.RSSSlope
		}
	}
	p.BytesPerInFlight = geometricMean(cells, func(c *result.Cell) float64 {
		if n := of(c); n != nil && n.BytesPerInFlight != nil {
			return *n.BytesPerInFlight
		}
		return 0
	})
	sum := func(count func(*result.Cell, *result.Node) *float64) *float64 {
		return per1000(cells, func(c *result.Cell) *float64 {
			if n := of(c); n != nil {
				return count(c, n)
			}
			return nil
		})
	}
	p.CPUPer1000 = sum(func(c *result.Cell, n *result.Node) *float64 {
		if n == c.Generator {
			return c.GeneratorCPU // of the measured time to the instant
		}
		return n.CPUSeconds
	})
	p.DiskPerMessage = thousandth(sum(func(_ *result.Cell, n *result.Node) *float64 { return float(n.DiskBytes) }))
	p.WritesPerMessage = thousandth(sum(func(_ *result.Cell, n *result.Node) *float64 { return float(n.WriteCalls) }))
	return p
}

func float(n *int64) *float64 {
	if n == nil {
		return nil
	}
	v := float64(*n)
	return &v
}

func thousandth(v *float64) *float64 {
	if v == nil {
		return nil
	}
	n := *v / 1000
	return &n
}
