package target

import (
	"fmt"
	"os"

	"github.com/prometheus/procfs"
)

// usage reads what the process has used so far into u, and leaves alone what it cannot read: a process that is gone has
// nothing.
func usage(pid int, u *Usage) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return
	}
	if status, err := p.NewStatus(); err == nil && status.VmHWM > 0 { // a zombie's is 0
		u.RSSPeak = whole(int64(status.VmHWM))
	}
	if stat, err := p.Stat(); err == nil {
		s := stat.CPUTime()
		u.CPUSeconds = &s
		if stat.RSS > 0 {
			u.RSS, u.Threads = whole(int64(stat.ResidentMemory())), whole(int64(stat.NumThreads))
		}
	}
	if n, err := p.FileDescriptorsLen(); err == nil {
		u.FDs = whole(int64(n))
	}
	if io, err := p.IO(); err == nil {
		u.DiskBytes, u.WriteCalls = whole(int64(io.WriteBytes)), whole(int64(io.SyscW))
	}
}

func whole(n int64) *int64 { return &n }

// pulse is the resident memory in bytes and the time in seconds alone.
func pulse(pid int) (Pulse, bool) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return Pulse{}, false
	}
	stat, err := p.Stat()
	if err != nil {
		return Pulse{}, false
	}
	return Pulse{RSS: int64(stat.ResidentMemory()), CPUSeconds: stat.CPUTime()}, true
}

// resetPeak makes VmHWM begin anew, see proc_pid_clear_refs(5).
func resetPeak(pid int) bool {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) == nil
}
