package target

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// description is one file of scenarios/targets: all that is known about one kind of broker. Its templates see a
// templateData; see there for what they may name.
type description struct {
	Kind       string                `yaml:"kind"`    // the file's name
	Summary    string                `yaml:"summary"` // one line for people
	Source     source                `yaml:"source"`
	MQTT       []string              `yaml:"mqtt"`         // protocol versions it speaks
	Delivers   bool                  `yaml:"delivers"`     // whether a subscriber gets what was published
	OrderedAck bool                  `yaml:"ordered_acks"` // declared contract: acknowledgements in packet order
	ACL        bool                  `yaml:"acl"`          // files and args heed .Denied
	Parameters map[string]*parameter `yaml:"parameters"`
	Durability []condition           `yaml:"durability"`  // the first that holds; none: not known
	SingleNode []condition           `yaml:"single_node"` // any that holds forbids a cluster
	Ports      []string              `yaml:"ports"`       // names of the ports each node needs; the first is MQTT's
	Peers      string                `yaml:"peers"`       // the one that the other nodes of a cluster use, by peer, and .Node.Relay; "": none
	Files      map[string]string     `yaml:"files"`       // configuration of a node: name -> template
	Args       []string              `yaml:"args"`        // templates; one that renders empty is left out
	Health     string                `yaml:"health"`      // template of a URL that answers 200 once a node is well; "": none
	Leaders    leadersQuery          `yaml:"leaders"`
	Version    versionQuery          `yaml:"version"`

	pattern *regexp.Regexp
}

// source says where the program comes from: exactly one is set.
type source struct {
	Self bool        `yaml:"self"` // this program itself
	Go   *goSource   `yaml:"go"`
	Path *pathSource `yaml:"path"`
}

// goSource is built with go install, or, if it is a library, with the command around it that is kept beside the file, in
// KIND/main.go.
type goSource struct {
	Package string   `yaml:"package"` // of the command, or the module of a library, without version
	Binary  string   `yaml:"binary"`  // what go install calls it
	Library bool     `yaml:"library"`
	Known   []string `yaml:"known"` // versions to name in hints, ascending; others are tried all the same
	Takes   string   `yaml:"takes"` // how long the first build takes, for people

	program []byte // of a library: the source of the command
}

// major is the major version that the import path prescribes, v0 and v1 being without a suffix.
func (g *goSource) major() string {
	for part := range strings.SplitSeq(g.Package, "/") {
		if n, err := strconv.Atoi(strings.TrimPrefix(part, "v")); err == nil && n > 1 && part == "v"+strconv.Itoa(n) {
			return part
		}
	}
	return "v1"
}

// pathSource is looked up in PATH.
type pathSource struct {
	Program string `yaml:"program"`
	Install string `yaml:"install"` // the command that installs it, for people
}

// parameter is one that the target string may give.
type parameter struct {
	Type    string   `yaml:"type"`    // choice, switch (on, off), int, duration, program (a path)
	Values  []string `yaml:"values"`  // of a choice
	Default string   `yaml:"default"` // "": none, the parameter is absent when not given
	Min     int      `yaml:"min"`     // of an int
	Max     int      `yaml:"max"`
	Longest string   `yaml:"longest"` // of a duration
	Help    string   `yaml:"help"`
}

// condition holds when every parameter named has the value given.
type condition struct {
	When map[string]string `yaml:"when"`
	Is   string            `yaml:"is"`
	Why  string            `yaml:"why"`
}

// versionQuery asks the program for its version: the first group of Pattern in what it prints.
type versionQuery struct {
	Args    []string `yaml:"args"`
	Pattern string   `yaml:"pattern"`
}

// leadersQuery asks a node of a cluster which nodes lead its streams. The answer is that of nats-server's /jsz, or Prometheus
// text with a Metric that has the labels stream and leader.
type leadersQuery struct {
	URL    string `yaml:"url"` // template; "": there is nothing to ask
	Metric string `yaml:"metric"`
}

// loadDescription reads the file of kind strictly: unknown keys, unknown values and templates that do not parse are
// errors that show where.
func loadDescription(kind string, data []byte) (*description, error) {
	d := &description{}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(d); err != nil {
		return nil, fmt.Errorf("targets/%s.yaml: %s", kind, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if err := d.validate(kind); err != nil {
		return nil, fmt.Errorf("targets/%s.yaml: %w", kind, err)
	}
	if d.Parameters == nil {
		d.Parameters = map[string]*parameter{}
	}
	d.Parameters[slowParameter] = slowness
	return d, nil
}

// validate reports every problem at once.
func (d *description) validate(kind string) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if d.Kind != kind {
		bad("kind is %q, the file is of %q", d.Kind, kind)
	}
	if d.Summary == "" {
		bad("summary is missing")
	}
	if err := d.Source.validate(); err != nil {
		problems = append(problems, err)
	}
	for _, v := range d.MQTT {
		if v != "3.1.1" && v != "5.0" {
			bad("mqtt: unknown version %q; known: 3.1.1, 5.0", v)
		}
	}
	if _, taken := d.Parameters[slowParameter]; taken {
		bad("parameters: every kind has %s already", slowParameter)
	}
	for _, name := range d.parameterNames() {
		if err := d.Parameters[name].validate(); err != nil {
			bad("parameters: %s: %w", name, err)
		}
	}
	for i, c := range slices.Concat(d.Durability, d.SingleNode) {
		if (c.Is == "") == (i < len(d.Durability)) || (c.Why == "") == (i >= len(d.Durability)) {
			bad("a durability has when and is, a single_node when and why")
		}
		for name, value := range c.When {
			if p, ok := d.Parameters[name]; !ok || !slices.Contains(p.choices(), value) {
				bad("when: %s: %s can never hold", name, value)
			}
		}
	}
	if len(d.Ports) == 0 || len(d.Ports) > maxPortsPerNode {
		bad("ports: want 1 to %d names, the MQTT listener's first", maxPortsPerNode)
	}
	if d.Peers != "" && !slices.Contains(d.Ports, d.Peers) {
		bad("peers: no port is called %q", d.Peers)
	}
	for name := range d.Files {
		if name != path.Base(name) || name == "." || name == ".." {
			bad("files: %q is not a plain file name", name)
		}
	}
	if d.Leaders.URL == "" && d.Leaders.Metric != "" {
		bad("leaders: a metric needs the url that it is read from")
	}
	for _, text := range append(slices.Concat(d.Args, slices.Collect(maps.Values(d.Files))), d.Health, d.Leaders.URL) {
		if _, err := parseTemplate(text, &node{}); err != nil {
			bad("template %q: %w", firstLine(text), err)
		}
	}
	pattern, err := regexp.Compile(d.Version.Pattern)
	switch {
	case err != nil:
		bad("version: pattern: %w", err)
	case pattern.NumSubexp() != 1:
		bad("version: pattern: want one group, around the version")
	}
	d.pattern = pattern
	return errors.Join(problems...)
}

// maxPortsPerNode bounds what one broker may ask for.
const maxPortsPerNode = 16

func (s *source) validate() error {
	n := 0
	if s.Self {
		n++
	}
	if s.Go != nil {
		n++
		if s.Go.Package == "" || s.Go.Binary == "" || len(s.Go.Known) == 0 {
			return errors.New("source: go: want package, binary and known")
		}
	}
	if s.Path != nil {
		n++
		if s.Path.Program == "" || s.Path.Install == "" {
			return errors.New("source: path: want program and install")
		}
	}
	if n != 1 {
		return errors.New("source: want one of self, go, path")
	}
	return nil
}

func (p *parameter) validate() error {
	if p == nil {
		return errors.New("is empty")
	}
	switch p.Type {
	case "choice":
		if len(p.Values) < 2 {
			return errors.New("a choice needs values")
		}
	case "switch", "program":
	case "int":
		if p.Max <= p.Min {
			return errors.New("an int needs min and max")
		}
	case "duration":
		if _, err := time.ParseDuration(p.Longest); err != nil {
			return errors.New("a duration needs longest")
		}
	default:
		return fmt.Errorf("unknown type %q; known: choice, switch, int, duration, program", p.Type)
	}
	if p.Default == "" {
		return nil
	}
	v, err := p.canonical(p.Default)
	if err == nil && v != p.Default {
		err = fmt.Errorf("write it as %s", v)
	}
	if err != nil {
		return fmt.Errorf("default: %w", err)
	}
	return nil
}

// choices are the values a parameter can have, nil for numbers.
func (p *parameter) choices() []string {
	switch p.Type {
	case "choice":
		return p.Values
	case "switch":
		return []string{"on", "off"}
	}
	return nil
}

// canonical checks value and returns its one spelling.
func (p *parameter) canonical(value string) (string, error) {
	switch p.Type {
	case "int":
		n, err := strconv.Atoi(value)
		if err != nil {
			return "", fmt.Errorf("%q is no whole number", value)
		}
		if n < p.Min || n > p.Max {
			return "", fmt.Errorf("%d is out of range: want %d to %d", n, p.Min, p.Max)
		}
		return strconv.Itoa(n), nil
	case "duration":
		longest, _ := time.ParseDuration(p.Longest)
		d, err := time.ParseDuration(value)
		if err != nil {
			return "", fmt.Errorf("%q is no duration: want a number with a unit, as in 5ms", value)
		}
		if d < 0 || d > longest {
			return "", fmt.Errorf("%v is out of range: want 0s to %v", d, longest)
		}
		return d.String(), nil
	case "program":
		return value, nil // whether it is there is seen when it is needed
	}
	if p.Type == "switch" {
		switch value {
		case "true":
			value = "on"
		case "false":
			value = "off"
		}
	}
	if !slices.Contains(p.choices(), value) {
		return "", fmt.Errorf("unknown value %q%s", value, suggest(value, p.choices()))
	}
	return value, nil
}

// wants is what to write for the parameter, for people.
func (p *parameter) wants(name string) string {
	switch p.Type {
	case "int":
		return fmt.Sprintf("%s=N, N from %d to %d", name, p.Min, p.Max)
	case "duration":
		return name + "=DURATION, as in 5ms"
	case "program":
		return name + "=PATH of a program"
	}
	return name + "=" + strings.Join(p.choices(), " or "+name+"=")
}

func (d *description) parameterNames() []string {
	return slices.Sorted(maps.Keys(d.Parameters))
}

func (c *condition) holds(params map[string]string) bool {
	for name, value := range c.When {
		if params[name] != value {
			return false
		}
	}
	return true
}

// durability is what the broker promises with params: memory, file, file+sync; "" if the file does not say.
func (d *description) durability(params map[string]string) string {
	for _, c := range d.Durability {
		if c.holds(params) {
			return c.Is
		}
	}
	return ""
}

// singleNode says why there can be no cluster with params, "" if there can.
func (d *description) singleNode(params map[string]string) string {
	for _, c := range d.SingleNode {
		if c.holds(params) {
			return c.Why
		}
	}
	return ""
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
