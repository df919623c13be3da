package runner

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"inflight/runner/client"
	"inflight/runner/result"
	"inflight/runner/target"
)

// loadTimes are those of one client run.
type loadTimes struct{ warmup, measured time.Duration }

// measurement is one client run: the client's side, and the broker's.
type measurement struct {
	stats   *client.Stats
	started time.Duration // of the measured time, since the start of the run
	nodes   []result.Node // CPU within the measured time, peak RSS so far
}

// load opens the connections of a step, puts its load on the broker, and closes them.
func (r *run) load(ctx context.Context, broker *target.Broker, step *Step, times loadTimes) (*measurement, error) {
	plan := r.clientPlan(broker.Addrs(), step, times)
	population, err := client.Open(ctx, plan)
	if err != nil {
		return nil, err
	}
	usage := sampleUsage(ctx, broker, times)
	started := time.Now()
	stats, err := runAndClose(ctx, &plan, population)
	nodes := usage()
	if err != nil {
		return nil, err
	}
	if !step.Control {
		r.turns.note(step.Arm, step.Point, stats.Acknowledged, stats.LastAck.Sub(started))
	}
	return &measurement{stats: stats, started: started.Sub(r.started) + times.warmup, nodes: nodes}, nil
}

// runAndClose runs a population once. It is an error if the broker left acknowledgements out.
func runAndClose(ctx context.Context, plan *client.Plan, population *client.Population) (*client.Stats, error) {
	stats, err := population.Run(ctx)
	ended := time.Now()
	closeErr := population.Close()
	switch {
	case err != nil:
		return nil, err
	case closeErr != nil:
		return nil, fmt.Errorf("close the connections after the run: %w", closeErr)
	case stats.Acknowledged < stats.Published && ended.Sub(stats.LastAck) >= plan.Drain/2:
		// With acknowledgements still coming when the drain ended, the window is merely larger than what a serialised
		// broker works off in that time.
		return nil, fmt.Errorf("%d of %d messages were not acknowledged within %v of the end of the run",
			stats.Published-stats.Acknowledged, stats.Published, plan.Drain)
	}
	return stats, nil
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
	}
	if step.Control {
		plan.QoS, plan.Window = 0, ControlWindow
	}
	return plan
}

// sampleUsage reads what the nodes have used at the start and at the end of the measured time, beside the run that is
// about to start. The returned function must be called once the run is over; a run that ended early is read at its end.
func sampleUsage(ctx context.Context, broker *target.Broker, times loadTimes) func() []result.Node {
	ctx, cancel := context.WithCancel(ctx)
	nodes := make(chan []result.Node, 1)
	go func() {
		if sleep(ctx, times.warmup) != nil {
			nodes <- nil
			return
		}
		before := broker.Usage()
		_ = sleep(ctx, times.measured)
		nodes <- usedSince(before, broker.Usage())
	}()
	return func() []result.Node {
		cancel()
		return <-nodes
	}
}

// usedSince is the difference of two readings. What either cannot tell is absent.
func usedSince(before, after []target.Usage) []result.Node {
	var nodes []result.Node
	for i, u := range after {
		node := result.Node{Name: u.Name, RSSPeak: u.RSSPeak}
		if u.CPUSeconds != nil && i < len(before) && before[i].Name == u.Name && before[i].CPUSeconds != nil {
			used := *u.CPUSeconds - *before[i].CPUSeconds
			node.CPUSeconds = &used
		}
		nodes = append(nodes, node)
	}
	return nodes
}
