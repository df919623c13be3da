package fault

import "time"

// quantum is how long a dilated program is stopped at a time, if it runs as long between as was asked for. It is short beside a
// measured run, and long beside what stopping a program takes.
const quantum = 2 * time.Millisecond

// Dilation slows a program whatever it does: stopped for Share of the time that it runs, it takes 1+Share of its time for
// everything, and nothing else about it changes. It is the schedule alone: the caller runs and stops the program, and says for how
// long it did. What ran or stood too long, as the machine had it, is made up for in the next turn.
type Dilation struct {
	Share float64 // above 0

	ran, stopped time.Duration
}

// Run is how long the program runs before it is stopped again.
func (d *Dilation) Run() time.Duration {
	return max(0, time.Duration(float64(d.stopped+quantum)/d.Share)-d.ran)
}

// Stop is how long it is stopped for what it has run.
func (d *Dilation) Stop() time.Duration {
	return max(0, time.Duration(d.Share*float64(d.ran))-d.stopped)
}

// Ran notes that it ran.
func (d *Dilation) Ran(took time.Duration) { d.ran += took }

// Stopped notes that it was stopped.
func (d *Dilation) Stopped(took time.Duration) { d.stopped += took }
