package target

import (
	"fmt"
	"sync"
	"time"

	"inflight/runner/fault"
)

// slowParameter slows a broker on purpose. Every kind that is started here has it: it needs the processes and nothing else.
const slowParameter = "slow"

// slowness is the parameter. A file of scenarios/targets cannot have one of that name.
var slowness = &parameter{
	Type: "int", Min: 1, Max: 1000,
	Help: "percent by which the broker is slower under the load that is measured, the QoS 0 control not: to see whether a comparison finds it",
}

// checkSlow refuses what this system cannot do.
func (s *Spec) checkSlow() error {
	if _, slow := s.Params[slowParameter]; slow && !canPause {
		return fmt.Errorf("target %q: %s needs a system that can stop a process and let it go on, as Linux and macOS can", s.Raw, slowParameter)
	}
	return nil
}

// Slow slows the broker by its parameter slow until the returned function is called, which waits until every node runs again.
// Without the parameter it does nothing.
//
// All processes of all nodes are stopped and let go together, see [fault.Dilation]: to the client the broker is one whose
// processors and disks are slower by that share, whatever it does and whatever bounds it.
func (b *Broker) Slow() (back func()) {
	percent, slow := b.program.spec.number(slowParameter, 0)
	if !slow || len(b.running()) == 0 {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		b.dilate(fault.Dilation{Share: float64(percent) / 100}, done)
	}()
	return sync.OnceFunc(func() {
		close(done)
		<-ended
	})
}

// dilate runs and stops the processes in turn until done is closed.
func (b *Broker) dilate(d fault.Dilation, done <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pass := func(wanted time.Duration) bool {
		timer.Reset(wanted)
		select {
		case <-timer.C:
			return true
		case <-done:
			return false
		}
	}
	mark := time.Now()
	lap := func() time.Duration {
		last := mark
		mark = time.Now()
		return mark.Sub(last)
	}
	for pass(d.Run()) {
		processes := b.running()
		for _, p := range processes {
			p.signal(pauseGroup)
		}
		d.Ran(lap())
		more := pass(d.Stop())
		for _, p := range processes {
			p.signal(resumeGroup)
		}
		d.Stopped(lap())
		if !more {
			return
		}
	}
}
