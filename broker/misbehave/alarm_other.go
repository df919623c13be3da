//go:build !linux

package misbehave

import "time"

// alarm waits as precisely as the runtime's timers do.
type alarm struct{}

func (*alarm) wait(d time.Duration) { time.Sleep(d) }

func (*alarm) close() {}
