package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"inflight/runner/check"
	"inflight/runner/history"
	"inflight/runner/result"
)

// Replay judges the histories of an earlier check again, with the rules as they are now, and returns the check with the
// new outcomes. Nothing is sent, and no file is changed. What a control said then still holds.
func Replay(dir string) (*result.Check, error) {
	c, err := result.ReadCheck(dir)
	if err != nil {
		return nil, err
	}
	found := map[string]*result.CheckRow{}
	for i := range c.Rows {
		row := &c.Rows[i]
		rule := check.ByID(row.ID)
		if rule == nil || len(row.Histories) == 0 {
			continue
		}
		if err := judgeRow(dir, row, rule, found); err != nil {
			return nil, err
		}
	}
	for i := range c.Rows {
		row := &c.Rows[i]
		if rule := check.ByID(row.ID); rule == nil || !isInvariant(rule) {
			continue
		}
		if again := found[row.ID+row.MQTT]; again != nil {
			row.Outcome, row.ViolatedLevel, row.Violated, row.Findings = again.Outcome, again.ViolatedLevel, again.Violated, again.Findings
		} else if row.Rounds > 0 {
			row.Outcome, row.ViolatedLevel, row.Violated, row.Findings, row.Evidence = result.CheckOK, "", 0, nil, nil
		}
	}
	c.Count()
	return c, nil
}

// judgeRow judges the rounds of one row; found collects what the invariants find.
func judgeRow(dir string, row *result.CheckRow, rule *check.Rule, found map[string]*result.CheckRow) error {
	start := time.Now()
	unsureBefore := row.Outcome == result.CheckInconclusive && row.Unsure == 0 // its control was not green
	why := row.Why
	row.Violated, row.Unsure, row.Findings, row.ViolatedLevel, row.Why, row.Notes = 0, 0, nil, "", "", nil
	worst := check.Verdict{}
	for _, name := range row.Histories {
		h, err := readHistory(dir, name)
		if err != nil {
			return err
		}
		v, broken := check.JudgeAll(rule, h)
		row.Notes = append(row.Notes, v.Notes...)
		switch v.Outcome {
		case check.Violated:
			row.Violated++
			if v.Level > worst.Level {
				worst = v
			}
		case check.Inconclusive:
			row.Unsure++
			row.Why = v.Why
		}
		for inv, v := range broken {
			key := inv.ID + row.MQTT
			if found[key] == nil {
				found[key] = &result.CheckRow{Outcome: result.CheckViolated}
			}
			found[key].Violated++
			if levelOf(found[key]) < v.Level {
				found[key].ViolatedLevel, found[key].Findings = v.Level.String(), findings(v)
			}
		}
	}
	switch {
	case row.Violated > 0 && unsureBefore:
		row.Outcome, row.Why = result.CheckInconclusive, why
	case row.Violated > 0:
		row.Outcome, row.ViolatedLevel, row.Findings = result.CheckViolated, worst.Level.String(), findings(worst)
	case row.Unsure > 0:
		row.Outcome = result.CheckInconclusive
	default:
		row.Outcome = result.CheckOK
	}
	row.TookNs = int64(time.Since(start))
	return nil
}

// readHistory reads a file that check.json names; it must lie below the directory.
func readHistory(dir, name string) (*history.History, error) {
	if !filepath.IsLocal(name) || !strings.HasSuffix(name, ".history") {
		return nil, fmt.Errorf("read %s: %q is no history of this check", result.CheckFile, name)
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("read a history: %w", err)
	}
	defer f.Close()
	h, err := history.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return h, nil
}

// levelOf is the level of what a row shows, 0 for nothing.
func levelOf(row *result.CheckRow) check.Level {
	for _, l := range []check.Level{check.Info, check.Contract, check.Must} {
		if l.String() == row.ViolatedLevel {
			return l
		}
	}
	return 0
}

// findings are those of a verdict as a row has them.
func findings(v check.Verdict) []result.CheckFinding {
	var all []result.CheckFinding
	for _, f := range v.Findings[:min(len(v.Findings), maxFindings)] {
		all = append(all, result.CheckFinding{Level: f.Level.String(), Text: f.Text})
	}
	return all
}
