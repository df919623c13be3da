package runner

import (
	"os"
	"syscall"
	"testing"

	"github.com/prometheus/procfs"
)

const measuresProcesses = true

// children are the command lines of this process's children, by pid; dead ones that nobody has waited for included.
func children(t *testing.T) map[int][]string {
	t.Helper()
	list, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	found := map[int][]string{}
	for _, p := range list {
		if stat, err := p.Stat(); err == nil && stat.PPID == os.Getpid() {
			found[p.PID], _ = p.CmdLine()
		}
	}
	return found
}

// kill ends a child at once.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}
