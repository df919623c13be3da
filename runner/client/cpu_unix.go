//go:build unix

package client

import (
	"syscall"
	"time"
)

// cpuTime is the user and system time that this process has used; ok is false if the system does not tell.
func cpuTime() (used time.Duration, ok bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
