package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"inflight/runner/result"
	"inflight/scenarios"
)

// verifying is a run of nothing but one short block and a verification against a broker at addr.
func verifying(t *testing.T, addr string, qos int, change func(*scenarios.Scenario)) Config {
	return Config{
		OutDir: t.TempDir(),
		Scenario: scenario(func(s *scenarios.Scenario) {
			s.Arms = []scenarios.Arm{{Name: "A", Target: "tcp://" + addr}}
			s.QoS = []int{qos}
			s.Windows = []int{20}
			s.Payloads = []int{8} // shorter than the ledger's header
			s.Passes, s.Blocks = 1, 1
			s.Duration, s.Warmup, s.Control = 50*time.Millisecond, 0, -1
			s.Verify, s.Drain = 200*time.Millisecond, 3*time.Second // what is lost is waited for, nothing else
			if change != nil {
				change(s)
			}
		}),
	}
}

func TestVerificationFindsPlantedFaults(t *testing.T) {
	for name, test := range map[string]struct {
		qos    int
		broker *testBroker
		want   func(l *result.Ledger) bool
		bad    bool
	}{
		"a clean broker at QoS 0": {qos: 0, want: func(l *result.Ledger) bool { return l.Lost == 0 && l.Delivered == l.Published }},
		"a clean broker at QoS 1": {qos: 1, want: func(l *result.Ledger) bool { return l.Lost == 0 && l.Delivered == l.Published }},
		"a clean broker at QoS 2": {qos: 2, want: func(l *result.Ledger) bool { return l.Lost == 0 && l.Delivered == l.Published }},
		"one message is lost": {
			qos:    2,
			broker: &testBroker{fault: func(n int) int { return map[bool]int{true: 0, false: 1}[n == 7] }},
			want:   func(l *result.Ledger) bool { return l.Lost == 1 && l.Delivered == l.Published-1 && l.First != "" },
			bad:    true,
		},
		"one message comes twice": {
			qos:    2,
			broker: &testBroker{fault: func(n int) int { return map[bool]int{true: 2, false: 1}[n == 7] }},
			want:   func(l *result.Ledger) bool { return l.Duplicated == 1 && l.Lost == 0 },
			bad:    true,
		},
		"a second copy is legal at QoS 1": {
			qos:    1,
			broker: &testBroker{fault: func(n int) int { return map[bool]int{true: 2, false: 1}[n == 7] }},
			want:   func(l *result.Ledger) bool { return l.Duplicated == 1 && l.Lost == 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.broker == nil {
				test.broker = &testBroker{}
			}
			broker := startTestBroker(t, test.broker)
			res, err := Run(t.Context(), verifying(t, broker.addr, test.qos, nil))
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Cells) != 1 || res.Cells[0].Ledger == nil {
				t.Fatalf("cells %+v, want one with a ledger", res.Cells)
			}
			l := res.Cells[0].Ledger
			if l.Published == 0 || l.Acknowledged != l.Published || !test.want(l) {
				t.Errorf("ledger %+v", *l)
			}
			if l.Violated(test.qos) != test.bad {
				t.Errorf("violated is %v, want %v", l.Violated(test.qos), test.bad)
			}
		})
	}
}

func TestVerificationWaitsForTheSubscription(t *testing.T) {
	broker := startTestBroker(t, &testBroker{late: 2})
	res, err := Run(t.Context(), verifying(t, broker.addr, 2, nil))
	if err != nil {
		t.Fatal(err)
	}
	if l := res.Cells[0].Ledger; l.Lost != 0 || l.Delivered != l.Published || l.Corrupt != 0 {
		t.Errorf("ledger %+v: probes that were not delivered are none of its business", *l)
	}
}

func TestVerificationOfADeafBroker(t *testing.T) {
	broker := startTestBroker(t, &testBroker{late: 1 << 30})
	res, err := Run(t.Context(), verifying(t, broker.addr, 1, func(s *scenarios.Scenario) { s.Drain = 200 * time.Millisecond }))
	if err == nil || !strings.Contains(err.Error(), "subscription not in force") {
		t.Fatalf("got %v, want an error about the subscription", err)
	}
	if !res.Partial || len(res.Cells) != 1 || res.Cells[0].Ledger != nil {
		t.Errorf("partial %v, cells %+v: the measured block is kept, without a ledger", res.Partial, res.Cells)
	}
}

func TestVerificationIsCancelled(t *testing.T) {
	broker := startTestBroker(t, &testBroker{late: 1 << 30})
	ctx, cancel := context.WithCancel(t.Context())
	cfg := verifying(t, broker.addr, 2, func(s *scenarios.Scenario) { s.Drain = 10 * time.Minute })
	cfg.Progress = func(e Event) {
		if e.Verify {
			cancel()
		}
	}
	begun := time.Now()
	if _, err := Run(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it cancelled", err)
	}
	if took := time.Since(begun); took > 5*time.Minute {
		t.Errorf("took %v, as if it waited for deliveries", took)
	}
}

// TestLoadWithSubscribers: they take part in a measured run of so many messages, paced and not, and the ledger of the cell is
// that of all of them.
func TestLoadWithSubscribers(t *testing.T) {
	t.Parallel()
	b := startTestBroker(t, &testBroker{})
	cfg := verifying(t, b.addr, 1, func(s *scenarios.Scenario) {
		s.Verify, s.Messages, s.Subscribers, s.Connections = -1, 300, 3, []int{2}
		s.Rates = []int{0, 3_000}
		s.SubscriberDelay = 50 * time.Microsecond
		s.SubscriberSession = scenarios.SessionKept
	})
	res, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Cells) != 2 || res.Cells[0].RatePerS != 0 || res.Cells[1].RatePerS != 3_000 {
		t.Fatalf("%d cells, want one of each rate", len(res.Cells))
	}
	for _, c := range res.Cells {
		l := c.Ledger
		if c.Messages != 300 || l == nil || l.Published != 300 || l.Delivered != 900 || l.Subscribers != 3 || c.Incorrect() {
			t.Errorf("rate %v: %d messages, ledger %+v", c.RatePerS, c.Messages, l)
		}
		if c.Subscribers != 3 || c.DeliveredPerS == nil || *c.DeliveredPerS <= 0 || c.Latency.EndToEnd == nil || c.Latency.EndToEnd.Count != 900 {
			t.Errorf("rate %v: %d subscribers, %v/s, end to end %+v", c.RatePerS, c.Subscribers, c.DeliveredPerS, c.Latency.EndToEnd)
		}
		if open := c.RatePerS > 0; (c.Latency.AckResponse != nil) != open || (open && c.DurationNS < int64(90*time.Millisecond)) {
			t.Errorf("rate %v: response %+v in %v", c.RatePerS, c.Latency.AckResponse, time.Duration(c.DurationNS))
		}
		if len(c.Samples) == 0 || c.Generator == nil {
			t.Errorf("rate %v: %d samples, generator %+v", c.RatePerS, len(c.Samples), c.Generator)
		}
	}
}

// TestLossUnderLoadIsFound: what a subscriber of the load does not get strikes the cell out.
func TestLossUnderLoadIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 3 s; run without -short")
	}
	t.Parallel()
	b := startTestBroker(t, &testBroker{fault: func(n int) int { return map[bool]int{true: 0, false: 1}[n == 7] }})
	res, err := Run(t.Context(), verifying(t, b.addr, 2, func(s *scenarios.Scenario) {
		s.Verify, s.Messages, s.Subscribers = -1, 100, 2
	}))
	if err != nil {
		t.Fatal(err)
	}
	if c := res.Cells[0]; !c.Incorrect() || c.Ledger.Lost != 1 || c.Ledger.Delivered != 199 {
		t.Errorf("ledger %+v, want one of 200 deliveries lost", c.Ledger)
	}
}
