//go:build unix && !race

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inflight/report/track"
	"inflight/runner/target"
)

const trackRecord = "../../testdata/track-record.yaml"

// Every fault that is on record is still found, and no other: on brokers of others, started as targets, side by side. It
// takes a minute or two, so it runs where peers are required only, and without the race detector, which would take most
// of the machine from the brokers.
func TestTrackRecord(t *testing.T) {
	record, err := track.Load(trackRecord)
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() || os.Getenv("INFLIGHT_REQUIRE_PEERS") != "1" {
		t.Skip("checks five brokers; run without -short and with INFLIGHT_REQUIRE_PEERS=1")
	}
	for _, name := range slices.Sorted(maps.Keys(record.Targets)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "check")
			spec, err := target.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			// Built before the time of the check begins to count.
			if _, err := target.Prepare(t.Context(), spec, target.Options{CacheDir: cacheDir(dir), Talk: t.Logf}); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), []string{"check", name, "--quick", "--expect", trackRecord, "--out", dir}, strings.NewReader(""), &stdout, &stderr)
			switch code {
			case exitOK:
			case exitInconclusive: // a busy machine: nothing known is missing and nothing is new
				t.Logf("%s", stderr.String())
			default:
				t.Errorf("exit code %d\n%s\n%s", code, stderr.String(), stdout.String())
			}
		})
	}
}
