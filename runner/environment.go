package runner

import (
	"runtime"

	"inflight/runner/result"
)

// Environment describes this machine; what cannot be read is absent.
func Environment() result.Environment {
	e := result.Environment{
		Cores:      runtime.NumCPU(),
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
		Go:         runtime.Version(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		TCPNoDelay: true, // package client sets it on every connection
	}
	e.CPU, e.Kernel = hardware()
	return e
}
