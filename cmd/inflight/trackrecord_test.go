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
	"inflight/runner/result"
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
			differences := asRecorded(t, record, name, dir)
			if len(differences) == 0 {
				return
			}
			// Many of these faults are races. What differs must differ again, or it is one more of them.
			var only []string
			for _, d := range differences {
				if t.Logf("%s", d); d.Rule == "*" || strings.HasPrefix(d.Rule, "INV-") {
					only = nil // they are judged over all rules
					break
				}
				only = append(only, d.Rule)
			}
			flags := []string{}
			if only != nil {
				flags = []string{"--only", strings.Join(only, ",")}
			}
			for _, d := range asRecorded(t, record, name, dir+"-again", flags...) {
				if slices.ContainsFunc(differences, func(old track.Difference) bool { return old.Rule == d.Rule && old.MQTT == d.MQTT && old.New == d.New }) {
					t.Errorf("twice: %s", d)
				}
			}
		})
	}
}

// asRecorded checks a broker and returns in what it is not as the record says.
func asRecorded(t *testing.T, record *track.Record, name, dir string, flags ...string) []track.Difference {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args := append([]string{"check", name, "--quick", "--expect", trackRecord, "--out", dir}, flags...)
	code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
	c, err := result.ReadCheck(dir)
	if err != nil {
		t.Fatalf("exit code %d, %v\n%s", code, err, stderr.String())
	}
	differences, err := record.Compare(c)
	if err != nil {
		t.Fatal(err)
	}
	want := []int{exitOK, exitInconclusive} // a busy machine: nothing known is missing and nothing is new
	if len(differences) > 0 {
		want = []int{exitConformance, exitGate}
	}
	if !slices.Contains(want, code) {
		t.Errorf("exit code %d, want one of %d\n%s\n%s", code, want, stderr.String(), stdout.String())
	}
	if c.Partial {
		t.Errorf("the check was cut off: %s", c.Trouble)
	}
	return differences
}
