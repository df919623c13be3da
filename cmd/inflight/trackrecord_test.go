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
			// A broker that sends again by a timer is waited for as usual; at others each message that they lose costs that time.
			var patience []string
			if !strings.HasPrefix(name, "nats-server") {
				patience = []string{"--timeout", "5s"}
			}
			c, differences := asRecorded(t, record, name, dir, patience...)
			if len(differences) == 0 {
				return
			}
			// Many of these faults are races. What differs must differ again, or it is one more of them.
			flags := patience
			if only := showing(t, c, differences); only != nil {
				flags = append(flags, "--only", strings.Join(only, ","))
			}
			_, again := asRecorded(t, record, name, dir+"-again", flags...)
			for _, d := range again {
				if slices.ContainsFunc(differences, func(old track.Difference) bool { return old.Rule == d.Rule && old.MQTT == d.MQTT && old.New == d.New }) {
					t.Errorf("twice: %s", d)
				}
			}
		})
	}
}

// showing are the rules to run for the differences to show again, nil for all of them: an invariant is judged over all rules,
// and one that is broken names a rule that showed it.
func showing(t *testing.T, c *result.Check, differences []track.Difference) (only []string) {
	t.Helper()
	for _, d := range differences {
		t.Logf("%s", d)
		only = append(only, d.Rule)
		if d.Rule != "*" && !strings.HasPrefix(d.Rule, "INV-") {
			continue
		}
		by := []string{}
		for i := range c.Rows {
			for _, note := range c.Rows[i].Notes {
				if rule, seen := strings.CutPrefix(note, "seen in "); seen && c.Rows[i].ID == d.Rule && c.Rows[i].MQTT == d.MQTT {
					by = append(by, rule)
				}
			}
		}
		if len(by) == 0 || !d.New {
			return nil
		}
		only = append(only, by...)
	}
	return only
}

// asRecorded checks a broker and returns in what it is not as the record says.
func asRecorded(t *testing.T, record *track.Record, name, dir string, flags ...string) (*result.Check, []track.Difference) {
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
	return c, differences
}
