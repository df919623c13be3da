package runner

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/runner/load"
	"inflight/runner/result"
	"inflight/runner/target"
	"inflight/scenarios"
)

// Bounds of the trials of a search.
const (
	maxTrial     = 20 * time.Second // of the measured time of one
	spareSamples = 1.2              // how many more messages a trial has than its percentile needs
	timesLimit   = 10               // how many times the limit a trial lasts: a tenth too much breaks the limit within it
	firstShare   = 0.5              // of what the closed loop reached, for the first rate
	firstGuess   = 1_000            // messages per second, where no closed loop was measured

	// The generator is the limit of a trial that breaks when it used so much of the processors that it can use, or itself waited
	// for a processor for so much of the limit (p99).
	busyShare  = 0.85
	waitShare  = 0.5
	coresOfOne = 2 // a connection keeps a reader and a writer busy
)

// search finds the highest rate that keeps to the scenario's limit at the step's point, on the broker as it is.
func (r *run) search(ctx context.Context, pass *Pass, step *Step, broker *target.Broker, cells *cells) (*result.Search, error) {
	limit, p := r.plan.Scenario.FindMax, &step.Point
	found := &result.Search{
		Arm: r.arms[step.Arm].Name, Pass: pass.Number, QoS: p.QoS, Window: p.Window, Connections: p.Connections, Payload: p.Payload, Sizes: p.Sizes,
		Limit: limit.String(), Percentile: limit.Percentile, LimitNS: int64(limit.Below),
	}
	first := firstGuess
	if perS := r.turns.rate(step.Arm, step.Point); perS > 0 {
		first = int(firstShare * perS)
	}
	s := load.NewSearch(first, lowestRate(limit), scenarios.MaxRate)
	for {
		rate, more := s.Next()
		if !more {
			break
		}
		trial := *step
		trial.Action, trial.Point.Rate = Measure, rate
		e := r.stepEvent(Running, pass, &trial)
		e.Trial = len(found.Trials) + 1
		r.send(e)
		times := loadTimes{warmup: r.plan.Scenario.Warmup, measured: trialTime(limit, rate, r.plan.Scenario.Duration)}
		m, err := r.load(ctx, broker, &trial, times)
		if err != nil {
			return nil, fmt.Errorf("%d/s: %w", rate, err)
		}
		t := trialOf(m, rate, limit)
		verdict := load.Held
		if !t.Held {
			verdict = load.Broken
			if t.Fault = ownFault(m, p.Connections, limit); t.Fault != "" {
				verdict = load.Unsure
			}
		}
		found.Trials = append(found.Trials, t)
		cells.tried(step, m)
		s.Note(verdict)
		if err := sleep(ctx, pauseAfterRun); err != nil {
			return nil, err
		}
	}
	low, high, end := s.Result()
	if low > 0 {
		found.Low = &low
	}
	if high > 0 {
		found.High = &high
	}
	found.End = string(end)
	return found, nil
}

// needed is how many messages a trial must have for its percentile to mean something.
func needed(limit scenarios.Limit) float64 {
	return spareSamples * samplesBeyond * 100 / (100 - limit.Percentile)
}

// lowestRate is the one at which a trial of the longest time still has enough messages.
func lowestRate(limit scenarios.Limit) int {
	return max(1, int(math.Ceil(needed(limit)/maxTrial.Seconds())))
}

// trialTime is the measured time of a trial: that of the scenario, or as much longer as its percentile needs, or as it takes a
// backlog to grow beyond the limit.
func trialTime(limit scenarios.Limit, rate int, wanted time.Duration) time.Duration {
	return max(wanted, timesLimit*limit.Below, time.Duration(needed(limit)/float64(rate)*float64(time.Second)))
}

// trialOf is what one run showed. Messages that were due and not written or not answered count as slower than any.
func trialOf(m *measurement, rate int, limit scenarios.Limit) result.Trial {
	s := m.stats
	t := result.Trial{
		RatePerS: rate, ReachedPerS: perSecond(s.Messages, s.Duration), DurationNS: int64(s.Duration), Late: s.Late, Missed: s.Missed,
		Due: s.AckResponse.TotalCount() + s.Missed + s.Published - s.Acknowledged,
	}
	t.ValueNS = percentileOfDue(s.AckResponse, t.Due, limit.Percentile)
	t.Held = t.ValueNS != nil && *t.ValueNS < int64(limit.Below)
	return t
}

// percentileOfDue is a percentile of so many messages, of which only those in the histogram were answered; nil if it is among
// the others, or if too few lie beyond it to say.
func percentileOfDue(h *hdrhistogram.Histogram, due int64, q float64) *int64 {
	answered := h.TotalCount()
	if float64(due)*(100-q)/100+1e-6 < samplesBeyond || answered == 0 {
		return nil
	}
	of := q * float64(due) / float64(answered)
	if of > 100 {
		return nil
	}
	v := h.ValueAtPercentile(of)
	return &v
}

// ownFault says why a trial that broke the limit may have been the load generator's fault; "" if it was not.
func ownFault(m *measurement, connections int, limit scenarios.Limit) string {
	seconds, cores := m.stats.Duration.Seconds(), float64(min(runtime.GOMAXPROCS(0), coresOfOne*connections))
	if used := m.stats.CPUSeconds; used != nil && seconds > 0 && *used/seconds/cores >= busyShare {
		return fmt.Sprintf("the load generator used %.0f %% of the processors that it can use", 100**used/seconds/cores)
	}
	if wait := m.sched.p99(); wait != nil && float64(*wait) >= waitShare*float64(limit.Below) {
		return fmt.Sprintf("the load generator itself waited for a processor for %v (p99), of a limit of %v", time.Duration(*wait).Round(10*time.Microsecond), limit.Below)
	}
	return ""
}
