package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"inflight/runner/check"
	"inflight/runner/probe"
	"inflight/runner/target"
)

// Times of the rules that need processes. One that waits for what a failing store does must wait longer than the ten seconds
// after which the reference broker gives it up: four times as long as for an answer.
const (
	processTimeout = 2 * time.Second
	slowTimeout    = 4 * time.Second
)

// needsProcess reports whether a rule needs a broker with a store and processes of its own.
func needsProcess(r *check.Rule) bool {
	return r.Hooked() || slices.Contains(r.Needs, check.Durable) || slices.Contains(r.Needs, check.Cluster)
}

// plantProcesses plants the fault into brokers that are started, stopped and killed, with a store on disk, and runs the
// rules that need them, in the newest version: one of a single process, and a cluster for the rules that need one.
func (f *checkFlags) plantProcesses(ctx context.Context, self string, p *planted) error {
	var quick, slow, clustered []*check.Rule
	for _, r := range p.rules {
		switch {
		case !needsProcess(r):
		case slices.Contains(r.Needs, check.Cluster):
			clustered = append(clustered, r)
		case r.Slow:
			slow = append(slow, r)
		default:
			quick = append(quick, r)
		}
	}
	return errors.Join(
		f.plantInto(ctx, self, "reference", p, quick, processTimeout),
		f.plantInto(ctx, self, "reference", p, slow, slowTimeout),
		f.plantInto(ctx, self, "reference?nodes=3", p, clustered, slowTimeout),
	)
}

func (f *checkFlags) plantInto(ctx context.Context, self, name string, p *planted, rules []*check.Rule, timeout time.Duration) (err error) {
	if len(rules) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "inflight-selftest-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	spec, err := target.Parse(name)
	if err != nil {
		return err
	}
	options := target.Options{Self: self, LogDir: filepath.Join(dir, "logs")}
	if !p.clean() {
		options.Args = []string{"--misbehave=" + p.fault.Name, "--i-know-this-is-broken"}
	}
	program, err := target.Prepare(ctx, spec, options)
	if err != nil {
		return err
	}
	broker, err := program.Start(ctx, target.Slot{Number: 1, Dir: filepath.Join(dir, "data")}, 0, 0)
	if err != nil {
		return err
	}
	cfg := f.selfTestConfig(p, rules)
	cfg.Dir, cfg.Endpoint, cfg.Timeout, cfg.Durable = dir, probe.Endpoint{Addr: broker.Addrs()[0]}, timeout, true
	cfg.Versions, cfg.Quick = []byte{5}, !rules[0].Slow
	if p.clean() {
		cfg.Timeout = f.timeout // nothing is waited for in vain
	}
	if broker.Nodes() > 1 {
		cfg.Nodes = endpoints(cfg.Endpoint, broker)
	}
	startedHooks(&cfg, spec, options)
	c, err := probe.Run(ctx, cfg)
	p.take(c)
	return errors.Join(err, broker.Stop())
}
