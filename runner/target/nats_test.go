//go:build unix

package target

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// needNATS prepares a real nats-server. It skips where none can be built, unless INFLIGHT_REQUIRE_PEERS is set.
func needNATS(t *testing.T, target string) *Program {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs a real nats-server; run without -short")
	}
	spec, err := Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	// Built once for all runs of the tests, and not in the time of a -timeout that other tests are given.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	p, err := Prepare(ctx, spec, Options{CacheDir: filepath.Join(cache, "inflight"), LogDir: t.TempDir(), Talk: t.Logf})
	if err != nil {
		if os.Getenv("INFLIGHT_REQUIRE_PEERS") == "1" {
			t.Fatal(err)
		}
		t.Skipf("no nats-server here (INFLIGHT_REQUIRE_PEERS=1 makes this a failure): %v", err)
	}
	return p
}

func TestNATSCluster(t *testing.T) {
	p := needNATS(t, "nats-server@v2.15.3?sync=always")
	if p.Version() != "v2.15.3" {
		t.Errorf("it reports version %q", p.Version())
	}
	slot := Slot{Number: 1, Dir: t.TempDir()}
	start := time.Now()
	b, err := p.Start(t.Context(), slot, 3, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %v", time.Since(start).Round(time.Millisecond))
	defer b.Stop()
	if b.Nodes() != 3 || b.Durability() != "file+sync" {
		t.Errorf("got %d nodes, durability %q", b.Nodes(), b.Durability())
	}
	// What ready promises, seen from here: any node to any other.
	for _, route := range [][2]int{{0, 0}, {1, 1}, {2, 2}, {0, 2}, {2, 1}} {
		name := "t" + string('a'+rune(route[0])) + string('a'+rune(route[1]))
		if err := roundTrip(t.Context(), b.addrs[route[0]], b.addrs[route[1]], name, true, 10*time.Second); err != nil {
			t.Errorf("from node %d to node %d: %v", route[0]+1, route[1]+1, err)
		}
	}
	config, err := os.ReadFile(filepath.Join(b.root, "n1", "nats-server.conf"))
	if err != nil || !strings.Contains(string(config), "sync_interval: always") || !strings.Contains(string(config), "stream_replicas: 3") {
		t.Errorf("the configuration does not have what was asked for: %v\n%s", err, config)
	}
	if streams, _ := filepath.Glob(filepath.Join(b.root, "*", "data", "jetstream", "*", "streams", "$MQTT_msgs")); len(streams) != 3 {
		t.Errorf("the message stream is on the disks of %d nodes, want all 3: %v", len(streams), streams)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	wantGone(t, b.pids()...)
	wantEmpty(t, slot.Dir)
}

func TestNATSAlone(t *testing.T) {
	p := needNATS(t, "nats-server@v2.15.3")
	slot := Slot{Number: 1, Dir: t.TempDir()}
	b, err := p.Start(t.Context(), slot, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if b.Durability() != "file" {
		t.Errorf("durability %q, want file", b.Durability())
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	wantGone(t, b.pids()...)
	wantEmpty(t, slot.Dir)
}
