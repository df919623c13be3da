package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inflight/report/gate"
	"inflight/report/hist"
	"inflight/report/stat"
	"inflight/runner/result"
	"inflight/scenarios/rule"
)

// gateFlags say what a gate judges by, and where its verdict goes.
type gateFlags struct {
	rules     []string
	baseline  string
	check     string
	unsure    choiceValue
	junit     string
	badge     string
	benchmark string
	retry     int  // of a measuring command
	on        bool // --gate of a measuring command
}

// What --inconclusive takes.
const (
	unsureOpen = "exit"
	unsurePass = "pass"
	unsureFail = "fail"
)

// add puts the flags on cmd. A measuring command gates only with --gate.
func (f *gateFlags) add(flags *pflag.FlagSet, measures bool) {
	f.unsure = choiceValue{unsureOpen, []string{unsureOpen, unsurePass, unsureFail}}
	if measures {
		flags.BoolVar(&f.on, "gate", false, "judge the run by rules: exit code 3, 4 or 5 when it does not pass (see: inflight gate --help)")
	}
	flags.StringArrayVar(&f.rules, "rule", nil, "a `RULE` of the gate in place of the scenario's, as 'throughput >= 0.9x at qos=2'; may be repeated")
	flags.StringVar(&f.baseline, "baseline", "", "compare with the result in `DIR` instead of with the first arm")
	flags.StringVar(&f.check, "check", "", "directory `DIR` of an inflight check, for conformance rules")
	flags.Var(&f.unsure, "inconclusive", "what an inconclusive rule counts as: pass, fail, or exit (code 5)")
	if measures {
		flags.IntVar(&f.retry, "retry", 0, "measure what was inconclusive again, `N` times: 0 or 1")
	}
	flags.StringVar(&f.junit, "junit", "", "also write the verdicts as JUnit XML to `FILE`")
	flags.StringVar(&f.badge, "badge", "", "also write a badge (SVG) to `FILE`")
	flags.StringVar(&f.benchmark, "benchmark-json", "", "also write bigger.json and smaller.json for github-action-benchmark to `DIR`")
}

// validate finds what is wrong before anything is measured.
func (f *gateFlags) validate(flags *pflag.FlagSet, measures bool) error {
	if measures && !f.on {
		for _, name := range []string{"rule", "baseline", "check", "inconclusive", "retry", "junit", "badge", "benchmark-json"} {
			if flags.Changed(name) {
				return usagef("--%s is for a gate: add --gate", name)
			}
		}
		return nil
	}
	if f.retry < 0 || f.retry > 1 {
		return usagef("--retry %d: 0 or 1; measuring until it passes is no measurement", f.retry)
	}
	var problems []error
	for _, text := range f.rules {
		_, err := rule.Parse(text)
		problems = append(problems, err)
	}
	if f.baseline != "" {
		_, err := result.Read(f.baseline)
		problems = append(problems, err)
	}
	if f.check != "" {
		_, err := result.ReadCheck(f.check)
		problems = append(problems, err)
	}
	return usage(errors.Join(problems...))
}

func (f *gateFlags) counts() gate.Unsure {
	switch f.unsure.value {
	case unsurePass:
		return gate.CountsPass
	case unsureFail:
		return gate.CountsFail
	}
	return gate.Open
}

// judge applies the rules to a result, which may be nil, of the run in dir.
func (f *gateFlags) judge(dir string, r *result.Result) (*gate.Report, error) {
	in := gate.Input{Result: r, Rules: f.rules, Percentile: hist.Open(dir).Percentile}
	if f.baseline != "" {
		old, err := result.Read(f.baseline)
		if err != nil {
			return nil, fmt.Errorf("the baseline: %w", err)
		}
		stat.Judge(old)
		in.Baseline, in.BaselinePercentile = old, hist.Open(f.baseline).Percentile
	}
	check := f.check
	if check == "" {
		if _, err := os.Stat(filepath.Join(dir, result.CheckFile)); err == nil {
			check = dir
		}
	}
	if check != "" {
		c, err := result.ReadCheck(check)
		if err != nil {
			return nil, err
		}
		in.Check = c
	}
	if r != nil {
		stat.Judge(r)
	}
	rep, err := gate.Judge(in)
	return rep, usage(err)
}

// The files that a gate leaves in the directory of the run.
const (
	gateJSONFile     = "gate.json"
	gateMarkdownFile = "gate.md"
)

// publish writes the verdict everywhere where it was asked for, and returns it as an error with its exit code.
func (f *gateFlags) publish(cmd *cobra.Command, rep *gate.Report, r *result.Result, show func(io.Writer) error) error {
	counts := f.counts()
	problems := []error{show(cmd.OutOrStdout())}
	if f.junit != "" {
		problems = append(problems, writeTo(f.junit, func(w io.Writer) error { return rep.JUnit(w, counts) }))
	}
	if f.badge != "" {
		problems = append(problems, writeTo(f.badge, rep.Badge))
	}
	if f.benchmark != "" && r != nil {
		problems = append(problems, writeBenchmarks(f.benchmark, r))
	}
	problems = append(problems, onGitHub(cmd.ErrOrStderr(), rep, counts))
	return errors.Join(errors.Join(problems...), f.verdict(rep))
}

func writeBenchmarks(dir string, r *result.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of --benchmark-json: %w", err)
	}
	bigger, smaller := gate.Benchmarks(r)
	return errors.Join(
		writeTo(filepath.Join(dir, "bigger.json"), func(w io.Writer) error { return gate.WriteBenchmarks(w, bigger) }),
		writeTo(filepath.Join(dir, "smaller.json"), func(w io.Writer) error { return gate.WriteBenchmarks(w, smaller) }),
	)
}

// onGitHub annotates the job and adds to its summary when this is one. A runner reads workflow commands from both streams.
func onGitHub(stderr io.Writer, rep *gate.Report, counts gate.Unsure) error {
	if os.Getenv("GITHUB_ACTIONS") != "true" {
		return nil
	}
	err := rep.Annotations(stderr, counts)
	path := os.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return err
	}
	summary, openErr := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if openErr != nil {
		return errors.Join(err, fmt.Errorf("add to the step summary: %w", openErr))
	}
	return errors.Join(err, rep.Markdown(summary), summary.Close())
}

// verdict is the exit code with the one line that says why.
func (f *gateFlags) verdict(rep *gate.Report) error {
	switch {
	case rep.Broken:
		return coded(exitConformance, fmt.Errorf("gate failed: %s", rep.Summary()))
	case rep.Outcome == gate.Fail:
		return coded(exitGate, fmt.Errorf("gate failed: %s", rep.Summary()))
	case rep.Outcome == gate.Inconclusive && f.counts() == gate.CountsFail:
		return coded(exitGate, fmt.Errorf("gate failed, because it is inconclusive: %s", rep.Summary()))
	case rep.Outcome == gate.Inconclusive && f.counts() == gate.Open:
		return coded(exitInconclusive, fmt.Errorf("gate inconclusive: %s", rep.Summary()))
	}
	return nil
}

func newGateCommand() *cobra.Command {
	f := &gateFlags{}
	format := choiceValue{"table", []string{"table", "markdown", "json", "junit"}}
	cmd := &cobra.Command{
		Use:   "gate DIR | gate --baseline OLD NEW",
		Short: "Pass or fail a run by rules, for CI",
		Long: `Gate judges the result in DIR by rules and measures nothing. A ratio is of an
arm over the first arm of the same run, or over a stored result (--baseline). To
judge a change, run base and head in one job: inflight compare --gate A B.

Rules are the scenario's gate section, or --rule:
  throughput >= 1x effect 20%     fails when a fifth or more is lost for certain
  ack-service.p99 <= 1.5x at qos=2 window=20,256
  end-to-end.p99 <= 20ms          an x is a ratio, a unit an absolute limit
  rss <= 1.2x    cpu <= 1.2x      memory; broker CPU time per message
  exactly-once   ordering         judged always, whether asked or not
  conformance must                of a check.json in DIR, or --check DIR
Latencies are ack-service, ack-response, publish-to-pubrec, pubrel-to-pubcomp
and end-to-end, each with .max, .mean and every percentile, as .p50, .p99.5 or
.p999 (99.9); p99 alone is ack-service.p99. The keys of at are qos, window,
connections, payload and rate (max: a closed loop). Without any rule it is
'throughput >= 1x effect 20%'.

A rule fails only when the whole 95 % interval is beyond the limit by more than
the QoS 0 control's spread, and the estimate by the effect; it passes when no
loss beyond the effect is left in the interval; else it is inconclusive. What
has no blocks (percentiles but the p99, rss, cpu) has the range of the passes in
place of an interval. Between unlike machines only throughputs divided by their
own control are compared.

Exit codes: 0 passed, 3 failed, 4 a broker broke order, exactly once or a
conformance rule, 5 inconclusive. With GITHUB_ACTIONS=true it annotates the job
and adds to its step summary.`,
		Example: `  inflight gate inflight-results/20260102T150405Z-compare
  inflight gate --baseline main-result head-result --rule 'throughput >= 0.8x' --junit gate.xml
  inflight compare --gate 'reference?binary=/tmp/base' 'reference?binary=/tmp/head' --quick --retry 1`,
		Args: arguments(1, 1, "one directory"),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	f.add(flags, false)
	flags.Var(&format, "format", "what is printed: table, markdown, json or junit")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.validate(flags, false); err != nil {
			return err
		}
		dir := args[0]
		r, err := result.Read(dir)
		if err != nil {
			_, checkErr := os.Stat(filepath.Join(dir, result.CheckFile))
			if !errors.Is(err, fs.ErrNotExist) || checkErr != nil {
				return err
			}
			r = nil // the directory of a conformance check is judged by conformance alone
		}
		rep, err := f.judge(dir, r)
		if err != nil {
			return err
		}
		return f.publish(cmd, rep, r, func(w io.Writer) error {
			switch format.value {
			case "markdown":
				return rep.Markdown(w)
			case "json":
				return rep.JSON(w)
			case "junit":
				return rep.JUnit(w, f.counts())
			}
			return rep.Table(w)
		})
	}
	return cmd
}
