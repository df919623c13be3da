package runner

import (
	"time"

	"inflight/runner/result"
	"inflight/scenarios"
)

// Kind says what an [Event] tells.
type Kind int

// The kinds of events, in the order of a run.
const (
	Preparing Kind = iota + 1 // a broker's program is looked for or built: Arm, Target
	Starting                  // a pass starts its brokers: Pass
	Running                   // a run of an arm begins: Arm, Point, Block, Control, Verify
	CellDone                  // an arm's runs at one point in this pass are over, its verification too: Arm, Point, Cell
	PassDone                  // every cell of the pass is done
	Stopping                  // the brokers are being stopped
	Talk                      // Text is for the user; anything else may be unset
)

// String is the kind in lower case, as a progress line says it.
func (k Kind) String() string {
	switch k {
	case Preparing:
		return "preparing"
	case Starting:
		return "starting"
	case Running:
		return "running"
	case CellDone:
		return "cell done"
	case PassDone:
		return "pass done"
	case Stopping:
		return "stopping"
	case Talk:
		return "note"
	}
	return "unknown"
}

// Event is one step of a run's progress. Fields that do not apply to its kind are zero.
type Event struct {
	Kind   Kind
	Pass   int // from 1
	Passes int
	Arm    string // name of the arm
	Target string // of that arm
	Slot   int    // from 1
	Point  scenarios.Point
	Block  int // from 1, inside the pass; 0 for the uncounted first load and for a verification
	Blocks int // per pass

	Control bool // a QoS 0 control run, or its cell
	Verify  bool // a verification block
	Trial   int  // number of the trial of a search at Point.Rate, from 1; 0: it is none

	// Done is the time since the start of the run, Total what the whole run will take by now's estimate: Total - Done is
	// the time left. Between two events only Done grows.
	Done, Total time.Duration

	Cell *result.Cell // CellDone only: a copy
	Text string
}

// maxEvents bounds the events that wait for a slow Progress function; past it the run waits too.
const maxEvents = 64

// events hands every event to one function in one goroutine, so that neither that function needs a lock nor a measured run
// waits for a terminal.
type events struct {
	queue chan Event
	done  chan struct{}
}

func newEvents(progress func(Event)) *events {
	e := &events{queue: make(chan Event, maxEvents), done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for event := range e.queue {
			if progress != nil {
				progress(event)
			}
		}
	}()
	return e
}

// send may be called from any goroutine until close.
func (e *events) send(event Event) { e.queue <- event }

// close returns once every event has been handed over.
func (e *events) close() {
	close(e.queue)
	<-e.done
}
