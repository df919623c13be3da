package runner

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"

	"inflight/runner/client"
	"inflight/runner/result"
	"inflight/runner/target"
)

func histogram(n int, value time.Duration) *hdrhistogram.Histogram {
	h := hdrhistogram.New(1_000, int64(10*time.Minute), 3)
	for range n {
		if err := h.RecordValue(int64(value)); err != nil {
			panic(err)
		}
	}
	return h
}

func ptr[T any](v T) *T { return &v }

func TestPercentileNeedsSamples(t *testing.T) {
	for _, test := range []struct {
		samples int
		want    int // how many of p50, p90, p99, p99.9 are there
		reason  string
	}{
		{19, 0, "9.5 samples beyond the median"},
		{20, 1, "10 beyond the median"},
		{99, 1, "9.9 beyond p90"},
		{100, 2, "10 beyond p90"},
		{999, 2, "9.99 beyond p99"},
		{1_000, 3, "10 beyond p99"},
		{9_999, 3, "9.999 beyond p99.9"},
		{10_000, 4, "10 beyond p99.9"},
	} {
		d := distribution(histogram(test.samples, time.Millisecond))
		got := 0
		for _, p := range []*int64{d.P50, d.P90, d.P99, d.P999} {
			if p != nil {
				got++
			}
		}
		if got != test.want || d.Count != int64(test.samples) {
			t.Errorf("%d samples: %d percentiles of %d, want %d: %s", test.samples, got, d.Count, test.want, test.reason)
		}
	}
	if d := distribution(histogram(0, 0)); d != nil {
		t.Errorf("a distribution of nothing: %+v", d)
	}
	if d := distribution(nil); d != nil {
		t.Errorf("a distribution of no histogram: %+v", d)
	}
}

func TestCellsMergeRuns(t *testing.T) {
	plan := mustPlan(t, scenario(nil))
	cells := newCells(plan, &plan.Passes[1])
	step := Step{Action: Measure, Arm: 1, Point: plan.Scenario.Points()[1], Block: 1, Position: 1, Number: 4}
	run := func(messages int, seconds, inFlight float64, rss int64, cpu *float64) *measurement {
		return &measurement{
			started: time.Second,
			stats: &client.Stats{
				Messages:     int64(messages),
				Duration:     time.Duration(seconds * float64(time.Second)),
				AckService:   histogram(messages, 10*time.Millisecond),
				InFlightMean: inFlight,
				Order:        result.Order{Checked: 10, Violations: 1, ByType: map[string]int64{"PUBACK": 1}, First: "first"},
				CPUSeconds:   ptr(0.25),
			},
			usage: &usage{
				nodes: []result.Node{
					{Name: "n1", RSSPeak: ptr(rss), CPUSeconds: cpu, Threads: ptr(int64(5)), DiskBytes: ptr(int64(100)), WriteCalls: ptr(int64(7)), RSSGrowth: ptr(rss / 3)},
					{Name: "n2", RSSPeak: ptr(rss / 2), CPUSeconds: ptr(1.0), Threads: ptr(rss), DiskBytes: ptr(int64(1)), WriteCalls: ptr(int64(1))},
				},
				generator: result.Node{Name: "generator", RSSPeak: ptr(int64(9)), CPUSeconds: ptr(0.5), RSSGrowth: ptr(rss)}, growth: ptr(rss), queuedPeak: 10 * rss,
			},
			reception: &reception{
				subscribers: 2, deliveries: 2 * int64(messages), took: 2 * time.Second, endToEnd: histogram(messages, time.Second),
				ledger: result.Ledger{Published: int64(messages), Delivered: 2 * int64(messages), Subscribers: 2, Lost: 1},
			},
		}
	}
	cells.add(&step, run(1_000, 1, 10, 100, ptr(2.0)))
	step.Position = 4
	cells.add(&step, run(4_000, 3, 8, 300, ptr(3.0)))
	control := step
	control.Control = true
	cells.add(&control, &measurement{stats: &client.Stats{Messages: 100, Duration: time.Second, Fence: histogram(100, time.Millisecond), InFlightMean: 200}})

	list := cells.results()
	if len(list) != 2 {
		t.Fatalf("%d cells, want the measured one and its control", len(list))
	}
	got := list[0]
	want := result.Cell{
		Arm: "B", Pass: 2, Slot: 1, QoS: 2, Window: 10, Connections: 1, Payload: 256,
		ThroughputPerS: 1250, Messages: 5_000, DurationNS: int64(4 * time.Second),
		InFlight:   result.InFlight{Requested: 10, AchievedMean: 8.5, Little: 12.5},
		RSSPeak:    ptr(int64(300)),
		CPUSeconds: ptr(7.0),
		Nodes: []result.Node{
			{
				Name: "n1", RSSPeak: ptr(int64(300)), CPUSeconds: ptr(5.0), Threads: ptr(int64(5)), DiskBytes: ptr(int64(200)), Connections: 1,
				WriteCalls: ptr(int64(14)), RSSGrowth: ptr(int64(100)), CPUPer1000: ptr(1.0),
			},
			{
				Name: "n2", RSSPeak: ptr(int64(150)), CPUSeconds: ptr(2.0), Threads: ptr(int64(300)), DiskBytes: ptr(int64(2)),
				WriteCalls: ptr(int64(2)), CPUPer1000: ptr(0.4),
			},
		},
		DiskBytesWritten: ptr(int64(202)), Threads: ptr(int64(305)), WriteCalls: ptr(int64(16)),
		Generator: &result.Node{
			Name: "generator", RSSPeak: ptr(int64(9)), CPUSeconds: ptr(1.0), RSSGrowth: ptr(int64(300)), CPUPer1000: ptr(0.1),
		},
		GeneratorRSSPeak: ptr(int64(9)),
		CPUPer1000:       ptr(1.4), RSSGrowth: ptr(int64(300)), QueuedPeak: 3_000, BytesPerQueued: ptr(0.1),
		Subscribers: 2, DeliveredPerS: ptr(2_500.0),
		Ledger:       &result.Ledger{Published: 5_000, Delivered: 10_000, Subscribers: 2, Lost: 2},
		GeneratorCPU: ptr(0.5),
		Order:        result.Order{Checked: 20, Violations: 2, ByType: map[string]int64{"PUBACK": 2}, First: "first"},
	}
	if p99 := got.Latency.AckService.P99; p99 == nil || math.Abs(float64(*p99)/1e7-1) > 0.01 {
		t.Errorf("p99 %v, want 10 ms", p99)
	}
	if got.Latency.EndToEnd == nil || got.Latency.EndToEnd.Count != 5_000 || got.Latency.AckResponse != nil {
		t.Errorf("latencies %+v", got.Latency)
	}
	if len(got.Blocks) != 2 || got.Blocks[1].Position != 4 || got.Blocks[1].ThroughputPerS != 4_000.0/3 || got.Blocks[0].P99 == nil {
		t.Errorf("blocks %+v", got.Blocks)
	}
	got.Latency, got.Blocks = result.Latency{}, nil
	approximately := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 0.01*math.Max(math.Abs(a), math.Abs(b))+1e-9 })
	if diff := cmp.Diff(want, got, approximately); diff != "" {
		t.Errorf("cell (-want +got):\n%s", diff)
	}

	if c := list[1]; !c.Control || c.QoS != 0 || c.Window != 10 || c.InFlight.Requested != ControlWindow ||
		c.InFlight.Little != 0 || c.Latency.Fence == nil || c.CPUSeconds != nil || c.GeneratorCPU != nil {
		t.Errorf("control cell %+v", c)
	}
}

func TestUsageThatIsUnknownStaysAbsent(t *testing.T) {
	var c cell
	c.addUsage(&usage{nodes: []result.Node{{Name: "n1", CPUSeconds: ptr(1.0)}}})
	c.addUsage(&usage{nodes: []result.Node{{Name: "n1"}}})
	c.addUsage(&usage{nodes: []result.Node{{Name: "n1", CPUSeconds: ptr(1.0)}}})
	if c.CPUSeconds != nil || c.Nodes[0].CPUSeconds != nil {
		t.Errorf("a sum with an unknown part: %v, %v", c.CPUSeconds, c.Nodes[0].CPUSeconds)
	}
	got := usedSince(
		[]target.Usage{{Name: "n1", CPUSeconds: ptr(1.0)}, {Name: "n2"}},
		[]target.Usage{{Name: "n1", CPUSeconds: ptr(1.5), RSSPeak: ptr(int64(7))}, {Name: "n2", CPUSeconds: ptr(1.0)}},
	)
	want := []result.Node{{Name: "n1", CPUSeconds: ptr(0.5), RSSPeak: ptr(int64(7))}, {Name: "n2"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("used (-want +got):\n%s", diff)
	}
}

func TestTimeLineIsBounded(t *testing.T) {
	c := cell{Cell: result.Cell{Nodes: make([]result.Node, 2), Generator: &result.Node{}}}
	line := func(n int, from time.Duration) (samples []result.Sample) {
		for i := range n {
			at := from + time.Duration(i)*pulseEvery
			ms := int64(at / time.Millisecond)
			samples = append(samples, result.Sample{
				AtNS: int64(at), RSS: ptr(ms), Published: int64(i), NodeRSS: []int64{3 * ms, -ms}, GeneratorRSS: ptr(ms / 2),
			})
		}
		return samples
	}
	c.addSamples(line(50, 0))
	c.addSamples(line(100, time.Minute))
	c.addSamples(line(9, 2*time.Minute))
	if n := len(c.Samples); n > maxSamples || n < maxSamples/2 || c.Samples[n-1].Published != 8 {
		t.Errorf("%d samples, the last %+v", n, c.Samples[n-1])
	}
	if c.longest != 99*pulseEvery || c.RSSSlope == nil || math.Abs(*c.RSSSlope-1000) > 1e-6 {
		t.Errorf("slope %v of %v, want 1000 bytes/s of the longest run", c.RSSSlope, c.longest)
	}
	for i, want := range []float64{3000, -1000, 500} {
		got := append(slices.Clone(c.Nodes), *c.Generator)[i].RSSSlope
		if got == nil || math.Abs(*got-want) > 1 {
			t.Errorf("process %d: slope %v, want %v bytes/s", i+1, got, want)
		}
	}
	short := cell{Cell: result.Cell{Nodes: make([]result.Node, 2), Generator: &result.Node{}}}
	short.addSamples(line(12, 0))
	if short.RSSSlope != nil || short.Nodes[0].RSSSlope != nil || short.Generator.RSSSlope != nil {
		t.Error("a slope of a run that is too short for one")
	}
}

// Bytes for each exchange are those of every process, and of none where the window is too small, or where no memory was added.
func TestBytesPerInFlight(t *testing.T) {
	t.Parallel()
	of := func(window int, own int64) result.Cell {
		c := cell{Cell: result.Cell{
			Connections: 2, InFlight: result.InFlight{Requested: window}, RSSGrowth: ptr(int64(6_000_000)),
			Nodes:     []result.Node{{Name: "n1", RSSGrowth: ptr(int64(4_000_000))}, {Name: "n2"}},
			Generator: &result.Node{RSSGrowth: &own},
		}}
		res := c.Cell
		c.derive(&res)
		return res
	}
	got := of(1_000, 500_000)
	if *got.BytesPerInFlight != 3_000 || *got.Nodes[0].BytesPerInFlight != 2_000 || got.Nodes[1].BytesPerInFlight != nil || *got.Generator.BytesPerInFlight != 250 {
		t.Errorf("bytes per exchange: %v, nodes %+v, generator %+v", *got.BytesPerInFlight, got.Nodes, got.Generator)
	}
	if got := of(499, 500_000); got.BytesPerInFlight != nil || got.Nodes[0].BytesPerInFlight != nil || got.Generator.BytesPerInFlight != nil {
		t.Errorf("bytes per exchange of a small window: %+v", got)
	}
	if got := of(1_000, 0); got.Generator.BytesPerInFlight != nil {
		t.Errorf("%v bytes per exchange of a generator that took its memory before", *got.Generator.BytesPerInFlight)
	}
}

func TestSharedControlIsListedOnce(t *testing.T) {
	s := scenario(nil)
	s.QoS = []int{1, 2}
	plan := mustPlan(t, s)
	cells := newCells(plan, &plan.Passes[0])
	for i := range plan.Passes[0].Steps {
		if step := &plan.Passes[0].Steps[i]; step.Action == Measure {
			cells.add(step, &measurement{stats: &client.Stats{Messages: 1, Duration: time.Second}})
		}
	}
	seen := map[cellKey]bool{}
	for _, c := range cells.results() {
		key := cellKey{arm: int(c.Arm[0] - 'A'), control: c.Control}
		key.point.QoS, key.point.Window = c.QoS, c.Window
		if seen[key] {
			t.Errorf("cell %+v twice", key)
		}
		seen[key] = true
		if want := map[bool]int{false: 6, true: 12}[c.Control]; len(c.Blocks) != want {
			t.Errorf("cell %+v has %d runs, want %d", key, len(c.Blocks), want)
		}
	}
	if len(seen) != 24 {
		t.Errorf("%d cells, want 24", len(seen))
	}
}
