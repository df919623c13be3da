package load

import (
	"math"
	"time"
)

// Forever is the end of a measured time without an end.
const Forever = time.Duration(math.MaxInt64)

// meter integrates a level over the measured time. The level is constant between two calls of set.
type meter struct {
	from, to time.Duration
	last     time.Duration
	level    int64
	area     int64 // level times nanoseconds: 65,535 for ten minutes is 4e16, far from the limit
}

// Measure sets the measured time and forgets what was integrated before.
func (m *meter) Measure(from, to time.Duration) { m.from, m.to, m.area = from, to, 0 }

// Mean is the mean level from the start of the measured time until its end or now, whichever comes first; 0 before it.
// It takes the level at now into account.
func (m *meter) Mean(now time.Duration) float64 {
	m.advance(now)
	end := min(now, m.to)
	if end <= m.from {
		return 0
	}
	return float64(m.area) / float64(end-m.from)
}

func (m *meter) advance(now time.Duration) {
	if now == m.last {
		return
	}
	if from, to := max(m.last, m.from), min(now, m.to); to > from {
		m.area += m.level * int64(to-from)
	}
	m.last = now
}

func (m *meter) add(now time.Duration, n int) {
	m.advance(now)
	m.level += int64(n)
}
