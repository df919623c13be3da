package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"inflight/runner/target"
)

// pauseAfterRun separates two runs, so that what a broker still does for one (a discard, a collection) is not all paid by
// the other arm.
const pauseAfterRun = 20 * time.Millisecond

// deathNotice is how long a failed client run waits to hear whether its broker has died: the broken connection is seen
// before the exit status is.
const deathNotice = time.Second

// pass starts every arm in its slot, runs the steps, and stops every arm, whatever happened.
func (r *run) pass(ctx context.Context, pass *Pass, data string) (err error) {
	r.send(Event{Kind: Starting, Pass: pass.Number})
	begun := time.Now()
	brokers, err := r.start(ctx, pass, data)
	if err != nil {
		return err
	}
	r.forecast.done(phaseStart, estimateStart, time.Since(begun))
	defer func() {
		r.send(Event{Kind: Stopping, Pass: pass.Number})
		begun := time.Now()
		if stopErr := stopAll(brokers); stopErr != nil {
			err = errors.Join(err, fmt.Errorf("pass %d: %w", pass.Number, stopErr))
		}
		r.forecast.done(phaseStop, estimateStop, time.Since(begun))
	}()
	for i, b := range brokers {
		r.identify(i, b)
		if pass.Number == 1 && !b.Delivers() {
			r.skipVerifications(i)
		}
	}

	ctx, unwatch := watch(ctx, brokers)
	defer unwatch()
	if pass.Number == 1 {
		if err := r.admits(ctx, brokers); err != nil {
			return err
		}
	}
	cells := newCells(r.plan, pass)
	defer func() {
		if saveErr := cells.saveHistograms(r.cfg.OutDir, r.started); saveErr != nil {
			err = errors.Join(err, fmt.Errorf("pass %d: %w", pass.Number, saveErr))
		}
		r.result.Cells = append(r.result.Cells, cells.results()...)
	}()
	placed := false
	for i := range pass.Steps {
		if !placed && pass.Steps[i].Action != Settle {
			r.placements(ctx, pass, brokers)
			placed = true
		}
		if err := r.step(ctx, pass, &pass.Steps[i], brokers, cells); err != nil {
			return r.explain(ctx, pass, &pass.Steps[i], brokers, err)
		}
	}
	r.placements(ctx, pass, brokers)
	r.send(Event{Kind: PassDone, Pass: pass.Number})
	return nil
}

// start starts all arms at once. When one fails, none is left running.
func (r *run) start(ctx context.Context, pass *Pass, data string) ([]*target.Broker, error) {
	s := &r.plan.Scenario
	brokers := make([]*target.Broker, len(r.arms))
	group, ctx := errgroup.WithContext(ctx)
	for i, a := range r.arms {
		slot := target.Slot{
			Number: pass.Slots[i],
			Dir:    filepath.Join(data, fmt.Sprintf("pass%d-slot%d", pass.Number, pass.Slots[i])),
			CPUs:   r.slotCPUs(pass.Slots[i]),
		}
		if err := os.MkdirAll(slot.Dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("make a slot's data directory: %w", err), group.Wait(), stopAll(brokers))
		}
		group.Go(func() error {
			broker, err := a.program.Start(ctx, slot, s.Nodes, s.Replicas)
			if err != nil {
				return fmt.Errorf("pass %d: start arm %s (%s) in slot %d: %w", pass.Number, a.Name, a.Target, slot.Number, err)
			}
			brokers[i] = broker
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, stopAll(brokers))
	}
	return brokers, nil
}

// stopAll stops what was started, all at once.
func stopAll(brokers []*target.Broker) error {
	errs := make([]error, len(brokers))
	var group sync.WaitGroup
	for i, b := range brokers {
		if b == nil {
			continue
		}
		group.Go(func() { errs[i] = b.Stop() })
	}
	group.Wait()
	return errors.Join(errs...)
}

// identify notes what a started broker says about itself.
func (r *run) identify(i int, b *target.Broker) {
	a := &r.result.Arms[i]
	a.Version = b.Version()
	a.Command = b.Command()
	a.Durability = b.Durability()
}

// skipVerifications takes the verifications of an arm that delivers nothing off the forecast, those of all passes.
func (r *run) skipVerifications(arm int) {
	for i := range r.plan.Passes {
		steps := r.plan.Passes[i].Steps
		for j := range steps {
			if steps[j].Action == Verify && steps[j].Arm == arm {
				r.forecast.skip(phaseVerify, r.plan.Estimate(&steps[j]))
			}
		}
	}
}

// watch ends the returned context when a broker dies on its own. The idle arm counts too: its processes share the machine
// with the other arm, and its next run could not take place.
func watch(ctx context.Context, brokers []*target.Broker) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	for _, b := range brokers {
		group.Go(func() {
			select {
			case <-b.Died():
				cancel(b.Err())
			case <-ctx.Done():
			}
		})
	}
	return ctx, func() {
		cancel(nil)
		group.Wait()
	}
}

// step does one step and notes what came of it.
func (r *run) step(ctx context.Context, pass *Pass, step *Step, brokers []*target.Broker, cells *cells) error {
	broker := brokers[step.Arm]
	verifiable := step.Action != Verify || broker.Delivers()
	if verifiable && step.Action != Search { // which tells of its trials
		r.send(r.stepEvent(Running, pass, step))
	}
	begun := time.Now()
	switch step.Action {
	case Settle:
		if _, err := r.load(ctx, broker, step, loadTimes{measured: r.plan.settleTime()}); err != nil {
			return err
		}
	case Measure:
		times := r.plan.times(step)
		if !step.Control && times.measured > 0 && step.Point.Rate == 0 {
			times = r.turns.fit(step.Arm, step.Point, times)
		}
		m, err := r.load(ctx, broker, step, times)
		if err != nil {
			return err
		}
		cells.add(step, m)
	case Search:
		found, err := r.search(ctx, pass, step, broker, cells)
		if err != nil {
			return err
		}
		r.result.Searches = append(r.result.Searches, *found)
	case Verify:
		if verifiable {
			ledger, order, err := r.verify(ctx, broker, step)
			if err != nil {
				return err
			}
			cells.verified(step, ledger, order)
		}
	}
	if step.Action != Verify {
		if err := sleep(ctx, pauseAfterRun); err != nil {
			return err
		}
	}
	if verifiable {
		r.forecast.done(step.phase(), r.plan.Estimate(step), time.Since(begun))
	}
	if step.Last {
		e := r.stepEvent(CellDone, pass, step)
		e.Cell = cells.result(step.key())
		r.send(e)
	}
	return nil
}

func (r *run) stepEvent(kind Kind, pass *Pass, step *Step) Event {
	return Event{
		Kind:    kind,
		Pass:    pass.Number,
		Arm:     r.arms[step.Arm].Name,
		Target:  r.arms[step.Arm].Target,
		Slot:    pass.Slots[step.Arm],
		Point:   step.Point,
		Block:   step.Block,
		Control: step.Control,
		Verify:  step.Action == Verify,
	}
}

// explain says where a step failed, and prefers the reason behind the reason: the end of the run's context, then a broker
// that died, then what the client saw.
func (r *run) explain(ctx context.Context, pass *Pass, step *Step, brokers []*target.Broker, err error) error {
	s := &step.Point
	what := fmt.Sprintf("QoS %d, window %d", s.QoS, s.Window)
	if len(r.plan.Scenario.Connections) > 1 {
		what += fmt.Sprintf(", %d connections", s.Connections)
	}
	switch {
	case s.Sizes != "":
		what += fmt.Sprintf(", %s bytes", s.Sizes)
	case len(r.plan.Scenario.Payloads) > 1:
		what += fmt.Sprintf(", %d bytes", s.Payload)
	}
	switch {
	case s.RampTo > 0:
		what += fmt.Sprintf(", %s/s", s.Ramp())
	case s.Rate > 0:
		what += fmt.Sprintf(", %d/s", s.Rate)
	}
	switch {
	case step.Action == Settle:
		what += ", first load"
	case step.Action == Search:
		what += ", search for the highest rate"
	case step.Action == Verify:
		what += ", verification"
	case step.Control:
		what += fmt.Sprintf(", block %d, control", step.Block)
	default:
		what += fmt.Sprintf(", block %d", step.Block)
	}
	died := step.Arm
	if cause := deathOf(ctx, brokers, &died); cause != nil {
		err = cause
	}
	where := fmt.Sprintf("pass %d, arm %s (%s) in slot %d", pass.Number, r.arms[step.Arm].Name, r.arms[step.Arm].Target, pass.Slots[step.Arm])
	if died != step.Arm {
		err = fmt.Errorf("meanwhile arm %s (%s) in slot %d: %w", r.arms[died].Name, r.arms[died].Target, pass.Slots[died], err)
	}
	return fmt.Errorf("%s, %s: %w", where, what, err)
}

// deathOf returns the error of a broker that died on its own, first of all that of arm died, and sets died to its arm. It
// waits a moment for the death to be noticed.
func deathOf(ctx context.Context, brokers []*target.Broker, died *int) error {
	if ctx.Err() == nil {
		timer := time.NewTimer(deathNotice)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
			return nil
		}
	}
	for offset := range brokers {
		i := (*died + offset) % len(brokers)
		select {
		case <-brokers[i].Died():
			*died = i
			return brokers[i].Err()
		default:
		}
	}
	return nil
}

// sleep waits, or returns the cause of the context's end.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
