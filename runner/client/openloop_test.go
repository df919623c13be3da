package client

import (
	"testing"
	"time"

	"inflight/broker/packet"
	"inflight/runner/ledger"
	"inflight/runner/null"
)

// stallingBroker acknowledges each PUBLISH at once, but the one that is number n only after a while.
func stallingBroker(t *testing.T, n, messages int, stall time.Duration) string {
	return broker(t, func(p *peer) {
		if !p.accept() {
			return
		}
		for i := range messages {
			ids, ok := p.publishes("the schedule", 1)
			if !ok {
				return
			}
			if i == n {
				time.Sleep(stall)
			}
			p.ack(packet.PUBACK, ids...)
		}
		p.gone()
	})
}

// TestOpenLoopHasNoCoordinatedOmission: at a window of one a broker that stalls makes all messages wait whose instant comes
// meanwhile. Their wait is in the response time, and in the service time of one message only.
func TestOpenLoopHasNoCoordinatedOmission(t *testing.T) {
	t.Parallel()
	const messages, rate, stall = 100, 100, 500 * time.Millisecond // 1 s of schedule, half of it stalled
	plan := bounded(stallingBroker(t, 20, messages, stall), 1, 1, messages)
	plan.Rate = rate
	s := mustRun(t, plan)
	if s.Published != messages || s.Acknowledged != messages || s.AckResponse.TotalCount() != messages || s.Missed != 0 {
		t.Fatalf("%d published, %d acknowledged, %d responses, %d missed; want %d, and none missed",
			s.Published, s.Acknowledged, s.AckResponse.TotalCount(), s.Missed, messages)
	}
	if p50 := time.Duration(s.AckService.ValueAtPercentile(50)); p50 > stall/4 {
		t.Errorf("service p50 %v: one message alone was kept waiting", p50)
	}
	// 50 instants fall into the stall; the mean wait of these is half of it.
	if p70 := time.Duration(s.AckResponse.ValueAtPercentile(70)); p70 < stall/8 {
		t.Errorf("response p70 %v: the messages that waited for the stall are left out", p70)
	}
	if got := time.Duration(s.AckResponse.Max()); got < stall {
		t.Errorf("longest response %v, want at least the stall of %v", got, stall)
	}
	if s.Late < 20 {
		t.Errorf("%d late messages, want most of the 50 whose instant was in the stall", s.Late)
	}
	if took := s.Duration; took < 980*time.Millisecond {
		t.Errorf("took %v, the schedule lasts 990 ms", took)
	}
}

func TestOpenLoopKeepsItsRate(t *testing.T) {
	t.Parallel()
	for _, qos := range []int{0, 1, 2} {
		addr := nullBroker(t, null.Config{}, nil)
		plan := bounded(addr, qos, 64, 0)
		plan.Rate, plan.Connections, plan.Duration, plan.Topics = 5_000, 3, 200*time.Millisecond, 2
		plan.Payload = ledger.TimedSize
		plan.Ledger = ledger.For(1, ledger.Shape{Connections: 3, Topics: 2})
		s := mustRun(t, plan)
		if want := int64(1_000); s.Published+s.Missed != want {
			t.Errorf("QoS %d: %d messages published and %d missed, want %d in all", qos, s.Published, s.Missed, want)
		}
		if s.Acknowledged != s.Published || (s.AckResponse != nil) != (qos > 0) {
			t.Errorf("QoS %d: %d of %d acknowledged, response %v", qos, s.Acknowledged, s.Published, s.AckResponse)
		}
	}
}

func TestOpenLoopMissesWhatNobodyTakes(t *testing.T) {
	t.Parallel()
	addr := nullBroker(t, null.Config{Delay: 20 * time.Millisecond}, nil)
	plan := bounded(addr, 1, 1, 0)
	plan.Rate, plan.Duration = 1_000, 200*time.Millisecond
	s := mustRun(t, plan)
	if s.Published > 12 || s.Published+s.Missed != 200 {
		t.Errorf("%d published and %d missed at a window of 1 and 20 ms each, want about 10 and 190", s.Published, s.Missed)
	}
}

// TestSlowSubscriber: it reads at once and acknowledges one message after the other.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	const delay = 20 * time.Millisecond
	for _, qos := range []byte{1, 2} {
		took := make(chan time.Duration, 3)
		addr := broker(t, func(p *peer) {
			if !p.subscription(nil) {
				return
			}
			sent := time.Now()
			p.send(message(message(message(nil, qos, 1, "a"), qos, 2, "b"), qos, 3, "c"))
			answer := packet.PUBACK
			if qos == 2 {
				answer = packet.PUBREC
			}
			for id := uint16(1); id <= 3 && p.acks("one after the other", answer, id); id++ {
				took <- time.Since(sent)
			}
			p.gone()
		})
		var in inbox
		s, err := SubscribeWith(t.Context(), Options{Addr: addr, ClientID: "s", CleanSession: true},
			Subscription{Filter: "#", QoS: qos, Delay: delay, Handle: func(p *packet.Publish, _ time.Duration) { in.handle(p) }})
		if err != nil {
			t.Fatal(err)
		}
		for i := range time.Duration(3) {
			got := <-took
			if got < (i+1)*delay-time.Millisecond {
				t.Errorf("QoS %d: acknowledgement %d after %v, want %v", qos, i+1, got, (i+1)*delay)
			}
			if n := s.Received(); n != 3 {
				t.Errorf("QoS %d: %d of 3 read at acknowledgement %d", qos, n, i+1)
			}
		}
		if n := s.Processed(); n != 3 {
			t.Errorf("QoS %d: through with %d of 3", qos, n)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		in.want(t, "t=a", "t=b", "t=c")
	}
	if _, err := SubscribeWith(t.Context(), Options{}, Subscription{Delay: delay}); err == nil {
		t.Error("a slow subscriber at QoS 0 has nothing to withhold")
	}
}
