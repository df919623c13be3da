package target

import (
	"fmt"
	"strings"
	"testing"

	"inflight/scenarios"
)

// sample is a node of a cluster of two, for templates.
func sample(d *description, params map[string]string) *templateData {
	var nodes []*node
	for i, name := range []string{"n1", "n2"} {
		ports := map[string]int{}
		for j, p := range d.Ports {
			ports[p] = 10000 + 100*i + j
		}
		nodes = append(nodes, &node{Name: name, Ports: ports, root: "/run/" + name})
	}
	return &templateData{Name: "n2", Node: nodes[1], Nodes: nodes, Clustered: true, Cluster: "c", Dir: "/run/n2/data", Replicas: 2, Params: params}
}

func TestDescriptionsOfKnownTargets(t *testing.T) {
	for _, name := range scenarios.TargetNames() {
		d, err := known().describe(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.MQTT) == 0 {
			t.Errorf("%s: no MQTT version", name)
		}
		written := name
		if d.Source.Go != nil {
			written += "@" + last(d.Source.Go.Known)
		}
		spec, err := Parse(written)
		if err != nil {
			t.Fatal(err)
		}
		data := sample(d, spec.Params)
		args, err := d.arguments(data)
		if err != nil {
			t.Error(err)
		}
		all := strings.Join(args, " ")
		for file, text := range d.Files {
			content, err := render(text, data)
			if err != nil {
				t.Errorf("%s: %s: %v", name, file, err)
			}
			all += content
		}
		for what, text := range map[string]string{"health": d.Health, "leaders": d.Leaders.URL} {
			if _, err := render(text, data); err != nil {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		if strings.Contains(all, "<no value>") || strings.Contains(all, "0.0.0.0") {
			t.Errorf("%s: %s", name, all)
		}
	}
}

// The commands that the reference broker and null are started with are a contract with those commands.
func TestCommands(t *testing.T) {
	for _, tt := range []struct {
		why, target string
		alone       bool
		want        string
	}{
		{
			"a node of a cluster", "reference?pipeline=off", false,
			"broker --node=n2 --listen=127.0.0.1:10100 --store=staged --pipeline=off --store-dir=/run/n2/data --replicas=2 " +
				"--cluster=c --cluster-listen=127.0.0.1:10101 --routes=nats://127.0.0.1:10001,nats://127.0.0.1:10101 --ops-listen=127.0.0.1:10102",
		},
		{
			"alone, nothing is said of a cluster", "reference?store=memory", true,
			"broker --node=n2 --listen=127.0.0.1:10100 --store=memory --pipeline=on --store-dir=/run/n2/data --replicas=2",
		},
		{"null", "null?delay=5ms", true, "null --listen=127.0.0.1:10100 --delay=5ms"},
		{"a null that stalls", "null?stall=1s&every=5s", true, "null --listen=127.0.0.1:10100 --delay=0s --stall=1s --every=5s"},
		{"nats-server", "nats-server@v2.15.3", false, "-c /run/n2/nats-server.conf"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			spec, err := Parse(tt.target)
			if err != nil {
				t.Fatal(err)
			}
			data := sample(spec.about, spec.Params)
			data.Clustered = !tt.alone
			args, err := spec.about.arguments(data)
			if got := strings.Join(args, " "); err != nil || got != tt.want {
				t.Errorf("got  %s (%v)\nwant %s", got, err, tt.want)
			}
		})
	}
}

func TestNATSConfiguration(t *testing.T) {
	for _, tt := range []struct {
		why, target string
		clustered   bool
		want, not   []string
	}{
		{
			"a node of a cluster", "nats-server@v2.15.3", true,
			[]string{
				`server_name: "n2"`, `store_dir: "/run/n2/data"`, "port: 10100", `http: "127.0.0.1:10102"`, "stream_replicas: 2",
				`name: "c"`, `"nats://127.0.0.1:10003"`, `"nats://127.0.0.1:10103"`, "no_advertise: true",
			},
			[]string{"sync_interval"},
		},
		{"alone", "nats-server@v2.15.3", false, []string{`server_name: "n2"`}, []string{"cluster", "stream_replicas", "routes"}},
		{"syncing always", "nats-server@v2.15.3?sync=always", false, []string{"sync_interval: always"}, nil},
	} {
		t.Run(tt.why, func(t *testing.T) {
			spec, err := Parse(tt.target)
			if err != nil {
				t.Fatal(err)
			}
			data := sample(spec.about, spec.Params)
			data.Clustered = tt.clustered
			config, err := render(spec.about.Files["nats-server.conf"], data)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range tt.want {
				if !strings.Contains(config, w) {
					t.Errorf("no %q in\n%s", w, config)
				}
			}
			for _, n := range tt.not {
				if strings.Contains(config, n) {
					t.Errorf("%q in\n%s", n, config)
				}
			}
		})
	}
}

// With relays the nodes name each other's, and their own address where they are reached over one.
func TestRelaysInCommands(t *testing.T) {
	for target, want := range map[string][]string{
		"reference":           {"--routes=nats://127.0.0.1:1,nats://127.0.0.1:10101", "--cluster-listen=127.0.0.1:10101", "--cluster-advertise=127.0.0.1:2"},
		"nats-server@v2.15.3": {`"nats://127.0.0.1:1"`, `advertise: "127.0.0.1:2"`, "port: 10103"},
	} {
		spec, err := Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		data := sample(spec.about, spec.Params)
		for i, n := range data.Nodes {
			n.Relay, n.peers = fmt.Sprintf("127.0.0.1:%d", i+1), spec.about.Peers
		}
		args, err := spec.about.arguments(data)
		if err != nil {
			t.Fatal(err)
		}
		config, err := render(spec.about.Files["nats-server.conf"], data)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if all := strings.Join(args, " ") + config; !strings.Contains(all, w) {
				t.Errorf("%s: no %q in %s", target, w, all)
			}
		}
	}
}

func TestDurability(t *testing.T) {
	for target, want := range map[string]string{
		"reference":                       "file",
		"reference?store=memory":          "memory",
		"nats-server@v2.15.3":             "file",
		"nats-server@v2.15.3?sync=always": "file+sync",
		"null":                            "",
	} {
		spec, err := Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if got := spec.about.durability(spec.Params); got != want {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
}

func TestDescriptionsAreStrict(t *testing.T) {
	edit := func(old, text string) string {
		if !strings.Contains(fakeKind, old) {
			t.Fatalf("%q is not in the description to be edited", old)
		}
		return strings.Replace(fakeKind, old, text, 1)
	}
	for _, tt := range []struct {
		why, data string
		want      []string
	}{
		{"unknown keys, shown where they are", edit("summary:", "sumary:"), []string{"targets/fake.yaml: [3:1] unknown field \"sumary\"", "sumary: played by"}},
		{"values of another type", edit("delivers: true", "delivers: perhaps"), []string{"targets/fake.yaml: [5:11]"}},
		{"another kind than the file", edit("kind: fake", "kind: other"), []string{`kind is "other", the file is of "fake"`}},
		{"every problem at once", edit("kind: fake\nsummary: played by the test binary", "kind: other"), []string{"kind is", "summary is missing"}},
		{"no source", edit("self: true", "self: false"), []string{"source: want one of self, go, path"}},
		{"two sources", edit("self: true", "self: true, path: { program: x, install: y }"), []string{"source: want one of"}},
		{"a source without a hint", edit("self: true", "path: { program: x }"), []string{"source: path: want program and install"}},
		{"half a go source", edit("self: true", "go: { package: x }"), []string{"source: go: want package, binary and known"}},
		{"an unknown type", edit("type: choice", "type: enum"), []string{`parameters: mode: unknown type "enum"`}},
		{"a default that is no value", edit("default: well", "default: fine"), []string{`parameters: mode: default: unknown value "fine"`}},
		{"an int without bounds", edit("min: 1, max: 5 }", "min: 1 }"), []string{"parameters: replicas: an int needs min and max"}},
		{"a condition that never holds", edit("- is: file", "- { when: { mode: fine }, is: file }"), []string{"when: mode: fine can never hold"}},
		{"a condition without outcome", edit("- is: file", "- when: { mode: well }"), []string{"a durability has when and is"}},
		{"no ports", edit("ports: [mqtt, health]", "ports: []"), []string{"ports: want 1 to 16 names"}},
		{"a file elsewhere", edit("fake.conf: |", "../fake.conf: |"), []string{`files: "../fake.conf" is not a plain file name`}},
		{"a template that does not parse", edit("{{.Name}}", "{{.Name"), []string{"template"}},
		{"an unknown template function", edit("{{.Name}}", "{{upper .Name}}"), []string{`function "upper" not defined`}},
		{"a pattern without a group", edit(`fake (\S+)`, `fake \S+`), []string{"version: pattern: want one group"}},
		{"an unknown MQTT version", edit("delivers: true", "delivers: true\nmqtt: [\"4\"]"), []string{`mqtt: unknown version "4"`}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			_, err := loadDescription("fake", []byte(tt.data))
			for _, w := range tt.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("got %v\nwant %q in it", err, w)
				}
			}
		})
	}
	if _, err := loadDescription("fake", []byte(fakeKind)); err != nil {
		t.Errorf("unedited: %v", err)
	}
}

func TestTemplatesMissNothingSilently(t *testing.T) {
	d, err := fakes().describe("fake")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"{{.Params.typo}}", "{{.Node.Ports.typo}}", `{{addr .Node "typo"}}`, "{{.Typo}}"} {
		if got, err := render(text, sample(d, map[string]string{})); err == nil {
			t.Errorf("%s: rendered %q", text, got)
		}
	}
}

func TestPathSource(t *testing.T) {
	data := strings.Replace(fakeKind, "self: true", "path: { program: no-such-program-here, install: apt-get install it }", 1)
	c := catalog{names: []string{"fake"}, read: func(string) ([]byte, bool) { return []byte(data), true }}
	spec, err := c.parse("fake")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Prepare(t.Context(), spec, Options{})
	if want := "no-such-program-here is not in PATH (install it with: apt-get install it)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
