package runner

import (
	"testing"
	"time"

	"inflight/scenarios"
)

func TestMeasuredTimeHoldsWholeTurns(t *testing.T) {
	serialised := work{640, time.Second}
	for _, test := range []struct {
		seen   work
		window int
		want   time.Duration
		reason string
	}{
		{serialised, 256, 400 * time.Millisecond, "a turn takes 400 ms, the least number of them above 250 ms is one"},
		{serialised, 128, 400 * time.Millisecond, "two turns of 200 ms"},
		{serialised, 1, 250 * time.Millisecond, "160 turns: a part of one is nothing"},
		{serialised, 65_535, 250 * time.Millisecond, "a turn takes 102 s, which nobody waits for"},
		{work{100, time.Second}, 256, 2560 * time.Millisecond, "ten times of what was asked, but bearable"},
		{work{1_000_000, time.Second}, 256, 250 * time.Millisecond, "a fast broker turns its window a thousand times"},
		{work{}, 256, 250 * time.Millisecond, "nothing is known"},
	} {
		point := scenarios.Point{QoS: 2, Window: test.window, Connections: 1, Payload: 256}
		turns := newTurns()
		turns.note(1, point, test.seen.exchanges, test.seen.took)
		wanted := loadTimes{warmup: 50 * time.Millisecond, measured: 250 * time.Millisecond}
		got := turns.fit(1, point, wanted)
		if (got.measured - test.want).Abs() > time.Microsecond {
			t.Errorf("window %d, %d exchanges in %v: %v, want %v: %s", test.window, test.seen.exchanges, test.seen.took, got.measured, test.want, test.reason)
		}
		if got.measured != wanted.measured && got.warmup < got.measured/2 || got.measured == wanted.measured && got.warmup != wanted.warmup {
			t.Errorf("window %d: warm-up of %v before %v, want a turn", test.window, got.warmup, got.measured)
		}
		if got := turns.fit(0, point, wanted); got != wanted {
			t.Errorf("the other arm, of which nothing is known: %v", got)
		}
	}
}

func TestTurnsOfAPointNotRunYet(t *testing.T) {
	turns := newTurns()
	deepest := scenarios.Point{QoS: 2, Window: 256, Connections: 1, Payload: 256}
	turns.note(0, deepest, 640, time.Second)
	other := deepest
	other.Window, other.Connections = 20, 8
	measured := func(wanted time.Duration) time.Duration {
		return turns.fit(0, other, loadTimes{measured: wanted}).measured
	}
	if got := measured(200 * time.Millisecond); got != 250*time.Millisecond {
		t.Errorf("%v, want one turn of 160 at the rate of the first load", got)
	}
	turns.note(0, other, 1_600, time.Second)
	if got := measured(150 * time.Millisecond); got != 200*time.Millisecond {
		t.Errorf("%v, want two turns at the point's own rate", got)
	}
	other.QoS = 1
	if got := measured(150 * time.Millisecond); got != 150*time.Millisecond {
		t.Errorf("%v: another QoS says nothing", got)
	}
}

// TestWavesAreCountedRight is the reason for it all: a broker that serves one packet at a time, in packets of work.
func TestWavesAreCountedRight(t *testing.T) {
	const window = 256
	const each = 800 * time.Microsecond // per packet, so 625 exchanges a second
	// In steady state a wave of PUBRECs, then a wave of PUBCOMPs.
	completions := func(from, to time.Duration) (n int) {
		for at := time.Duration(0); at < to; at += each {
			if packet := int(at / each); packet/window%2 == 1 && at >= from {
				n++
			}
		}
		return n
	}
	turns := newTurns()
	point := scenarios.Point{QoS: 2, Window: window, Connections: 1}
	turns.note(0, point, 3*window, 3*window*2*each)
	measured := turns.fit(0, point, loadTimes{measured: 250 * time.Millisecond}).measured
	for warmup := time.Duration(0); warmup < time.Second; warmup += 7 * time.Millisecond {
		if rate := float64(completions(warmup, warmup+measured)) / measured.Seconds(); rate < 620 || rate > 630 {
			t.Errorf("after %v: %.0f/s, want 625", warmup, rate)
		}
	}
	if n := completions(0, 200*time.Millisecond); n != 0 {
		t.Errorf("%d completions in the first wave: the model has no waves", n)
	}
}
