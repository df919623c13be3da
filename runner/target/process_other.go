//go:build !unix

package target

import "os/exec"

// ownGroup does nothing where there are no process groups.
func ownGroup(*exec.Cmd) {}

// killGroup kills the command; what it started itself is not reached.
func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

// endGroup kills the command: there is no way to ask.
func endGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

// canPause: there is no way to stop a process and let it go on.
const canPause = false

func pauseGroup(*exec.Cmd) error { return nil }

func resumeGroup(*exec.Cmd) error { return nil }
