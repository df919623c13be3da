package stat

import (
	"strings"
	"testing"

	"inflight/runner/result"
)

func TestSearchesArePooledAsAnInterval(t *testing.T) {
	number := func(n int) *int { return &n }
	ns := func(n int64) *int64 { return &n }
	search := func(pass int, low, high *int, end string, trials ...result.Trial) result.Search {
		return result.Search{Arm: "A", Pass: pass, QoS: 1, Window: 64, Connections: 1, Payload: 256, Limit: "p99<20ms", LimitNS: 20e6, Low: low, High: high, End: end, Trials: trials}
	}
	held := result.Trial{RatePerS: 9_000, Held: true, ValueNS: ns(12e6)}
	for _, test := range []struct {
		why       string
		searches  []result.Search
		low, high int // 0: none
		says      string
	}{
		{"the interval has what both passes found", []result.Search{search(1, number(9_000), number(9_800), "found", held), search(2, number(10_000), number(11_000), "found")}, 9_000, 11_000, ""},
		{"one pass found nothing that holds", []result.Search{search(1, number(9_000), number(9_800), "found"), search(2, nil, number(60), "lowest_breaks", result.Trial{RatePerS: 60})}, 0, 9_800, "it breaks at 60/s already"},
		{"the generator was the limit once", []result.Search{search(1, number(9_000), nil, "generator_limit", result.Trial{RatePerS: 18_000, Fault: "it was busy"}), search(2, number(9_000), number(9_500), "found")}, 9_000, 0, "at 18000/s it was busy"},
		{"trials that contradict each other", []result.Search{search(1, number(5), number(500), "out_of_trials")}, 5, 500, "contradict"},
		{"a later version's end", []result.Search{search(1, nil, nil, "tired")}, 0, 0, "tired"},
	} {
		r := &result.Result{Arms: []result.Arm{{Name: "A"}}, Searches: test.searches}
		all := Searches(r)
		if len(all) != 1 {
			t.Fatalf("%s: %d findings, want one", test.why, len(all))
		}
		f := all[0]
		if value(f.Low) != test.low || value(f.High) != test.high {
			t.Errorf("%s: from %d to %d, want from %d to %d", test.why, value(f.Low), value(f.High), test.low, test.high)
		}
		var said []string
		openSearches(r, func(_, format string, args ...any) { said = append(said, args[len(args)-1].(string)) })
		if (test.says != "") != (len(said) == 1) || test.says != "" && !strings.Contains(said[0], test.says) {
			t.Errorf("%s: says %q, want %q", test.why, said, test.says)
		}
	}
	if f := Searches(&result.Result{Searches: []result.Search{search(1, number(9_000), number(9_800), "found", held)}})[0]; f.ValueNS == nil || *f.ValueNS != 12e6 {
		t.Errorf("the percentile at the rate that holds is %v", f.ValueNS)
	}
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
