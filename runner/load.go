package runner

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"inflight/broker/packet"
	"inflight/runner/client"
	"inflight/runner/ledger"
	"inflight/runner/library"
	"inflight/runner/target"
	"inflight/scenarios"
)

// loadTimes are those of one client run.
type loadTimes struct{ warmup, measured time.Duration }

// measurement is one client run: the client's side, and the broker's.
type measurement struct {
	stats     *client.Stats
	started   time.Duration // of the measured time, since the start of the run
	usage     *usage
	sched     schedLatencies // of this process
	reception *reception     // nil without subscribers
}

// load opens the connections of a step, puts its load on the broker, and closes them.
func (r *run) load(ctx context.Context, broker *target.Broker, step *Step, times loadTimes) (_ *measurement, err error) {
	plan := r.clientPlan(broker.Addrs(), step, times)
	m := &measurement{}
	var heard *audience
	if r.plan.Scenario.Subscribers > 0 && step.Action == Measure && !step.Control && broker.Delivers() {
		if heard, err = r.gather(ctx, broker, &plan, step); err != nil {
			return nil, err
		}
	}
	var started time.Time
	sched := readSchedLatencies()
	m.stats, m.usage, started, err = r.publishAndHear(ctx, broker, step, plan, times, heard)
	if heard != nil {
		if leaveErr := heard.leave(context.WithoutCancel(ctx)); err == nil {
			err = leaveErr
		}
	}
	if err != nil {
		return nil, err
	}
	if _, elsewhere := r.arms[step.Arm].process(); !elsewhere || step.Control {
		m.sched = readSchedLatencies().since(sched)
	}
	if heard != nil {
		m.reception = heard.account(m.stats, started)
	}
	if !step.Control && step.Point.Rate == 0 {
		r.turns.note(step.Arm, step.Point, m.stats.Acknowledged, m.stats.LastAck.Sub(started))
	}
	m.started = started.Sub(r.started) + times.warmup
	return m, nil
}

// publishAndHear puts the load on the broker, watches what it costs, and waits until the subscribers have all of it.
func (r *run) publishAndHear(ctx context.Context, broker *target.Broker, step *Step, plan client.Plan, times loadTimes, heard *audience) (
	stats *client.Stats, used *usage, started time.Time, err error,
) {
	before := r.generator(step)
	ownRSS := before.rss()
	population, err := r.open(ctx, step, plan)
	if err != nil {
		return nil, nil, time.Time{}, err
	}
	own := r.generator(step)
	if !slices.Equal(before, own) {
		ownRSS = nil // a client's process began meanwhile: what it takes to run at all is no growth
	}
	var count func() loadCounts
	if step.Action == Measure && !step.Control {
		count = func() (n loadCounts) {
			n.published, n.due = population.Published(), population.Due()
			if heard != nil {
				n.delivered, n.queued = heard.counts(n.published)
			}
			return n
		}
	}
	watch := watchUsage(ctx, broker, own, ownRSS, times, heard != nil, r.started, count)
	if heard != nil {
		heard.begin(times.warmup)
	}
	back := func() {}
	if !step.Control {
		back = broker.Slow()
	}
	defer back()
	started = time.Now()
	stats, err = population.Run(ctx)
	ended := time.Now()
	if err == nil && heard != nil {
		err = heard.await(ctx, stats)
	}
	back()
	used = watch.stop()
	return stats, used, started, closeAfterRun(&plan, population, stats, ended, err)
}

// runAndClose runs a population once. It is an error if the broker left acknowledgements out.
func runAndClose(ctx context.Context, plan *client.Plan, population library.Population) (*client.Stats, error) {
	stats, err := population.Run(ctx)
	if err := closeAfterRun(plan, population, stats, time.Now(), err); err != nil {
		return nil, err
	}
	return stats, nil
}

// closeAfterRun closes the connections of a run that ended with err at that time, and says what is wrong with it.
func closeAfterRun(plan *client.Plan, population library.Population, stats *client.Stats, ended time.Time, err error) error {
	closeErr := population.Close()
	switch {
	case err != nil:
		return err
	case closeErr != nil:
		return fmt.Errorf("close the connections after the run: %w", closeErr)
	case stats.Acknowledged < stats.Published && ended.Sub(stats.LastAck) >= plan.Drain/2:
		// With acknowledgements still coming when the drain ended, the window is merely larger than what a serialised
		// broker works off in that time.
		return fmt.Errorf("%d of %d messages were not acknowledged within %v of the end of the run",
			stats.Published-stats.Acknowledged, stats.Published, plan.Drain)
	}
	return nil
}

// open makes the connections of a step with the client of its arm. Controls are the wire client's: no other can tell when a
// broker has taken a QoS 0 message in.
func (r *run) open(ctx context.Context, step *Step, plan client.Plan) (library.Population, error) {
	if other := r.arms[step.Arm].client; other != nil && !step.Control {
		plan.Version = version(scenarios.ClientVersion(r.arms[step.Arm].Client, r.plan.Scenario.Version))
		return other.Open(ctx, plan)
	}
	return client.Open(ctx, plan)
}

// ledger is that of a plan of this step.
func (r *run) ledger(step *Step, plan *client.Plan, subscribers int) *ledger.Ledger {
	shape := ledger.Shape{Connections: plan.Connections, Topics: plan.Topics, Subscribers: subscribers}
	if other := r.arms[step.Arm].client; other != nil {
		shape.Unordered = other.Unordered(plan.Window)
	}
	return ledger.For(plan.Run, shape)
}

// version is one of MQTT as the codec names it.
func version(of string) packet.Version {
	if of == scenarios.MQTT5 {
		return packet.V5
	}
	return packet.V311
}

// clientPlan is the plan of a run of this step; topics and clients are new in every run.
func (r *run) clientPlan(addrs []string, step *Step, times loadTimes) client.Plan {
	name, number := r.next()
	plan := client.Plan{
		Addrs:       addrs,
		Connections: step.Point.Connections,
		QoS:         step.Point.QoS,
		Window:      step.Point.Window,
		Payload:     step.Point.Payload,
		Topic:       func(conn int) string { return "inflight/" + name + "/" + strconv.Itoa(conn) },
		ClientID:    func(conn int) string { return "if" + name + "c" + strconv.Itoa(conn) },
		Run:         number,
		Warmup:      times.warmup,
		Duration:    times.measured,
		Drain:       r.plan.Scenario.Drain,
		Topics:      r.plan.Scenario.Topics,
		Version:     version(r.plan.Scenario.Version),
	}
	if table := r.sizes[step.Point.Sizes]; table != nil {
		plan.Sizes, plan.Payload = table, slices.Max(table)
	}
	switch {
	case step.Control:
		plan.QoS, plan.Window = 0, ControlWindow
	case step.Action == Measure:
		plan.Rate, plan.RampTo = float64(step.Point.Rate), float64(step.Point.RampTo)
		if times.measured == 0 {
			plan.MaxMessages = int64(r.plan.Scenario.Messages)
		}
	}
	return plan
}
