package report

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"inflight/report/page"
	"inflight/report/stat"
	"inflight/runner/result"
)

// MaxSideBySide is how many arms of several runs fit into one report.
const MaxSideBySide = 12

// SideBySide reads several run directories and puts their arms next to each other: the numbers, charts and curves of all. Runs
// that were made one after the other are not paired: what stat.Between can say of them is said in words, without a verdict.
// What each run found by itself stands among the reservations, and so does a difference between the machines.
func SideBySide(dirs []string) (*Together, error) {
	if len(dirs) < 2 {
		return nil, errors.New("side by side: at least two directories")
	}
	t := &Together{}
	var runs []*result.Result
	var problems []error
	arms := 0
	for i, dir := range dirs {
		if slices.Contains(dirs[:i], dir) {
			problems = append(problems, fmt.Errorf("%s is named twice", dir))
			continue
		}
		r, err := result.Read(dir)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if filepath.Base(dir) == result.FileName {
			dir = filepath.Dir(dir)
		}
		stat.Judge(r)
		runs = append(runs, r)
		t.dirs = append(t.dirs, dir)
		arms += len(r.Arms)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if arms > MaxSideBySide {
		return nil, fmt.Errorf("%d arms in %d runs: at most %d side by side", arms, len(runs), MaxSideBySide)
	}
	t.join(runs)
	return t, nil
}

// Together is several runs side by side.
type Together struct {
	Result *result.Result // the arms and cells of all; Comparisons and Control are empty
	dirs   []string
	curves []page.Curve
}

// join makes one result of several: arms keep their names where these differ, and get the run's number before them where
// they do not.
func (t *Together) join(runs []*result.Result) {
	first := runs[0]
	all := &result.Result{SideBySide: true, Schema: result.Schema, Tool: first.Tool, Started: first.Started, Scenario: first.Scenario, Environment: first.Environment}
	all.Scenario.Name, all.Scenario.Question = "side-by-side", fmt.Sprintf("%d runs side by side", len(runs))
	names := map[string]int{}
	for _, r := range runs {
		for _, a := range r.Arms {
			names[a.Name]++
		}
	}
	warn := func(code, format string, args ...any) {
		all.Warnings = append(all.Warnings, result.Warning{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	warn("side_by_side", "these runs were made one after the other and are not paired: what is said between them is no verdict; compare measures brokers in turn")
	for i, r := range runs {
		renamed := map[string]string{}
		run := result.Run{Name: filepath.Base(t.dirs[i]), Started: r.Started, Environment: r.Environment}
		for _, a := range r.Arms {
			name := a.Name
			if names[name] > 1 {
				name = fmt.Sprintf("%d%s", i+1, name)
			}
			renamed[a.Name] = name
			run.Arms, run.OwnNames = append(run.Arms, name), append(run.OwnNames, a.Name)
			a.Name = name
			all.Arms = append(all.Arms, a)
		}
		for _, c := range r.Cells {
			c.Arm, c.Histograms = renamed[c.Arm], "" // they are in the directory of the run
			all.Cells = append(all.Cells, c)
		}
		all.Runs = append(all.Runs, run)
		curves, trouble := curvesOf(t.dirs[i], r)
		for _, c := range curves {
			c.Arm = renamed[c.Arm]
			t.curves = append(t.curves, c)
		}
		label := fmt.Sprintf("run %d (%s)", i+1, filepath.Base(t.dirs[i]))
		if trouble != "" {
			warn("curves", "%s: %s", label, trouble)
		}
		if differs := stat.Unlike(first.Environment, r.Environment); len(differs) > 0 {
			warn("unlike_machines", "%s was made on another machine than run 1 (%s): rates of two machines do not compare", label, strings.Join(differs, "; "))
		}
		for _, w := range r.Warnings {
			warn(w.Code+"_of_run", "%s: %s", label, w.Text)
		}
		all.DurationNS += r.DurationNS
		all.Scenario.Passes, all.Scenario.Blocks = max(all.Scenario.Passes, r.Scenario.Passes), max(all.Scenario.Blocks, r.Scenario.Blocks)
	}
	for _, p := range stat.Points(all) {
		include(&all.Scenario.QoS, p.QoS)
		include(&all.Scenario.Windows, p.Window)
		include(&all.Scenario.Connections, p.Connections)
		if p.Sizes != "" {
			include(&all.Scenario.PayloadSizes, p.Sizes)
		} else {
			include(&all.Scenario.Payloads, p.Payload)
		}
	}
	t.Result = all
}

func include[T comparable](list *[]T, n T) {
	if !slices.Contains(*list, n) {
		*list = append(*list, n)
	}
}

// WriteDir makes the files of a report, and the joint result.json, in a directory that is there.
func (t *Together) WriteDir(dir string) error {
	if err := result.Write(dir, t.Result); err != nil {
		return err
	}
	all, err := files(t.Result, t.curves, "")
	if err != nil {
		return err
	}
	return writeFiles(dir, all)
}
