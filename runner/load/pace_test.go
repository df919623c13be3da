package load

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPace(t *testing.T) {
	ramp := Pace{From: 1000, To: 3000, Hold: time.Second, Over: 2 * time.Second}
	for _, test := range []struct {
		why     string
		pace    Pace
		at      time.Duration
		n, rate float64
	}{
		{"a constant rate", Pace{From: 500}, 3 * time.Second, 1500, 500},
		{"nothing before the start", Pace{From: 500}, -time.Second, 0, 500},
		{"a ramp holds its first rate during the warm-up", ramp, time.Second, 1000, 1000},
		{"half of a ramp is less than half of its messages", ramp, 2 * time.Second, 1000 + 1500, 2000},
		{"a ramp has the mean of its rates", ramp, 3 * time.Second, 1000 + 4000, 3000},
		{"and goes on at its last rate", ramp, 4 * time.Second, 1000 + 4000 + 3000, 3000},
		{"downwards", Pace{From: 3000, To: 1000, Over: 2 * time.Second}, time.Second, 2500, 2000},
	} {
		if got := test.pace.Until(test.at); math.Abs(got-test.n) > 1e-6 {
			t.Errorf("%s: %g messages until %v, want %g", test.why, got, test.at, test.n)
		}
		if got := test.pace.Rate(test.at); math.Abs(got-test.rate) > 1e-6 {
			t.Errorf("%s: %g/s at %v, want %g", test.why, got, test.at, test.rate)
		}
		if got := test.pace.At(int64(test.n)); test.at > 0 && (got-test.at).Abs() > time.Microsecond {
			t.Errorf("%s: message %g is at %v, want %v", test.why, test.n, got, test.at)
		}
	}
	if (Pace{}).Open() || !ramp.Open() {
		t.Error("the zero value is no schedule, and any other is one")
	}
}

// Whatever the ramp and however many connections: instants do not go back, a message is due from its instant on and not
// before, and the connections together have every message once.
func TestPaceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Pace{
			From: float64(rapid.IntRange(1, 100_000).Draw(t, "from")), To: float64(rapid.IntRange(1, 100_000).Draw(t, "to")),
			Hold: time.Duration(rapid.IntRange(0, 2_000).Draw(t, "hold")) * time.Millisecond,
			Over: time.Duration(rapid.IntRange(0, 20_000).Draw(t, "over")) * time.Millisecond,
		}
		of := int64(rapid.IntRange(1, 50).Draw(t, "connections"))
		turn := Turn{Pace: p, Number: rapid.Int64Range(0, of-1).Draw(t, "connection"), Of: of}
		n := rapid.Int64Range(0, 100_000).Draw(t, "message")
		at, next := turn.At(n), turn.At(n+1)
		if at < 0 || next < at {
			t.Fatalf("message %d is at %v, the next at %v", n, at, next)
		}
		const rounding = 2 * time.Microsecond // of instants that are seconds in a float
		if got := turn.Due(at + rounding); got < n+1 {
			t.Fatalf("message %d is at %v, and %d are due then", n, at, got)
		}
		if got := turn.Due(at - rounding); got > n {
			t.Fatalf("message %d is at %v, and %d are due before", n, at, got)
		}
		var sum int64
		for i := range of {
			sum += Turn{Pace: p, Number: i, Of: of}.Due(at)
		}
		if want := int64(p.Until(at)) + 1; sum != want {
			t.Fatalf("%d connections have %d messages due by %v, want %d", of, sum, at, want)
		}
	})
}
