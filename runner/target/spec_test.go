package target

import (
	"maps"
	"strings"
	"testing"

	"inflight/scenarios"
)

func TestParse(t *testing.T) {
	reference := func(change ...string) map[string]string {
		m := map[string]string{"store": "staged", "pipeline": "on"}
		for i := 0; i < len(change); i += 2 {
			m[change[i]] = change[i+1]
		}
		return m
	}
	for _, tt := range []struct {
		why, target            string
		kind, version, address string
		params                 map[string]string
	}{
		{"defaults are filled in", "reference", "reference", "", "", reference()},
		{"given ones win", "reference?store=memory&pipeline=off", "reference", "", "", reference("store", "memory", "pipeline", "off")},
		{"one spelling of a switch", "reference?pipeline=false", "reference", "", "", reference("pipeline", "off")},
		{"replicas may wait for the scenario's nodes", "reference?replicas=3", "reference", "", "", reference("replicas", "3")},
		{"module versions", "nats-server@v2.15.3?nodes=3", "nats-server", "v2.15.3", "", map[string]string{"sync": "default", "nodes": "3"}},
		{"pseudo-versions are exact", "nats-server@v2.15.4-0.20261001120000-abcdefabcdef", "nats-server", "v2.15.4-0.20261001120000-abcdefabcdef", "", map[string]string{"sync": "default"}},
		{"one spelling of a duration", "null?delay=5000us", "null", "", "", map[string]string{"delay": "5ms"}},
		{"a fixed port", "null?port=1883", "null", "", "", map[string]string{"delay": "0s", "port": "1883"}},
		{"any of them can be slowed", "mosquitto?slow=10", "mosquitto", "", "", map[string]string{"inflight": "0", "save": "interval", "slow": "10"}},
		{"an address", "tcp://broker.example:2883", "tcp", "", "broker.example:2883", map[string]string{}},
		{"the other scheme, the default port", "mqtt://broker.example/", "tcp", "", "broker.example:1883", map[string]string{}},
		{"TLS and its port", "mqtts://broker.example", "tcp", "", "broker.example:8883", map[string]string{}},
		{"a WebSocket with a path", "wss://broker.example/some/mqtt", "tcp", "", "broker.example:443", map[string]string{}},
		{"IPv6 with a port", "tcp://[::1]:1884", "tcp", "", "[::1]:1884", map[string]string{}},
		{"IPv6 without", "tcp://[::1]", "tcp", "", "[::1]:1883", map[string]string{}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			s, err := Parse(tt.target)
			if err != nil {
				t.Fatal(err)
			}
			if s.Raw != tt.target || s.Kind != tt.kind || s.Version != tt.version || s.address != tt.address {
				t.Errorf("got %+v", s)
			}
			if !maps.Equal(s.Params, tt.params) {
				t.Errorf("parameters: got %v, want %v", s.Params, tt.params)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ target, want string }{
		{"", "names no broker; known: mochi, mosquitto, nats-server, null, reference, tcp://host:port"},
		{"natsserver", `unknown target "natsserver": did you mean "nats-server"? known: mochi, mosquitto, nats-server, null, reference, tcp://host:port`},
		{"nats@v2.15.3", `did you mean "nats-server"?`},
		{"Reference", `did you mean "reference"?`},
		{"emqx", `unknown target "emqx"; known: `},
		{"../scenario", `unknown target "../scenario"; known: `},
		{"localhost:1883", "write tcp://localhost:1883"},
		{"reference@v1.0.0", "reference takes no version"},
		{"reference@", "reference takes no version"},
		{"nats-server", "needs an exact version, as in nats-server@v2.15.3; known: v2.14.10, "},
		{"nats-server@?nodes=3", "needs an exact version"},
		{"nats-server@2.15.3", `"2.15.3" is not an exact version: did you mean "v2.15.3"?`},
		{"nats-server@latest", `"latest" is not an exact version (versions look like v2.15.3; known: `},
		{"nats-server@v1.4.1", "cannot be of github.com/nats-io/nats-server/v2, which is v2"},
		{"reference?stroe=staged", `unknown parameter "stroe": did you mean "store"? known: binary, nodes, pipeline, port, replicas, slow, store`},
		{"reference?store=stagd", `store: unknown value "stagd": did you mean "staged"? known: staged, journal, memory`},
		{"reference?store=disk", `unknown value "disk"; known: staged, journal, memory`},
		{"reference?pipeline=maybe", `unknown value "maybe"; known: on, off`},
		{"reference?store", "parameter store has no value: want store=staged or store=journal or store=memory"},
		{"reference?store=", "parameter store has no value"},
		{"reference?binary=", "parameter binary has no value: want binary=PATH of a program"},
		{"reference?store=staged&store=staged", "parameter store is given twice"},
		{"reference?", "an empty parameter"},
		{"reference?nodes=0", "nodes: 0 is out of range: want 1 to 9"},
		{"reference?nodes=10", "10 is out of range"},
		{"reference?nodes=three", `"three" is no whole number`},
		{"reference?nodes=2&replicas=3", "3 replicas need as many nodes, and there are 2"},
		{"reference?store=memory&nodes=3", "cannot have 3 nodes: the memory store is not shared between nodes (nodes=1 makes it one process)"},
		{"null?nodes=3", `unknown parameter "nodes"`},
		{"null?delay=5", `"5" is no duration: want a number with a unit, as in 5ms`},
		{"null?delay=-1ms", "-1ms is out of range: want 0s to 1m0s"},
		{"null?delay=1h", "1h0m0s is out of range"},
		{"mosquitto?slow=0", "slow: 0 is out of range: want 1 to 1000"},
		{"null?port=70000", "70000 is out of range"},
		{"tcp://", "names no host"},
		{"tcp://:1883", "names no host"},
		{"tcp://host:0", `port "0" is not a number from 1 to 65535`},
		{"tcp://host:mqtt", `port "mqtt" is not a number`},
		{"tcp://::1", "an IPv6 address in brackets"},
		{"tcp://host:1883?nodes=3", "an address takes no parameters"},
		{"tcp://user:secret@host:1883", "without user or path"},
		{"tcp://host:1883/path", "without user or path"},
		{"tls://host:8883/path", "want tls://host:port, without user or path"},
		{"wss://user@host/mqtt", "without user or path"},
		{"mqt://host", `unknown scheme "mqt": did you mean "mqtt"?`},
	} {
		s, err := Parse(tt.target)
		if err == nil {
			t.Errorf("%q: accepted as %+v, want %q", tt.target, s, tt.want)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %q\nwant %q in it", tt.target, err, tt.want)
		}
	}
}

func TestTopology(t *testing.T) {
	for _, tt := range []struct {
		why, target     string
		nodes, replicas int
		n, r            int
		err             string
	}{
		{"no wishes: one process", "reference", 0, 0, 1, 1, ""},
		{"the scenario's", "reference", 3, 3, 3, 3, ""},
		{"replicas left open are at most three", "reference", 5, 0, 5, 3, ""},
		{"the target's own win", "reference?nodes=5&replicas=1", 3, 3, 5, 1, ""},
		{"the scenario's replicas follow the target's fewer nodes", "reference?nodes=1", 3, 3, 1, 1, ""},
		{"null is one process whatever is asked", "null", 3, 3, 1, 1, ""},
		{"so is what is already running", "tcp://host", 3, 3, 1, 1, ""},
		{"a store that cannot be shared", "reference?store=memory", 3, 3, 0, 0, "cannot have 3 nodes"},
		{"the same, told to be alone", "reference?store=memory&nodes=1", 3, 3, 1, 1, ""},
		{"too many replicas for the scenario's nodes", "reference?replicas=3", 2, 0, 0, 0, "3 replicas need as many nodes, and there are 2"},
		{"too many replicas of the scenario's own", "reference", 2, 3, 0, 0, "3 replicas need as many nodes, and there are 2"},
		{"more nodes than the kind takes", "reference", 10, 3, 0, 0, "the most is 9"},
		{"more replicas than JetStream has", "nats-server@v2.15.3", 9, 7, 0, 0, "the most is 5"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			s, err := Parse(tt.target)
			if err != nil {
				t.Fatal(err)
			}
			n, r, err := s.Topology(tt.nodes, tt.replicas)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %d nodes, %d replicas, %v; want %q", n, r, err, tt.err)
				}
			} else if err != nil || n != tt.n || r != tt.r {
				t.Errorf("got %d nodes, %d replicas, %v; want %d, %d", n, r, err, tt.n, tt.r)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	kinds, err := Kinds()
	if err != nil {
		t.Fatal(err)
	}
	if want := len(scenarios.TargetNames()) + 1; len(kinds) != want {
		t.Errorf("got %d kinds, want every file and the address: %d", len(kinds), want)
	}
}

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"store", "store", 0},
		{"stroe", "store", 2},
		{"stor", "store", 1},
		{"kitten", "sitting", 3},
		{strings.Repeat("x", 1000), "store", 1000},
	} {
		if got := editDistance(tt.a, tt.b); got != tt.want {
			t.Errorf("editDistance(%.10q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

// FuzzParse: whatever is written, the answer is a Spec or one line of text.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"reference?store=staged&pipeline=off", "nats-server@v2.15.3?nodes=3", "tcp://host:1883", "null?delay=5ms", "?&=@", "tcp://[::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := Parse(s)
		switch {
		case err == nil && spec.Raw != s:
			t.Errorf("%q became %q", s, spec.Raw)
		case err == nil:
			if _, err := Parse(spec.Raw); err != nil {
				t.Errorf("%q is accepted once only: %v", s, err)
			}
		case strings.Contains(err.Error(), "\n"):
			t.Errorf("%q: the error is not one line: %q", s, err)
		}
	})
}
