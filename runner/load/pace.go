package load

import (
	"math"
	"time"
)

// Pace is the schedule of an open loop: From messages per second for the time Hold, then a rate that changes evenly until it is
// To after another Over, then To. It is absolute: message n has its instant whatever became of those before it. The zero
// value is no schedule. From is above 0; with Over at 0 the rate is From throughout.
type Pace struct {
	From, To   float64 // messages per second
	Hold, Over time.Duration
}

// Open reports whether there is a schedule.
func (p Pace) Open() bool { return p.From > 0 }

func (p Pace) ramped() bool { return p.Over > 0 && p.From != p.To }

// Until is how many messages have their instant before a time t since the start, as a real number: message n, from 0, is due
// from the time on at which Until is n.
func (p Pace) Until(t time.Duration) float64 {
	hold := p.Hold
	if !p.ramped() || t <= hold {
		return p.From * max(0, t.Seconds())
	}
	before := p.From * hold.Seconds()
	over := p.Over.Seconds()
	x := (t - hold).Seconds()
	if x >= over {
		return before + (p.From+p.To)/2*over + p.To*(x-over)
	}
	return before + p.From*x + (p.To-p.From)*x*x/(2*over)
}

// At is the instant of message n, from 0, since the start: the inverse of Until.
func (p Pace) At(n int64) time.Duration {
	count := float64(n)
	before := p.From * p.Hold.Seconds()
	if !p.ramped() || count <= before {
		return seconds(count / p.From)
	}
	count -= before
	over := p.Over.Seconds()
	if whole := (p.From + p.To) / 2 * over; count >= whole {
		return p.Hold + p.Over + seconds((count-whole)/p.To)
	}
	// The root of a*x*x + From*x = count in the form that does not cancel for a slow ramp; it exists, since count < whole.
	a := (p.To - p.From) / (2 * over)
	root := math.Sqrt(max(0, p.From*p.From+4*a*count))
	return p.Hold + seconds(2*count/(p.From+root))
}

// Rate is the rate at a time t since the start, messages per second.
func (p Pace) Rate(t time.Duration) float64 {
	switch {
	case !p.ramped() || t <= p.Hold:
		return p.From
	case t >= p.Hold+p.Over:
		return p.To
	}
	return p.From + (p.To-p.From)*(t-p.Hold).Seconds()/p.Over.Seconds()
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Turn is the part of a Pace that one of several connections takes: message n of the connection is message n*Of+Number of all.
type Turn struct {
	Pace
	Number, Of int64
}

// At is the instant of message n of the connection.
func (t Turn) At(n int64) time.Duration { return t.Pace.At(n*t.Of + t.Number) }

// Due is how many messages of the connection are to be written by a time since the start, those whose instant it is included.
func (t Turn) Due(since time.Duration) int64 {
	if since < 0 {
		return 0
	}
	all := int64(t.Until(since)) // the last message whose instant has come
	if all < t.Number {
		return 0
	}
	return (all-t.Number)/t.Of + 1
}
