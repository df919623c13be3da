package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"inflight/report/gate"
	"inflight/report/stat"
	"inflight/runner"
	"inflight/runner/result"
	"inflight/scenarios"
	"inflight/scenarios/rule"
)

// foresee finds rules that cannot match anything of a scenario, before it is run.
func (f *gateFlags) foresee(s *scenarios.Scenario) error {
	if !f.on {
		return nil
	}
	var problems []error
	unlike := slices.ContainsFunc(s.Arms, func(a scenarios.Arm) bool { return a.Client != s.Arms[0].Client }) && f.baseline == ""
	if unlike && len(s.Gate) == 0 {
		problems = append(problems, errors.New("the arms are loaded through different clients: their ratio, which the gate goes by unless rules say otherwise, compares clients, not brokers"))
	}
	for _, text := range s.Gate {
		r, err := rule.Parse(text)
		if err != nil {
			return usage(err)
		}
		matches := r.Kind() == rule.Level
		for _, p := range s.Points() {
			matches = matches || r.Matches(p.QoS, p.Window, p.Connections, p.Payload, p.Rate)
		}
		switch {
		case !matches:
			problems = append(problems, fmt.Errorf("rule %q matches nothing that this run measures", r))
		case r.Ratio && len(s.Arms) < 2 && f.baseline == "":
			problems = append(problems, fmt.Errorf("rule %q matches nothing: a ratio needs a second arm, or a baseline (--baseline)", r))
		case r.Ratio && unlike:
			problems = append(problems, fmt.Errorf("rule %q: the arms are loaded through different clients: their ratio compares clients, not brokers", r))
		case r.Kind() == rule.Level && f.check == "":
			problems = append(problems, fmt.Errorf("rule %q matches nothing: name the directory of an inflight check with --check", r))
		}
	}
	return usage(errors.Join(problems...))
}

// gateRun judges the run that cfg has just made. With --retry it measures what is inconclusive once more and adds that to
// r; the report then counts it. What a rerun that failed had measured is kept.
func (f *gateFlags) gateRun(cmd *cobra.Command, cfg runner.Config, r *result.Result) (*gate.Report, error) {
	rep, err := f.judge(cfg.OutDir, r)
	if err != nil || f.retry == 0 || rep.Outcome != gate.Inconclusive || len(rep.Open()) == 0 {
		return rep, err
	}
	points := rep.Open()
	stderr := cmd.ErrOrStderr()
	fmt.Fprintf(stderr, "inflight: inconclusive at %s: measuring again, once\n", count(len(points), "place"))
	if err := result.Write(cfg.OutDir, r); err != nil {
		return rep, err
	}
	if err := remeasure(cmd.Context(), cfg, r, points, stderr); err != nil {
		return rep, fmt.Errorf("measure again what was inconclusive: %w", err)
	}
	return f.judge(cfg.OutDir, r)
}

// remeasure runs the scenario of cfg at points alone and adds the cells to r as further passes: all blocks count, those of
// the first run and the new ones.
func remeasure(ctx context.Context, cfg runner.Config, r *result.Result, points []stat.Point, talk io.Writer) error {
	type line struct {
		qos, connections, payload, rate int
		ramp, sizes                     string
	}
	var lines []line
	windows := map[line][]int{}
	for _, p := range points {
		l := line{p.QoS, p.Connections, p.Payload, p.Rate, p.Ramp, p.Sizes}
		if windows[l] == nil {
			lines = append(lines, l)
		}
		windows[l] = append(windows[l], p.Window)
	}
	rerun := result.Rerun{Started: time.Now().UTC(), FirstPass: lastPass(r) + 1}
	for _, p := range points {
		rerun.Points = append(rerun.Points, result.Point{QoS: p.QoS, Window: p.Window, Connections: p.Connections, Payload: p.Payload, Rate: p.Rate, Ramp: p.Ramp, Sizes: p.Sizes})
	}
	whole := cfg.OutDir
	for i, l := range lines {
		s := cfg.Scenario
		s.QoS, s.Connections, s.Payloads, s.Windows = []int{l.qos}, []int{l.connections}, []int{l.payload}, windows[l]
		s.Rates, s.Ramps, s.Sizes = []int{l.rate}, nil, nil
		if l.ramp != "" {
			if err := s.Set("rate", l.ramp); err != nil {
				return err
			}
		}
		if l.sizes != "" {
			if err := s.Set("payload", l.sizes); err != nil {
				return err
			}
		}
		below := fmt.Sprintf("rerun-%d", i+1)
		cfg.Scenario, cfg.OutDir = s, filepath.Join(whole, below)
		if err := makeNewDir(cfg.OutDir); err != nil {
			return err
		}
		progress := newProgress(talk, &s)
		cfg.Progress = progress.event
		again, err := runner.Run(ctx, cfg)
		progress.close()
		if again != nil {
			rerun.DurationNS += again.DurationNS
			addPasses(r, again, below)
		}
		if err != nil {
			r.Reruns = append(r.Reruns, rerun)
			err = explain(ctx, err)
			r.Partial, r.Trouble = true, err.Error()
			return err
		}
	}
	r.DurationNS += rerun.DurationNS
	r.Reruns = append(r.Reruns, rerun)
	return nil
}

func lastPass(r *result.Result) int {
	last := 0
	for i := range r.Cells {
		last = max(last, r.Cells[i].Pass)
	}
	return last
}

// addPasses appends the cells of a further run, whose files are below a directory of that of r.
func addPasses(r, again *result.Result, below string) {
	passes, blocks, later := lastPass(r), 0, int64(again.Started.Sub(r.Started))
	for i := range r.Cells {
		for _, b := range r.Cells[i].Blocks {
			blocks = max(blocks, b.Block)
		}
	}
	for _, c := range again.Cells {
		c.Pass += passes
		for i := range c.Blocks {
			c.Blocks[i].Block += blocks
			c.Blocks[i].StartedNS += later
		}
		for i := range c.Samples {
			c.Samples[i].AtNS += later
		}
		if c.Histograms != "" {
			c.Histograms = filepath.ToSlash(filepath.Join(below, c.Histograms))
		}
		r.Cells = append(r.Cells, c)
	}
}

// finish keeps the verdict beside the result and makes it the exit code.
func (f *gateFlags) finish(cmd *cobra.Command, dir string, rep *gate.Report, r *result.Result, format formatFlag) error {
	err := errors.Join(
		writeTo(filepath.Join(dir, gateJSONFile), rep.JSON),
		writeTo(filepath.Join(dir, gateMarkdownFile), rep.Markdown),
	)
	return errors.Join(err, f.publish(cmd, rep, r, func(w io.Writer) error {
		switch format {
		case formatMarkdown:
			_, err := fmt.Fprintln(w)
			return errors.Join(err, rep.Markdown(w))
		case formatTable:
			_, err := fmt.Fprintln(w)
			return errors.Join(err, rep.Table(w))
		}
		return rep.Table(cmd.ErrOrStderr()) // standard output is one document already
	}))
}
