package hook

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/goccy/go-yaml"

	"inflight/runner/check"
	"inflight/scenarios"
)

// Limits of a file.
const (
	maxFile        = 64 << 10
	maxNodes       = 32
	defaultTimeout = 60 * time.Second
	longestTimeout = 10 * time.Minute
)

// What a broker can declare.
const (
	OrderedAcks = "ordered-acks" // acknowledgements in packet order
	Durable     = "durable"      // what was acknowledged survives a restart
)

// Contracts are what a broker can declare, beyond the specification.
func Contracts() []string { return []string{OrderedAcks, Durable} }

// File is what is known of a broker that is already running.
type File struct {
	Declares []string            `yaml:"declares"`
	Nodes    []string            `yaml:"nodes"` // host:port of each node of the cluster; none: it is no cluster, as far as is known
	Timeout  string              `yaml:"timeout"`
	Hooks    map[string][]string `yaml:"hooks"` // the program and its arguments, by the hook's name

	timeout time.Duration
}

// Read reads a file; an error names it, and shows the line where there is one to show.
func Read(path string) (*File, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("%s has %d bytes, more than %d: is it a file of hooks?", path, info.Size(), maxFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read the hooks: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the hooks: %w", err)
	}
	f, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func parse(data []byte) (*File, error) {
	f := &File{timeout: defaultTimeout}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(f); err != nil {
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	return f, f.validate()
}

// validate reports every problem at once.
func (f *File) validate() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, d := range f.Declares {
		if !slices.Contains(Contracts(), d) {
			bad("declares: unknown contract %q%s; known: %s", d, scenarios.DidYouMean(d, Contracts()), strings.Join(Contracts(), ", "))
		}
	}
	for i, n := range f.Nodes {
		if host, port, err := net.SplitHostPort(n); err != nil || host == "" || port == "" {
			bad("nodes: %q is no host:port", n)
		} else if slices.Contains(f.Nodes[:i], n) {
			bad("nodes: %s is there twice", n)
		}
	}
	if len(f.Nodes) > maxNodes {
		bad("nodes: %d, the most is %d", len(f.Nodes), maxNodes)
	}
	if f.Timeout != "" {
		d, err := time.ParseDuration(f.Timeout)
		if err != nil || d <= 0 || d > longestTimeout {
			bad("timeout: %q: want a duration up to %v, as in 60s", f.Timeout, longestTimeout)
		}
		f.timeout = d
	}
	caps := check.Caps{Hooks: f.Names()}
	for _, name := range f.Names() {
		command := f.Hooks[name]
		switch {
		case !slices.Contains(check.HookNames(), name):
			bad("hooks: unknown hook %q%s; known: %s", name, scenarios.DidYouMean(name, check.HookNames()), strings.Join(check.HookNames(), ", "))
		case len(command) == 0 || command[0] == "":
			bad("hooks: %s: want a list, the program and its arguments", name)
		case !caps.Hook(name):
			bad("hooks: %s needs the hook %s, which undoes it", name, check.Undo(name))
		case name == check.HookKillNode && len(f.Nodes) < 2:
			bad("hooks: %s needs nodes, the addresses of the cluster's nodes", name)
		}
		if _, err := f.command(name, max(1, len(f.Nodes)), "host:1883"); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// Names are the hooks that there are, in alphabetical order.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Hooks)) }

// placeholders are what the templates of a command see.
type placeholders struct {
	Node   int
	Addr   string
	Denied string
}

// command is a hook's command for a node, counted from 1, at addr.
func (f *File) command(name string, node int, addr string) ([]string, error) {
	data := placeholders{Node: node, Addr: addr, Denied: check.Denied}
	var command []string
	for _, text := range f.Hooks[name] {
		var b strings.Builder
		t, err := template.New("").Parse(text)
		if err == nil {
			err = t.Execute(&b, data)
		}
		if err != nil {
			return nil, fmt.Errorf("hooks: %s: %q: %w (known: {{.Node}}, {{.Addr}}, {{.Denied}})", name, text, err)
		}
		command = append(command, b.String())
	}
	return command, nil
}
