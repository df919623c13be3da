package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A node whose JetStream was shut down, as the server does on a full disk, or that could not write something, starts it
// again, with what was stored.
func TestRevive(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for seconds; run without -short")
	}
	for name, harm := range map[string]func(n *Node) error{
		"shut down by the server": func(n *Node) error { return n.srv.ShutdownJetStream() },
		"something is not written": func(n *Node) error {
			natsLog{n.log, n.fatal, &n.broken}.Errorf("Critical write error: %s", "test")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var buf syncBuffer
			n := start(t, Config{Name: "n1", StoreDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&buf, nil))})
			nc, err := n.Connect("test")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := js.Publish(t.Context(), "s", []byte("kept")); err != nil {
				t.Fatal(err)
			}
			if err := harm(n); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(startUp); !strings.Contains(buf.String(), "is started again") || n.Healthy() != nil; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("JetStream is still down: %v", n.Healthy())
				}
			}
			st, err := js.Stream(t.Context(), "S")
			if err != nil {
				t.Fatal(err)
			}
			if m, err := st.GetMsg(t.Context(), 1); err != nil || string(m.Data) != "kept" {
				t.Errorf("got %v, %v", m, err)
			}
		})
	}
}

func TestCanWrite(t *testing.T) {
	dir := t.TempDir()
	if err := canWrite(dir); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if err := canWrite(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want that the directory is missing", err)
	}
}
