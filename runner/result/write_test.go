package result

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWriteReadRoundTrip(t *testing.T) {
	p99, rss, cpu, low := int64(1_600_000), int64(48<<20), 1.25, 0.98
	want := &Result{
		Schema: Schema, Tool: Tool{Name: "inflight", Version: "0.1.0"},
		Started: time.Date(2025, 11, 3, 9, 0, 0, 5, time.UTC), DurationNS: 42, Partial: true, Trouble: "interrupted",
		Arms: []Arm{{Name: "A", Target: "reference?store=staged&pipeline=off", Command: []string{"inflight", "broker"}}},
		Cells: []Cell{{
			Arm: "A", Pass: 1, Slot: 2, QoS: 2, Window: 256, ThroughputPerS: 18_051.5, RSSPeak: &rss, CPUSeconds: &cpu,
			Latency: Latency{AckService: &Distribution{Count: 5_000, P99: &p99}},
			Order:   Order{Checked: 3, ByType: map[string]int64{"PUBREC": 0}},
			Ledger:  &Ledger{Published: 5}, Blocks: []Block{{Block: 1, Position: 4, P99: &p99}},
		}},
		Control: &Control{Ratio: 1, Low: &low},
	}
	dir := t.TempDir()
	if err := Write(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the result changed (-written +read):\n%s", diff)
	}
	onlyResult(t, dir)
}

func TestWriteRefusesNumbersThatJSONCannotHold(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	tests := []struct {
		name   string
		result Result
		field  string
	}{
		{"rate", Result{Cells: []Cell{{}, {ThroughputPerS: nan}}}, "cells[1].throughput_per_s"},
		{"behind a pointer", Result{Control: &Control{High: &inf}}, "control.high"},
		{"in a list", Result{Comparisons: []Comparison{{Passes: []float64{1, nan}}}}, "comparisons[0].passes[1]"},
		{"deep", Result{Cells: []Cell{{Blocks: []Block{{ThroughputPerS: inf}}}}}, "cells[0].blocks[0].throughput_per_s"},
		{"in flight", Result{Cells: []Cell{{InFlight: InFlight{Little: nan}}}}, "cells[0].in_flight.little"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := Write(dir, &Result{Trouble: "before"}); err != nil {
				t.Fatal(err)
			}
			err := Write(dir, &test.result)
			if err == nil || !strings.Contains(err.Error(), test.field+" is ") {
				t.Errorf("Write: %v; want %s named", err, test.field)
			}
			if r, err := Read(dir); err != nil || r.Trouble != "before" {
				t.Errorf("the old result is gone: %+v, %v", r, err)
			}
			onlyResult(t, dir)
		})
	}
}

func TestWriteWithoutDirectory(t *testing.T) {
	err := Write(filepath.Join(t.TempDir(), "gone"), &Result{})
	if err == nil || !strings.Contains(err.Error(), "the directory does not exist") || strings.Contains(err.Error(), ".tmp") {
		t.Errorf("Write: %v", err)
	}
}

func TestWriteWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("root may write everywhere; run as another user, as .ci/run does")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	err := Write(dir, &Result{})
	if err == nil || !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), ".tmp") {
		t.Errorf("Write: %v; want the permission and no temporary name", err)
	}
}

// fullFile fails at one of the three points where a file system reports that it is full.
type fullFile struct{ at string }

func (f fullFile) err(point string) error {
	if f.at == point {
		return &fs.PathError{Op: point, Path: ".result.json.17.tmp", Err: syscall.ENOSPC}
	}
	return nil
}
func (f fullFile) Write(p []byte) (int, error) { return len(p), f.err("write") }
func (f fullFile) Sync() error                 { return f.err("sync") }
func (f fullFile) Close() error                { return f.err("close") }

func TestFullDiskIsOneMessage(t *testing.T) {
	for _, point := range []string{"write", "sync", "close"} {
		if err := fill(fullFile{point}, nil); !errors.Is(reason(err), ErrNoSpace) {
			t.Errorf("full at %s: %v; want %v", point, err, ErrNoSpace)
		}
	}
	if err := fill(fullFile{}, nil); err != nil {
		t.Errorf("not full: %v", err)
	}
}

// onlyResult fails the test when a temporary file was left behind.
func onlyResult(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != FileName {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}
