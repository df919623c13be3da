package target

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"inflight/runner/transport"
	"inflight/scenarios"
)

// DefaultPort is the port of an address that names none: IANA's for MQTT.
const DefaultPort = "1883"

// KindAddress is the Kind of a broker that is already running.
const KindAddress = "tcp"

// addressForm is how to write one, for people.
const addressForm = "tcp://host:port"

// Spec is a parsed target string. Params holds the effective parameters: those given, and the default of each other one
// that has a default. Values are in one spelling ("on", never "true").
type Spec struct {
	Raw     string
	Kind    string            // of scenarios/targets, or KindAddress
	Version string            // after the @, "" if none
	Params  map[string]string // by name

	// Of KindAddress only.
	address      string // host:port
	scheme, path string // of package transport

	about *description
}

// Parse reads a target string. Every error is the user's: it names what is unknown or out of range and, where one is
// near, what was probably meant.
func Parse(s string) (*Spec, error) {
	return known().parse(s)
}

// Kinds lists the kinds that Parse knows, with a line of text about each.
func Kinds() ([][2]string, error) {
	var list [][2]string
	for _, name := range scenarios.TargetNames() {
		d, err := known().describe(name)
		if err != nil {
			return nil, err
		}
		list = append(list, [2]string{name, d.Summary})
	}
	return append(list, [2]string{addressForm, "a broker that is already running; also tls://, ws:// and wss://"}), nil
}

// catalog is where descriptions come from.
type catalog struct {
	names   []string
	read    func(name string) ([]byte, bool)
	program func(name string) ([]byte, bool) // of a library; nil: there are none
}

// known is the catalog that is part of the program.
func known() catalog {
	return catalog{names: scenarios.TargetNames(), read: scenarios.Target, program: scenarios.TargetProgram}
}

func (c catalog) describe(kind string) (*description, error) {
	data, ok := c.read(kind)
	if !ok {
		return nil, c.unknown(kind)
	}
	d, err := loadDescription(kind, data)
	if err != nil || d.Source.Go == nil || !d.Source.Go.Library {
		return d, err
	}
	if c.program != nil {
		d.Source.Go.program, ok = c.program(kind)
	}
	if c.program == nil || !ok {
		return nil, fmt.Errorf("targets/%s.yaml: source: go: a library needs the command around it in targets/%s/main.go", kind, kind)
	}
	return d, nil
}

func (c catalog) unknown(kind string) error {
	return fmt.Errorf("unknown target %q%s", kind, suggest(kind, c.names, addressForm))
}

func (c catalog) parse(s string) (*Spec, error) {
	raw := s
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		return parseAddress(raw, scheme, rest)
	}
	s, query, hasQuery := strings.Cut(s, "?")
	kind, version, hasVersion := strings.Cut(s, "@")
	if kind == "" {
		return nil, fmt.Errorf("target %q names no broker%s", raw, suggest("", c.names, addressForm))
	}
	about, err := c.describe(kind)
	if err != nil {
		if hint := missingScheme(raw); hint != "" {
			err = fmt.Errorf("%w (%s)", err, hint)
		}
		return nil, err
	}
	spec := &Spec{Raw: raw, Kind: kind, Version: version, Params: map[string]string{}, about: about}
	if err := checkVersion(about, version, hasVersion); err != nil {
		return nil, fmt.Errorf("target %q: %w", raw, err)
	}
	if hasQuery {
		if err := spec.parameters(query); err != nil {
			return nil, fmt.Errorf("target %q: %w", raw, err)
		}
	}
	for name, p := range about.Parameters {
		if _, given := spec.Params[name]; !given && p.Default != "" {
			spec.Params[name] = p.Default
		}
	}
	// What the string alone makes impossible is better said now than after a build.
	if err := spec.checkSlow(); err != nil {
		return nil, err
	}
	if _, _, err := spec.Topology(0, 0); err != nil {
		return nil, err
	}
	return spec, nil
}

// missingScheme recognises an address that was given bare.
func missingScheme(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return ""
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return ""
	}
	return "to measure a broker that is already running write tcp://" + s
}

// schemes are those of addresses, with what each is called here and its port.
var schemes = map[string]struct{ is, port string }{
	"tcp": {"tcp", DefaultPort}, "mqtt": {"tcp", DefaultPort},
	"tls": {"tls", "8883"}, "ssl": {"tls", "8883"}, "mqtts": {"tls", "8883"},
	"ws": {"ws", "80"}, "wss": {"wss", "443"},
}

func parseAddress(raw, scheme, rest string) (*Spec, error) {
	about, ok := schemes[scheme]
	if !ok {
		return nil, fmt.Errorf("target %q: unknown scheme %q%s", raw, scheme, suggest(scheme, []string{"tcp", "mqtt", "tls", "mqtts", "ws", "wss"}))
	}
	if strings.ContainsAny(rest, "?&") {
		return nil, fmt.Errorf("target %q: an address takes no parameters: inflight does not start that broker", raw)
	}
	path := ""
	if about.is == "ws" || about.is == "wss" {
		if host, after, ok := strings.Cut(rest, "/"); ok && after != "" {
			rest, path = host, "/"+after
		}
	}
	rest = strings.TrimSuffix(rest, "/")
	if strings.ContainsAny(rest, "@/") {
		return nil, fmt.Errorf("target %q: want %s://host:port, without user or path", raw, scheme)
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		host, port = strings.Trim(rest, "[]"), about.port
		if strings.Contains(host, ":") && !strings.HasPrefix(rest, "[") {
			return nil, fmt.Errorf("target %q: want %s://host:port, an IPv6 address in brackets", raw, scheme)
		}
	}
	if host == "" {
		return nil, fmt.Errorf("target %q names no host: want %s://host:port", raw, scheme)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("target %q: port %q is not a number from 1 to 65535", raw, port)
	}
	return &Spec{
		Raw: raw, Kind: KindAddress, Params: map[string]string{}, address: net.JoinHostPort(host, port), scheme: about.is, path: path,
	}, nil
}

// Endpoint is where a broker that is already running listens. Its TLS is for the caller to fill in.
func (s *Spec) Endpoint() transport.Endpoint {
	return transport.Endpoint{Scheme: s.scheme, Addr: s.address, Path: s.path}
}

// Bridged reports whether the load reaches the broker over a bridge, which plain TCP does not need.
func (s *Spec) Bridged() bool { return s.Kind == KindAddress && s.scheme != "tcp" }

// Descriptors is how many descriptors of this process each connection to the target takes.
func (s *Spec) Descriptors() int {
	if s.Bridged() {
		return descriptorsPerBridged
	}
	return 1
}

// exactVersion is a semantic version as module proxies have it, pseudo-versions included. Branches and "latest" are not
// taken: a result must name what was measured.
var exactVersion = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

func checkVersion(about *description, version string, given bool) error {
	g := about.Source.Go
	switch {
	case g == nil && given:
		return fmt.Errorf("%s takes no version: it is not built from a module", about.Kind)
	case g == nil:
		return nil
	case version == "":
		return fmt.Errorf("%s needs an exact version, as in %s@%s; known: %s", about.Kind, about.Kind, last(g.Known), strings.Join(g.Known, ", "))
	case !exactVersion.MatchString(version):
		hint := ""
		if exactVersion.MatchString("v" + version) {
			hint = fmt.Sprintf(": did you mean %q?", "v"+version)
		}
		return fmt.Errorf("%q is not an exact version%s (versions look like %s; known: %s)", version, hint, last(g.Known), strings.Join(g.Known, ", "))
	case !strings.HasPrefix(version, g.major()+"."):
		return fmt.Errorf("version %q cannot be of %s, which is %s; known: %s", version, g.Package, g.major(), strings.Join(g.Known, ", "))
	}
	return nil
}

// last is the last of list, "" for an empty one.
func last(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1]
}

func (s *Spec) parameters(query string) error {
	for part := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(part, "=")
		p, known := s.about.Parameters[name]
		switch {
		case part == "":
			return fmt.Errorf("an empty parameter: want name=value, separated by &")
		case !known:
			return fmt.Errorf("unknown parameter %q%s", name, suggest(name, s.about.parameterNames()))
		case !ok || value == "":
			return fmt.Errorf("parameter %s has no value: want %s", name, p.wants(name))
		}
		if _, twice := s.Params[name]; twice {
			return fmt.Errorf("parameter %s is given twice", name)
		}
		v, err := p.canonical(value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.Params[name] = v
	}
	return nil
}

// Topology says how many nodes and stream replicas the target has when the scenario asks for nodes and replicas (0: no
// wish). The target's own parameters win; a kind without the parameter nodes is one process whatever the scenario says.
// It is an error to ask for a cluster of what cannot be one, and for more replicas than nodes.
func (s *Spec) Topology(nodes, replicas int) (n, r int, err error) {
	if s.Kind == KindAddress {
		return 1, 1, nil
	}
	about, err := s.description()
	if err != nil {
		return 0, 0, err
	}
	if _, can := about.Parameters["nodes"]; !can {
		return 1, 1, nil
	}
	n, ownNodes := s.number("nodes", nodes)
	n = max(n, 1)
	r, ownReplicas := s.number("replicas", replicas)
	if limit := about.Parameters["nodes"].Max; n > limit {
		return 0, 0, fmt.Errorf("target %q with %d nodes: the most is %d", s.Raw, n, limit)
	}
	if limit := about.Parameters["replicas"].Max; r > limit {
		return 0, 0, fmt.Errorf("target %q with %d replicas: the most is %d", s.Raw, r, limit)
	}
	if why := about.singleNode(s.Params); why != "" && n > 1 {
		return 0, 0, fmt.Errorf("target %q cannot have %d nodes: %s (nodes=1 makes it one process)", s.Raw, n, why)
	}
	switch {
	case r == 0:
		r = min(n, 3)
	case r > n && ownNodes && !ownReplicas:
		r = n // the scenario's wish was for its own number of nodes
	case r > n && ownReplicas && !ownNodes && nodes == 0:
		// Not known yet: Start is told the scenario's number of nodes.
	case r > n:
		return 0, 0, fmt.Errorf("target %q: %d replicas need as many nodes, and there are %d", s.Raw, r, n)
	}
	return n, r, nil
}

// number is the parameter as an integer, else otherwise; own says whether it was given.
func (s *Spec) number(name string, otherwise int) (n int, own bool) {
	if v, err := strconv.Atoi(s.Params[name]); err == nil {
		return v, true
	}
	return otherwise, false
}

// description is that of the Spec's kind, also for a Spec that was not made by Parse.
func (s *Spec) description() (*description, error) {
	if s.about != nil {
		return s.about, nil
	}
	return known().describe(s.Kind)
}

// Address is host:port of a broker that is already running, "" for others.
func (s *Spec) Address() string { return s.address }

// Speaks are the versions of MQTT that the target declares, 3.1.1 and 5.0; nil for an address.
func (s *Spec) Speaks() []string {
	about, err := s.description()
	if err != nil {
		return nil
	}
	return slices.Clone(about.MQTT)
}

// Denies reports whether the target can be started so that it refuses to publish to some topics.
func (s *Spec) Denies() bool {
	about, err := s.description()
	return s.Kind != KindAddress && err == nil && about.ACL
}

// Relays reports whether the target's store can be made slow: each of its nodes waits for others before it has stored
// something, over connections that can go over a relay. The cluster is that of Topology(nodes, replicas).
func (s *Spec) Relays(nodes, replicas int) bool {
	about, err := s.description()
	if s.Kind == KindAddress || err != nil || about.Peers == "" {
		return false
	}
	n, r, err := s.Topology(nodes, replicas)
	return err == nil && n > 1 && r > 1
}

// String is the target as it was written.
func (s *Spec) String() string { return s.Raw }
