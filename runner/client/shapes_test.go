package client

import (
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/broker/packet"
	"inflight/runner/null"
)

// sizesSeen is a broker that acknowledges each PUBLISH and notes the length of its payload, by topic.
type sizesSeen struct {
	sync.Mutex
	byTopic map[string][]int
}

func (s *sizesSeen) broker(t *testing.T, version packet.Version, messages int) string {
	codec := packet.Codec{Version: version, From: packet.FromClient}
	return broker(t, func(p *peer) {
		if _, ok := p.next("CONNECT", packet.CONNECT); !ok {
			return
		}
		if version == packet.V5 {
			p.send(packet.Codec{Version: version, From: packet.FromServer}.AppendConnack(nil, &packet.Connack{}))
		} else {
			p.send(packet.AppendConnack(nil, false, packet.Accepted))
		}
		for range messages {
			f, ok := p.next("the messages of a connection", packet.PUBLISH)
			if !ok {
				return
			}
			m, err := codec.ParsePublish(f)
			if err != nil {
				t.Error(err)
				return
			}
			s.Lock()
			s.byTopic[string(m.Topic)] = append(s.byTopic[string(m.Topic)], len(m.Payload))
			s.Unlock()
			p.send(packet.AppendAck(nil, packet.PUBACK, m.ID))
		}
		p.gone()
	})
}

// TestSizesAreTheSameInEveryRun: a connection goes through the table, in well-formed packets around the sizes
// at which the Remaining Length takes another byte; and the bytes of what was acknowledged are counted.
func TestSizesAreTheSameInEveryRun(t *testing.T) {
	t.Parallel()
	sizes := []int{64, 100, 90, 16_400, 127, 128, 16_300, 16_383, 16_384, 1_000}
	for _, version := range []packet.Version{packet.V311, packet.V5} {
		var first map[string][]int
		for range 2 {
			seen := &sizesSeen{byTopic: map[string][]int{}}
			plan := bounded(seen.broker(t, version, 60), 1, 4, 60)
			plan.Sizes, plan.Payload, plan.Version, plan.Topics = sizes, 16_400, version, 2
			plan.Topic = func(int) string { return "t" }
			s := mustRun(t, plan)
			var sum int64
			const want = 6 * (64 + 100 + 90 + 16_400 + 127 + 128 + 16_300 + 16_383 + 16_384 + 1_000) // 60 messages of 10 sizes
			for _, list := range seen.byTopic {
				if len(list) != 30 {
					t.Errorf("%d messages of a topic, want 30", len(list))
				}
				for i, n := range list {
					sum += int64(n)
					if n != list[i%(len(sizes)/2)] {
						t.Errorf("message %d has %d bytes, %d before", i, n, list[i%(len(sizes)/2)])
					}
				}
			}
			if s.Bytes != sum || sum != want {
				t.Errorf("%d bytes counted, %d sent", s.Bytes, sum)
			}
			if first == nil {
				first = seen.byTopic
				continue
			}
			for topic, list := range first {
				for i, n := range seen.byTopic[topic] {
					if n != list[i] {
						t.Errorf("topic %s, message %d: %d bytes, %d in the run before", topic, i, n, list[i])
					}
				}
			}
		}
	}
}

// TestRampIsOneSchedule: over a whole ramp, what was published and what was missed are what its schedule asked for, and so is
// what Due told meanwhile.
func TestRampIsOneSchedule(t *testing.T) {
	t.Parallel()
	plan := bounded(nullBroker(t, null.Config{}, nil), 1, 64, 0)
	plan.Rate, plan.RampTo, plan.Duration, plan.Connections = 500, 3_500, 300*time.Millisecond, 3
	p, err := Open(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if due := p.Due(); due != 0 {
		t.Errorf("%d messages due before the run", due)
	}
	s, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Published+s.Missed, int64(600); got != want {
		t.Errorf("%d published and %d missed, want %d in all: the mean of the rates for the time", s.Published, s.Missed, want)
	}
	if s.Spread == nil || s.Spread.Fewest+s.Spread.Most > s.Messages || s.Spread.Fewest > s.Spread.Most || s.Spread.InFlightLow > s.Spread.InFlightHigh {
		t.Errorf("spread %+v of %d messages over three connections", s.Spread, s.Messages)
	}
	if due := p.Due(); due != 600 {
		t.Errorf("%d messages due after the end, want 600", due)
	}
	if n := s.AckResponse.TotalCount(); n != s.Published {
		t.Errorf("%d responses of %d messages", n, s.Published)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestStallIsInTheResponseOfAllThatWaited: a broker that stops for a while holds up the window, and everything whose instant
// comes meanwhile. The response times have all of that wait, the service times none. Nothing here depends on how fast the
// machine is: a slower one makes both longer.
func TestStallIsInTheResponseOfAllThatWaited(t *testing.T) {
	t.Parallel()
	const stall, every, rate, window = 60 * time.Millisecond, 120 * time.Millisecond, 1_000, 2
	const messages = 300 // 300 ms of schedule, which holds two whole stalls wherever it begins
	plan := bounded(nullBroker(t, null.Config{Stall: stall, Every: every}, nil), 1, window, messages)
	plan.Rate = rate
	s := mustRun(t, plan)
	if s.Missed != 0 || s.AckResponse.TotalCount() != messages || s.AckService.TotalCount() != messages {
		t.Fatalf("%d responses, %d service times, %d missed of %d messages", s.AckResponse.TotalCount(), s.AckService.TotalCount(), s.Missed, messages)
	}
	// Those whose instant is in the first half of a stall, but for what the window held already and what it let through last.
	const waiting = 2*(rate*int64(stall/2)/int64(time.Second)) - 4*window
	if slow := above(s.AckResponse, stall/2); slow < waiting {
		t.Errorf("%d responses took %v or more, want at least %d", slow, stall/2, waiting)
	}
	if waited := messages * (s.AckResponse.Mean() - s.AckService.Mean()); waited < float64(waiting)*float64(stall/2) {
		t.Errorf("responses are longer than service times by %v in all, want %d times %v", time.Duration(waited), waiting, stall/2)
	}
	for _, q := range []float64{50, 90, 99, 100} {
		if response, service := s.AckResponse.ValueAtPercentile(q), s.AckService.ValueAtPercentile(q); response < service*98/100 {
			t.Errorf("p%g: response %v, service %v", q, time.Duration(response), time.Duration(service))
		}
	}
}

// above counts the values of a histogram that are d or more.
func above(h *hdrhistogram.Histogram, d time.Duration) (n int64) {
	for _, bar := range h.Distribution() {
		if bar.To >= int64(d) {
			n += bar.Count
		}
	}
	return n
}
