package broker

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"inflight/broker/ops"
	"inflight/broker/packet"
	"inflight/broker/session"
)

// What the writer counts from bytes is what the reader of these bytes would count.
func TestTrafficCountsTheSameBothWays(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var b []byte
	var want traffic
	for i := range 2000 {
		before := len(b)
		switch i % 4 {
		case 0:
			// Lengths around those at which the Remaining Length takes a byte more.
			size := []int{0, 1, 120, 121, 122, 123, 124, 125, 126, 127, 128, 16_370, 16_377, 16_378, 16_379, 16_390}[rng.IntN(16)]
			b = append(b, pub(7, byte(rng.IntN(3)), "tt", string(make([]byte, size)))...)
		case 1:
			b = append(b, ack(packet.PUBREC, 9)...)
		case 2:
			b = packet.AppendEmpty(b, packet.PINGRESP)
		case 3:
			b = packet.AppendSuback(b, 3, make([]byte, rng.IntN(200)))
		}
		f, n, _, err := packet.V311.Split(b[before:], packet.MaxRemaining)
		if err != nil || n != len(b)-before {
			t.Fatal(n, err)
		}
		if wireSize(f) != n {
			t.Fatalf("a packet of %d bytes counts %d", n, wireSize(f))
		}
		want.add(f.Header, n)
	}
	for _, size := range []int{2_097_151, 2_097_152} {
		if f := (packet.Frame{Body: make([]byte, size)}); wireSize(f) != len(packet.AppendSuback(nil, 1, make([]byte, size-2))) {
			t.Errorf("Remaining Length %d counts %d", size, wireSize(f))
		}
	}
	var got traffic
	got.addAll(b)
	if got != want || got.bytes != int64(len(b)) {
		t.Errorf("%v, want %v", got, want)
	}
	for cut := range 300 { // a part of a packet must not be read past its end
		(&traffic{}).addAll(b[:cut])
	}
}

func TestStoreOperationsAreTimedOnlyWhenSomebodyMayLook(t *testing.T) {
	t.Parallel()
	off := &metrics{epoch: time.Now().Add(-time.Second)}
	c := &conn{srv: &Server{}}
	if started := c.startTiming(); started != 0 {
		t.Errorf("the clock was read: %v", started)
	}
	off.timed(session.OpHold, 0)
	if n := off.ops[session.OpHold].sum.Load(); n != 0 {
		t.Errorf("%d ns counted", n)
	}
	on := &metrics{epoch: time.Now().Add(-time.Minute), clocked: true}
	on.timed(session.OpHold, on.clock()-time.Second)
	on.count([]*operation{
		{op: session.Op{Kind: session.OpHold}},
		{op: session.Op{Kind: session.OpHold}, err: errors.New("x")},
		{op: session.Op{Kind: session.OpPublish}},
	})
	op := &on.ops[session.OpHold]
	if op.ok.Load() != 1 || op.failed.Load() != 1 || on.ops[session.OpPublish].ok.Load() != 1 {
		t.Errorf("ok %d, failed %d", op.ok.Load(), op.failed.Load())
	}
	if sum := time.Duration(op.sum.Load()); sum < time.Second || op.buckets[ops.Bucket(sum)].Load() != 1 {
		t.Errorf("sum %v, not in its bucket", sum)
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	m := &metrics{epoch: time.Now(), clocked: true}
	batch := make([]*operation, 20)
	for i := range batch {
		batch[i] = new(operation)
	}
	var count traffic
	b := numbered(20, func(id uint16) []byte { return ack(packet.PUBREC, id) })
	if n := testing.AllocsPerRun(100, func() {
		count.addAll(b)
		m.out.fold(&count)
		m.count(batch)
		m.timed(session.OpHold, m.clock())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkCounting is what counting one packet costs, in batches of 64 and alone, beside the clock of a store operation.
func BenchmarkCounting(b *testing.B) {
	m := &metrics{epoch: time.Now(), clocked: true}
	run := func(name string, each int, one func()) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				one()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(each), "ns/packet")
		})
	}
	acks := numbered(64, func(id uint16) []byte { return ack(packet.PUBREC, id) })
	var count traffic
	run("written/batch", 64, func() { count.addAll(acks); m.out.fold(&count) })
	run("written/alone", 1, func() { count.addAll(acks[:4]); m.out.fold(&count) })
	f, _, _, err := packet.V311.Split(pub(1, 2, "a/b", string(make([]byte, 256))), packet.MaxRemaining)
	if err != nil {
		b.Fatal(err)
	}
	run("read/batch", 64, func() {
		for range 64 {
			count.add(f.Header, wireSize(f))
		}
		m.in.fold(&count)
	})
	batch := make([]*operation, 64)
	for i := range batch {
		batch[i] = new(operation)
	}
	run("store/batch", 64, func() {
		started := m.clock()
		m.timed(session.OpHold, started)
		m.count(batch)
	})
	run("store/alone", 1, func() {
		started := m.clock()
		m.timed(session.OpHold, started)
		m.count(batch[:1])
	})
}

// BenchmarkExchanges is the pair that shows what the operations listener costs: QoS 2 exchanges, window 256, through a
// whole broker on the memory store, where everything else is cheapest. Compare the two with benchstat.
func BenchmarkExchanges(b *testing.B) {
	for _, metrics := range []string{"off", "on"} {
		b.Run("ops="+metrics, func(b *testing.B) {
			s := open(b, StoreMemory, func(c *Config) {
				if metrics == "on" {
					withOps(c)
				}
			})
			p := connect(b, s, "p")
			const window = 256
			payload := string(make([]byte, 256))
			publish := numbered(window, func(id uint16) []byte { return pub(id, 2, "a/b", payload) })
			release := numbered(window, func(id uint16) []byte { return ack(packet.PUBREL, id) })
			expect := func(n int) {
				for range n {
					if _, err := p.next(); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				p.send(publish)
				expect(window)
				p.send(release)
				expect(window)
			}
			b.ReportMetric(float64(b.N)*window/b.Elapsed().Seconds(), "exchanges/s")
		})
	}
}
