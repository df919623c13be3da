package client

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/broker/packet"
)

// The latencies against an independent clock: a broker in another process that answers exactly 5 ms after a packet
// arrives must be reported as 5 ms within 5 %, at the median and at p99, whatever the window.
//
// A busy machine adds time, to the answer as to the measurement. So each attempt also measures by hand, with a bare
// socket; an attempt in which the machine itself was late is held against that, and the best of many counts. Nothing
// can take time away: no attempt may report less than 5 ms.
func TestDelayIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of load; run without -short")
	}
	const delay = 5 * time.Millisecond
	addr := nullProcess(t, delay)
	for _, c := range []struct {
		qos, window int
	}{{1, 1}, {1, 256}, {2, 1}, {2, 256}, {0, 256}} {
		t.Run(fmt.Sprintf("qos=%d/window=%d", c.qos, c.window), func(t *testing.T) {
			for end := time.Now().Add(patience); time.Now().Before(end); {
				stop := make(chan struct{})
				bare := make(chan []time.Duration)
				go func() { bare <- roundTrips(t, addr, stop) }()
				s := mustRun(t, Plan{
					Addrs: []string{addr}, Connections: 1, QoS: c.qos, Window: c.window, Payload: 256,
					Warmup: 50 * time.Millisecond, Duration: 300 * time.Millisecond,
				})
				close(stop)
				good := true
				byHand := <-bare
				for name, h := range map[string]*hdrhistogram.Histogram{
					"ack service": s.AckService, "publish to pubrec": s.Receive, "pubrel to pubcomp": s.Release, "fence": s.Fence,
				} {
					if h == nil {
						continue
					}
					legs := 1
					if name == "ack service" && c.qos == 2 {
						legs = 2
					}
					good = reported(t, name, h, time.Duration(legs)*delay, legs, byHand) && good
				}
				if good {
					return
				}
			}
			t.Errorf("in no attempt within 5 %%")
		})
	}
}

// reported reports whether h agrees with want or with as many round trips by hand; less than want fails the test.
func reported(t *testing.T, name string, h *hdrhistogram.Histogram, want time.Duration, legs int, byHand []time.Duration) bool {
	t.Helper()
	if h.TotalCount() == 0 || len(byHand) == 0 {
		return false
	}
	if lowest := time.Duration(h.Min()); lowest < want-want/500 { // three digits
		t.Errorf("%s: %v reported, an answer takes %v", name, lowest, want)
	}
	slices.Sort(byHand)
	good := true
	for _, q := range []int{50, 99} {
		got := time.Duration(h.ValueAtQuantile(float64(q)))
		hand := time.Duration(legs) * byHand[len(byHand)*q/100]
		t.Logf("%s: p%d %v, by hand %v, want %v", name, q, got, hand, want)
		good = good && got <= max(want, hand)*105/100
	}
	return good
}

// roundTrips measures PUBLISH -> PUBACK with a bare socket until stop.
func roundTrips(t *testing.T, addr string, stop <-chan struct{}) (took []time.Duration) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer nc.Close()
	exchange := func(b []byte) bool {
		_, err := nc.Write(b)
		if err == nil {
			_, err = io.ReadFull(nc, make([]byte, 4)) // a CONNACK or a PUBACK
		}
		if err != nil {
			t.Errorf("by hand: %v", err)
		}
		return err == nil
	}
	if !exchange(packet.AppendConnect(nil, &packet.Connect{ClientID: "hand", CleanSession: true})) {
		return nil
	}
	publish := message(nil, 1, 1, "by hand")
	for {
		select {
		case <-stop:
			return took
		default:
		}
		began := time.Now()
		if !exchange(publish) {
			return nil
		}
		took = append(took, time.Since(began))
	}
}
