package result

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckFile(t *testing.T) {
	dir := t.TempDir()
	c := &Check{Target: "null", Rows: []CheckRow{
		{ID: "A", Outcome: CheckOK},
		{ID: "B", Outcome: CheckViolated, ViolatedLevel: LevelMust},
		{ID: "C", Outcome: CheckViolated, ViolatedLevel: LevelContract},
		{ID: "D", Outcome: CheckViolated, ViolatedLevel: LevelInfo},
		{ID: "E", Outcome: CheckInconclusive},
		{ID: "F", Outcome: CheckNotApplicable},
	}}
	c.Count()
	if want := (CheckCounts{1, 1, 1, 1, 1, 1}); c.Counts != want {
		t.Errorf("counted %+v", c.Counts)
	}
	if err := WriteCheck(dir, c); err != nil {
		t.Fatal(err)
	}
	got, err := ReadCheck(dir)
	if err != nil || got.Counts != c.Counts || len(got.Rows) != 6 || got.Schema != CheckSchema {
		t.Errorf("read %+v, %v", got, err)
	}
	for text, want := range map[string]string{"{": "unexpected end", `{"schema": "inflight.check/9"}`: "want \"inflight.check/1\""} {
		if err := os.WriteFile(filepath.Join(dir, CheckFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadCheck(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := ReadCheck(filepath.Join(dir, "missing")); err == nil || !strings.Contains(err.Error(), "not the directory of a conformance check") {
		t.Errorf("a directory that is not there: %v", err)
	}
	if _, err := ReadCheck(filepath.Join(dir, CheckFile)); err == nil {
		t.Error("a file in place of the directory is no error")
	}
	if err := WriteCheck(filepath.Join(dir, "missing"), c); err == nil {
		t.Error("a directory that is not there is no error")
	}
}
