package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"inflight/broker/internal/testnode"
	"inflight/broker/node"
	"inflight/broker/store/storetest"
)

// A machine fails while a batch is being written. What was acknowledged under file+sync is there, the rest is cut off and
// said so, and the journal goes on behind.
func TestTornEnd(t *testing.T) {
	for name, tear := range map[string]func(batch []byte) []byte{
		"half of it is there": func(b []byte) []byte { return b[:len(b)/2] },
		"a bit is wrong":      func(b []byte) []byte { b[len(b)-60] ^= 4; return b },
		"a length is wrong":   func(b []byte) []byte { b[2] ^= 0x40; return b },
		"only zeros are":      func(b []byte) []byte { clear(b); return b },
		"it is whole":         nil,
		"zeros follow":        func(b []byte) []byte { return append(b[:len(b)-10], make([]byte, 4096)...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logged
			m := &member{testnode.New(t, node.Config{
				Name: "n1", StoreDir: t.TempDir(), SyncAlways: true, Log: slog.New(slog.NewTextHandler(&log, nil)),
			}, 1)}
			m.Start()
			sync := func(c *Config) { c.Sync = true }
			s := m.open(t, sync, log.config)
			if d := s.Durability(); d != "file+sync" {
				t.Fatalf("durability %s", d)
			}
			e := storetest.NewEnv(t, s)
			in := e.Subscribe(e.Root+"/x", 2, true)
			in.Close()
			const n = 20
			for i := range n {
				e.Publish(e.Msg(1, fmt.Sprint(i)))
			}
			block := lastBlock(t, m)
			acknowledged := fileSize(t, block)
			e.Publish(e.Msg(1, "torn"))
			torn := fileSize(t, block)
			crash(s)
			s.Close()
			m.Stop()

			data, err := os.ReadFile(block)
			if err != nil {
				t.Fatal(err)
			}
			if tear != nil {
				data = append(data[:acknowledged:acknowledged], tear(data[acknowledged:torn])...)
			}
			if err := os.WriteFile(block, data, 0o600); err != nil {
				t.Fatal(err)
			}
			// It is written at an orderly end alone.
			if err := os.Remove(filepath.Join(filepath.Dir(block), "index.db")); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			m.Start()
			e = e.View(m.open(t, sync, log.config))
			in = e.Subscribe(e.Root+"/x", 2, true)
			e.Publish(e.Msg(1, "after"))
			for i := range n {
				in.Want("what was acknowledged", fmt.Sprint(i))
			}
			if tear == nil {
				in.Want("nothing is torn", "torn")
			}
			in.Want("what is new", "after")
			in.Quiet("once each", e.Root+"/x")
			in.Close()
			if said := log.has("the end of a file was torn") || log.has("a batch of the journal is corrupt"); said != (tear != nil) {
				t.Errorf("said %v:\n%s", said, &log)
			}
		})
	}
}

// lastBlock is the file in which the end of the journal is.
func lastBlock(t *testing.T, m *member) string {
	t.Helper()
	dir := filepath.Join(m.Config.StoreDir, "jetstream", "$G", "streams", journalStream, "msgs")
	blocks, err := filepath.Glob(filepath.Join(dir, "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("no blocks in %s: %v", dir, err)
	}
	slices.Sort(blocks)
	return blocks[len(blocks)-1]
}

func fileSize(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
