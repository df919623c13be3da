package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inflight/report"
	"inflight/report/stat"
	"inflight/runner"
	"inflight/runner/result"
	"inflight/runner/target"
	"inflight/scenarios"
)

// measure runs base with the flags' changes, stores and renders the result, and prints it. What was measured before
// trouble is stored, rendered and printed too.
func measure(cmd *cobra.Command, flags *runFlags, base scenarios.Scenario) error {
	s, err := flags.apply(base)
	if err != nil {
		return err
	}
	if err := errors.Join(checkTargets(&s), flags.gate.foresee(&s)); err != nil {
		return err
	}
	secure, err := flags.configOf(&s)
	if err != nil {
		return usage(err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which is also the reference broker: %w", err)
	}
	dir, err := makeOutDir(flags.out, s.Name, time.Now())
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	progress := newProgress(stderr, &s)
	ctx := cmd.Context()
	cfg := runner.Config{
		Scenario:    s,
		Self:        self,
		OutDir:      dir,
		CacheDir:    cacheDir(dir),
		TLS:         secure,
		Progress:    progress.event,
		ToolVersion: toolVersion(),
		Calibration: quote(ctx, cacheDir(dir), &s, stderr),
	}
	r, runErr := runner.Run(ctx, cfg)
	progress.close()
	runErr = explain(ctx, runErr)
	if r == nil {
		if refused := (*runner.RefusedError)(nil); errors.As(runErr, &refused) {
			runErr = usage(runErr)
			discardLogs(dir)
		}
		discardOutDir(dir)
		return runErr
	}
	if runErr != nil {
		// The lines of a broker's log that follow are in its log, too.
		trouble, _, _ := strings.Cut(runErr.Error(), "\n")
		r.Partial, r.Trouble = true, strings.TrimSuffix(trouble, ":")
	}
	stat.Judge(r)
	if !flags.gate.on || runErr != nil { // a run that did not end is not judged
		err = keep(cmd, dir, r, flags.format)
		if errors.Is(runErr, result.ErrNoSpace) && errors.Is(err, result.ErrNoSpace) {
			runErr = nil // one message is enough, and that the result is not there is the worse news
		}
		return errors.Join(runErr, err, verdict(r))
	}
	rep, gateErr := flags.gate.gateRun(cmd, cfg, r)
	err = errors.Join(keep(cmd, dir, r, flags.format), gateErr)
	if rep != nil && gateErr == nil {
		err = errors.Join(err, flags.gate.finish(cmd, dir, rep, r, flags.format))
	}
	return errors.Join(err, verdict(r))
}

// checkTargets finds what is wrong with the target strings before anything is built or started.
func checkTargets(s *scenarios.Scenario) error {
	var problems []error
	for i, arm := range s.Arms {
		if slices.ContainsFunc(s.Arms[:i], func(a scenarios.Arm) bool { return a.Target == arm.Target }) {
			continue // what is wrong with it has been said
		}
		spec, err := target.Parse(arm.Target)
		if err == nil {
			_, _, err = spec.Topology(s.Nodes, s.Replicas)
		}
		if err == nil {
			err = speaks(spec, s.Version, arm.Client)
		}
		if err != nil {
			problems = append(problems, err)
		}
	}
	if err := runner.CheckLimits(s); err != nil {
		problems = append(problems, err)
	}
	if _, err := runner.EnvironmentOf(s); err != nil {
		problems = append(problems, err)
	}
	return usage(errors.Join(problems...))
}

// speaks says when a target declares that it does not speak the version of MQTT that a client has, where version is asked
// for; of an address nothing is known yet.
func speaks(spec *target.Spec, version, client string) error {
	want, why := scenarios.ClientVersion(client, version), "version"
	if want != version {
		why = "client " + client + " speaks no other"
	}
	if want == scenarios.MQTT5 {
		want = "5.0"
	}
	if known := spec.Speaks(); known != nil && !slices.Contains(known, want) {
		return fmt.Errorf("target %q speaks MQTT %s, not %s (%s)", spec.Raw, strings.Join(known, " and "), want, why)
	}
	return nil
}

// cacheDir is where built brokers are kept between runs. A system without such a place keeps them with the result, and
// builds again the next time.
func cacheDir(out string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return filepath.Join(out, "cache")
	}
	return filepath.Join(dir, "inflight")
}

// explain words the end of a run for the user: a signal is the reason for whatever failed because of it.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var s *signalError
	if errors.As(context.Cause(ctx), &s) {
		return s
	}
	return diskHint(err)
}

// keep stores the result, renders it, prints it, and says where it is.
func keep(cmd *cobra.Command, dir string, r *result.Result, format formatFlag) error {
	stderr := cmd.ErrOrStderr()
	if err := result.Write(dir, r); err != nil {
		// The numbers are still worth printing: the run may have taken an hour.
		return errors.Join(err, printResult(cmd.OutOrStdout(), r, format))
	}
	if len(r.Cells) == 0 {
		fmt.Fprintf(stderr, "inflight: nothing was measured; what the brokers printed is in %s\n", filepath.Join(dir, "logs"))
		return nil
	}
	renderErr := report.WriteDir(dir)
	printErr := printResult(cmd.OutOrStdout(), r, format)
	switch {
	case r.Partial:
		fmt.Fprintf(stderr, "inflight: what was measured is kept, marked partial: %s\n", dir)
	case renderErr == nil:
		fmt.Fprintf(stderr, "inflight: the report is %s\n", filepath.Join(dir, "report.html"))
	}
	return errors.Join(renderErr, printErr)
}

// verdict is the conformance part of the exit code.
func verdict(r *result.Result) error {
	incorrect := 0
	first := ""
	for i := range r.Cells {
		c := &r.Cells[i]
		if !c.Incorrect() {
			continue
		}
		incorrect++
		if first == "" {
			first = fault(c)
		}
	}
	if incorrect == 0 {
		return nil
	}
	return coded(exitConformance, fmt.Errorf("%s incorrect, the numbers are struck out: %s", are(incorrect, "cell"), first))
}

// fault says in words what is wrong with an incorrect cell.
func fault(c *result.Cell) string {
	where := fmt.Sprintf("arm %s, pass %d, QoS %d, window %d: ", c.Arm, c.Pass, c.QoS, c.Window)
	if c.Order.Violations > 0 {
		return where + fmt.Sprintf("%s out of order (%s)", count(int(c.Order.Violations), "acknowledgement"), c.Order.First)
	}
	l := c.Ledger
	text := fmt.Sprintf("%d lost, %d duplicated, %d reordered, %d corrupt", l.Lost, l.Duplicated, l.Reordered, l.Corrupt)
	if l.First != "" {
		text += " (" + l.First + ")"
	}
	return where + text
}

func are(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return fmt.Sprintf("%d %ss are", n, noun)
}
