package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inflight/report/conform"
	"inflight/report/track"
	"inflight/runner/check"
	"inflight/runner/probe"
	"inflight/runner/result"
	"inflight/runner/target"
)

// Defaults of a check.
const (
	checkRounds      = 20
	checkRoundsQuick = 3
	checkTimeout     = 10 * time.Second
	checkParallel    = 12
)

// checkFlags are those of the check command.
type checkFlags struct {
	versions, only, skip []string
	level                choiceValue
	rounds, parallel     int
	seed                 uint64
	quick                bool
	timeout              time.Duration
	list                 bool
	explain              string
	replay               string
	selfTesting          bool
	failOn               choiceValue
	format               choiceValue
	out, junit, expect   string
	declare              []string
	hooks                string
	username             string
	passwordFile         string
	tlsFlags
}

func newCheckCommand() *cobra.Command {
	f := &checkFlags{}
	cmd := &cobra.Command{
		Use:   "check TARGET",
		Short: "Judge whether a broker keeps the specification's promises",
		Long: `Check runs the conformance catalogue against a broker: QoS 1 and QoS 2 in both
directions, resumption, order, subscriptions, malformed input. Each row says
which statement of MQTT 3.1.1 or 5.0 it is about, and how binding it is: must (a
numbered statement, or what follows from some), contract (what the broker
declares beyond it, as ordered acknowledgements), info (what the specification
recommends, or what is only observed).

A row is ok, violated, inconclusive (with the reason) or not applicable (with
the reason). A violation counts only when its control, the same flow without the
fault, is green on the same broker. Each comes with a transcript as text and
Markdown, and a capture for Wireshark.

Client identifiers and topics are unique to the run and removed afterwards, so
that a broker in use can be checked.

` + exitHelp,
		Example: `  inflight check reference
  inflight check tcp://127.0.0.1:1883 --version 5 --only Q2I,RES
  inflight check nats-server@v2.15.3 --quick --junit junit.xml
  inflight check --list --format markdown
  inflight check --explain Q2I-07
  inflight check --replay inflight-results/20260102T150405Z-check`,
		Args: arguments(0, 1, "one target"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.versions, "version", nil, "`LIST` of versions of MQTT, 3.1.1 and 5 (default: what the target speaks)")
	flags.StringSliceVar(&f.only, "only", nil, "`LIST` of groups, ids or patterns to run, as Q2I,RES-0*")
	flags.StringSliceVar(&f.skip, "skip", nil, "`LIST` of groups, ids or patterns to leave out")
	f.level = choiceValue{"info", []string{"must", "contract", "info"}}
	flags.Var(&f.level, "level", "the least binding rules to run: must, contract or info")
	flags.IntVar(&f.rounds, "rounds", checkRounds, "`N` rounds of each racy check (with --quick 3)")
	flags.Uint64Var(&f.seed, "seed", 0, "`N` that the random times come from (default: random, and printed)")
	flags.BoolVar(&f.quick, "quick", false, "fewer rounds and shorter flows; nothing that waits long")
	flags.DurationVar(&f.timeout, "timeout", checkTimeout, "`TIME` that an answer may take; thrice that while other checks run")
	flags.IntVar(&f.parallel, "parallel", checkParallel, "`N` checks at once")
	flags.StringSliceVar(&f.declare, "declare", nil, "`LIST` of contracts that the broker declares: ordered-acks, durable")
	flags.StringVar(&f.hooks, "hooks", "", "`FILE` of what a running broker declares, and of the commands that restart it and so on")
	f.failOn = choiceValue{"must", []string{"must", "contract", "info"}}
	flags.Var(&f.failOn, "fail-on", "what makes the exit code 4: a violated must, contract or info")
	flags.StringVar(&f.expect, "expect", "", "compare with a track record: known faults in `FILE` are to be found, and no others")
	f.format = choiceValue{"table", []string{"table", "json", "markdown", "junit"}}
	flags.Var(&f.format, "format", "what is printed: table, json, markdown or junit")
	flags.StringVar(&f.junit, "junit", "", "also write JUnit XML to `FILE`")
	flags.StringVar(&f.out, "out", "", "where histories and evidence go, a new or empty `DIR` (default inflight-results/TIME-check)")
	flags.BoolVar(&f.list, "list", false, "print the catalogue, as a table, markdown or json")
	flags.StringVar(&f.explain, "explain", "", "print what is known about one rule, by its `ID`, with its script")
	flags.StringVar(&f.replay, "replay", "", "judge the histories in `DIR` again")
	flags.BoolVar(&f.selfTesting, "self-test", false, "plant faults into brokers and see that the rules find them")
	flags.StringVar(&f.username, "username", "", "`NAME` of the user that connects")
	flags.StringVar(&f.passwordFile, "password-file", "", "`FILE` that holds the user's password")
	f.add(flags)
	return cmd
}

func (f *checkFlags) run(cmd *cobra.Command, args []string) error {
	rules, err := f.rules()
	if err != nil {
		return usage(err)
	}
	switch {
	case f.list:
		return listRules(cmd.OutOrStdout(), rules, f.format.value)
	case f.explain != "":
		return explainRule(cmd.OutOrStdout(), f.explain)
	case f.replay != "":
		return f.judgeAgain(cmd)
	case f.selfTesting:
		return f.selfTest(cmd, rules)
	case len(args) == 0:
		return usagef("check takes one target (see: inflight check --help)")
	}
	return f.check(cmd, args[0], rules)
}

// rules are those that the flags choose.
func (f *checkFlags) rules() ([]*check.Rule, error) {
	least := map[string]check.Level{"must": check.Must, "contract": check.Contract, "info": check.Info}[f.level.value]
	all := append(check.Catalogue(), check.AllInvariants()...)
	for _, p := range slices.Concat(f.only, f.skip) {
		if !slices.ContainsFunc(all, func(r *check.Rule) bool { return selects(p, r) }) {
			return nil, fmt.Errorf("no rule is called %q (see: inflight check --list)", p)
		}
	}
	var some []*check.Rule
	for _, r := range all {
		chosen := len(f.only) == 0 || slices.ContainsFunc(f.only, func(p string) bool { return selects(p, r) })
		if chosen && r.Level >= least && !slices.ContainsFunc(f.skip, func(p string) bool { return selects(p, r) }) {
			some = append(some, r)
		}
	}
	switch {
	case len(some) == 0:
		return nil, errors.New("the flags leave no rule to run")
	case !f.list && !slices.ContainsFunc(some, func(r *check.Rule) bool { return r.Script != nil }):
		return nil, errors.New("the invariants are judged on the connections of other rules: choose some of those too")
	}
	return some, nil
}

// selects reports whether a group, an id or a pattern means the rule.
func selects(pattern string, r *check.Rule) bool {
	pattern = strings.ToUpper(strings.TrimSpace(pattern))
	ok, err := filepath.Match(pattern, r.ID)
	return err == nil && ok || pattern == r.Group()
}

// protocolLevels are the versions to check.
func (f *checkFlags) protocolLevels(spec *target.Spec) ([]byte, error) {
	names := f.versions
	if len(names) == 0 {
		if names = spec.Speaks(); len(names) == 0 {
			names = []string{"3.1.1", "5.0"}
		}
	}
	var levels []byte
	for _, name := range names {
		level := byte(0)
		switch strings.TrimPrefix(strings.ToLower(strings.TrimSpace(name)), "v") {
		case "3.1.1", "311", "4":
			level = 4
		case "5", "5.0":
			level = 5
		default:
			return nil, fmt.Errorf("unknown version of MQTT %q: want 3.1.1 or 5", name)
		}
		if !slices.Contains(levels, level) {
			levels = append(levels, level)
		}
	}
	return levels, nil
}

// check runs the rules against a target.
func (f *checkFlags) check(cmd *cobra.Command, name string, rules []*check.Rule) error {
	if f.rounds < 1 || f.parallel < 1 || f.timeout <= 0 {
		return usagef("--rounds, --parallel and --timeout must be above 0")
	}
	if f.quick && !cmd.Flags().Changed("rounds") {
		f.rounds = checkRoundsQuick
	}
	if f.seed == 0 {
		f.seed = rand.Uint64N(1<<32) + 1
	}
	endpoint, spec, err := f.endpoint(name)
	if err != nil {
		return err
	}
	levels, err := f.protocolLevels(spec)
	if err != nil {
		return usage(err)
	}
	cfg := probe.Config{
		Endpoint: endpoint, Target: name, Versions: levels, Rules: rules, Rounds: f.rounds, Parallel: f.parallel, Seed: f.seed, Quick: f.quick,
		Timeout: f.timeout, ToolLabel: "inflight " + toolVersion(),
	}
	if err := declares(&cfg, f.declare); err != nil {
		return err
	}
	switch {
	case f.hooks != "" && spec.Kind != target.KindAddress:
		return usagef("--hooks is for a broker that is already running: %s is started by inflight, which can stop it itself", name)
	case f.hooks != "":
		if err := runningHooks(&cfg, f.hooks); err != nil {
			return err
		}
	}
	var known *track.Record
	if f.expect != "" {
		if known, err = track.Load(f.expect); err != nil {
			return usage(err)
		}
		if _, err := known.Compare(&result.Check{Target: name}); err != nil {
			return usage(fmt.Errorf("%s: %w", f.expect, err))
		}
	}
	if cfg.Dir, err = makeOutDir(f.out, "check", time.Now()); err != nil {
		return err
	}
	c, err := f.runOn(cmd, spec, cfg)
	if c == nil {
		discardOutDir(cfg.Dir)
		return err
	}
	return f.keep(cmd, cfg.Dir, c, known, err)
}

// keep stores, prints and judges a check.
func (f *checkFlags) keep(cmd *cobra.Command, dir string, c *result.Check, known *track.Record, runErr error) error {
	err := errors.Join(result.WriteCheck(dir, c), f.print(cmd.OutOrStdout(), dir, c))
	if f.junit != "" {
		err = errors.Join(err, writeTo(f.junit, func(w io.Writer) error { return conform.JUnit(w, c, transcripts(dir), f.failing()...) }))
	}
	err = errors.Join(err, writeTo(filepath.Join(dir, "check.md"), func(w io.Writer) error { return conform.Markdown(w, c) }))
	fmt.Fprintf(cmd.ErrOrStderr(), "inflight: histories and evidence are in %s\n", dir)
	if known != nil && !c.Partial {
		return errors.Join(runErr, err, f.asRecorded(known, c))
	}
	return errors.Join(runErr, err, f.verdict(c))
}

// asRecorded is the verdict against a track record: a fault that it does not know is a violation, one that is no longer
// found fails the gate.
func (f *checkFlags) asRecorded(known *track.Record, c *result.Check) error {
	differences, err := known.Compare(c)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range differences {
		code := exitGate
		if d.New {
			code = exitConformance
		}
		errs = append(errs, coded(code, errors.New(d.String())))
	}
	if len(errs) == 0 {
		errs = append(errs, undecided(f.undecided(c)))
	}
	return errors.Join(errs...)
}

// writeTo makes a file of what write writes.
func writeTo(path string, write func(io.Writer) error) error {
	var b strings.Builder
	if err := write(&b); err != nil {
		return err
	}
	return result.WriteFile(path, []byte(b.String()))
}

func (f *checkFlags) print(w io.Writer, dir string, c *result.Check) error {
	switch f.format.value {
	case "json":
		return conform.JSON(w, c)
	case "markdown":
		return conform.Markdown(w, c)
	case "junit":
		return conform.JUnit(w, c, transcripts(dir), f.failing()...)
	}
	if terminal := terminalWidth(w); terminal != nil {
		return conform.Table(w, c, terminal(), os.Getenv("NO_COLOR") == "")
	}
	return conform.Table(w, c, logWidth, false)
}

// transcripts reads the evidence below the directory of a check.
func transcripts(dir string) func(string) string {
	return func(path string) string {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		if err != nil {
			return "" // the failure names the file
		}
		return string(data)
	}
}

// failing are the levels whose violation makes the command fail.
func (f *checkFlags) failing() []string {
	all := []string{result.LevelMust, result.LevelContract, result.LevelInfo}
	return all[:slices.Index(all, f.failOn.value)+1]
}

// verdict is what the exit code comes from.
func (f *checkFlags) verdict(c *result.Check) error {
	var bad []string
	for i := range c.Rows {
		if r := &c.Rows[i]; r.Outcome == result.CheckViolated && slices.Contains(f.failing(), r.ViolatedLevel) {
			bad = append(bad, r.ID+" (MQTT "+r.MQTT+")")
		}
	}
	if len(bad) > 0 {
		return coded(exitConformance, fmt.Errorf("violated: %s", some(bad)))
	}
	return undecided(f.undecided(c))
}

// undecided are the rows of the levels that matter that are inconclusive.
func (f *checkFlags) undecided(c *result.Check) (rows []string) {
	for i := range c.Rows {
		if r := &c.Rows[i]; r.Outcome == result.CheckInconclusive && slices.Contains(f.failing(), r.Level) {
			rows = append(rows, r.ID+" (MQTT "+r.MQTT+")")
		}
	}
	return rows
}

func undecided(rows []string) error {
	if len(rows) == 0 {
		return nil
	}
	return coded(exitInconclusive, fmt.Errorf("inconclusive: %s", some(rows)))
}

// some is a list for one line.
func some(all []string) string {
	const most = 8
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
