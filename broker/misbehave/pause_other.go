//go:build !linux

package misbehave

import "time"

// pause waits as precisely as the runtime's timers do.
func pause(d time.Duration) { time.Sleep(d) }
