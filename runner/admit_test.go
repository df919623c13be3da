package runner

import (
	"errors"
	"strings"
	"testing"

	"inflight/scenarios"
)

// A rate that the load generator reaches needs no word, one that it misses is said, and one that it misses by far is refused.
func TestAboveCeiling(t *testing.T) {
	t.Parallel()
	p := scenarios.Point{QoS: 1, Window: 20, Connections: 1}
	for _, c := range []struct {
		asked, reached float64
		said, refused  string
	}{
		{asked: 10_000, reached: 10_000},
		{asked: 10_001, reached: 10_000, said: "rate 10001: the load generator reaches about 10000/s against a broker that only acknowledges, at QoS 1, window 20, 1 connection"},
		{asked: 100_000, reached: 10_000, said: "rate 100000: the load generator reaches about 10000/s"},
		{asked: 100_001, reached: 10_000, refused: "ask for a lower one, a larger window or more connections"},
		{asked: 6_000, reached: 0, refused: "about 0/s"},
	} {
		said, err := aboveCeiling(c.asked, c.reached, &p)
		if (c.said == "") != (said == "") || !strings.HasPrefix(said, c.said) {
			t.Errorf("%v asked for, %v reached: said %q, want %q", c.asked, c.reached, said, c.said)
		}
		refused := (*RefusedError)(nil)
		if got := errors.As(err, &refused); got != (c.refused != "") || got && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%v asked for, %v reached: %v, want %q", c.asked, c.reached, err, c.refused)
		}
	}
}
