package target

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithThread makes the kernel kill the command when the thread that starts it ends, and so with the whole harness.
func dieWithThread(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// awaitExit returns true when the command has ended and not been reaped.
func awaitExit(cmd *exec.Cmd) bool {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
