package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"inflight/runner/check"
	"inflight/runner/history"
)

// Limits of what happens to the broker itself.
const (
	hookBudget    = 2 * time.Minute // of one hook, until the broker is well again
	awayLimit     = 90 * time.Second
	keepPause     = 50 * time.Millisecond // between two looks at the connections that are kept up
	maxReconnects = 200                   // of one flow
)

// storm runs the flows of a step while the blow falls, and keeps clients connected. What the blow began is undone at the
// end, whatever became of the flows.
func (r *run) storm(s *check.Step) error {
	if s.Blow == nil {
		return r.flows(s.Streams, s.Cutter)
	}
	r.mu.Lock()
	due := r.acked + s.Blow.After
	r.mu.Unlock()
	done := make(chan struct{})
	var beside sync.WaitGroup
	var blowErr, keepErr error
	beside.Go(func() { blowErr = r.blow(s.Blow, due, done) })
	beside.Go(func() { keepErr = r.keepUp(s.Keep, done) })
	err := r.flows(s.Streams, s.Cutter)
	close(done)
	r.wake()
	beside.Wait()
	if errors.Is(blowErr, errTooEarly) && err != nil {
		blowErr = nil // what ended the flows says why
	}
	for _, e := range []error{blowErr, err, keepErr} {
		if e != nil {
			return e
		}
	}
	clients := slices.Clone(s.Keep)
	for _, stream := range s.Streams {
		if stream.Flow.Patient {
			clients = append(clients, stream.Conn)
		}
	}
	for _, name := range clients {
		if err := r.comeBack(name); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cond.Broadcast()
}

// errTooEarly is a storm in which nothing was tested.
var errTooEarly = &stepError{true, "the flows ended before the broker was struck"}

// blow lets the blow fall when the flows of the run have got so many acknowledgements, and undoes it when done is closed.
// Flows that end before are a trouble: nothing was tested.
func (r *run) blow(b *check.Blow, due int, done <-chan struct{}) error {
	if !r.acknowledged(due, done) {
		return errTooEarly
	}
	if err := r.hook(b.Hook, b.Node); err != nil {
		return err
	}
	undo := check.Undo(b.Hook)
	if undo == "" {
		return nil
	}
	select {
	case <-done:
	case <-r.ctx.Done():
	}
	return r.hook(undo, b.Node)
}

// acknowledged waits until the flows of the run have got n acknowledgements; false when done is closed before.
func (r *run) acknowledged(n int, done <-chan struct{}) bool {
	over := func() bool {
		select {
		case <-done:
			return true
		default:
			return r.over
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.acked < n && !over() {
		r.cond.Wait()
	}
	return r.acked >= n
}

// keepUp resumes clients whose connections have ended, until done is closed.
func (r *run) keepUp(names []string, done <-chan struct{}) error {
	tick := time.NewTicker(keepPause)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-r.ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, name := range names {
			if err := r.comeBack(name); err != nil {
				return err
			}
		}
	}
}

// comeBack resumes the client unless it is connected.
func (r *run) comeBack(name string) error {
	c := r.conn(name)
	r.mu.Lock()
	open := c != nil && !c.closed
	r.mu.Unlock()
	if open || c == nil {
		return nil
	}
	return r.resumePatiently(name, c.node, c.mode, true)
}

// resumePatiently connects a client of a kept session to a broker that may be away for a while; with hop it tries the next
// node when one does not take it. What a broker says or does while it comes up is no refusal yet.
func (r *run) resumePatiently(name string, node int, mode check.Mode, hop bool) error {
	deadline := time.Now().Add(awayLimit)
	for {
		want := &check.Connect{Kept: true, Expected: true, Node: node, Mode: mode}
		err := r.tryConnect(&check.Step{Op: check.OpConnect, Conn: name, Msgs: connectMsg(want), Mode: mode}, want)
		switch {
		case err == nil:
			return nil
		case r.ctx.Err() != nil:
			return &stepError{true, "interrupted"}
		case time.Now().After(deadline):
			return &stepError{text: fmt.Sprintf("%v, for %v", err, awayLimit)}
		}
		if hop {
			node++
		}
		r.sleep(reconnectPause)
	}
}

// endpoint is where node, from 0, listens.
func (r *run) endpoint(node int) Endpoint {
	if n := len(r.env.Nodes); n > 0 {
		return r.env.Nodes[node%n]
	}
	return r.env.Endpoint
}

// hook does something to the broker, and waits until it takes clients again where that is to be expected.
func (r *run) hook(name string, node int) error {
	if r.env.Hook == nil {
		return &stepError{true, "there is no hook " + name}
	}
	if n := len(r.env.Nodes); n > 0 {
		node %= n
	}
	text := "hook " + name
	if name == check.HookKillNode || name == check.HookStartNode {
		text += fmt.Sprintf(", node %d", node+1)
	}
	r.rec.Add(-1, history.Mark, nil, text)
	ctx, cancel := context.WithTimeout(r.ctx, hookBudget)
	defer cancel()
	if other := check.Undo(name); other != "" { // also when it fails: it may have done a part
		r.mu.Lock()
		r.undo = append(r.undo, undo{other, node})
		r.mu.Unlock()
	}
	if err := r.env.Hook(ctx, name, node); err != nil {
		return &stepError{true, fmt.Sprintf("%s: %v", text, err)}
	}
	r.mu.Lock()
	r.undo = slices.DeleteFunc(r.undo, func(u undo) bool { return u.hook == name && u.node == node })
	r.mu.Unlock()
	r.rec.Add(-1, history.Mark, nil, text+": done")
	return nil
}

// undo is a hook that undoes one that was called.
type undo struct {
	hook string
	node int
}

// undoAll undoes what a script that ended early has left, also when it was interrupted: the broker may be another's.
func (r *run) undoAll() error {
	r.mu.Lock()
	left := r.undo
	r.undo = nil
	r.mu.Unlock()
	var errs []error
	for _, u := range left {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), hookBudget)
		if err := r.env.Hook(ctx, u.hook, u.node); err != nil {
			errs = append(errs, fmt.Errorf("hook %s: %w", u.hook, err))
		}
		cancel()
	}
	return errors.Join(errs...)
}
