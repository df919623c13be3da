//go:build unix

package runner

import "syscall"

// maxDescriptors is how many descriptors this process may have open; ok is false if the system does not tell. The Go runtime
// has raised the limit as far as it may.
func maxDescriptors() (n uint64, ok bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return uint64(limit.Cur), true
}
