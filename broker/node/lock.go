package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// errLocked is what lockFile returns for a file that another process, or another node of this one, has locked.
var errLocked = errors.New("locked")

// lockDir takes the store directory for one node, until the file is closed or the process is gone, however it ends. The
// server itself would share it, and two of them destroy each other's files.
func lockDir(dir string, log *slog.Logger) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "inflight.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store directory: %w", err)
	}
	switch err := lockFile(f); {
	case errors.Is(err, errLocked):
		_ = f.Close()
		return nil, fmt.Errorf("store directory %s is in use by another broker: stop that one, or choose another directory with --store-dir", dir)
	case err != nil: // a file system that has no locks
		log.Warn("node: the store directory cannot be locked, see to it that no other broker uses it", "directory", dir, "error", err)
	}
	return f, nil
}
