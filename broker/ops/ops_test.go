package ops

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAddress(t *testing.T) {
	for _, test := range []struct{ listen, want string }{ // "": refused
		{":9180", "127.0.0.1:9180"}, // nobody asked for all interfaces
		{"127.0.0.1:0", "127.0.0.1:0"},
		{"[::1]:9180", "[::1]:9180"},
		{"0.0.0.0:9180", "0.0.0.0:9180"}, // here somebody did
		{"localhost:http", "localhost:http"},
		{"9180", ""},
		{"localhost", ""},
		{"localhost:", ""},
		{"localhost:70000", ""},
		{"::1:9180", ""},
		{"", ""},
	} {
		got, err := Address(test.listen)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%q: %q, %v, want %q", test.listen, got, err, test.want)
		}
	}
}

func TestBucket(t *testing.T) {
	for _, test := range []struct {
		d    time.Duration
		want int
	}{
		{-1, 0}, // a clock that was set back
		{0, 0},
		{1 << 14, 0}, // bounds belong to their bucket
		{1<<14 + 1, 1},
		{1 << 15, 1},
		{1<<15 + 1, 2},
		{1 << 34, 20},
		{1<<34 + 1, 21},
		{time.Hour, 21},
	} {
		if got := Bucket(test.d); got != test.want {
			t.Errorf("%v: bucket %d, want %d", test.d, got, test.want)
		}
	}
}

func request(t *testing.T, s *Server, method, path string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
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

func TestServer(t *testing.T) {
	var notReady error
	taken := 0
	s, err := Start(Config{
		Listen: "127.0.0.1:0",
		Snapshot: func() Snapshot {
			taken++
			return Snapshot{
				Version: `1"2\3`, PacketsIn: []Labelled{{"PUBLISH", 7}}, Leaders: map[string]string{"S": "n2", "none": ""},
				StoreOps: []StoreOp{{Kind: "hold", OK: 3, Failed: 1, Seconds: Latency{Buckets: [latencyBuckets]int64{0: 1, 1: 2, 21: 1}, Sum: 1500 * time.Millisecond}}},
			}
		},
		Ready: func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("readiness without a bound")
			}
			return notReady
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if code, body := request(t, s, "GET", "/readyz"); code != http.StatusOK || body != "ready\n" {
		t.Errorf("ready: %d %q", code, body)
	}
	notReady = errors.New("no quorum")
	if code, body := request(t, s, "GET", "/readyz"); code != http.StatusServiceUnavailable || body != "not ready: no quorum\n" {
		t.Errorf("not ready: %d %q", code, body)
	}
	for _, test := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/healthz", http.StatusOK},
		{"HEAD", "/healthz", http.StatusOK},
		{"GET", "/", http.StatusOK},
		{"POST", "/metrics", http.StatusMethodNotAllowed},
		{"GET", "/metric", http.StatusNotFound},
		{"GET", "/debug/pprof/", http.StatusNotFound},
		{"GET", "/debug/pprof/profile", http.StatusNotFound},
	} {
		if code, _ := request(t, s, test.method, test.path); code != test.want {
			t.Errorf("%s %s: %d, want %d", test.method, test.path, code, test.want)
		}
	}
	if taken != 0 {
		t.Errorf("%d snapshots before the first scrape", taken)
	}
	_, body := request(t, s, "GET", "/metrics")
	for _, want := range []string{
		`inflight_broker_info{durability="",store="",version="1\"2\\3"} 1`,
		`inflight_broker_packets_total{direction="in",type="PUBLISH"} 7`,
		`inflight_broker_stream_leader{leader="n2",stream="S"} 1`,
		`inflight_broker_store_operations_total{operation="hold",outcome="failed"} 1`,
		`inflight_broker_store_operation_seconds_bucket{operation="hold",le="1.6384e-05"} 1`,
		`inflight_broker_store_operation_seconds_bucket{operation="hold",le="3.2768e-05"} 3`, // buckets add up
		`inflight_broker_store_operation_seconds_bucket{operation="hold",le="17.179869184"} 3`,
		`inflight_broker_store_operation_seconds_bucket{operation="hold",le="+Inf"} 4`,
		`inflight_broker_store_operation_seconds_sum{operation="hold"} 1.5`,
		`inflight_broker_store_operation_seconds_count{operation="hold"} 4`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("not in the scrape: %s", want)
		}
	}
	if taken != 1 {
		t.Errorf("%d snapshots for one scrape", taken)
	}
}

func TestProfilesOnlyWhenAskedFor(t *testing.T) {
	s, err := Start(Config{Listen: ":0", Snapshot: func() Snapshot { return Snapshot{} }, Pprof: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if host := s.Addr().String(); !strings.HasPrefix(host, "127.0.0.1:") {
		t.Errorf("listens on %s", host)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/cmdline", "/readyz"} {
		if code, _ := request(t, s, "GET", path); code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
	}
	if _, err := Start(Config{Listen: s.Addr().String()}); err == nil || !strings.Contains(err.Error(), "--ops-listen") {
		t.Errorf("a taken port: %v", err)
	}
}

// What the names and help texts are held to is what the registry checks when it gathers.
func TestRegistryIsConsistent(t *testing.T) {
	families, err := NewRegistry(func() Snapshot { return Snapshot{StoreOps: []StoreOp{{Kind: "a"}, {Kind: "b"}}} }).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "inflight_") && f.GetHelp() == "" {
			t.Errorf("%s has no help", f.GetName())
		}
	}
}
