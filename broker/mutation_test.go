package broker

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"inflight/broker/packet"
)

// mutants is how many connections at a time send mutations.
const mutants = 4

// legal is what a client may send, a packet each. Every trace has topics of its own, so that what a mutation keeps (a
// session, a retained message) gets nothing of the others.
func legal(v packet.Version, n int) [][]byte {
	topic := fmt.Sprint("m/", n, "/x")
	publish := func(id uint16, qos byte, dup bool) []byte {
		m := packet.Publish{Topic: []byte(topic), Payload: []byte("payload"), ID: id, QoS: qos, Dup: dup}
		if v == packet.V5 {
			m.Properties = &props{
				PayloadFormat: packet.Some[byte](1), MessageExpiry: packet.Some[uint32](60), ContentType: []byte("text"), ResponseTopic: []byte("re"),
				CorrelationData: []byte{1, 2}, User: []packet.UserProperty{{Key: []byte("k"), Value: []byte("v")}}, TopicAlias: packet.Some[uint16](1),
			}
		}
		return v.AppendPublish(nil, &m)
	}
	connect := packet.Connect{ClientID: fmt.Sprint("mutant", n%mutants), CleanSession: true, KeepAlive: 5, Will: &packet.Will{Topic: topic, Payload: []byte("w"), QoS: 1}}
	subscribe := packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: fmt.Sprint("m/", n, "/+"), QoS: 2}, {Filter: topic, QoS: 1}}}
	if v == packet.V5 {
		connect.Properties = &props{ReceiveMaximum: packet.Some[uint16](10), SessionExpiry: packet.Some[uint32](1)}
		connect.Will.Properties = &props{WillDelay: packet.Some[uint32](1)}
		subscribe.Properties = &props{SubscriptionIDs: []uint32{300}}
	}
	ack := func(t packet.Type, id uint16) []byte { return v.AppendAck(nil, t, packet.Ack{ID: id}) }
	return [][]byte{
		v.AppendConnect(nil, &connect), v.AppendSubscribe(nil, &subscribe),
		publish(0, 0, false), publish(1, 1, false), publish(2, 2, false), publish(2, 2, true), ack(packet.PUBREL, 2),
		ack(packet.PUBACK, 1), ack(packet.PUBREC, 2), ack(packet.PUBCOMP, 2),
		packet.AppendEmpty(nil, packet.PINGREQ),
		v.AppendUnsubscribe(nil, &packet.Unsubscribe{ID: 3, Filters: []string{topic}}),
		publish(4, 2, false), ack(packet.PUBREL, 4),
		v.AppendDisconnect(nil, &packet.Disconnect{}),
	}
}

// mutate changes a trace in one to four places: bits, bytes, and whole packets.
func mutate(rng *rand.Rand, trace [][]byte) []byte {
	for range 1 + rng.IntN(4) {
		if len(trace) == 0 {
			break
		}
		i := rng.IntN(len(trace))
		p := slices.Clone(trace[i])
		at := rng.IntN(len(p))
		switch rng.IntN(8) {
		case 0, 1:
			p[at] ^= 1 << rng.IntN(8)
		case 2:
			p[at] = byte(rng.IntN(256))
		case 3:
			p = slices.Insert(p, at, byte(rng.IntN(256)))
		case 4:
			p = slices.Delete(p, at, at+1)
		case 5: // a packet twice
			trace = slices.Insert(trace, i, p)
		case 6: // two packets change places
			j := rng.IntN(len(trace))
			trace[i], trace[j] = trace[j], trace[i]
			continue
		case 7: // the rest of the packet is missing
			p = p[:at]
		}
		if len(p) == 0 {
			trace = slices.Delete(trace, i, i+1)
			continue
		}
		trace[i] = p
	}
	return slices.Concat(trace...)
}

// BAD-21: ten thousand mutations of a legal trace, each on a connection of its own: the broker lives, closes every one of
// them, serves others meanwhile, and ends with as much memory and as many goroutines as after the first of them.
func TestMutations(t *testing.T) {
	total := 10_000
	if testing.Short() {
		total = 1_000
	}
	eachVersion(t, func(t *testing.T, v packet.Version) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		s := open(t, StoreMemory, func(c *Config) { c.MaxPacket = 64 << 10 })
		w := plain.enter(t, s, packet.V311, "witness")
		w.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: "witness"}}}))
		w.want("SUBACK 1 0x00")
		var memory int64
		var goroutines int
		var some errgroup.Group // of a hundred, a few at a time
		some.SetLimit(mutants)
		for i := range total {
			if i == total/5 { // by then everything that grows once has grown
				settled(t, s)
				memory, goroutines = heap(), runtime.NumGoroutine()
			}
			if i%100 == 0 {
				w.send(pub(1, 1, "witness", fmt.Sprint(i)))
				w.wantTypes([]string{"PUBACK 1"}, []string{fmt.Sprintf("PUBLISH q0 witness %q", fmt.Sprint(i))})
			}
			one := func() error {
				err := mutant(s, mutate(rand.New(rand.NewPCG(seed, uint64(i))), legal(v, i)))
				if err != nil {
					err = fmt.Errorf("mutation %d: %w", i, err)
				}
				return err
			}
			some.Go(one)
			if (i+1)%100 == 0 {
				if err := some.Wait(); err != nil {
					t.Fatal(err)
				}
			}
		}
		settled(t, s)
		if grown := heap() - memory; grown > 16<<20 {
			t.Errorf("%d bytes more than after the first %d mutations", grown, total/5)
		}
		if more := runtime.NumGoroutine() - goroutines; more > 100 {
			t.Errorf("%d goroutines more", more)
		}
	})
}

// mutant sends a trace and its end, and reads until the broker closes.
func mutant(s *Server, trace []byte) error {
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	_, _ = nc.Write(trace) // the broker may have closed already
	_ = nc.(*net.TCPConn).CloseWrite()
	_, err = io.Copy(io.Discard, nc)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return fmt.Errorf("it stays open: % x", trace)
	}
	return nil
}

// settled waits until only the witness is connected, and the wills and sessions that last a second are over.
func settled(t *testing.T, s *Server) {
	t.Helper()
	eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) <= 1
	})
	time.Sleep(1100 * time.Millisecond)
}
