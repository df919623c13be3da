package target

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// What follows is for checks that need the processes of a broker. The ports and the data of a node stay those that it was
// started with, so that clients find it again where it was. None of these calls may run beside another one; Stop may.

// Restart asks every node to end and starts all of them again. It returns once each is ready.
func (b *Broker) Restart(ctx context.Context) error {
	return b.again(ctx, "restart", func(p *process) error { return p.stop(stopGrace) })
}

// Kill kills every node, all at once and without a warning, and starts all of them again. It returns once each is ready.
func (b *Broker) Kill(ctx context.Context) error {
	return b.again(ctx, "kill", (*process).kill)
}

// KillNode kills node i, from 0, without a warning.
func (b *Broker) KillNode(i int) error {
	if err := b.end((*process).kill, i); err != nil {
		return fmt.Errorf("kill node %d of %s: %w", i+1, b.program.spec.Raw, err)
	}
	return nil
}

// StartNode starts node i again and returns once every node is ready.
func (b *Broker) StartNode(ctx context.Context, i int) error {
	err := b.relaunch(i)
	if err == nil {
		err = b.ready(ctx, b.program.options.ReadyTimeout)
	}
	if err != nil {
		return fmt.Errorf("start node %d of %s again: %w", i+1, b.program.spec.Raw, err)
	}
	return nil
}

// FailStore makes every write to a file fail, of every node, as a full disk does. It works on Linux alone, see
// CanFailStore.
func (b *Broker) FailStore() error {
	var errs []error
	for _, p := range b.running() {
		errs = append(errs, p.limitFiles(true))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("make the files of %s fail: %w", b.program.spec.Raw, err)
	}
	return nil
}

// HealStore lets the nodes write again and restarts them, as an operator does who has made room on a disk: what was
// half-written is not trusted to be well in memory. A node that did not live through it is started too.
func (b *Broker) HealStore(ctx context.Context) error {
	for _, p := range b.running() {
		_ = p.limitFiles(false) // of one that has ended it cannot be
	}
	return b.Restart(ctx)
}

// storeDelay is what SlowStore adds to each direction between two nodes: a write waits for an answer, so twice of it.
const storeDelay = 25 * time.Millisecond

// SlowStore makes what the nodes write to their store take some 50 ms longer, by the relays between them: a write that is
// replicated is there once others have answered. It is for a broker that was started with Options.Relayed.
func (b *Broker) SlowStore() error { return b.delay(storeDelay) }

// FastStore is as before SlowStore.
func (b *Broker) FastStore() error { return b.delay(0) }

func (b *Broker) delay(d time.Duration) error {
	if len(b.relays) == 0 {
		return fmt.Errorf("make the store of %s slow: there is no relay between its nodes", b.program.spec.Raw)
	}
	for _, r := range b.relays {
		r.Delay(d)
	}
	return nil
}

// again ends every node and starts all of them.
func (b *Broker) again(ctx context.Context, what string, end func(*process) error) error {
	all := make([]int, len(b.running()))
	for i := range all {
		all[i] = i
	}
	err := b.end(end, all...)
	if err == nil {
		err = b.relaunch(all...)
	}
	if err == nil {
		err = b.ready(ctx, b.program.options.ReadyTimeout)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, b.program.spec.Raw, err)
	}
	return nil
}

// running are the processes, those that were ended on purpose included.
func (b *Broker) running() []*process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*process(nil), b.processes...)
}

// errStopped is a broker that is being stopped.
var errStopped = errors.New("it is being stopped")

// end ends nodes side by side. They do not count as dead: it is what was asked for.
func (b *Broker) end(how func(*process) error, nodes ...int) error {
	b.mu.Lock()
	if len(b.processes) == 0 || b.stopping {
		b.mu.Unlock()
		return errors.Join(errNotOurs(len(b.processes)), stoppedIf(b.stopping))
	}
	var some []*process
	for _, i := range nodes {
		if i < 0 || i >= len(b.processes) {
			b.mu.Unlock()
			return fmt.Errorf("there is no node %d", i+1)
		}
		b.processes[i].expected = true
		some = append(some, b.processes[i])
	}
	b.mu.Unlock()
	errs := make([]error, len(some))
	var each sync.WaitGroup
	for i, p := range some {
		each.Go(func() { errs[i] = how(p) })
	}
	each.Wait()
	return errors.Join(errs...)
}

func errNotOurs(processes int) error {
	if processes == 0 {
		return errors.New("its processes are not ours")
	}
	return nil
}

func stoppedIf(stopping bool) error {
	if stopping {
		return errStopped
	}
	return nil
}

// relaunch starts nodes that have ended, on their ports and with their data.
func (b *Broker) relaunch(nodes ...int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		return errStopped
	}
	var fresh []*process
	for _, i := range nodes {
		p, err := b.program.process(b.slot, b.data[i])
		if err != nil {
			return errors.Join(err, closeLogs(fresh))
		}
		p.onExit = b.exited
		fresh = append(fresh, p)
	}
	// Held over the start, so that a Stop beside it sees either none or all of them.
	started, err := startAll(fresh, b.slot.CPUs)
	for k := range started {
		b.processes[nodes[k]] = fresh[k]
	}
	return err
}
