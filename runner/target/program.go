package target

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Options say where things are and whom to tell.
type Options struct {
	Self         string                           // path of the inflight binary, for the kinds that it serves itself
	CacheDir     string                           // where built brokers are kept between runs
	LogDir       string                           // where each node's output is kept
	Talk         func(format string, args ...any) // told about steps that take long; nil: nobody is
	Denied       string                           // a Topic Filter that nobody may publish to, see Spec.Denies; "": none
	Relayed      bool                             // the nodes of a cluster reach each other over relays, see Broker.SlowStore
	Args         []string                         // further arguments of every node
	TLS          *tls.Config                      // for tls:// and wss:// addresses; nil: the system's roots
	ReadyTimeout time.Duration                    // for all nodes together, from their start; 0: DefaultReadyTimeout
}

// DefaultReadyTimeout is what a broker gets to become ready. A JetStream cluster takes a few seconds, on a busy machine
// several times that.
const DefaultReadyTimeout = 60 * time.Second

// unknownVersion is the version of a broker that cannot be asked for it.
const unknownVersion = "unknown (not started by inflight)"

// Program is a broker that can be started: built or found, and asked for its version.
type Program struct {
	spec    *Spec
	about   *description // nil for an address
	path    string       // of the executable
	version string
	options Options
}

// Prepare builds or finds the program of spec. It is safe to prepare the same target several times, from several
// processes too: what is built is built once and kept in the cache. Progress is told to Options.Talk.
//
// The errors of a version that does not exist, of a missing Go toolchain and of a missing program say how to go on.
func Prepare(ctx context.Context, spec *Spec, options Options) (*Program, error) {
	if options.Talk == nil {
		options.Talk = func(string, ...any) {}
	}
	if options.ReadyTimeout <= 0 {
		options.ReadyTimeout = DefaultReadyTimeout
	}
	p := &Program{spec: spec, version: unknownVersion, options: options}
	if spec.Kind == KindAddress {
		return p, nil
	}
	var err error
	if p.about, err = spec.description(); err != nil {
		return nil, err
	}
	if p.path, err = p.find(ctx); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", spec.Raw, err)
	}
	if p.version, err = p.ask(ctx); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", spec.Raw, err)
	}
	return p, nil
}

// Spec is the target that the program was prepared for.
func (p *Program) Spec() *Spec { return p.spec }

// Version is the broker's version as it reports it itself.
func (p *Program) Version() string { return p.version }

// programParameter names another build of this program, for a kind that it serves itself: that of another checkout.
const programParameter = "binary"

// find returns the path of the executable.
func (p *Program) find(ctx context.Context) (string, error) {
	source := p.about.Source
	switch {
	case source.Self:
		if other := p.spec.Params[programParameter]; other != "" {
			path, err := executable(other)
			if err != nil {
				return "", fmt.Errorf("%s=%s: %w (it is another build of inflight, as go build ./cmd/inflight makes)", programParameter, other, err)
			}
			return path, nil
		}
		if p.options.Self == "" {
			return "", errors.New("the path of the inflight program itself is not known")
		}
		return executable(p.options.Self)
	case source.Go != nil:
		return build(ctx, p.about, p.spec.Version, p.options)
	}
	path, err := executable(source.Path.Program)
	if err != nil {
		return "", fmt.Errorf("%s is not in PATH (install it with: %s)", source.Path.Program, source.Path.Install)
	}
	return path, nil
}

// executable finds a program and makes its path absolute: it is started in another directory.
func executable(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// versionTimeout bounds a program that is only asked for its version.
const versionTimeout = 20 * time.Second

// ask runs the program for its version.
func (p *Program) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	query := p.about.Version
	cmd := exec.CommandContext(ctx, p.path, query.Args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	ownGroup(cmd)
	cmd.WaitDelay = time.Second
	command := strings.Join(cmd.Args, " ")
	err := cmd.Run()
	match := p.about.pattern.FindSubmatch(out.Bytes())
	// Some programs print their version with their help, and end with a status as if that had not been asked for.
	var exit *exec.ExitError
	if err != nil && (match == nil || !errors.As(err, &exit)) {
		return "", fmt.Errorf("%s: %w%s", command, err, indent(lastLines(out.Bytes(), errorLines)))
	}
	if match == nil {
		return "", fmt.Errorf("%s: no version in what it printed (looked for %s)%s", command, query.Pattern, indent(lastLines(out.Bytes(), errorLines)))
	}
	return string(match[1]), nil
}
