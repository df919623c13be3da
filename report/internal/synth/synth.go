// Package synth makes results of runs that never were, with known effects planted in them. Only tests use it: for the
// statistics, to see whether they find what was planted, and for the renderings, as realistic material.
package synth

import (
	"math"
	"math/rand/v2"
	"time"

	"inflight/runner/result"
)

// Run describes a run. Zero values plant nothing.
type Run struct {
	Seed     uint64
	Arms     []Arm
	Windows  []int
	QoS      []int // default 2
	Conns    []int // default 1
	Payloads []int // default 256
	Passes   int
	Blocks   int // per pass and cell

	Noise      float64 // standard deviation of the log of one run of an arm
	Slot       float64 // log of how much faster slot 2 is
	Drift      float64 // log per run of an arm: a linear drift over the pass
	Control    bool
	Unverified bool          // no ledgers
	Length     time.Duration // of one run of an arm; default 1 s
	Question   string
	Name       string
}

// Arm is one arm and its true behaviour.
type Arm struct {
	Target, Version string
	Rate            func(qos, window int) float64 // messages per second, per connection
	Durability      string
}

// minForP99 is how many samples leave ten beyond the 99th percentile.
const minForP99 = 1_000

// Result makes the result. The same Run gives the same result.
func (run Run) Result() *result.Result {
	if run.QoS == nil {
		run.QoS = []int{2}
	}
	if run.Conns == nil {
		run.Conns = []int{1}
	}
	if run.Payloads == nil {
		run.Payloads = []int{256}
	}
	if run.Length == 0 {
		run.Length = time.Second
	}
	control := time.Duration(0)
	if run.Control {
		control = run.Length / 2
	}
	r := &result.Result{
		Schema: result.Schema, Tool: result.Tool{Name: "inflight", Version: "0.1.0"},
		Started:    time.Date(2025, 11, 28, 14, 3, 7, 0, time.UTC),
		DurationNS: int64(3*time.Minute + 21*time.Second),
		Scenario: result.Scenario{
			Name: run.Name, Question: run.Question, QoS: run.QoS, Windows: run.Windows, Connections: run.Conns, Payloads: run.Payloads,
			DurationNS: int64(run.Length), WarmupNS: int64(run.Length / 5), ControlNS: int64(control), Passes: run.Passes, Blocks: run.Blocks,
			Nodes: 3, Replicas: 3, VerifyNS: int64(run.Length),
		},
		Environment: result.Environment{
			CPU: "Example CPU @ 2.60GHz", Cores: 2, Kernel: "6.1.0-18-amd64", OS: "linux", Arch: "amd64", Go: "go1.26.0", GOMAXPROCS: 2, TCPNoDelay: true,
		},
	}
	for i, arm := range run.Arms {
		durability := arm.Durability
		if durability == "" {
			durability = "file"
		}
		r.Arms = append(r.Arms, result.Arm{
			Name: string(rune('A' + i)), Target: arm.Target, Version: arm.Version, Durability: durability,
			Command: []string{"inflight", "broker", "--node", "n1", "--listen", "127.0.0.1:41883"},
		})
	}
	g := generator{Run: run, rng: rand.New(rand.NewPCG(run.Seed, 1))}
	for pass := 1; pass <= run.Passes; pass++ {
		g.tick = 0
		for _, qos := range run.QoS {
			for _, conns := range run.Conns {
				for _, payload := range run.Payloads {
					for _, window := range run.Windows {
						r.Cells = append(r.Cells, g.cells(pass, qos, conns, payload, window, false)...)
						if run.Control && len(run.Arms) > 1 {
							r.Cells = append(r.Cells, g.cells(pass, 0, conns, payload, window, true)...)
						}
					}
				}
			}
		}
	}
	return r
}

type generator struct {
	Run
	rng  *rand.Rand
	tick int // runs of an arm so far in this pass
}

// cells runs the blocks of every arm at one point in one pass.
func (g *generator) cells(pass, qos, conns, payload, window int, control bool) []result.Cell {
	cells := make([]result.Cell, len(g.Arms))
	for i := range cells {
		slot := i + 1
		if pass%2 == 0 {
			slot = len(g.Arms) - i
		}
		cells[i] = result.Cell{
			Arm: string(rune('A' + i)), Pass: pass, Slot: slot, QoS: qos, Window: window, Connections: conns, Payload: payload, Control: control,
			InFlight: result.InFlight{Requested: window},
		}
	}
	for block := 1; block <= g.Blocks; block++ {
		for position, arm := range g.order() {
			c := &cells[arm]
			log := math.Log(g.rate(arm, qos, conns, window))
			log += g.Noise*g.rng.NormFloat64() + g.Drift*float64(g.tick)
			if c.Slot == 2 {
				log += g.Slot
			}
			g.run(c, (pass-1)*g.Blocks+block, position+1, math.Exp(log))
		}
	}
	for i := range cells {
		g.finish(&cells[i])
	}
	return cells
}

// order is A B B A for two arms, there and back again for more, and a single run for one.
func (g *generator) order() []int {
	if len(g.Arms) == 1 {
		return []int{0}
	}
	var order []int
	for i := range g.Arms {
		order = append(order, i)
	}
	for i := len(g.Arms) - 1; i >= 0; i-- {
		order = append(order, i)
	}
	return order
}

func (g *generator) rate(arm, qos, conns, window int) float64 {
	if qos == 0 {
		return 150_000
	}
	return g.Arms[arm].Rate(qos, window) * float64(conns)
}

func (g *generator) run(c *result.Cell, block, position int, rate float64) {
	length := g.Length
	if c.Control {
		length /= 2
	}
	b := result.Block{
		Block: block, Position: position, StartedNS: int64(g.tick) * int64(g.Length), DurationNS: int64(length),
		Messages: int64(rate * length.Seconds()), ThroughputPerS: rate,
	}
	g.tick++
	switch {
	case c.QoS == 0: // that of the fences
		p99 := int64(time.Millisecond)
		b.P99 = &p99
	case b.Messages >= minForP99:
		p99 := g.latency(c, rate, 1.6)
		b.P99 = &p99
	}
	c.Messages += b.Messages
	c.DurationNS += b.DurationNS
	c.Blocks = append(c.Blocks, b)
}

// latency follows from Little's law, with a tail.
func (g *generator) latency(c *result.Cell, rate, tail float64) int64 {
	seconds := float64(c.Window*c.Connections) / rate
	return int64(seconds * tail * math.Exp(g.Noise*g.rng.NormFloat64()) * 1e9)
}

func (g *generator) finish(c *result.Cell) {
	c.ThroughputPerS = float64(c.Messages) / (float64(c.DurationNS) / 1e9)
	c.InFlight.AchievedMean = float64(c.Window) * 0.99
	c.InFlight.Little = float64(c.Window) * 0.985
	rss, cpu := int64(41<<20)+int64(c.Window)*2_000, float64(c.DurationNS)/1e9*1.1
	c.RSSPeak, c.CPUSeconds = &rss, &cpu
	if c.QoS == 0 {
		return
	}
	d := &result.Distribution{Count: c.Messages, Mean: g.latency(c, c.ThroughputPerS, 1), Max: g.latency(c, c.ThroughputPerS, 6)}
	tails := []float64{0.95, 1.2, 1.6, 2.4}
	for i, p := range []**int64{&d.P50, &d.P90, &d.P99, &d.P999} {
		v := g.latency(c, c.ThroughputPerS, tails[i])
		if c.Messages >= []int64{20, 100, minForP99, 10 * minForP99}[i] {
			*p = &v
		}
	}
	c.Latency.AckService = d
	c.Order.Checked = c.Messages
	if !g.Unverified {
		n := c.Messages / int64(g.Blocks)
		c.Ledger = &result.Ledger{Published: n, Acknowledged: n, Delivered: n, DrainNS: 120_000_000}
	}
}
