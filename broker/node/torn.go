package node

import (
	"log/slog"
	"os"
	"path/filepath"
)

// blocks are the sizes of the files that hold the messages of streams, by name.
type blocks map[string]int64

func readBlocks(storeDir string) blocks {
	sizes := make(blocks)
	names, _ := filepath.Glob(filepath.Join(storeDir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			sizes[name] = info.Size()
		}
	}
	return sizes
}

// reportCut says which files the server has cut since they were looked at. It does so at its start where the end of one is
// no message, as after a crash in the middle of a write, and says nothing itself. A file that is gone was purged.
func (before blocks) reportCut(log *slog.Logger) {
	for name, was := range before {
		if info, err := os.Stat(name); err == nil && info.Size() < was {
			stream := filepath.Base(filepath.Dir(filepath.Dir(name)))
			log.Warn("the end of a file was torn, as by a crash, and is cut off", "stream", stream, "file", name, "bytes", was-info.Size())
		}
	}
}
