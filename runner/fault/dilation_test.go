package fault

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// However late the machine is, the time that a program is stopped is the share of the time that it runs.
func TestDilation(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0.01, 0.1, 0.4, 1, 10} {
		for _, late := range []time.Duration{0, 100 * time.Microsecond, 3 * time.Millisecond} {
			d := Dilation{Share: share}
			rng := rand.New(rand.NewPCG(1, uint64(late)))
			slip := func() time.Duration { return time.Duration(rng.Int64N(int64(late) + 1)) }
			var ran, stopped time.Duration
			turns := 0
			for ; ran < 2*time.Second; turns++ {
				r := d.Run() + slip()
				d.Ran(r)
				s := d.Stop() + slip()
				d.Stopped(s)
				ran, stopped = ran+r, stopped+s
			}
			if got := float64(stopped) / float64(ran); math.Abs(got-share) > 0.02*share+0.003 {
				t.Errorf("share %v, late by up to %v: stopped for %.4f of the time", share, late, got)
			}
			if late == 0 && turns < int(share*float64(2*time.Second/quantum)) {
				t.Errorf("share %v: %d turns", share, turns)
			}
		}
	}
}
