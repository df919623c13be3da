package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"inflight/runner/check"
	"inflight/runner/history"
)

// Instance is a broker that a check may stop, kill and start.
type Instance struct {
	Nodes []Endpoint // at least one; they stay where they are whatever a hook does
	// Hook does what its name says, see package check, to the broker or to one node of it. It returns when that is done: a
	// broker or node that was started is ready then.
	Hook func(ctx context.Context, name string, node int) error
	Died <-chan struct{} // closed when it ends on its own; nil: nobody would know
	Why  func() error    // it did
	Stop func() error    // ends it for good
}

// owned is the instance that the checks with hooks use one after the other, started when the first needs it. One that a
// check has left in a state that is not known is ended, and the next check gets another one.
type owned struct {
	mu   sync.Mutex // held by the check that uses it
	inst *Instance
}

// with calls f with the instance.
func (o *owned) with(ctx context.Context, start func(context.Context) (*Instance, error), f func(*Instance) *history.History) (*history.History, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inst == nil {
		inst, err := start(ctx)
		if err != nil {
			return nil, fmt.Errorf("start a broker of its own: %w", err)
		}
		o.inst = inst
	}
	h := f(o.inst)
	if h.Trouble == "" && h.Stuck == "" {
		return h, nil
	}
	return h, o.endLocked()
}

// end ends the instance that there is.
func (o *owned) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.endLocked()
}

func (o *owned) endLocked() error {
	if o.inst == nil {
		return nil
	}
	inst := o.inst
	o.inst = nil
	return inst.Stop()
}

// playOwned runs the script of a rule that needs hooks on the instance that has them.
func (r *runner) playOwned(ctx context.Context, env Environment, rule *check.Rule, s *check.Script, round int) *history.History {
	h, err := r.own.with(ctx, r.cfg.Own, func(inst *Instance) *history.History {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if inst.Died != nil {
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				select {
				case <-inst.Died:
					cancel(inst.Why())
				case <-stop:
				}
			}()
		}
		env.Endpoint, env.Nodes, env.Hook, env.Undo = inst.Nodes[0], inst.Nodes, inst.Hook, r.cfg.Shared
		h := Play(ctx, env, rule.ID, s, round, r.cfg.Seed)
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
			h.Trouble = cause.Error()
		}
		return h
	})
	if h == nil {
		return &history.History{
			Check: rule.ID, Version: s.V, Round: round, Seed: r.cfg.Seed, Started: time.Now(), Facts: map[string]string{}, Trouble: err.Error(),
		}
	}
	if err != nil {
		r.mu.Lock()
		r.errs = append(r.errs, err)
		r.mu.Unlock()
	}
	return h
}
