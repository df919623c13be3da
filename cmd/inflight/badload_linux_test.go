package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"inflight/runner/result"
)

// A rate a little above what the load generator reaches is measured all the same, but it is said beforehand whose fault the late
// messages will be, and the report has it as well.
func TestRateAboveGenerator(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the program several times; run without -short")
	}
	t.Parallel()
	reaches := regexp.MustCompile(`load generator reaches about ([0-9]+)/s`)
	rate := 100_000 // the generator's own rate differs from machine to machine: what it says of one rate leads to the next
	for range 10 {
		dir := filepath.Join(t.TempDir(), "run")
		cmd := exec.Command("inflight", "sweep", "null", "--qos", "1", "--window", "1", "--rate", strconv.Itoa(rate), "--duration", "50ms", "--warmup", "10ms",
			"--control", "off", "--verify", "off", "--passes", "1", "--blocks", "1", "--out", dir)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		told := reaches.FindStringSubmatch(stderr.String())
		switch {
		case told == nil && err != nil:
			t.Fatalf("rate %d: %v: %s", rate, err, &stderr)
		case told == nil: // it reaches this one
			rate *= 3
			continue
		case err != nil:
			if cmd.ProcessState.ExitCode() != exitUsage {
				t.Fatalf("a rate that is refused: %v: %s", err, &stderr)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Fatal("a run that was refused left its directory")
			}
			reached, _ := strconv.Atoi(told[1])
			rate = 3 * max(reached, 2_000)
			continue
		}
		if !strings.Contains(stderr.String(), "messages will be late, and that will be its fault") || !strings.Contains(stdout.String(), "! rate "+strconv.Itoa(rate)) {
			t.Errorf("not said:\n%s\n%s", &stderr, &stdout)
		}
		r, err := result.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Cells) == 0 || r.Partial {
			t.Errorf("%d cells, partial %v", len(r.Cells), r.Partial)
		}
		if _, err := os.Stat(filepath.Join(dir, "data-null")); err == nil {
			t.Error("the data of the broker that was asked against are left")
		}
		return
	}
	t.Fatalf("no rate that was said to be too high and measured, the last is %d", rate)
}
