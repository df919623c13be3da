package client

import (
	"fmt"
	"os"
	"testing"
)

// BenchmarkLoad is the generator's ceiling: one connection against a null broker in another process, 256-byte payloads.
// One operation is one acknowledged message.
func BenchmarkLoad(b *testing.B) {
	for _, c := range []struct {
		qos, window int
	}{{1, 1}, {1, 256}, {1, 65_535}, {2, 256}, {0, 256}} {
		b.Run(fmt.Sprintf("qos=%d/window=%d", c.qos, c.window), func(b *testing.B) {
			p, err := Open(b.Context(), Plan{
				Addrs: []string{nullProcess(b, 0)}, Connections: 1, QoS: c.qos, Window: c.window, Payload: 256,
				Run: uint64(os.Getpid()), MaxMessages: int64(b.N),
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(256)
			b.ResetTimer()
			stats, err := p.Run(b.Context())
			b.StopTimer()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(stats.Messages)/stats.Duration.Seconds(), "msg/s")
			if stats.CPUSeconds != nil && *stats.CPUSeconds > 0 {
				b.ReportMetric(float64(stats.Messages) / *stats.CPUSeconds, "msg/cpu-s")
			}
			b.ReportMetric(stats.InFlightMean, "in-flight")
			if err := p.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
