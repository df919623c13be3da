package journal

import (
	"os"
	"path/filepath"
	"testing"

	"inflight/broker/store/storetest"
)

// The files of the journal, which are buffers while they are written, are no larger than 4 MiB.
func TestSizeOfFiles(t *testing.T) {
	t.Parallel()
	m := single(t)
	e := storetest.NewEnv(t, m.open(t))
	payload := string(make([]byte, 512<<10))
	for range 18 { // more than two files
		e.Publish(e.Msg(1, payload))
	}
	files, err := filepath.Glob(filepath.Join(m.Config.StoreDir, "jetstream", "*", "streams", journalStream, "msgs", "*.blk"))
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v, %v; want three at least", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > 4<<20 {
			t.Errorf("%s: %v; %d bytes, want 4 MiB at most", file, err, info.Size())
		}
	}
}
