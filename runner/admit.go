package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"inflight/broker/packet"
	"inflight/runner/client"
	"inflight/runner/result"
	"inflight/runner/target"
	"inflight/scenarios"
)

// What is asked of the load generator before a run with a fixed rate.
const (
	anyMachine     = 5_000 // messages per second that need no asking
	askedFor       = 150 * time.Millisecond
	askedWith      = 100 // connections at most
	hopeless       = 10  // times what it reaches: no noise of the machine makes that up
	codeOwnCeiling = "rate_above_generator"
)

// RefusedError says that what a scenario asks for cannot be measured here, and what to ask for in its place. It was found out
// before anything was measured.
type RefusedError struct{ Why error }

// Error is a sentence or, of several brokers, a line for each.
func (e *RefusedError) Error() string { return e.Why.Error() }

// Unwrap is the reason.
func (e *RefusedError) Unwrap() error { return e.Why }

// admits sees before anything is measured that every broker takes the largest window: what a CONNACK of MQTT 5.0 says about it
// would otherwise be read in the middle of the run.
func (r *run) admits(ctx context.Context, brokers []*target.Broker) error {
	s := &r.plan.Scenario
	var refusals, problems []error
	for i, b := range brokers {
		if scenarios.ClientVersion(r.arms[i].Client, s.Version) != scenarios.MQTT5 {
			continue // 3.1.1 has no such limits
		}
		name, _ := r.next()
		refusal, err := client.Admits(ctx, client.Options{
			Addr: b.Addrs()[0], ClientID: "if" + name, CleanSession: true, Version: packet.V5,
		}, slices.Max(s.QoS), slices.Max(s.Windows))
		switch {
		case refusal != nil:
			refusals = append(refusals, fmt.Errorf("arm %s (%s): %w", r.arms[i].Name, r.arms[i].Target, refusal))
		case err != nil:
			problems = append(problems, fmt.Errorf("arm %s (%s): %w", r.arms[i].Name, r.arms[i].Target, err))
		}
	}
	if err := errors.Join(problems...); err != nil || len(refusals) == 0 {
		return err
	}
	return &RefusedError{errors.Join(refusals...)}
}

// askGenerator says before the run which rates the load generator does not reach on this machine, by a short closed loop against
// the null broker, and refuses those that are out of all question. What is said is also a warning of the result.
func (r *run) askGenerator(ctx context.Context) ([]result.Warning, error) {
	asked := map[scenarios.Point]float64{} // highest rate, by the point without it
	var order []scenarios.Point
	for _, p := range r.plan.Scenario.Points() {
		rate := float64(max(p.Rate, p.RampTo))
		p.Rate, p.RampTo = 0, 0
		if rate > anyMachine && rate > asked[p] {
			if asked[p] == 0 {
				order = append(order, p)
			}
			asked[p] = rate
		}
	}
	if len(order) == 0 {
		return nil, nil
	}
	null, err := r.startNull(ctx)
	if err != nil {
		return nil, fmt.Errorf("find out what the load generator reaches: %w", err)
	}
	defer func() {
		_ = null.Stop()
		_ = os.RemoveAll(r.nullDir())
	}()
	var said []result.Warning
	for _, p := range order {
		few := p
		few.Connections = min(p.Connections, askedWith)
		plan := r.clientPlan(null.Addrs(), &Step{Action: Settle, Point: few}, loadTimes{measured: askedFor})
		stats, err := publish(ctx, plan)
		if err != nil {
			return nil, fmt.Errorf("find out what the load generator reaches: %w", err)
		}
		text, err := aboveCeiling(asked[p], perSecond(stats.Messages, stats.Duration), &few)
		if err != nil {
			return nil, err
		}
		if text != "" {
			said = append(said, result.Warning{Code: codeOwnCeiling, Text: text})
			r.events.send(Event{Kind: Talk, Text: text + "; messages will be late, and that will be its fault"})
		}
	}
	return said, nil
}

// aboveCeiling says what is to be said of a rate at a point where the load generator reached so much, both in messages per second;
// "" of one that it reaches. A rate that is out of all question is refused.
func aboveCeiling(asked, reached float64, p *scenarios.Point) (string, error) {
	if reached >= asked {
		return "", nil
	}
	plural := "s"
	if p.Connections == 1 {
		plural = ""
	}
	text := fmt.Sprintf("rate %.0f: the load generator reaches about %.0f/s against a broker that only acknowledges, at QoS %d, window %d, %d connection%s",
		asked, reached, p.QoS, p.Window, p.Connections, plural)
	if reached*hopeless < asked {
		return "", &RefusedError{fmt.Errorf("%s; no broker can be measured at that rate here: ask for a lower one, a larger window or more connections", text)}
	}
	return text, nil
}

func (r *run) nullDir() string { return filepath.Join(r.cfg.OutDir, "data-null") }

// startNull starts the broker that only acknowledges, on a directory of its own.
func (r *run) startNull(ctx context.Context) (*target.Broker, error) {
	spec, err := target.Parse("null")
	if err != nil {
		return nil, err
	}
	program, err := target.Prepare(ctx, spec, target.Options{Self: r.cfg.Self, CacheDir: r.cfg.CacheDir, LogDir: filepath.Join(r.cfg.OutDir, "logs")})
	if err != nil {
		return nil, err
	}
	dir := r.nullDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return program.Start(ctx, target.Slot{Number: len(r.arms) + 1, Dir: dir}, 1, 1)
}
