package misbehave

import (
	"net"
	"sync"
	"time"
)

// Limits of a slowLine.
const (
	maxHeld   = 1 << 20 // bytes; above, the broker waits
	maxCredit = time.Millisecond
	drainWait = 5 * time.Second // for a client that does not read
)

// slowLine lets bytes leave in their order, each held back for a time, and none waits for the writer. There is a goroutine while
// anything is held back, and none otherwise.
//
// An alarm is late by about as much as a fast broker's answer is to be held back. What was late is taken off what comes next,
// so that the times are right in the mean.
type slowLine struct {
	nc net.Conn

	mu      sync.Mutex
	changed sync.Cond
	held    []heldBack
	bytes   int
	sending bool // the goroutine is there: it alone writes, and waits for the alarm
	alarm   alarm
	credit  time.Duration // what left too late, in all, and was not made up for
	err     error
}

type heldBack struct {
	due time.Time // not before that of the one before
	b   []byte
}

func newSlowLine(nc net.Conn) *slowLine {
	l := &slowLine{nc: nc}
	l.changed.L = &l.mu
	return l
}

// write takes b at now, to be held back for that time. What need not wait has left when it returns. The error may be that of an
// earlier call.
func (l *slowLine) write(b []byte, now time.Time, hold time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytes > maxHeld && l.err == nil {
		l.changed.Wait()
	}
	if l.err != nil {
		return l.err
	}
	early := min(l.credit, hold)
	l.credit -= early
	due := now.Add(hold - early)
	if !l.sending {
		if !due.After(time.Now()) {
			_, l.err = l.nc.Write(b)
			return l.err
		}
		l.sending = true
		go l.send()
	}
	if n := len(l.held); n > 0 && due.Before(l.held[n-1].due) {
		due = l.held[n-1].due
	}
	l.held = append(l.held, heldBack{due, b})
	l.bytes += len(b)
	return nil
}

// send writes what is due until nothing is held back.
func (l *slowLine) send() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.held) > 0 && l.err == nil {
		due := l.held[0].due
		l.mu.Unlock()
		l.alarm.wait(time.Until(due))
		l.mu.Lock()
		var out []byte
		n := 0
		for now := time.Now(); n < len(l.held) && !l.held[n].due.After(now); n++ {
			out = append(out, l.held[n].b...)
			l.credit += now.Sub(l.held[n].due)
		}
		l.credit = min(l.credit, maxCredit)
		l.held = l.held[n:]
		l.mu.Unlock()
		_, err := l.nc.Write(out)
		l.mu.Lock()
		l.bytes -= len(out)
		l.err = err
		l.changed.Broadcast()
	}
	l.held, l.bytes, l.sending = nil, 0, false
	l.changed.Broadcast()
}

// drain waits until nothing is held back. A client that does not read is cut off after a while.
func (l *slowLine) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sending {
		defer time.AfterFunc(drainWait, func() { _ = l.nc.Close() }).Stop()
	}
	for l.sending {
		l.changed.Wait()
	}
	l.alarm.close()
}
