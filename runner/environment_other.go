//go:build !linux

package runner

// hardware is not read on this system.
func hardware() (cpu, kernel string) { return "", "" }
