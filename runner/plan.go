package runner

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"inflight/scenarios"
)

// ControlWindow is the window of every QoS 0 control run: messages per connection that no PINGRESP covers yet.
const ControlWindow = 256

// Action is what a [Step] does with its arm.
type Action int

// The actions, in the order of a pass.
const (
	Settle  Action = iota + 1 // load that is not counted, on a broker that has just been started
	Measure                   // one run of a block
	Search                    // trials for the highest rate that keeps to a limit
	Verify                    // publish and subscribe, and keep the ledger
)

// String is the action as an infinitive.
func (a Action) String() string {
	switch a {
	case Settle:
		return "settle"
	case Measure:
		return "measure"
	case Search:
		return "search"
	case Verify:
		return "verify"
	}
	return "unknown"
}

// Step is one thing done to one arm. Only one step runs at a time.
type Step struct {
	Action   Action
	Arm      int // index into the scenario's arms
	Point    scenarios.Point
	Control  bool // a QoS 0 control run that belongs to Point
	Block    int  // from 1, inside the pass; Measure only
	Position int  // from 1, inside the block; Measure only
	Number   int  // of the block, counted through all passes, unique inside its cell; Measure only
	Last     bool // nothing of the same cell follows in this pass
}

// key is the cell that the step belongs to, inside its pass.
func (s *Step) key() cellKey {
	key := cellKey{arm: s.Arm, control: s.Control, point: s.Point}
	if s.Control {
		key.point.QoS, key.point.Rate, key.point.RampTo = 0, 0, 0
	}
	return key
}

// cellKey tells the cells of one pass apart. A control cell is shared by the points that differ in QoS and rate alone.
type cellKey struct {
	arm     int
	control bool
	point   scenarios.Point
}

// Pass is one life of the brokers.
type Pass struct {
	Number int   // from 1
	Slots  []int // slot of each arm, from 1
	Steps  []Step
}

// Plan is the whole schedule of a run, as data. See the package documentation for the order and its reasons.
type Plan struct {
	Scenario scenarios.Scenario
	Passes   []Pass
}

// NewPlan lays out a scenario that has its defaults filled in. It refuses what cannot be laid out: no arm or more than
// [scenarios.MaxArms], no point, or the same point twice.
func NewPlan(s scenarios.Scenario) (*Plan, error) {
	points := s.Points()
	switch {
	case len(s.Arms) == 0:
		return nil, errors.New("plan a run: the scenario has no arm")
	case len(s.Arms) > scenarios.MaxArms:
		return nil, fmt.Errorf("plan a run: %d arms; the most is %d, since all of them run at the same time", len(s.Arms), scenarios.MaxArms)
	case len(points) == 0:
		return nil, errors.New("plan a run: no point to measure; QoS, windows, connections and payloads need a value each")
	case s.Passes < 1 || s.Blocks < 1:
		return nil, fmt.Errorf("plan a run: %d passes of %d blocks; at least one of each is needed", s.Passes, s.Blocks)
	case s.Duration <= 0:
		return nil, fmt.Errorf("plan a run: a measured time of %v; it must be above zero", s.Duration)
	}
	for i, p := range points {
		if slices.Contains(points[:i], p) {
			return nil, fmt.Errorf("plan a run: QoS %d, window %d, %d connections, %d bytes is listed twice", p.QoS, p.Window, p.Connections, p.Payload)
		}
	}
	plan := &Plan{Scenario: s}
	for number := 1; number <= s.Passes; number++ {
		plan.Passes = append(plan.Passes, newPass(&s, points, number))
	}
	return plan, nil
}

func newPass(s *scenarios.Scenario, points []scenarios.Point, number int) Pass {
	pass := Pass{Number: number}
	for arm := range s.Arms {
		pass.Slots = append(pass.Slots, (arm+number-1)%len(s.Arms)+1)
	}
	for _, arm := range armOrder(len(s.Arms), number%2 == 0) {
		pass.Steps = append(pass.Steps, Step{Action: Settle, Arm: arm, Point: points[len(points)-1]})
	}
	for block := 1; block <= s.Blocks; block++ {
		for i := range points {
			index := i
			if (number+block)%2 == 1 {
				index = len(points) - 1 - i
			}
			pass.Steps = appendBlock(pass.Steps, s, points, number, block, index)
		}
	}
	if s.FindMax != (scenarios.Limit{}) {
		for _, p := range points {
			for _, arm := range armOrder(len(s.Arms), number%2 == 0) {
				pass.Steps = append(pass.Steps, Step{Action: Search, Arm: arm, Point: p})
			}
		}
	}
	if s.Verify > 0 {
		for _, p := range points {
			for _, arm := range armOrder(len(s.Arms), number%2 == 0) {
				pass.Steps = append(pass.Steps, Step{Action: Verify, Arm: arm, Point: p})
			}
		}
	}
	markLast(pass.Steps)
	return pass
}

// appendBlock appends A B C C B A, or A alone: each run behind its control run. The arm that begins changes from block to
// block and from point to point.
func appendBlock(steps []Step, s *scenarios.Scenario, points []scenarios.Point, pass, block, index int) []Step {
	arms := len(s.Arms)
	order := make([]int, arms, 2*arms)
	for i := range order {
		order[i] = (i + pass + block + index - 2) % arms
	}
	if arms > 1 {
		for i := arms - 1; i >= 0; i-- {
			order = append(order, order[i])
		}
	}
	number := (pass-1)*s.Blocks + block
	rank, sharing := sharedControl(points, index)
	for i, arm := range order {
		step := Step{Action: Measure, Arm: arm, Point: points[index], Block: block, Position: i + 1, Number: number}
		if s.Control > 0 {
			control := step
			control.Control = true
			control.Number = (number-1)*sharing + rank + 1
			steps = append(steps, control)
		}
		steps = append(steps, step)
	}
	return steps
}

// armOrder is 0, 1, ... or the reverse.
func armOrder(arms int, reversed bool) []int {
	order := make([]int, arms)
	for i := range order {
		order[i] = i
		if reversed {
			order[i] = arms - 1 - i
		}
	}
	return order
}

// sharedControl counts the points that share the control cell of points[index], and those of them before it.
func sharedControl(points []scenarios.Point, index int) (rank, sharing int) {
	label := points[index]
	for i, p := range points {
		p.QoS, p.Rate, p.RampTo = label.QoS, label.Rate, label.RampTo
		if p != label {
			continue
		}
		sharing++
		if i < index {
			rank++
		}
	}
	return rank, sharing
}

func markLast(steps []Step) {
	seen := map[cellKey]bool{}
	for i := len(steps) - 1; i >= 0; i-- {
		step := &steps[i]
		if step.Action == Settle || seen[step.key()] {
			continue
		}
		seen[step.key()] = true
		step.Last = true
	}
}

// What a step takes beyond its load, and what starting and stopping a pass takes, before any was seen: a three-node
// cluster on two cores.
const (
	estimateStart  = 6 * time.Second
	estimateStop   = time.Second
	estimateRun    = 60 * time.Millisecond
	estimateVerify = 700 * time.Millisecond
	estimateTrials = 14 // of a search
)

// maxSettle bounds the load that is put on a new broker and not counted; otherwise it lasts as long as a run of a block.
const maxSettle = 300 * time.Millisecond

func (p *Plan) settleTime() time.Duration { return min(maxSettle, p.Scenario.Duration) }

// Estimate is the time that the step takes, by the scenario alone.
func (p *Plan) Estimate(s *Step) time.Duration {
	switch {
	case s.Action == Settle:
		return p.settleTime() + estimateRun
	case s.Action == Search:
		return estimateTrials * (p.Scenario.Warmup + p.Scenario.Duration + estimateRun)
	case s.Action == Verify:
		return p.Scenario.Verify + estimateVerify
	case s.Control:
		return p.Scenario.Warmup + p.Scenario.Control + estimateRun
	}
	times := p.times(s)
	if p.Scenario.Messages == 0 {
		return times.warmup + times.measured + estimateRun
	}
	rate := float64(guessedRate)
	if s.Point.Rate > 0 {
		rate = min(rate, s.Point.MeanRate())
	}
	publishing := time.Duration(float64(p.Scenario.Messages) / rate * float64(time.Second))
	return max(publishing, time.Duration(p.Scenario.Messages)*p.Scenario.SubscriberDelay) + estimateRun
}

// guessedRate is how many messages per second a broker may take, where a run lasts as long as its messages do.
const guessedRate = 30_000

// times are those of a measured run or of its control.
func (p *Plan) times(s *Step) loadTimes {
	switch {
	case s.Control:
		return loadTimes{warmup: p.Scenario.Warmup, measured: p.Scenario.Control}
	case p.Scenario.Messages > 0:
		return loadTimes{} // a warm-up would publish some of them
	}
	return loadTimes{warmup: p.Scenario.Warmup, measured: p.Scenario.Duration}
}

// Duration is the time that the whole run takes, by the scenario alone: starting the brokers included, building them not.
func (p *Plan) Duration() time.Duration {
	return newForecast(p).left()
}

// phase groups what takes its time for the same reasons, so that what was seen of some forecasts the rest.
type phase int

const (
	phaseStart phase = iota
	phaseRun
	phaseSearch
	phaseVerify
	phaseStop
	phases
)

func (s *Step) phase() phase {
	switch s.Action {
	case Verify:
		return phaseVerify
	case Search:
		return phaseSearch
	}
	return phaseRun
}

// forecast tells the time left of a plan. It corrects the estimates of each phase by what the finished ones took.
type forecast struct {
	ahead     [phases]time.Duration // estimated, not yet done
	estimated [phases]time.Duration // of what is done
	taken     [phases]time.Duration // by it
}

func newForecast(p *Plan) *forecast {
	f := &forecast{}
	for _, pass := range p.Passes {
		f.ahead[phaseStart] += estimateStart
		f.ahead[phaseStop] += estimateStop
		for i := range pass.Steps {
			f.ahead[pass.Steps[i].phase()] += p.Estimate(&pass.Steps[i])
		}
	}
	return f
}

// done notes that something estimated to take that long took so long.
func (f *forecast) done(ph phase, estimated, taken time.Duration) {
	f.skip(ph, estimated)
	f.estimated[ph] += estimated
	f.taken[ph] += taken
}

// skip takes off what turned out not to be done.
func (f *forecast) skip(ph phase, estimated time.Duration) {
	f.ahead[ph] = max(0, f.ahead[ph]-estimated)
}

func (f *forecast) left() time.Duration {
	var left time.Duration
	for ph := range phases {
		ahead := f.ahead[ph]
		if f.estimated[ph] > 0 {
			ahead = time.Duration(float64(ahead) * float64(f.taken[ph]) / float64(f.estimated[ph]))
		}
		left += ahead
	}
	return left
}
