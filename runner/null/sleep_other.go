//go:build !linux

package null

import (
	"sync/atomic"
	"time"
)

// sleeper waits as precisely as the runtime's timers do.
type sleeper struct{ sharers *atomic.Int64 }

// until waits for t and returns true, or false when quit came first; in the last 20 ms it no longer looks at quit.
func (sleeper) until(t time.Time, quit <-chan struct{}) bool {
	if !coarse(t, quit) {
		return false
	}
	time.Sleep(time.Until(t))
	return true
}
