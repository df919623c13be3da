package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The latencies against an independent clock: a broker that answers exactly 5 ms after a packet arrives.
func TestDelayIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of load")
	}
	const delay = 5 * time.Millisecond
	addr := nullProcess(t, delay)
	for _, c := range []struct {
		qos, window int
	}{{1, 1}, {1, 256}, {2, 1}, {2, 256}, {0, 256}} {
		t.Run(fmt.Sprintf("qos=%d/window=%d", c.qos, c.window), func(t *testing.T) {
			s := mustRun(t, Plan{
				Addrs: []string{addr}, Connections: 1, QoS: c.qos, Window: c.window, Payload: 256,
				Warmup: 100 * time.Millisecond, Duration: time.Second,
			})
			for name, h := range map[string]*hdrhistogram.Histogram{
				"ack service": s.AckService, "publish to pubrec": s.Receive, "pubrel to pubcomp": s.Release, "fence": s.Fence,
			} {
				if h == nil {
					continue
				}
				want := delay
				if name == "ack service" {
					want = time.Duration(max(1, c.qos)) * delay
				}
				p50, p99 := time.Duration(h.ValueAtQuantile(50)), time.Duration(h.ValueAtQuantile(99))
				t.Logf("%s: p50 %v p99 %v, want %v, %d samples", name, p50, p99, want, h.TotalCount())
			}
			t.Logf("in flight %.2f, %d messages in %v", s.InFlightMean, s.Messages, s.Duration)
		})
	}
}
