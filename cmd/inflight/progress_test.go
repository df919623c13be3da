package main

import (
	"strings"
	"testing"
	"time"

	"inflight/runner"
	"inflight/runner/result"
	"inflight/scenarios"
)

func running(block int) runner.Event {
	return runner.Event{
		Kind: runner.Running, Pass: 1, Passes: 2, Arm: "B", Point: scenarios.Point{QoS: 2, Window: 256, Connections: 1, Payload: 256},
		Block: block, Blocks: 3, Done: 30 * time.Second, Total: 2 * time.Minute,
	}
}

func cellDone(control bool) runner.Event {
	p99 := int64(346_900_000)
	e := running(0)
	e.Kind, e.Control = runner.CellDone, control
	e.Cell = &result.Cell{ThroughputPerS: 1_234_567, Latency: result.Latency{AckService: &result.Distribution{P99: &p99}}}
	return e
}

// fixedProgress is one whose clock stands still.
func fixedProgress(w *strings.Builder, width int) *progress {
	start := time.Unix(0, 0)
	p := &progress{w: w, now: func() time.Time { return start }, stop: make(chan struct{})}
	if width > 0 {
		p.width = func() int { return width }
	}
	return p
}

func TestProgressPlain(t *testing.T) {
	var out strings.Builder
	p := fixedProgress(&out, 0)
	for _, e := range []runner.Event{
		{Kind: runner.Preparing, Arm: "A", Target: "null"},
		{Kind: runner.Talk, Text: "building nats-server v2.15.3, once, about 40 s"},
		{Kind: runner.Starting, Pass: 1, Passes: 2, Total: 95 * time.Second},
		running(0), running(1), running(1), running(2),
		cellDone(true), cellDone(false),
		{Kind: runner.PassDone, Pass: 1, Passes: 2},
	} {
		p.event(e)
	}
	p.close()
	want := `preparing A = null
building nats-server v2.15.3, once, about 40 s
pass 1 of 2: starting the brokers, about 1m35s left
pass 1 of 2: block 1 of 3, about 1m30s left
pass 1 of 2: block 2 of 3, about 1m30s left
pass 1 of 2: B, QoS 2, window 256: 1,234,567 msg/s, p99 347 ms
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestProgressLine(t *testing.T) {
	control := running(2)
	control.Control = true
	verify := running(0)
	verify.Verify = true
	for _, test := range []struct {
		why   string
		e     runner.Event
		width int
		want  string
	}{
		{"room for all", running(2), 100, "pass 1/2  B  QoS 2, window 256  block 2/3  [#######---------------------]   25%  1m30s left"},
		{"a smaller bar", running(2), 79, "pass 1/2  B  QoS 2, window 256  block 2/3  [####------------]   25%  1m30s left"},
		{"no bar", running(2), 65, "pass 1/2  B  QoS 2, window 256  block 2/3   25%  1m30s left"},
		{"no block", running(2), 55, "pass 1/2  B  QoS 2, window 256   25%  1m30s left"},
		{"a sliver", running(2), 20, "pass 1/2  B  QoS 2, "},
		{"nothing", running(2), 0, ""},
		{"the control", control, 75, "pass 1/2  B  QoS 2, window 256  block 2/3 control   25%  1m30s left"},
		{"the verification", verify, 75, "pass 1/2  B  QoS 2, window 256  counting deliveries   25%  1m30s left"},
		{"before there is an estimate", runner.Event{Kind: runner.Preparing, Target: "null"}, 79, "preparing null"},
		{"late", runner.Event{Kind: runner.Stopping, Pass: 2, Passes: 2, Done: 9 * time.Second, Total: 8 * time.Second}, 79, "pass 2/2  stopping the brokers  [############################]  100%  0s left"},
	} {
		var out strings.Builder
		p := fixedProgress(&out, test.width+1)
		p.event(test.e)
		if got := p.line(test.width); got != test.want {
			t.Errorf("%s: %q, want %q", test.why, got, test.want)
		}
		if out.Len() > 0 {
			t.Errorf("%s: an event wrote %q; only the ticker draws, at its own pace", test.why, out.String())
		}
	}
}

// The line is drawn over itself, makes way for a message, and is gone at the end, by blanks alone.
func TestProgressRedraws(t *testing.T) {
	var out strings.Builder
	p := fixedProgress(&out, 21)
	p.draw() // nothing is known yet
	p.event(running(2))
	p.draw()
	p.event(runner.Event{Kind: runner.Preparing, Target: "null"})
	p.draw()
	p.event(runner.Event{Kind: runner.Talk, Text: "note"})
	p.draw()
	p.close()
	long, short := "pass 1/2  B  QoS 2, ", "preparing null"
	blanks := strings.Repeat(" ", len(short))
	want := "\r" + long + "\r" + short + "      " + "\r" + blanks + "\rnote\n" + "\r" + short + "\r" + blanks + "\r"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

func TestTimeLeftMovesBetweenEvents(t *testing.T) {
	var out strings.Builder
	p := fixedProgress(&out, 80)
	p.event(running(2))
	later := p.now().Add(45 * time.Second)
	p.now = func() time.Time { return later }
	if got, want := p.line(79), " 62%  45s left"; !strings.HasSuffix(got, want) {
		t.Errorf("%q, want it to end with %q", got, want)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for got, want := range map[string]string{
		rate(0):                            "0 msg/s",
		rate(999.6):                        "1,000 msg/s",
		rate(1234567):                      "1,234,567 msg/s",
		latency(999):                       "999 ns",
		latency(1_600):                     "1.6 µs",
		latency(2_200_000):                 "2.2 ms",
		latency(999_960_000):               "1000 ms",
		latency(1_500_000_000):             "1.5 s",
		seconds(0):                         "0s",
		seconds(59_499 * time.Millisecond): "59s",
		seconds(59_500 * time.Millisecond): "1m00s",
		seconds(65 * time.Second):          "1m05s",
		(labeller{}).point(scenarios.Point{QoS: 1}):                                                                 "QoS 1, window 0",
		(labeller{connections: true, payload: true}).point(scenarios.Point{Window: 5, Connections: 1, Payload: 64}): "QoS 0, window 5, 1 connection, 64 B",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
