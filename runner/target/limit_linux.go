package target

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// CanFailStore reports whether FailStore works on this system.
func CanFailStore() bool { return true }

// limitFiles sets the size up to which the process may write files: nothing, or what it could at its start. The soft limit
// is enough, and may be raised again without privileges. A write beyond it fails with EFBIG.
func (p *process) limitFiles(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return fmt.Errorf("node %s has ended", p.name)
	}
	var old unix.Rlimit
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, nil, &old); err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: 0, Max: old.Max}
	if !on {
		limit.Cur = old.Max
	}
	return unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil)
}
