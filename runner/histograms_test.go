package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/runner/result"
)

// What is in the logs is what the percentiles of result.json were taken from.
func TestHistogramLogs(t *testing.T) {
	of := func(control bool, samples int) *cell {
		c := &cell{Cell: result.Cell{Arm: "A", Pass: 2, QoS: 2, Window: 20, Connections: 3, Payload: 256, Control: control}}
		c.ackService, c.receive = histogram(samples, 5*time.Millisecond), histogram(samples, 2*time.Millisecond)
		c.Blocks = []result.Block{{StartedNS: int64(time.Second), DurationNS: int64(time.Second)}, {StartedNS: int64(5 * time.Second), DurationNS: int64(time.Second)}}
		return c
	}
	other := of(false, 7) // differs in what its name does not say
	other.Blocks[0].StartedNS++
	empty := of(false, 1)
	empty.Blocks = nil
	all := &cells{byKey: map[cellKey]*cell{{arm: 0}: of(false, 1_000), {arm: 1}: other, {arm: 2}: empty, {control: true}: of(true, 3)}}
	dir := t.TempDir()
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := all.saveHistograms(dir, started); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "histograms", "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("files %v, %v; want one for each cell with blocks", files, err)
	}
	c := all.byKey[cellKey{arm: 0}]
	if want := "histograms/pass2-A-qos2-window20-connections3-payload256.hlog"; c.Histograms != want {
		t.Errorf("the cell names %q, want %q", c.Histograms, want)
	}
	data, err := os.ReadFile(filepath.Join(dir, c.Histograms))
	if err != nil {
		t.Fatal(err)
	}
	reader := hdrhistogram.NewHistogramLogReader(bytes.NewReader(data))
	for _, want := range []struct {
		tag string
		p99 time.Duration
	}{{"ack_service", 5 * time.Millisecond}, {"publish_to_pubrec", 2 * time.Millisecond}} {
		h, err := reader.NextIntervalHistogram()
		if err != nil || h == nil {
			t.Fatalf("%s: %v, %v", want.tag, h, err)
		}
		// The library reads times as seconds since the epoch; its log holds them so.
		if got := time.Duration(h.ValueAtPercentile(99)); h.Tag() != want.tag || h.TotalCount() != 1_000 || got.Round(10*time.Microsecond) != want.p99 {
			t.Errorf("%s: tag %s, %d samples, p99 %v", want.tag, h.Tag(), h.TotalCount(), got)
		}
		if h.StartTimeMs() != started.Add(time.Second).UnixMilli() || h.EndTimeMs() != started.Add(6*time.Second).UnixMilli() {
			t.Errorf("%s: from %d to %d", want.tag, h.StartTimeMs(), h.EndTimeMs())
		}
	}
	if h, err := reader.NextIntervalHistogram(); h != nil || err != nil {
		t.Errorf("a line of a latency that was not measured: %v, %v", h, err)
	}
	if err := all.saveHistograms(filepath.Join(dir, c.Histograms), started); err == nil {
		t.Error("a file in place of the directory is no error")
	}
}
