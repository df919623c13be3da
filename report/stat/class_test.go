package stat

import (
	"strings"
	"testing"

	"inflight/runner/result"
)

func TestClasses(t *testing.T) {
	// cell is one of a closed loop of one connection, in order: window, messages per second.
	cell := func(window int, rate float64, edit ...func(*result.Cell)) result.Cell {
		p50 := int64(float64(window) / rate * 1e9)
		c := result.Cell{
			Arm: "A", Pass: 1, QoS: 1, Window: window, Connections: 1, Payload: 256, ThroughputPerS: rate, Messages: int64(rate), DurationNS: 1e9,
			Latency:  result.Latency{AckService: &result.Distribution{Count: int64(rate), P50: &p50, Max: 3 * p50}},
			InFlight: result.InFlight{Requested: window, AchievedMean: float64(window), Little: float64(window)},
			Blocks:   []result.Block{{Block: 1, DurationNS: 1e9, Messages: int64(rate), ThroughputPerS: rate}},
		}
		for _, e := range edit {
			e(&c)
		}
		return c
	}
	cpu := func(s float64) func(*result.Cell) { return func(c *result.Cell) { c.GeneratorCPU = &s } }
	paced := func(rate float64) func(*result.Cell) { return func(c *result.Cell) { c.RatePerS = rate } }
	tests := []struct {
		name  string
		cells []result.Cell
		want  string
	}{
		{
			"rises with the window, then not",
			[]result.Cell{cell(1, 800), cell(10, 6_000), cell(20, 9_000), cell(256, 10_000)},
			"window-limited window-limited broker-limited broker-limited",
		},
		{"stop-and-wait", []result.Cell{cell(1, 500), cell(10, 520), cell(100, 510)}, "broker-limited broker-limited broker-limited"},
		{"still rising at the largest window", []result.Cell{cell(1, 500), cell(10, 5_000)}, "window-limited window-limited"},
		{"one window shows nothing", []result.Cell{cell(10, 5_000)}, ""},
		{"the generator used all that it can", []result.Cell{cell(1, 500), cell(10, 500_000, cpu(1.8))}, "window-limited generator-limited"},
		{"with many connections it can use more", []result.Cell{cell(1, 500, cpu(0.2)), cell(10, 5_000, cpu(1))}, "window-limited window-limited"},
		{"the window was not kept full", []result.Cell{cell(1, 500), cell(10, 900, func(c *result.Cell) { c.InFlight.AchievedMean = 5 })}, "broker-limited generator-limited"},
		{"near the ceiling of the null broker", []result.Cell{cell(1, 500), cell(64, 800_000)}, "window-limited generator-limited"},
		{"paced and kept up", []result.Cell{cell(64, 9_990, paced(10_000))}, "rate-limited"},
		{"paced and behind", []result.Cell{cell(64, 7_000, paced(10_000))}, "broker-limited"},
		{"paced, behind, and the generator was busy", []result.Cell{cell(64, 700_000, paced(2_000_000), cpu(1.9))}, "generator-limited"},
		{"silent for most of a run", []result.Cell{cell(1, 500), cell(10, 5_000, func(c *result.Cell) { c.Latency.AckService.Max = 7e8 })}, "window-limited stalled"},
		{"slow, and evenly so", []result.Cell{cell(500, 600), cell(5_000, 600)}, "broker-limited broker-limited"},
		{"a run without a message", []result.Cell{cell(10, 5_000, func(c *result.Cell) { c.Blocks[0].Messages = 0 })}, "stalled"},
		{"Little's law does not hold", []result.Cell{cell(1, 500, func(c *result.Cell) { c.InFlight.Little = 2 }), cell(10, 5_000)}, " window-limited"},
		{"a control has none", []result.Cell{cell(1, 500), cell(10, 5_000, func(c *result.Cell) { c.Control = true })}, " "},
	}
	for _, test := range tests {
		r := &result.Result{
			Environment: result.Environment{GOMAXPROCS: 2, Calibration: &result.Calibration{Ceilings: []result.Ceiling{
				{QoS: 1, Window: 64, Connections: 1, Payload: 256, ThroughputPerS: 1_000_000},
				{QoS: 1, Window: 10, Connections: 1, Payload: 64, ThroughputPerS: 1},
			}}},
			Arms: []result.Arm{{Name: "A"}}, Cells: test.cells,
		}
		Judge(r)
		var got []string
		for _, c := range r.Cells {
			got = append(got, c.Class)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, want %q", test.name, strings.Join(got, " "), test.want)
		}
		if test.cells[0].Class != "" {
			t.Errorf("%s: the cells that were given are changed", test.name)
		}
	}
}

func TestInnocence(t *testing.T) {
	run := twoArms(2)
	r := run.Result()
	busy, waited := 9.0, int64(4e6)
	for i := range r.Cells {
		switch c := &r.Cells[i]; {
		case c.Control:
		case c.Arm == "A":
			c.GeneratorCPU = &busy
			c.DurationNS = 5e9
		default:
			c.SchedLatencyP99 = &waited
		}
	}
	Judge(r)
	if got := codes(r.Warnings); got != CodeGenerator+" "+CodeLate {
		t.Fatalf("warnings %q: %v", got, r.Warnings)
	}
	if text := r.Warnings[0].Text; !strings.Contains(text, "A: the load generator was the limit: at QoS 2, window 20 it used 90 %") {
		t.Errorf("text %q", text)
	}
	if text := r.Warnings[1].Text; !strings.Contains(text, "B: the load generator waited") || !strings.Contains(text, "at QoS 2, window 20 4 ms of") {
		t.Errorf("text %q", text)
	}
}

func TestRateNotReachedIsSaid(t *testing.T) {
	t.Parallel()
	r := &result.Result{Arms: []result.Arm{{Name: "A"}, {Name: "B"}}}
	for _, c := range []struct {
		arm  string
		rate float64
	}{{"A", 9_990}, {"B", 4_000}} {
		r.Cells = append(r.Cells, result.Cell{
			Arm: c.arm, Pass: 1, QoS: 1, Window: 64, Connections: 1, Payload: 256, RatePerS: 10_000, ThroughputPerS: c.rate, Messages: 100,
			Late: 7, Missed: 9,
		})
	}
	Judge(r)
	var got []string
	for _, w := range r.Warnings {
		if w.Code == CodeRate {
			got = append(got, w.Text)
		}
	}
	if want := "B: the rate that was asked for was not reached (4000 of 10000/s at QoS 1, 7 written late, 9 not at all)"; len(got) != 1 || got[0] != want {
		t.Errorf("warnings %q, want %q", got, want)
	}
}
