package broker

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"inflight/broker/packet"
	"inflight/broker/store"
)

// acks reads until the broker closes and counts responses by type. The order is checked elsewhere.
func (p *peer) acks() (ids map[packet.Type][]uint16, err error) {
	ids = map[packet.Type][]uint16{}
	for {
		f, err := p.next()
		if err != nil {
			return ids, err
		}
		id, err := packet.ParseAck(f)
		if err != nil {
			return ids, err
		}
		ids[f.Type()] = append(ids[f.Type()], id)
	}
}

// A broker that is asked to stop while pipelines are full answers everything that it has read, closes in good order, and
// everything acknowledged is delivered by the next process on the same files.
func TestDrainOfAFullPipeline(t *testing.T) { t.Parallel(); eachDurable(t, testDrainOfAFullPipeline) }

func testDrainOfAFullPipeline(t *testing.T, on string) {
	dir := t.TempDir()
	edit := func(c *Config) { c.StoreDir, c.Window = dir, 256 }
	s := open(t, on, edit, withOps)
	w := connect(t, s, "w", "keep")
	w.subscribe("m/+", 2)
	w.cut()

	// Two publishers that never stop sending: QoS 1, and QoS 2 with the first exchanges released.
	const n = 20_000
	p1, p2 := connect(t, s, "p1"), connect(t, s, "p2", "keep")
	p2.send(numbered(50, func(id uint16) []byte { return pub(id, 2, "m/2", fmt.Sprint(id)) }))
	p2.want(sentences(50, "PUBREC #")...)
	writing := make(chan struct{}, 2)
	flood := func(p *peer, b []byte) {
		_, _ = p.nc.Write(b) // an error is what ends it
		writing <- struct{}{}
	}
	go flood(p1, numbered(n, func(id uint16) []byte { return pub(id, 1, "m/1", fmt.Sprint(id)) }))
	go flood(p2, append(numbered(50, func(id uint16) []byte { return ack(packet.PUBREL, id) }),
		numbered(n, func(id uint16) []byte { return pub(id+50, 2, "m/2", fmt.Sprint(id+50)) })...))
	await(t, "a full pipeline", func() bool { return s.snapshot().Pending >= 256 })

	type result struct {
		ids map[packet.Type][]uint16
		err error
	}
	results := make([]chan result, 2)
	for i, p := range []*peer{p1, p2} {
		results[i] = make(chan result, 1)
		go func() {
			ids, err := p.acks()
			results[i] <- result{ids, err}
			_ = p.nc.Close() // as a client does
		}()
	}
	s.Drain(t.Context())
	if code, body := get(t, s, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz while draining: %d: %s", code, body)
	}
	if code, _ := get(t, s, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz while draining: %d", code)
	}
	if _, err := net.DialTimeout("tcp", s.Addr().String(), time.Second); err == nil {
		t.Error("a draining broker accepts")
	}
	wantSamples(t, s, map[string]float64{`connections`: 0, `connections_closed_total{reason="shutdown"}`: 2, `serving`: 0})
	snap := s.snapshot()
	s.Shutdown()
	<-writing
	<-writing

	got := [2]result{<-results[0], <-results[1]}
	for i, r := range got {
		if r.err != io.EOF {
			t.Errorf("publisher %d: %v, want the end of the stream after the last response", i+1, r.err)
		}
	}
	puback, pubrec, pubcomp := got[0].ids[packet.PUBACK], got[1].ids[packet.PUBREC], got[1].ids[packet.PUBCOMP]
	if int64(len(puback)) != snap.MessagesIn[1] || int64(len(pubrec)+50) != snap.MessagesIn[2] {
		t.Errorf("%d PUBACKs and %d PUBRECs for %d and %d messages read", len(puback), len(pubrec)+50, snap.MessagesIn[1], snap.MessagesIn[2])
	}
	if len(puback) == 0 || len(puback) == n {
		t.Fatalf("%d of %d acknowledged: the drain was not in the middle", len(puback), n)
	}

	again := open(t, on, edit)
	w = connect(t, again, "w", "keep", "present")
	seen := map[string]int{}
	for open := 0; len(seen) < len(puback)+len(pubcomp) || open > 0; {
		f, err := w.next()
		if err != nil {
			t.Fatalf("%v after %d messages, want %d", err, len(seen), len(puback)+len(pubcomp))
		}
		if f.Type() == packet.PUBREL {
			id, _ := packet.ParseAck(f)
			w.send(ack(packet.PUBCOMP, id))
			open--
			continue
		}
		p, err := packet.ParsePublish(f)
		if err != nil {
			t.Fatalf("got %s", describe(f))
		}
		seen[fmt.Sprintf("%s %s", p.Topic, p.Payload)]++
		if p.QoS == 2 {
			w.send(ack(packet.PUBREC, p.ID))
			open++
		} else {
			w.send(ack(packet.PUBACK, p.ID))
		}
	}
	for _, id := range puback {
		if seen[fmt.Sprintf("m/1 %d", id)] != 1 {
			t.Errorf("QoS 1 message %d, acknowledged, came %d times", id, seen[fmt.Sprintf("m/1 %d", id)])
		}
	}
	for _, id := range pubcomp {
		if seen[fmt.Sprintf("m/2 %d", id)] != 1 {
			t.Errorf("QoS 2 message %d, completed, came %d times", id, seen[fmt.Sprintf("m/2 %d", id)])
		}
	}
	w.wantQuiet() // what has a PUBREC only was not delivered
}

func TestDrain(t *testing.T) {
	t.Parallel()
	t.Run("idle and silent connections are closed at once", func(t *testing.T) {
		s := open(t, StoreMemory)
		idle := dial(t, s)
		idle.send(packet.AppendConnect(nil, &packet.Connect{
			ClientID: "idle", CleanSession: true, KeepAlive: 60, Will: &packet.Will{Topic: "w", Payload: []byte("x"), QoS: 1},
		}))
		idle.want("CONNACK present=false code=0")
		silent := dial(t, s) // never sends its CONNECT
		await(t, "accepted", func() bool { return s.metrics.accepted.Load() == 2 })
		s.Drain(t.Context())
		idle.wantClosed()
		silent.wantClosed()
		if n := s.metrics.ended[endOther].Load(); n != 0 {
			t.Errorf("%d connections ended in another way", n)
		}
		s.Drain(t.Context()) // again
		s.Shutdown()
		s.Drain(t.Context()) // late
	})
	t.Run("a client that does not take its responses is closed after the time-out", func(t *testing.T) {
		s := open(t, StoreMemory, func(c *Config) { c.DrainTimeout = 50 * time.Millisecond })
		w := connect(t, s, "w")
		w.subscribe("a", 0)
		_ = w.nc.(*net.TCPConn).SetReadBuffer(4096)
		p := connect(t, s, "p")
		big := string(make([]byte, 1<<20))
		for range 16 {
			p.send(pub(0, 0, "a", big))
		}
		p.send(packet.AppendEmpty(nil, packet.PINGREQ))
		p.want("PINGRESP")
		await(t, "the subscriber's output is stuck", func() bool { return s.metrics.dropped[dropSlow].Load() > 0 })
		s.Drain(t.Context())
		s.Shutdown()
	})
	t.Run("what is delivered meanwhile is no reason for a will", func(t *testing.T) {
		s := open(t, StoreMemory)
		w := dial(t, s)
		w.send(packet.AppendConnect(nil, &packet.Connect{ClientID: "w", CleanSession: true, Will: &packet.Will{Topic: "gone"}}))
		w.want("CONNACK present=false code=0")
		w.subscribe("a", 0)
		var wills atomic.Int64
		feed, err := s.store.Subscribe(t.Context(), "witness", store.Subscription{Filter: "gone"}, false, func(store.Delivery) { wills.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		defer feed.Close()
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for m := (&store.Message{Topic: "a", Payload: make([]byte, 100)}); ; {
				select {
				case <-stop:
					return
				default:
					_ = s.store.Transient(m)
				}
			}
		}()
		s.Drain(t.Context())
		close(stop)
		<-stopped
		if n := s.metrics.ended[endShutdown].Load(); n != 1 || wills.Load() != 0 {
			t.Errorf("%d connections ended by the shutdown, want 1; %d wills, want none", n, wills.Load())
		}
	})
	t.Run("serve ends with its context, drained", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Serve(ctx, Config{Listen: "127.0.0.1:0", Store: StoreMemory, SysInterval: time.Millisecond})
		}()
		time.Sleep(10 * time.Millisecond)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
