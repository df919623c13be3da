package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inflight/runner/probe"
	"inflight/runner/result"
	"inflight/runner/target"
	"inflight/scenarios"
)

// endpoint finds out what the target string names.
func (f *checkFlags) endpoint(name string) (probe.Endpoint, *target.Spec, error) {
	e := probe.Endpoint{Username: f.username}
	if f.passwordFile != "" {
		data, err := os.ReadFile(f.passwordFile)
		if err != nil {
			return e, nil, usage(fmt.Errorf("read the password: %w", err))
		}
		e.Password = []byte(strings.TrimRight(string(data), "\r\n"))
		if f.username == "" {
			return e, nil, usagef("--password-file needs --username")
		}
	}
	spec, err := target.Parse(name)
	if err != nil || spec.Kind != target.KindAddress {
		return e, spec, usage(err)
	}
	at := spec.Endpoint()
	e.Scheme, e.Addr, e.Path = at.Scheme, at.Addr, at.Path
	e.TLS, err = f.configFor(spec)
	return e, spec, usage(err)
}

// tlsFlags say how to reach a broker over TLS.
type tlsFlags struct{ ca, cert, key string }

func (f *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.ca, "ca", "", "`FILE` of the CA of the broker's certificate, PEM; for tls:// and wss://")
	flags.StringVar(&f.cert, "cert", "", "`FILE` of the client's certificate, PEM")
	flags.StringVar(&f.key, "key", "", "`FILE` of its key, PEM")
}

// configFor is what the flags say for one target; nil for one that is not reached over TLS, for which flags are an error.
func (f *tlsFlags) configFor(spec *target.Spec) (*tls.Config, error) {
	if scheme := spec.Endpoint().Scheme; scheme == "tls" || scheme == "wss" {
		return f.config()
	}
	if f.given() {
		return nil, errors.New("--ca, --cert and --key are for tls:// and wss:// targets")
	}
	return nil, nil
}

// configOf is what the flags say for a scenario: one for all of its arms.
func (f *tlsFlags) configOf(s *scenarios.Scenario) (*tls.Config, error) {
	for _, arm := range s.Arms {
		spec, err := target.Parse(arm.Target)
		if err != nil {
			return nil, err
		}
		if scheme := spec.Endpoint().Scheme; scheme == "tls" || scheme == "wss" {
			return f.config()
		}
	}
	if f.given() {
		return nil, errors.New("--ca, --cert and --key are for tls:// and wss:// targets")
	}
	return nil, nil
}

func (f *tlsFlags) given() bool { return f.ca != "" || f.cert != "" || f.key != "" }

func (f *tlsFlags) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("read the CA: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read the CA: %s holds no certificate in PEM", f.ca)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("--cert and --key go together")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("read the client's certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// runOn starts the broker, if it has to be started, and runs the check. The result is nil when there was no broker.
func (f *checkFlags) runOn(cmd *cobra.Command, spec *target.Spec, cfg probe.Config) (*result.Check, error) {
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	progress := newCheckProgress(stderr)
	defer progress.close()
	cfg.Progress = progress.event
	if spec.Kind == target.KindAddress {
		c, err := probe.Run(ctx, cfg)
		if len(c.Rows) == 0 && err != nil {
			return nil, explain(ctx, err)
		}
		return c, explain(ctx, err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, which is also the reference broker: %w", err)
	}
	options := target.Options{Self: self, CacheDir: cacheDir(cfg.Dir), LogDir: filepath.Join(cfg.Dir, "logs"), Talk: progress.talk}
	program, err := target.Prepare(ctx, spec, options)
	if err != nil {
		return nil, explain(ctx, err)
	}
	broker, err := program.Start(ctx, target.Slot{Number: 1, Dir: filepath.Join(cfg.Dir, "data")}, 0, 0)
	if err != nil {
		return nil, explain(ctx, err)
	}
	cfg.Endpoint.Addr = broker.Addrs()[0]
	if broker.Nodes() > 1 {
		cfg.Nodes = endpoints(cfg.Endpoint, broker)
	}
	startedHooks(&cfg, spec, options)
	cfg.Ordered = cfg.Ordered || broker.OrderedAcks()
	cfg.Durable = cfg.Durable || strings.HasPrefix(broker.Durability(), "file")
	cfg.Died, cfg.Why = broker.Died(), broker.Err
	cfg.Memory = func() (int64, error) { return memoryOf(broker) }
	c, err := probe.Run(ctx, cfg)
	c.Version, c.Command = broker.Version(), broker.Command()
	err = errors.Join(explain(ctx, err), broker.Stop())
	removeData(cfg.Dir)
	return c, err
}

// judgeAgain judges the histories of an old check.
func (f *checkFlags) judgeAgain(cmd *cobra.Command) error {
	c, err := probe.Replay(f.replay)
	if err != nil {
		return err
	}
	if err := f.print(cmd.OutOrStdout(), f.replay, c); err != nil {
		return err
	}
	return f.verdict(c)
}

// memoryOf is the most resident memory that the nodes of a broker have had, in bytes.
func memoryOf(broker *target.Broker) (int64, error) {
	total := int64(0)
	for _, u := range broker.Usage() {
		if u.RSSPeak == nil {
			return 0, errors.New("this system does not tell")
		}
		total += *u.RSSPeak
	}
	return total, nil
}
