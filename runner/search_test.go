package runner

import (
	"testing"
	"time"

	"inflight/runner/client"
	"inflight/scenarios"
)

func TestTrialTimes(t *testing.T) {
	p99 := scenarios.Limit{Percentile: 99, Below: 20 * time.Millisecond}
	if n := lowestRate(p99); n != 60 {
		t.Errorf("lowest rate %d, want 60: 1,200 messages in 20 s", n)
	}
	if d := trialTime(p99, 60, time.Second); d != 20*time.Second {
		t.Errorf("a trial at 60/s takes %v, want 20 s", d)
	}
	if d := trialTime(p99, 100_000, time.Second); d != time.Second {
		t.Errorf("a trial at 100,000/s takes %v, want what the scenario says", d)
	}
	if d := trialTime(scenarios.Limit{Percentile: 99, Below: time.Second}, 100_000, time.Second); d != 10*time.Second {
		t.Errorf("a trial takes %v, want time for a backlog to grow beyond a limit of 1 s", d)
	}
	if n := lowestRate(scenarios.Limit{Percentile: 50, Below: time.Second}); n != 2 {
		t.Errorf("lowest rate of a median %d, want 2", n)
	}
}

// A percentile of a trial is over all messages that were due: what was not written, or not answered, is slower than any.
func TestTrialsCountWhatWasNotAnswered(t *testing.T) {
	limit := scenarios.Limit{Percentile: 90, Below: 20 * time.Millisecond}
	for _, test := range []struct {
		why                string
		fast, slow         int64 // answered in 1 ms and in 30 ms
		missed, unanswered int64
		held               bool
	}{
		{"all fast", 1000, 0, 0, 0, true},
		{"a tenth slow, but for one", 901, 99, 0, 0, true},
		{"more than a tenth slow", 890, 110, 0, 0, false},
		{"more than a tenth missed", 890, 0, 110, 0, false},
		{"slow, missed and unanswered together", 880, 40, 40, 40, false},
		{"a few missed", 950, 0, 25, 25, true},
		{"too few to say", 50, 0, 0, 0, false},
		{"none answered", 0, 0, 1000, 0, false},
	} {
		h := client.NewHistogram()
		_ = h.RecordValues(int64(time.Millisecond), test.fast)
		_ = h.RecordValues(int64(30*time.Millisecond), test.slow)
		answered := test.fast + test.slow
		m := &measurement{stats: &client.Stats{
			AckResponse: h, Missed: test.missed, Published: answered + test.unanswered, Acknowledged: answered, Messages: answered, Duration: time.Second,
		}}
		trial := trialOf(m, 1000, limit)
		if trial.Held != test.held || trial.Due != answered+test.missed+test.unanswered {
			t.Errorf("%s: %+v, want held %v", test.why, trial, test.held)
		}
	}
}

// TestSearchUnderLoad: a search on a real connection ends with an interval, or says why not, and its trials are in the result.
// What it finds depends on the machine.
func TestSearchUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a second or two; run without -short")
	}
	b := startTestBroker(t, &testBroker{})
	cfg := verifying(t, b.addr, 1, func(s *scenarios.Scenario) {
		s.Verify, s.Duration, s.Warmup = -1, 20*time.Millisecond, time.Millisecond
		s.FindMax = scenarios.Limit{Percentile: 50, Below: 2 * time.Millisecond}
		s.Windows = []int{4}
	})
	trials := 0
	cfg.Progress = func(e Event) {
		if e.Trial > 0 {
			trials++
		}
	}
	res, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Searches) != 1 || len(res.Cells) != 1 {
		t.Fatalf("%d searches and %d cells, want one of each", len(res.Searches), len(res.Cells))
	}
	s := res.Searches[0]
	if s.End == "" || s.Limit != "p50<2ms" || len(s.Trials) != trials || trials < 2 {
		t.Errorf("%+v after %d trials", s, trials)
	}
	if s.Low != nil && s.High != nil && *s.Low >= *s.High {
		t.Errorf("holds at %d and breaks at %d", *s.Low, *s.High)
	}
	for i, trial := range s.Trials {
		if trial.Due < 20 || trial.RatePerS < 1 || trial.Held != (trial.ValueNS != nil && *trial.ValueNS < s.LimitNS) {
			t.Errorf("trial %d: %+v", i+1, trial)
		}
	}
	if c := res.Cells[0]; c.Order.Checked <= c.Messages {
		t.Errorf("%d acknowledgements checked of %d messages: those of the trials are missing", c.Order.Checked, c.Messages)
	}
}
