package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
	selfTestBrokers = 10
	selfTestTimeout = time.Second
	selfTestRounds  = 2
	selfTestReady   = 30 * time.Second
)

// planted is one fault and the rules that say that they find it.
type planted struct {
	fault misbehave.Fault
	rules []*check.Rule

	caught map[string]bool // by rule id
	unsure []string
	err    error
}

// selfTest plants each fault into a broker of its own and runs the rules that say that they find it.
func (f *checkFlags) selfTest(cmd *cobra.Command, rules []*check.Rule) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which is also the broken broker: %w", err)
	}
	var all []*planted
	for _, fault := range misbehave.Faults() {
		p := &planted{fault: fault, caught: map[string]bool{}}
		for _, r := range rules {
			if slices.Contains(r.Faults, fault.Name) {
				p.rules = append(p.rules, r)
			}
		}
		if len(p.rules) > 0 {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return usagef("no chosen rule has a planted fault")
	}
	var group errgroup.Group
	group.SetLimit(selfTestBrokers)
	var mu sync.Mutex
	for _, p := range all {
		group.Go(func() error {
			p.err = f.plant(cmd.Context(), self, p)
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", p.fault.Name, p.words())
			return nil
		})
	}
	_ = group.Wait()
	if cmd.Context().Err() != nil {
		return explain(cmd.Context(), cmd.Context().Err())
	}
	return reportSelfTest(cmd.OutOrStdout(), all)
}

// words is the outcome of one fault.
func (p *planted) words() string {
	if p.err != nil {
		return p.err.Error()
	}
	return fmt.Sprintf("found by %d of %d rules", len(p.caught), len(p.rules))
}

// plant starts a broker with the fault and runs the rules.
func (f *checkFlags) plant(ctx context.Context, self string, p *planted) error {
	addr, stop, err := startBroken(ctx, self, p.fault.Name)
	if err != nil {
		return err
	}
	defer stop()
	rules := slices.Clone(p.rules)
	for _, id := range []string{"A1-01", "Q2I-01", "Q2O-01"} { // something for the invariants to look at
		if r := check.ByID(id); !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	cfg := probe.Config{
		Endpoint: probe.Endpoint{Addr: addr}, Target: p.fault.Name, Versions: []byte{4, 5}, Rules: rules, Rounds: selfTestRounds, Parallel: 4,
		Seed: max(f.seed, 1), Quick: true, Timeout: selfTestTimeout, Ordered: true, ToolLabel: "inflight " + toolVersion(),
	}
	if p.fault.Only == "5.0" {
		cfg.Versions = []byte{5}
	}
	c, err := probe.Run(ctx, cfg)
	for i := range c.Rows {
		r := &c.Rows[i]
		if !slices.ContainsFunc(p.rules, func(own *check.Rule) bool { return own.ID == r.ID }) {
			continue
		}
		switch r.Outcome {
		case result.CheckViolated:
			p.caught[r.ID] = true
		case result.CheckInconclusive:
			p.unsure = append(p.unsure, fmt.Sprintf("%s (MQTT %s): %s", r.ID, r.MQTT, r.Why))
		}
	}
	return err
}

// startBroken starts a broker with a fault on a free loopback port and returns its address.
func startBroken(ctx context.Context, self, fault string) (addr string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	c := exec.CommandContext(ctx, self, "broker", "--store=memory", "--listen=127.0.0.1:0", "--misbehave="+fault, "--i-know-this-is-broken", "--log-format=text")
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

// reportSelfTest prints the matrix of rules and faults. It is an error when a rule found none of its faults, or a fault was
// found by none of its rules.
func reportSelfTest(w io.Writer, all []*planted) error {
	found, total := map[string][]string{}, map[string][]string{}
	var order, missed []string
	var errs []error
	for _, p := range all {
		if p.err != nil {
			errs = append(errs, p.err)
		}
		if len(p.caught) == 0 {
			missed = append(missed, "the fault "+p.fault.Name)
		}
		for _, r := range p.rules {
			if total[r.ID] == nil {
				order = append(order, r.ID)
			}
			total[r.ID] = append(total[r.ID], p.fault.Name)
			if p.caught[r.ID] {
				found[r.ID] = append(found[r.ID], p.fault.Name)
			}
		}
	}
	slices.Sort(order)
	for _, id := range order {
		var parts []string
		for _, name := range total[id] {
			if slices.Contains(found[id], name) {
				parts = append(parts, name)
			} else {
				parts = append(parts, "("+name+")")
			}
		}
		if len(found[id]) == 0 {
			missed = append(missed, "the rule "+id)
		}
		fmt.Fprintf(w, "%-11s %d of %d  %s\n", id, len(found[id]), len(total[id]), strings.Join(parts, " "))
	}
	fmt.Fprintf(w, "%d faults, %d rules; in parentheses: not found by that rule\n", len(all), len(order))
	if len(missed) > 0 {
		errs = append(errs, coded(exitGate, fmt.Errorf("nothing was found of, or by: %s", strings.Join(missed, ", "))))
	}
	return errors.Join(errs...)
}
