package main

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/node"
)

// A store directory that another version made is one clear error, and stays as it is.
func TestBrokerWithAnotherLayout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"broker", "--store-dir", dir, "--listen", "127.0.0.1:0"}
	c := start(t, args...)
	c.awaitLine(t, "ready")
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.exit(t); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, &c.log)
	}
	for _, test := range []struct{ reason, layout, says string }{
		{"the first layout had no mark", "", "made by an older inflight (layout 1, this one has "},
		{"a later one", "99", `made by another inflight (layout "99", this one has `},
	} {
		edit(t, dir, func(metadata map[string]string) {
			if metadata["inflight-layout"] == "" {
				t.Error("the broker leaves no mark")
			}
			delete(metadata, "inflight-layout")
			if test.layout != "" {
				metadata["inflight-layout"] = test.layout
			}
		})
		c := start(t, args...)
		if code := c.exit(t); code != exitTrouble {
			t.Errorf("%s: exit code %d, want %d:\n%s", test.reason, code, exitTrouble, &c.log)
		}
		said := strings.TrimSpace(c.log.String())
		last := said[strings.LastIndexByte(said, '\n')+1:]
		for _, want := range []string{test.says, "use another --store-dir"} {
			if !strings.Contains(last, want) {
				t.Errorf("%s: its last line does not say %q:\n%s", test.reason, want, said)
			}
		}
		if strings.Count(said, "layout 1")+strings.Count(said, `layout "99"`) != 1 {
			t.Errorf("%s: it is not said once:\n%s", test.reason, said)
		}
		edit(t, dir, func(metadata map[string]string) {
			if metadata["inflight-layout"] != test.layout {
				t.Errorf("%s: the directory was changed: layout %q", test.reason, metadata["inflight-layout"])
			}
			metadata["inflight-layout"] = "replaced in the next round"
		})
	}
}

// edit changes the metadata of the streams in a store directory that no broker uses.
func edit(t *testing.T, dir string, change func(metadata map[string]string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n, err := node.Start(ctx, node.Config{Name: "n1", StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	nc, err := n.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"INF_staged", "INF_msgs", "INF_sessions", "INF_retained"} {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		if cfg.Metadata == nil {
			cfg.Metadata = make(map[string]string)
		}
		change(cfg.Metadata)
		if _, err := js.UpdateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	}
}
