package stat

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"inflight/runner/result"
)

// Limits of the classes.
const (
	generatorBusy   = 0.85 // of the processors that the generator could use
	ceilingNear     = 0.7  // of the null broker's rate at the same point
	keptUp          = 0.98 // of the rate that was asked for
	littleNear      = 0.25 // Little's law, on runs as short as a few turns of the window
	rising          = 0.5  // elasticity: the exponent of the window in the rate between two windows
	stallShare      = 0.4  // of a run without an acknowledgement
	stallTimes      = 20   // how much longer than the median acknowledgement that is
	schedShare      = 0.25 // of the median acknowledgement that the generator's own waiting may take
	coresPerClient  = 2    // a connection keeps a reader and a writer busy
	minSamplesClass = 100  // acknowledgements, for a class
)

// singleThreaded is the client that runs its connections in one thread.
const singleThreaded = "mqttjs"

// classify fills Class of every cell that is no control.
//
//   - stalled: acknowledgements stopped for a good part of a run, or a run had none.
//   - generator-limited: the harness used most of the processors that it can use, or did not keep the window full, or reached
//     most of what it reaches against the null broker (from a stored calibration).
//   - rate-limited: an open loop that got what it asked for.
//   - window-limited: closed loop, the window full, Little's law holds, and the rate still rises with the window: by at
//     least its square root to the next larger one, or from the next smaller one.
//   - broker-limited: the same, and the rate rises less; or an open loop that did not get what it asked for.
//
// A closed loop at a single window shows neither of the last two, and has no class.
func classify(r *result.Result) {
	cells := slices.Clone(r.Cells)
	for i := range cells {
		c := &cells[i]
		c.Class = ""
		if !c.Control && c.Messages >= minSamplesClass {
			c.Class = classOf(r, c)
		}
	}
	r.Cells = cells
}

func classOf(r *result.Result, c *result.Cell) string {
	switch {
	case stalled(c):
		return result.Stalled
	case c.RatePerS > 0 && c.ThroughputPerS >= keptUp*c.RatePerS:
		return result.RateLimited
	case generatorBound(r, c) != "":
		return result.GeneratorLimited
	case c.RatePerS > 0:
		return result.BrokerLimited
	case !littleHolds(c):
		return ""
	}
	e, ok := elasticity(r, c)
	switch {
	case !ok:
		return ""
	case e >= rising:
		return result.WindowLimited
	default:
		return result.BrokerLimited
	}
}

// stalled reports whether a run had no acknowledgement, or the longest one took a good part of a run and was nothing like
// the others.
func stalled(c *result.Cell) bool {
	var shortest int64
	for i := range c.Blocks {
		b := &c.Blocks[i]
		if b.Messages == 0 {
			return true
		}
		if i == 0 || b.DurationNS < shortest {
			shortest = b.DurationNS
		}
	}
	d := c.Latency.AckService
	if d == nil || d.P50 == nil {
		return false
	}
	return float64(d.Max) > stallShare*float64(shortest) && d.Max > stallTimes**d.P50
}

// generatorBound says in words why the rate may be the generator's; "" if it is not.
func generatorBound(r *result.Result, c *result.Cell) string {
	seconds := float64(c.DurationNS) / 1e9
	if cores := min(r.Environment.GOMAXPROCS, coresOf(c)); c.GeneratorCPU != nil && seconds > 0 && cores > 0 {
		if share := *c.GeneratorCPU / seconds / float64(cores); share >= generatorBusy {
			return fmt.Sprintf("it used %.0f %% of the processors that it can use", 100*share)
		}
	}
	if unfilled(c) {
		return fmt.Sprintf("it kept %.3g of %d in flight", c.InFlight.AchievedMean, c.InFlight.Requested)
	}
	// The ceiling is that of the wire client.
	if ceiling := Ceiling(r, PointOf(c)); c.Client == "" && ceiling > 0 && c.ThroughputPerS >= ceilingNear*ceiling {
		return fmt.Sprintf("it reached %.0f %% of what it reaches against the null broker", 100*c.ThroughputPerS/ceiling)
	}
	return ""
}

// coresOf is how many processors the client of a cell can use.
func coresOf(c *result.Cell) int {
	if c.Client == singleThreaded {
		return 1
	}
	return coresPerClient * c.Connections
}

// unfilled reports whether a closed loop did not keep its window full.
func unfilled(c *result.Cell) bool {
	f := &c.InFlight
	return c.QoS > 0 && c.RatePerS == 0 && f.AchievedMean > 0 && f.AchievedMean < windowFilled*float64(f.Requested)
}

// Ceiling is the rate that the generator reached against the null broker at a point, from the stored calibration that the
// run quotes; 0 if that has no such point. A larger payload than the calibration's has none either: it costs more.
func Ceiling(r *result.Result, p Point) float64 {
	k := r.Environment.Calibration
	if k == nil {
		return 0
	}
	for _, c := range k.Ceilings {
		if c.QoS == p.QoS && c.Window == p.Window && c.Connections == p.Connections && c.Payload == p.Payload {
			return c.ThroughputPerS
		}
	}
	return 0
}

// littleHolds compares the mean in flight with throughput times mean latency.
func littleHolds(c *result.Cell) bool {
	f := &c.InFlight
	return f.Little == 0 || f.AchievedMean == 0 || math.Abs(f.Little/f.AchievedMean-1) <= littleNear
}

// elasticity is the exponent of the window in the rate, between this cell and the next larger window of the same arm and
// pass, or else the next smaller one.
func elasticity(r *result.Result, c *result.Cell) (float64, bool) {
	var next *result.Cell
	at := PointOf(c)
	for i := range r.Cells {
		o := &r.Cells[i]
		p := PointOf(o)
		if o.Control || o.Arm != c.Arm || o.Pass != c.Pass || p.Window == at.Window || !positive(o.ThroughputPerS) {
			continue
		}
		if p.Window = at.Window; p == at && nearer(c.Window, o, next) {
			next = o
		}
	}
	if next == nil || !positive(c.ThroughputPerS) {
		return 0, false
	}
	return math.Log(next.ThroughputPerS/c.ThroughputPerS) / math.Log(float64(next.Window)/float64(c.Window)), true
}

// nearer reports whether o is a better neighbour of window than best: larger windows come before smaller ones.
func nearer(window int, o, best *result.Cell) bool {
	switch {
	case best == nil:
		return true
	case (o.Window > window) != (best.Window > window):
		return o.Window > window
	default:
		return (o.Window < best.Window) == (o.Window > window)
	}
}

// innocence warns of what the generator may have added of its own.
func innocence(r *result.Result, warn func(code, format string, args ...any)) {
	for _, arm := range r.Arms {
		var bound, late []string
		seen := map[Point]bool{}
		for i := range r.Cells {
			c := &r.Cells[i]
			p := PointOf(c)
			if c.Arm != arm.Name || c.Control || seen[p] {
				continue
			}
			if c.Class == result.GeneratorLimited && !unfilled(c) { // which has a warning of its own
				seen[p] = true
				bound = append(bound, fmt.Sprintf("%s %s", pointName(p), generatorBound(r, c)))
			} else if d := c.Latency.AckService; c.SchedLatencyP99 != nil && d != nil && d.P50 != nil && float64(*c.SchedLatencyP99) > schedShare*float64(*d.P50) {
				seen[p] = true
				late = append(late, fmt.Sprintf("%s %.3g ms of %.3g ms", pointName(p), float64(*c.SchedLatencyP99)/1e6, float64(*d.P50)/1e6))
			}
		}
		if len(bound) > 0 {
			who := "the load generator"
			if arm.Client != "" {
				who += "'s client, " + arm.Client + ","
			}
			warn(CodeGenerator, "%s: %s was the limit: %s", arm.Name, who, strings.Join(bound, "; "))
		}
		if len(late) > 0 {
			warn(CodeLate, "%s: the load generator waited for a processor itself, which is in the latencies (p99 of its waiting against the median acknowledgement): %s", arm.Name, strings.Join(late, "; "))
		}
	}
}

// pointName is a point in a list of warnings.
func pointName(p Point) string {
	text := fmt.Sprintf("at QoS %d, window %d", p.QoS, p.Window)
	if p.Connections > 1 {
		text += fmt.Sprintf(", %d connections", p.Connections)
	}
	return text
}
