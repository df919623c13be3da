package misbehave

import (
	"time"

	"golang.org/x/sys/unix"
)

// spun is the end of a pause that is waited for awake: what the kernel is late by at its default timer slack.
const spun = 60 * time.Microsecond

// pause waits to within microseconds. The runtime's timers wait in epoll, in whole milliseconds, which is several times what
// a fast broker's answer takes.
func pause(d time.Duration) {
	due := time.Now().Add(d)
	if d > spun {
		ts := unix.NsecToTimespec(int64(d - spun))
		_ = unix.Nanosleep(&ts, nil) // an interrupted sleep is spun to its end
	}
	for time.Now().Before(due) {
	}
}
