package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"inflight/runner/result"
)

// resultsDir is where runs go that have no --out, below the working directory.
const resultsDir = "inflight-results"

// makeOutDir makes the directory of a run and returns its path. An empty out stands for a new directory named after the
// time and the scenario. A directory that is not empty is refused: a run never mixes with what is there.
func makeOutDir(out, scenario string, now time.Time) (string, error) {
	if out != "" {
		return out, makeNewDir(out)
	}
	if err := os.MkdirAll(resultsDir, 0o755); err != nil {
		return "", fmt.Errorf("make the result directory (--out chooses another one): %w", diskHint(err))
	}
	base := filepath.Join(resultsDir, now.UTC().Format("20060102T150405Z")+"-"+scenario)
	for n := 1; ; n++ {
		dir := base
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", base, n)
		}
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) && n < 100 {
			continue // another run began in the same second
		}
		if err != nil {
			return "", fmt.Errorf("make the result directory (--out chooses another one): %w", diskHint(err))
		}
		return dir, nil
	}
}

func makeNewDir(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the result directory: %w", diskHint(err))
		}
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return usagef("--out %s is not a directory", dir)
	case err != nil:
		return fmt.Errorf("look into the result directory: %w", err)
	case len(entries) == 0:
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, result.FileName)); err == nil {
		return usagef("--out %s already holds a run: choose a new directory (inflight report %s renders that run again)", dir, dir)
	}
	return usagef("--out %s is not empty: choose a new directory", dir)
}

// discardOutDir removes the directory of a run that left nothing behind.
func discardOutDir(dir string) {
	// Remove takes empty directories only, and that is the point.
	_ = os.Remove(filepath.Join(dir, "logs"))
	_ = os.Remove(dir)
	if filepath.Dir(dir) == resultsDir {
		_ = os.Remove(resultsDir)
	}
}

// discardLogs removes what brokers printed in a run that did not fail because of them.
func discardLogs(dir string) { _ = os.RemoveAll(filepath.Join(dir, "logs")) }

// diskHint adds what to do about a full disk.
func diskHint(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: free some, or choose another directory with --out", err)
	}
	return err
}
