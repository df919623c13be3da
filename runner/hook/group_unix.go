//go:build unix

package hook

import (
	"os/exec"
	"syscall"
)

// inOwnGroup makes the command the leader of a process group, which is killed with it.
func inOwnGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
