package library

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"inflight/broker/packet"
	"inflight/runner/client"
	"inflight/runner/ledger"
	"inflight/scenarios"
)

// patience is for what comes at once on an idle machine.
const patience = time.Minute

// libraries are all of them, as subtests.
func libraries(t *testing.T, test func(t *testing.T, c *Client)) {
	for _, name := range []string{scenarios.ClientPaho, scenarios.ClientPaho3, scenarios.ClientMQTTjs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, clientOf(t, name))
		})
	}
}

// run makes the connections of a plan, runs it and closes them.
func run(t *testing.T, c *Client, plan client.Plan) (*client.Stats, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := c.Open(ctx, plan)
	if err != nil {
		return nil, err
	}
	stats, err := p.Run(ctx)
	if err == nil {
		if n := p.Published(); n != stats.Published {
			t.Errorf("%d published by the population, %d by its run", n, stats.Published)
		}
		return stats, p.Close()
	}
	_ = p.Close()
	return stats, err
}

// The broker answers nothing until the window is full: a client that has less outstanding would wait for ever, and one that has
// more is seen. Every message arrives once, unharmed, and is accounted for.
func TestWindow(t *testing.T) {
	t.Parallel()
	libraries(t, func(t *testing.T, c *Client) {
		for _, qos := range []int{1, 2} {
			const window, connections, each = 8, 3, 80
			const run1 = 0xfeedface01020304
			plan := client.Plan{
				Connections: connections, QoS: qos, Window: window, Payload: 64, Topics: 2, Run: run1, Version: packet.V5,
				MaxMessages: connections * each, Sizes: []int{24, 64, 40},
			}
			plan.Ledger = ledger.For(run1, ledger.Shape{Connections: connections, Topics: 2, Unordered: c.Unordered(window)})
			broker := startPeer(t, &peer{batch: window, take: func(payload []byte) { plan.Ledger.Delivered(payload, 0) }})
			plan.Addrs = []string{broker.addr}
			stats, err := run(t, c, plan)
			if err != nil {
				t.Fatalf("QoS %d: %v", qos, err)
			}
			if broker.most != window {
				t.Errorf("QoS %d: %d outstanding on a connection, want %d", qos, broker.most, window)
			}
			if want := scenarios.ClientVersion(c.name, scenarios.MQTT5) == scenarios.MQTT5; broker.versions[packet.V5] != want {
				t.Errorf("QoS %d: MQTT 5.0 %v, want %v", qos, broker.versions[packet.V5], want)
			}
			a := plan.Ledger.Account(0)
			if n := int64(connections * each); a.Published != n || a.Acknowledged != n || a.Delivered != n || a.Lost+a.Duplicated+a.Reordered+a.Corrupt > 0 {
				t.Errorf("QoS %d: the ledger has %+v", qos, a)
			}
			checkStats(t, stats, connections*each, window)
			if lowest, highest := int64(24*connections*each), int64(64*connections*each); stats.Bytes <= lowest || stats.Bytes >= highest {
				t.Errorf("QoS %d: %d bytes, want some between %d and %d", qos, stats.Bytes, lowest, highest)
			}
		}
	})
}

func checkStats(t *testing.T, s *client.Stats, n int64, window int) {
	t.Helper()
	if s.Published != n || s.Acknowledged != n || s.Messages != n || s.AckService.TotalCount() != n {
		t.Errorf("%d published, %d acknowledged, %d measured with %d latencies, want %d of each",
			s.Published, s.Acknowledged, s.Messages, s.AckService.TotalCount(), n)
	}
	if s.Receive != nil || s.Release != nil || s.Fence != nil || s.AckResponse != nil || s.Order.Checked != 0 {
		t.Errorf("measured what no library tells: %+v", s)
	}
	if s.InFlightMean <= 0 || s.InFlightMean > float64(window)+1e-9 {
		t.Errorf("%v in flight of %d", s.InFlightMean, window)
	}
	if s.Duration <= 0 || s.LastAck.IsZero() || time.Since(s.LastAck) < 0 {
		t.Errorf("took %v, the last acknowledgement at %v", s.Duration, s.LastAck)
	}
	if s.CPUSeconds == nil || *s.CPUSeconds <= 0 {
		t.Errorf("processor time %v", s.CPUSeconds)
	}
}

// The messages of an open loop have their instants, and each of them is either answered or counted as missed.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	libraries(t, func(t *testing.T, c *Client) {
		const rate, to, due = 1_000, 3_000, 400 // 200 ms at 2,000/s in the mean
		broker := startPeer(t, &peer{batch: 1})
		stats, err := run(t, c, client.Plan{
			Addrs: []string{broker.addr}, Connections: 2, QoS: 1, Window: 16, Payload: 32, Rate: rate, RampTo: to, Duration: 200 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if stats.AckResponse == nil {
			t.Fatal("no response times")
		}
		// The loop and the measured time do not begin in the same nanosecond.
		if n := stats.AckResponse.TotalCount() + stats.Missed; n < due-4 || n > due+4 {
			t.Errorf("%d answered and %d missed, want %d", stats.AckResponse.TotalCount(), stats.Missed, due)
		}
		if stats.Published > due+2 || stats.Late > stats.Published {
			t.Errorf("%d published, %d of them late", stats.Published, stats.Late)
		}
	})
}

// Acknowledgements that never come are waited for until the drain is over, and are no error here: the runner judges that.
func TestDrain(t *testing.T) {
	t.Parallel()
	libraries(t, func(t *testing.T, c *Client) {
		const window, answered = 4, 40
		broker := startPeer(t, &peer{batch: 1, limit: answered})
		stats, err := run(t, c, client.Plan{
			Addrs: []string{broker.addr}, Connections: 1, QoS: 2, Window: window, Payload: 32,
			Duration: 200 * time.Millisecond, Drain: 50 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if left := stats.Published - stats.Acknowledged; stats.Acknowledged > answered || left < 0 || left > window {
			t.Errorf("%d published, %d acknowledged, want %d fewer", stats.Published, stats.Acknowledged, window)
		}
	})
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	libraries(t, func(t *testing.T, c *Client) {
		plan := client.Plan{Connections: 1, QoS: 1, Window: 4, Payload: 32, Duration: patience}
		for _, test := range []struct {
			why    string
			broker *peer
			change func(*client.Plan)
			want   string
		}{
			{"QoS 0 has no acknowledgements", &peer{}, func(p *client.Plan) { p.QoS = 0 }, "does not say when the broker has taken"},
			{"a plan that is none", &peer{}, func(p *client.Plan) { p.Window = 0 }, "window 0"},
			{"nobody listens", &peer{}, func(p *client.Plan) { p.Addrs = []string{"127.0.0.1:1"} }, "connection 1 of 1 to 127.0.0.1:1"},
			{"a broker that goes", &peer{batch: 1, dropAfter: 10}, func(*client.Plan) {}, "onnection"},
			{
				"a broker that answers nothing any more",
				&peer{batch: 1, limit: 10},
				func(p *client.Plan) { p.StallTimeout = 300 * time.Millisecond },
				"stalled: 4 exchanges outstanding",
			},
		} {
			changed := plan
			changed.Addrs = []string{startPeer(t, test.broker).addr}
			test.change(&changed)
			if _, err := run(t, c, changed); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.why, err, test.want)
			}
		}
	})
}

// A window that the broker does not allow is refused, as the wire client does it.
func TestReceiveMaximum(t *testing.T) {
	t.Parallel()
	libraries(t, func(t *testing.T, c *Client) {
		broker := startPeer(t, &peer{batch: 1, receiveMaximum: 3})
		plan := client.Plan{
			Addrs: []string{broker.addr}, Connections: 1, QoS: 1, Window: 4, Payload: 32, MaxMessages: 20, Version: packet.V5,
		}
		if c.name == scenarios.ClientPaho3 {
			return // 3.1.1 has no such thing
		}
		if _, err := run(t, c, plan); err == nil || !strings.Contains(err.Error(), "takes at most 3 exchanges") {
			t.Errorf("window 4 with a Receive Maximum of 3: %v", err)
		}
		plan.Window = 3
		if _, err := run(t, c, plan); err != nil {
			t.Errorf("window 3 with a Receive Maximum of 3: %v", err)
		}
	})
}

// The end of the context ends a run at once.
func TestCancelled(t *testing.T) {
	t.Parallel()
	libraries(t, func(t *testing.T, c *Client) {
		stop := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		broker := startPeer(t, &peer{batch: 1, take: func([]byte) { cancel(stop) }})
		p, err := c.Open(ctx, client.Plan{Addrs: []string{broker.addr}, Connections: 2, QoS: 1, Window: 4, Payload: 32, Duration: patience})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := p.Run(ctx); !errors.Is(err, stop) {
			t.Errorf("%v, want %v", err, stop)
		}
		if took := time.Since(begun); took > patience/2 {
			t.Errorf("it took %v", took)
		}
		_ = p.Close()
	})
}

func TestVersions(t *testing.T) {
	t.Parallel()
	libraries(t, func(t *testing.T, c *Client) {
		want := map[string]string{
			scenarios.ClientPaho: "paho.golang", scenarios.ClientPaho3: "paho.mqtt.golang", scenarios.ClientMQTTjs: "MQTT.js 5.",
		}[c.name]
		if !strings.HasPrefix(c.Version(), want) {
			t.Errorf("version %q, want %q", c.Version(), want)
		}
	})
	if _, err := Prepare(t.Context(), "carrier-pigeon", t.TempDir(), t.Logf); err == nil {
		t.Error("an unknown client is no error")
	}
	if got := fmt.Sprint(scenarios.Clients()[1:]); got != "[paho paho3 mqttjs]" {
		t.Errorf("a client without a test: %s", got)
	}
}
