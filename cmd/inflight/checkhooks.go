package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"inflight/runner/check"
	"inflight/runner/hook"
	"inflight/runner/probe"
	"inflight/runner/target"
)

// ownSlot is the slot of the broker that a check may stop: beside the one that it leaves alone.
const ownSlot = 2

// declares takes over what a broker declares.
func declares(cfg *probe.Config, contracts []string) error {
	for _, d := range contracts {
		switch d {
		case hook.OrderedAcks:
			cfg.Ordered = true
		case hook.Durable:
			cfg.Durable = true
		default:
			return usagef("unknown contract %q: want %s", d, strings.Join(hook.Contracts(), " or "))
		}
	}
	return nil
}

// runningHooks gives the check of a broker that is already running what the file says of it.
func runningHooks(cfg *probe.Config, path string) error {
	f, err := hook.Read(path)
	if err != nil {
		return usage(err)
	}
	if err := declares(cfg, f.Declares); err != nil {
		return err
	}
	for i, addr := range f.Nodes {
		if i == 0 && addr != cfg.Endpoint.Addr {
			return usagef("%s: nodes: the first is %s, and has to be that of the target, %s", path, addr, cfg.Endpoint.Addr)
		}
		e := cfg.Endpoint
		e.Addr = addr
		cfg.Nodes = append(cfg.Nodes, e)
	}
	if cfg.Hooks = f.Names(); len(cfg.Hooks) == 0 {
		return nil
	}
	nodes := cfg.Nodes
	if len(nodes) == 0 {
		nodes = []probe.Endpoint{cfg.Endpoint}
	}
	versions := cfg.Versions
	run := func(ctx context.Context, name string, node int) error {
		if err := f.Run(ctx, name, node+1, nodes[node].Addr); err != nil {
			return err
		}
		for i, e := range nodes {
			if mayBeAway := slices.Contains([]string{check.HookKillNode, check.HookStopStore}, name); mayBeAway {
				break
			} else if name == check.HookStartNode && i != node {
				continue
			}
			if err := probe.AwaitReady(ctx, e, versions); err != nil {
				return err
			}
		}
		return nil
	}
	cfg.Shared = true
	cfg.Own = func(ctx context.Context) (*probe.Instance, error) {
		if slices.Contains(cfg.Hooks, check.HookACL) {
			if err := run(ctx, check.HookACL, 0); err != nil {
				return nil, err
			}
		}
		return &probe.Instance{Nodes: nodes, Hook: run, Stop: func() error { return nil }}, nil
	}
	return nil
}

// startedHooks gives a check brokers like the one that was started, to stop and kill, and with rights.
func startedHooks(cfg *probe.Config, spec *target.Spec, options target.Options) {
	cfg.Hooks = []string{check.HookRestart, check.HookKill}
	if nodes, _, err := spec.Topology(0, 0); err == nil && nodes > 1 {
		cfg.Hooks = append(cfg.Hooks, check.HookKillNode, check.HookStartNode)
	}
	if target.CanFailStore() {
		cfg.Hooks = append(cfg.Hooks, check.HookStopStore, check.HookFixStore)
	}
	if spec.Relays(0, 0) {
		cfg.Hooks = append(cfg.Hooks, check.HookSlowStore, check.HookFastStore)
		options.Relayed = true
	}
	if spec.Denies() {
		cfg.Hooks = append(cfg.Hooks, check.HookACL)
		options.Denied = check.Denied
	}
	own := *spec
	own.Params = maps.Clone(spec.Params)
	delete(own.Params, "port") // it is the other one's
	like := cfg.Endpoint
	cfg.Own = func(ctx context.Context) (*probe.Instance, error) {
		program, err := target.Prepare(ctx, &own, options)
		if err != nil {
			return nil, err
		}
		b, err := program.Start(ctx, target.Slot{Number: ownSlot, Dir: filepath.Join(cfg.Dir, "data")}, 0, 0)
		if err != nil {
			return nil, err
		}
		return &probe.Instance{
			Nodes: endpoints(like, b), Died: b.Died(), Why: b.Err, Stop: b.Stop,
			Hook: func(ctx context.Context, name string, node int) error { return strike(ctx, b, name, node) },
		}, nil
	}
}

// endpoints are the nodes of a broker, reached as like is.
func endpoints(like probe.Endpoint, b *target.Broker) []probe.Endpoint {
	var all []probe.Endpoint
	for _, addr := range b.Addrs() {
		e := like
		e.Addr = addr
		all = append(all, e)
	}
	return all
}

// strike does what a hook says to a broker that we have started.
func strike(ctx context.Context, b *target.Broker, name string, node int) error {
	switch name {
	case check.HookRestart:
		return b.Restart(ctx)
	case check.HookKill:
		return b.Kill(ctx)
	case check.HookKillNode:
		return b.KillNode(node)
	case check.HookStartNode:
		return b.StartNode(ctx, node)
	case check.HookStopStore:
		return b.FailStore()
	case check.HookFixStore:
		return b.HealStore(ctx)
	case check.HookSlowStore:
		return b.SlowStore()
	case check.HookFastStore:
		return b.FastStore()
	}
	return fmt.Errorf("there is no hook %s", name)
}

// removeData removes the directory of the brokers' data, which is empty by now.
func removeData(dir string) { _ = os.Remove(filepath.Join(dir, "data")) }
