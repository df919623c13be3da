package stat

import (
	"math"

	"inflight/runner/result"
)

// Pace is one moment of an open loop: what its schedule asked for and what was written, both over the time since the sample
// before, messages per second.
type Pace struct {
	AtNS           int64
	Asked, Reached float64
	Behind         int64 // messages that were due and not written by then
}

// Paces returns the time lines of a cell's open loop, one for each of its runs; none for a closed loop, and for results of before
// the schedule was sampled.
func Paces(c *result.Cell) (runs [][]Pace) {
	if c.RatePerS <= 0 {
		return nil
	}
	var line []Pace
	for i := 1; i < len(c.Samples); i++ {
		before, now := &c.Samples[i-1], &c.Samples[i]
		if now.Due < before.Due || now.Published < before.Published { // the next run has begun
			runs, line = keepPaces(runs, line), nil
			continue
		}
		seconds := float64(now.AtNS-before.AtNS) / 1e9
		if seconds <= 0 || now.Due == before.Due {
			continue // after the end of the schedule
		}
		line = append(line, Pace{
			AtNS: now.AtNS, Asked: float64(now.Due-before.Due) / seconds, Reached: float64(now.Published-before.Published) / seconds,
			Behind: max(0, now.Due-now.Published),
		})
	}
	return keepPaces(runs, line)
}

func keepPaces(runs [][]Pace, line []Pace) [][]Pace {
	if len(line) > 1 {
		runs = append(runs, line)
	}
	return runs
}

// An open loop has fallen behind once its backlog is worth so much time at the asked rate; it began to when the backlog was
// worth more than the lesser time. A broker that pauses for a moment and catches up has not fallen behind.
const (
	backlogTime  = 0.1  // seconds
	backlogBegun = 0.01 // seconds
)

// fellBehind is the asked rate of a ramp from which on an arm had a backlog until the end of the run, messages per second, the
// geometric mean over the runs; ok is false where there is none.
func fellBehind(r *result.Result, arm string, p Point) (rate float64, ok bool) {
	if p.Ramp == "" {
		return 0, false
	}
	var at []float64
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Arm != arm || c.Control || PointOf(c) != p {
			continue
		}
		for _, line := range Paces(c) {
			if last := line[len(line)-1]; float64(last.Behind) <= backlogTime*last.Asked {
				continue
			}
			first := len(line) - 1
			for first > 0 && float64(line[first-1].Behind) > backlogBegun*line[first-1].Asked {
				first--
			}
			at = append(at, math.Log(line[first].Asked))
		}
	}
	if len(at) == 0 {
		return 0, false
	}
	return math.Exp(mean(at)), true
}
