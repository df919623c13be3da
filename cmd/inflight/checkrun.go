package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inflight/runner/probe"
	"inflight/runner/result"
	"inflight/runner/target"
)

// endpoint finds out what the target string names. What a check can talk to and a measurement cannot (TLS, WebSocket) is
// understood here; everything else is package target's.
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
	scheme, rest, isURL := strings.Cut(name, "://")
	secure := isURL && slices.Contains([]string{"tls", "ssl", "mqtts", "ws", "wss"}, scheme)
	if isURL && !secure && (f.ca != "" || f.cert != "" || f.key != "") {
		return e, nil, usagef("--ca, --cert and --key are for tls:// and wss:// targets")
	}
	if !secure {
		spec, err := target.Parse(name)
		if err == nil && spec.Kind == target.KindAddress {
			e.Scheme, e.Addr = "tcp", spec.Address()
		}
		return e, spec, usage(err)
	}
	host, path, _ := strings.Cut(rest, "/")
	port := "8883"
	switch e.Scheme = scheme; scheme {
	case "ws":
		port = "80"
	case "wss":
		port = "443"
	default:
		e.Scheme = "tls"
	}
	if path != "" {
		e.Path = "/" + path
	}
	spec, err := target.Parse("tcp://" + withPort(host, port))
	if err != nil {
		return e, nil, usage(err)
	}
	e.Addr = spec.Address()
	e.TLS, err = f.tlsConfig()
	return e, spec, usage(err)
}

// withPort adds the port that an address lacks.
func withPort(host, port string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host
	}
	return host + ":" + port
}

func (f *checkFlags) tlsConfig() (*tls.Config, error) {
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
