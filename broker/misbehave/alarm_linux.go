package misbehave

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm waits to within some ten microseconds and leaves the processor to others meanwhile. The runtime's own timers wait in
// epoll, in whole milliseconds, which is several times what a fast broker's answer takes; a thread that sleeps in a system call
// keeps one of the broker's processors from its goroutines; and one that spins slows the machine by more than the share asked for.
type alarm struct {
	timer *os.File // nil until it is used, and when the kernel gives none
	fd    int      // of timer; asked for it, the file would go into blocking mode
}

// wait returns after d.
func (a *alarm) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	if a.timer == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			time.Sleep(d)
			return
		}
		a.timer, a.fd = os.NewFile(uintptr(fd), "timer"), fd // does not block: a reader waits in the runtime's poller
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	var expirations [8]byte
	err := unix.TimerfdSettime(a.fd, 0, &at, nil)
	if err == nil {
		_, err = a.timer.Read(expirations[:])
	}
	if err != nil {
		time.Sleep(d)
	}
}

// close frees what a wait has taken. The alarm can be used again.
func (a *alarm) close() {
	if a.timer != nil {
		_ = a.timer.Close()
		a.timer = nil
	}
}
