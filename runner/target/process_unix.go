//go:build unix

package target

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the command the leader of its own process group.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// killGroup kills the process group that the command leads. The command must not have been waited for.
func killGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}

// endGroup asks the process group that the command leads to end.
func endGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
}

// canPause says whether pauseGroup and resumeGroup do anything.
const canPause = true

// pauseGroup stops the process group that the command leads: none of its threads runs until resumeGroup.
func pauseGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGSTOP)
}

func resumeGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT)
}
