package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"

	"inflight/broker"
	"inflight/broker/misbehave"
	"inflight/scenarios"
)

// misbehaveFlags are the planted faults of the broker command.
type misbehaveFlags struct {
	faults []string
	known  bool
}

func (m *misbehaveFlags) register(f *pflag.FlagSet) {
	f.StringSliceVar(&m.faults, "misbehave", nil, "`FAULTS` to plant, to test a conformance check (see: inflight check --self-test) or, as slow:10%, a comparison")
	f.BoolVar(&m.known, "i-know-this-is-broken", false, "needed with --misbehave")
}

// check finds what is wrong with the flags.
func (m *misbehaveFlags) check() error {
	if len(m.faults) == 0 {
		return nil
	}
	var names []string
	for _, f := range misbehave.Faults() {
		names = append(names, f.Name)
	}
	for _, name := range m.faults {
		if _, err := misbehave.New(name); err != nil {
			return fmt.Errorf("%w%s", err, scenarios.DidYouMean(name, names))
		}
	}
	if !m.known {
		return errors.New("--misbehave makes a broker that loses, repeats and disorders messages: confirm with --i-know-this-is-broken")
	}
	return nil
}

// serve runs a broker with the faults on its plain listener until ctx ends.
func (m *misbehaveFlags) serve(ctx context.Context, cfg broker.Config) error {
	set, err := misbehave.New(m.faults...)
	if err != nil {
		return err
	}
	if cfg.Listen == "" {
		return usagef("--misbehave needs a plain listener (--listen)")
	}
	host, _, err := net.SplitHostPort(cfg.Listen)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return usagef("--misbehave listens on a loopback address only, not on %q", cfg.Listen)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return err
	}
	defer l.Close()
	if set.ACLIgnored() {
		cfg.ACLFile = ""
	}
	log := cfg.Log
	cfg.Listen, cfg.NoListener = "", true
	cfg.AllowAnonymous = cfg.AllowAnonymous || cfg.PasswordFile == "" // as on any loopback listener
	server, err := broker.Open(ctx, cfg)
	if err != nil {
		return err
	}
	log.Warn("this broker is broken on purpose", "misbehave", m.faults, "mqtt", l.Addr().String())
	served := make(chan error, 1)
	go func() { served <- set.Serve(l, server.ServeConn) }()
	<-ctx.Done()
	_ = l.Close()
	server.Shutdown()
	<-served
	return nil
}
