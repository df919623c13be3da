package broker

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"inflight/broker/packet"
)

func withOps(c *Config) { c.OpsListen = "127.0.0.1:0" }

// get asks the operations listener.
func get(t testing.TB, s *Server, path string) (code int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Get("http://" + s.ops.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// scrape returns the samples by name and labels.
func scrape(t testing.TB, s *Server) map[string]float64 {
	t.Helper()
	code, body := get(t, s, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d: %s", code, body)
	}
	samples := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		line := strings.TrimPrefix(lines.Text(), "inflight_broker_")
		i := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || i < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		samples[line[:i]] = v
	}
	return samples
}

// wantSamples polls until the samples are as wanted: a count may be folded in a moment after its packet was answered.
func wantSamples(t testing.TB, s *Server, want map[string]float64) map[string]float64 {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got := scrape(t, s)
		var wrong []string
		for name, v := range want {
			if g, ok := got[name]; !ok || g != v {
				wrong = append(wrong, fmt.Sprintf("%s is %v (there: %v), want %v", name, g, ok, v))
			}
		}
		if len(wrong) == 0 {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatal(strings.Join(wrong, "\n"))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestScrape(t *testing.T) {
	t.Parallel()
	for _, name := range []string{StoreMemory, StoreStaged, StoreJournal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, name, withOps, func(c *Config) { c.Version = "v9" })
			w := connect(t, s, "w")
			w.subscribe("a", 2)
			p := connect(t, s, "p")
			p.send(numbered(5, func(id uint16) []byte { return pub(id, 2, "a", "x") }))
			p.want(sentences(5, "PUBREC #")...)
			wantSamples(t, s, map[string]float64{
				`inflight{direction="in"}`:  5, // held, not released
				`inflight{direction="out"}`: 0,
				`pipeline_pending`:          0,
				`store_pending`:             0,
				`store_operations_total{operation="hold",outcome="ok"}`:     5,
				`store_operations_total{operation="hold",outcome="failed"}`: 0,
				`store_operations_total{operation="release",outcome="ok"}`:  0,
			})
			p.send(numbered(5, func(id uint16) []byte { return ack(packet.PUBREL, id) }))
			p.want(sentences(5, "PUBCOMP #")...)
			w.want(sentences(5, `PUBLISH q2 a "x"`)...)
			p.send(pub(0, 0, "a", "y"), pub(9, 1, "none", "z"))
			p.want("PUBACK 9")
			p.send(packet.AppendEmpty(nil, packet.PINGREQ))
			p.want("PINGRESP")
			got := wantSamples(t, s, map[string]float64{
				`info{durability="` + s.cfg.durability() + `",store="` + name + `",version="v9"}`: 1,
				`serving`:                                                  1,
				`connections`:                                              2,
				`sessions`:                                                 2,
				`subscriptions`:                                            1,
				`connections_accepted_total`:                               2,
				`inflight{direction="in"}`:                                 0,
				`inflight{direction="out"}`:                                5, // not answered by the subscriber
				`messages_total{direction="in",qos="0"}`:                   1,
				`messages_total{direction="in",qos="1"}`:                   1,
				`messages_total{direction="in",qos="2"}`:                   5,
				`messages_total{direction="out",qos="0"}`:                  1,
				`messages_total{direction="out",qos="2"}`:                  5,
				`packets_total{direction="in",type="CONNECT"}`:             2,
				`packets_total{direction="out",type="CONNACK"}`:            2,
				`packets_total{direction="in",type="PUBLISH"}`:             7,
				`packets_total{direction="in",type="PUBREL"}`:              5,
				`packets_total{direction="in",type="PINGREQ"}`:             1,
				`packets_total{direction="out",type="PINGRESP"}`:           1,
				`packets_total{direction="out",type="PUBREC"}`:             5,
				`packets_total{direction="out",type="PUBCOMP"}`:            5,
				`packets_total{direction="out",type="SUBACK"}`:             1,
				`store_operations_total{operation="release",outcome="ok"}`: 5,
				`store_operations_total{operation="publish",outcome="ok"}`: 1,
				// Two CONNECTs (15), SUBSCRIBE (8), five QoS 2 PUBLISHes (8), one of QoS 0 (6) and one of QoS 1 (11), five PUBRELs (4),
				// PINGREQ (2).
				`bytes_total{direction="in"}`: 2*15 + 8 + 5*8 + 6 + 11 + 5*4 + 2,
				// Two CONNACKs (4), SUBACK (5), PUBRECs and PUBCOMPs (4), five PUBLISHes (8) and one of QoS 0 (6), PUBACK (4), PINGRESP (2).
				`bytes_total{direction="out"}`: 2*4 + 5 + 10*4 + 5*8 + 6 + 4 + 2,
			})
			if n := got[`store_operation_seconds_count{operation="hold"}`]; n < 1 || n > 5 {
				t.Errorf("%v of five operations timed", n)
			}
			if n := got[`store_operation_seconds_count{operation="publish"}`]; n != 1 {
				t.Errorf("%v timed of an operation that was alone, want 1", n)
			}
			if got["go_goroutines"] == 0 {
				t.Error("no runtime metrics")
			}
			p.send(packet.AppendEmpty(nil, packet.DISCONNECT))
			w.cut()
			bad := dial(t, s)
			bad.send([]byte{0xC0, 0})
			bad.wantClosed()
			wantSamples(t, s, map[string]float64{
				`connections`: 0, `sessions`: 0, `subscriptions`: 0, `inflight{direction="out"}`: 0,
				`connections_accepted_total`:                    3,
				`connections_closed_total{reason="disconnect"}`: 1,
				`connections_closed_total{reason="refused"}`:    1,
				`connections_closed_total{reason="other"}`:      1,
			})
		})
	}
}

// A session that is away loses what its queue has no room for, and where the broker knows of them QoS 0 messages; both are
// counted.
func TestDropsAreCounted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		store  string
		beside int // bytes that a queue counts for a message beside its topic and its payload
		away   bool
	}{
		{StoreMemory, 64, true},
		{StoreJournal, 4, false}, // nobody listens to a QoS 0 publication then
	} {
		t.Run(test.store, func(t *testing.T) {
			t.Parallel()
			s := open(t, test.store, withOps, func(c *Config) { c.QueueBytes = 64 << 10 })
			w := connect(t, s, "w", "keep")
			w.subscribe("a", 1)
			w.cut()
			wantSamples(t, s, map[string]float64{`connections`: 0})
			p := connect(t, s, "p")
			p.send(pub(0, 0, "a", "x"))
			payload := strings.Repeat("x", 1000)
			p.send(numbered(100, func(id uint16) []byte { return pub(id, 1, "a", payload) }))
			p.want(sentences(100, "PUBACK #")...)
			fit := 64 << 10 / (1 + 1000 + test.beside)
			want := map[string]float64{`messages_dropped_total{reason="queue_full"}`: float64(100 - fit)}
			if test.away {
				want[`messages_dropped_total{reason="not_connected"}`] = 1
			}
			wantSamples(t, s, want)
			w = connect(t, s, "w", "keep", "present")
			for range fit { // and those that fit are there
				w.send(ack(packet.PUBACK, w.want("PUBLISH q1 a "+strconv.Quote(payload))))
			}
			w.wantQuiet()
		})
	}
}

func TestSubscriptionLimit(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory, func(c *Config) { c.MaxSubscriptions = 2 })
	w := connect(t, s, "w")
	w.subscribe("a", 1)
	w.subscribe("b", 1)
	w.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: "c", QoS: 1}, {Filter: "a", QoS: 0}}}))
	w.want("SUBACK 1 [128 0]") // one more is refused; one that exists may change
	w.send(packet.AppendUnsubscribe(nil, &packet.Unsubscribe{ID: 2, Filters: []string{"b"}}))
	w.want("UNSUBACK 2")
	w.subscribe("c", 1)
}

func TestLimitsAreChecked(t *testing.T) {
	t.Parallel()
	err := Check(Config{
		Store: StoreMemory, MaxPacket: 5, Outbound: 65_536, Window: -1, CopyBytes: 1 << 41, QueueBytes: 1, MaxSubscriptions: 1 << 30,
		DrainTimeout: -1, SysInterval: -1, Pprof: true, MaxKeepAlive: 65_536 * time.Second, MaxSessionExpiry: 1500 * time.Millisecond,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"the packet limit is 5", "the outbound window is 65536", "the window is negative", "the size of the copies in memory",
		"the queue limit is 1", "the limit of subscriptions", "the drain time-out is negative", "the interval of $SYS messages is negative",
		"--ops-listen", "the maximum of Keep Alive is 18h12m16s", "the maximum of the Session Expiry Interval is 1.5s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not reported: %s", want)
		}
	}
	if err := Check(Defaults()); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("defaults: %v, want only that a store directory is missing", err)
	}
}

func TestHealth(t *testing.T) { t.Parallel(); eachDurable(t, testHealth) }

func testHealth(t *testing.T, on string) {
	s := open(t, on, withOps)
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(t, s, path); code != http.StatusOK {
			t.Errorf("%s: %d: %s", path, code, body)
		}
	}
	if code, _ := get(t, s, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles are served unasked: %d", code)
	}
	s.node.Stop()
	if code, body := get(t, s, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "embedded node") {
		t.Errorf("/readyz without a node: %d: %s", code, body)
	}
	if code, _ := get(t, s, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d, want 200: the process is up", code)
	}
}

// Each member tells about itself alone, and the last one of three cannot make anything durable.
func TestOperationsInACluster(t *testing.T) { t.Parallel(); eachDurable(t, testOperationsInACluster) }

func testOperationsInACluster(t *testing.T, on string) {
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	servers := cluster(t, with(on), withOps, sysOften)
	connect(t, servers[0], "x")
	connect(t, servers[2], "y")
	connect(t, servers[2], "z")
	w := connect(t, servers[2], "w")
	w.subscribeAmidst("$SYS/broker/clients/connected", 0)
	for range 10 {
		w.want(`PUBLISH q0 $SYS/broker/clients/connected "3"`)
	}
	for _, s := range servers {
		await(t, "ready with all members", func() bool { return s.Ready() == nil })
	}
	servers[1].Shutdown()
	await(t, "ready with two of three", func() bool { return servers[0].Ready() == nil })
	servers[2].Shutdown()
	await(t, "not ready alone", func() bool { return servers[0].Ready() != nil })
	wantReady(t, servers[0], false) // in between it can be that the leader of before has not noticed
}

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
