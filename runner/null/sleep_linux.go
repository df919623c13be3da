package null

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// early is how long before the due time the kernel is asked to wake the thread; the rest is spun away. It covers what a
// wake-up on an idle processor usually costs. All connections share it, so that many do not spin the processors full.
const early = 150 * time.Microsecond

// sleeper waits to within microseconds. The Go runtime waits for timers in epoll, in whole milliseconds, so the thread
// sleeps by itself, with its timer slack (50 us by default) removed. It is for one goroutine, whose thread ends with it.
type sleeper struct {
	sharers *atomic.Int64 // how many there are
	locked  bool
}

// until waits for t and returns true, or false when quit came first; in the last 20 ms it no longer looks at quit.
func (s *sleeper) until(t time.Time, quit <-chan struct{}) bool {
	if !coarse(t, quit) {
		return false
	}
	if !s.locked {
		runtime.LockOSThread()
		s.locked = true
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	}
	early := early / time.Duration(max(1, s.sharers.Load()))
	for {
		left := time.Until(t)
		if left <= 0 {
			return true
		}
		if left > early {
			ts := unix.NsecToTimespec(int64(left - early))
			_ = unix.Nanosleep(&ts, nil) // an interrupted sleep goes round again
		}
	}
}
