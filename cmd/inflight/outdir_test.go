package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOutDirIsNamedAfterTimeAndScenario(t *testing.T) {
	t.Chdir(t.TempDir())
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.FixedZone("", 3600))
	for _, want := range []string{"20260102T140405Z-mine", "20260102T140405Z-mine-2", "20260102T140405Z-mine-3"} {
		dir, err := makeOutDir("", "mine", now)
		if err != nil || dir != filepath.Join(resultsDir, want) {
			t.Fatalf("%s, %v, want %s: runs of one second must not share a directory", dir, err, want)
		}
	}
}

func TestOutDirOfARunThatNeverBegan(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := makeOutDir("", "mine", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	logs := filepath.Join(dir, "logs")
	if err := os.Mkdir(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(logs, "1-null-n1.log")
	if err := os.WriteFile(log, []byte("why\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	discardOutDir(dir)
	if _, err := os.Stat(log); err != nil {
		t.Errorf("what a broker printed is gone: %v", err)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	discardOutDir(dir)
	if _, err := os.Stat(resultsDir); err == nil {
		t.Error("an empty directory is left")
	}
}

func TestDiskHint(t *testing.T) {
	full := fmt.Errorf("make a slot's data directory: %w", &os.PathError{Op: "mkdir", Path: "x", Err: syscall.ENOSPC})
	if err := diskHint(full); !errors.Is(err, full) || !strings.Contains(err.Error(), "choose another directory") {
		t.Errorf("%v: no way on", err)
	}
	other := errors.New("else")
	if err := diskHint(other); err != other {
		t.Errorf("%v, want it unchanged", err)
	}
}
