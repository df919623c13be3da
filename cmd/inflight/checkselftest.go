package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"inflight/broker/misbehave"
	"inflight/runner/check"
	"inflight/runner/probe"
	"inflight/runner/result"
)

// How a self-test runs: several broken brokers at once, and an answer that does not come is not waited for long.
const (
	selfTestBrokers  = 16 // they mostly wait
	selfTestParallel = 8
	selfTestTimeout  = time.Second
	selfTestRounds   = 4
	selfTestReady    = 30 * time.Second

	selfTestProcesses = 3 // at once of those that are stopped and started: they use the machine
)

// planted is one fault and the rules that say that they find it; without a name, no fault and all those rules.
type planted struct {
	fault misbehave.Fault
	rules []*check.Rule

	found, ran map[string][]string // the versions of MQTT by rule id
	alarms     []string            // what was not ok without a fault
	parts      int                 // that are to be run
	err        error
}

// selfTest plants each fault into a broker of its own and runs the rules that say that they find it, and all of them on a
// broker without a fault, where they must find nothing.
func (f *checkFlags) selfTest(cmd *cobra.Command, rules []*check.Rule) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which is also the broken broker: %w", err)
	}
	all := plantings(rules)
	if len(all) == 0 {
		return usagef("no chosen rule has a planted fault")
	}
	var mu sync.Mutex
	for _, part := range []struct {
		brokers int
		plant   func(context.Context, string, *planted) error
	}{{selfTestBrokers, f.plant}, {selfTestProcesses, f.plantProcesses}} {
		var group errgroup.Group
		group.SetLimit(part.brokers)
		for _, p := range all {
			group.Go(func() error {
				if p.parts == 0 {
					return nil
				}
				p.err = errors.Join(p.err, part.plant(cmd.Context(), self, p))
				if p.parts--; p.parts > 0 {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", p.name(), p.words())
				return nil
			})
		}
		_ = group.Wait()
		if cmd.Context().Err() != nil {
			return explain(cmd.Context(), cmd.Context().Err())
		}
	}
	out := cmd.OutOrStdout()
	if f.format.value == "markdown" {
		faultTable(out, all)
	} else {
		ruleTable(out, all)
	}
	return judgeSelfTest(all)
}

// plantings are the faults that the rules name, each with its rules, and before them the broker without a fault.
func plantings(rules []*check.Rule) []*planted {
	clean := newPlanted(misbehave.Fault{})
	for _, r := range rules {
		if len(r.Faults) > 0 {
			clean.rules = append(clean.rules, r)
		}
	}
	if len(clean.rules) == 0 {
		return nil
	}
	all := []*planted{clean}
	for _, fault := range misbehave.Faults() {
		p := newPlanted(fault)
		for _, r := range clean.rules {
			if slices.Contains(r.Faults, fault.Name) {
				p.rules = append(p.rules, r)
			}
		}
		if len(p.rules) > 0 {
			all = append(all, p)
		}
	}
	for _, p := range all {
		if slices.ContainsFunc(p.rules, needsProcess) {
			p.parts = 2
		}
	}
	return all
}

func newPlanted(fault misbehave.Fault) *planted {
	return &planted{fault: fault, parts: 1, found: map[string][]string{}, ran: map[string][]string{}}
}

func (p *planted) clean() bool { return p.fault.Name == "" }

func (p *planted) name() string {
	if p.clean() {
		return "no fault"
	}
	return p.fault.Name
}

// words is the outcome of one fault.
func (p *planted) words() string {
	switch {
	case p.err != nil:
		return p.err.Error()
	case p.clean() && len(p.alarms) == 0:
		return fmt.Sprintf("%d rules, nothing found", len(p.rules))
	case p.clean():
		return "found: " + some(p.alarms)
	}
	n := 0
	for _, r := range p.rules {
		if len(p.found[r.ID]) > 0 {
			n++
		}
	}
	return fmt.Sprintf("found by %d of %d rules", n, len(p.rules))
}

// plant starts a broker with the fault, in memory, and runs the rules that need no more.
func (f *checkFlags) plant(ctx context.Context, self string, p *planted) error {
	rules := slices.DeleteFunc(slices.Clone(p.rules), needsProcess)
	if len(rules) == 0 {
		return nil
	}
	addr, stop, err := startBroken(ctx, self, p.fault.Name)
	if err != nil {
		return err
	}
	defer stop()
	for _, id := range []string{"A1-01", "Q2I-01", "Q2O-01"} { // something for the invariants to look at
		if r := check.ByID(id); !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	cfg := f.selfTestConfig(p, rules)
	cfg.Endpoint = probe.Endpoint{Addr: addr}
	if p.clean() {
		cfg.Timeout = f.timeout // nothing is waited for in vain
	}
	c, err := probe.Run(ctx, cfg)
	p.take(c)
	return err
}

func (f *checkFlags) selfTestConfig(p *planted, rules []*check.Rule) probe.Config {
	cfg := probe.Config{
		Target: p.name(), Versions: []byte{4, 5}, Rules: rules, Rounds: selfTestRounds, Parallel: selfTestParallel,
		Seed: max(f.seed, 1), Quick: true, Timeout: selfTestTimeout, Ordered: true, ToolLabel: "inflight " + toolVersion(),
	}
	if p.fault.Only == "5.0" {
		cfg.Versions = []byte{5}
	}
	return cfg
}

// take notes which of the rules found something.
func (p *planted) take(c *result.Check) {
	for i := range c.Rows {
		r := &c.Rows[i]
		if p.clean() && r.Outcome != result.CheckOK && r.Outcome != result.CheckNotApplicable {
			p.alarms = append(p.alarms, fmt.Sprintf("%s (MQTT %s) %s %s", r.ID, r.MQTT, r.Outcome, r.Why))
		}
		if r.Outcome == result.CheckNotApplicable {
			continue
		}
		p.ran[r.ID] = append(p.ran[r.ID], r.MQTT)
		if r.Outcome == result.CheckViolated {
			p.found[r.ID] = append(p.found[r.ID], r.MQTT)
		}
	}
}

// startBroken starts a broker with a fault, or without one, on a free loopback port and returns its address.
func startBroken(ctx context.Context, self, fault string) (addr string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	args := []string{"broker", "--store=memory", "--listen=127.0.0.1:0", "--log-format=text"}
	if fault != "" {
		args = append(args, "--misbehave="+fault, "--i-know-this-is-broken")
	}
	c := exec.CommandContext(ctx, self, args...)
	c.WaitDelay = 5 * time.Second
	logs, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("start a broker with the fault %s: %w", fault, err)
	}
	found := make(chan string, 1)
	var lines []string
	go func() {
		defer close(found)
		scan := bufio.NewScanner(logs)
		for scan.Scan() {
			if lines = append(lines, scan.Text()); len(lines) > 5 {
				lines = lines[1:]
			}
			if _, rest, ok := strings.Cut(scan.Text(), "mqtt="); ok {
				addr, _, _ := strings.Cut(rest, " ")
				if _, _, err := net.SplitHostPort(addr); err == nil {
					found <- addr
					break
				}
			}
		}
		_, _ = io.Copy(io.Discard, logs)
	}()
	stop = func() {
		cancel()
		_ = c.Wait()
	}
	select {
	case addr, ok := <-found:
		if ok {
			return addr, stop, nil
		}
		err = fmt.Errorf("the broker with the fault %s did not start: %s", fault, strings.Join(lines, "; "))
	case <-time.After(selfTestReady):
		err = fmt.Errorf("the broker with the fault %s was not ready after %v", fault, selfTestReady)
	case <-ctx.Done():
		err = ctx.Err()
	}
	stop()
	return "", nil, err
}

// ruleTable prints for each rule the faults that it is to find; those that it did not find stand in parentheses.
func ruleTable(w io.Writer, all []*planted) {
	total, found := map[string][]string{}, map[string]int{}
	for _, p := range all[1:] {
		for _, r := range p.rules {
			name := p.fault.Name
			switch n := len(p.found[r.ID]); {
			case n == 0:
				name = "(" + name + ")"
			case n < len(p.ran[r.ID]):
				name += " in " + strings.Join(p.found[r.ID], ", ")
				found[r.ID]++
			default:
				found[r.ID]++
			}
			total[r.ID] = append(total[r.ID], name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(total)) {
		fmt.Fprintf(w, "%-11s %d of %d  %s\n", id, found[id], len(total[id]), strings.Join(total[id], " "))
	}
	fmt.Fprintf(w, "%d faults, %d rules; in parentheses: not found by that rule; without a fault: %s\n", len(all)-1, len(total), all[0].words())
}

// faultTable prints for each fault the rules that found it, as Markdown.
func faultTable(w io.Writer, all []*planted) {
	fmt.Fprintf(w, "| fault | the broker | found by |\n|---|---|---|\n")
	for _, p := range all[1:] {
		var ids []string
		for _, r := range p.rules {
			if len(p.found[r.ID]) > 0 {
				ids = append(ids, r.ID)
			}
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", p.fault.Name, p.fault.Text, strings.Join(ids, " "))
	}
}

// judgeSelfTest is an error when a rule did not find a fault that it is to find, or found something where there is none. A
// fault that shows in a race may be missed in one of the versions: the table says so.
func judgeSelfTest(all []*planted) error {
	var errs []error
	var missed []string
	for _, p := range all {
		if p.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name(), p.err))
			continue
		}
		if len(p.alarms) > 0 {
			errs = append(errs, coded(exitGate, fmt.Errorf("on a broker without a fault: %s", some(p.alarms))))
		}
		for _, r := range p.rules {
			if !p.clean() && len(p.found[r.ID]) == 0 {
				missed = append(missed, r.ID+" does not find "+p.fault.Name)
			}
		}
	}
	if len(missed) > 0 {
		errs = append(errs, coded(exitGate, errors.New(some(missed))))
	}
	return errors.Join(errs...)
}
