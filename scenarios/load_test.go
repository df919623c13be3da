package scenarios

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLoad(t *testing.T) {
	data := `
name: mine
question: >
  which is it,
  really?
arms:
  - null
  - name: after
    target: tcp://127.0.0.1:1883
qos: [1, 2]
window: 20
payload: [64, 1KiB, "2 kB"]
duration: 2s
control: off
verify: 0
passes: 4
quick: {blocks: 2, window: [1, 2]}
`
	got, err := Load("mine.yaml", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	want := &Scenario{
		Name:     "mine",
		Question: "which is it, really?",
		Arms:     []Arm{{Target: "null"}, {Name: "after", Target: "tcp://127.0.0.1:1883"}},
		QoS:      []int{1, 2},
		Windows:  []int{20},
		Payloads: []int{64, 1024, 2000},
		Duration: 2 * time.Second,
		Control:  None,
		Verify:   None,
		Passes:   4,
		QuickForm: []Setting{
			{Key: "blocks", Values: []string{"2"}},
			{Key: "window", Values: []string{"1", "2"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

func TestLoadProblems(t *testing.T) {
	for _, test := range []struct{ why, data, want string }{
		{
			"a mistyped key names the one that was meant",
			"windows: [1, 10]\n",
			"f.yaml:1:1: unknown key \"windows\": did you mean \"window\"?\n    1 | windows: [1, 10]\n      | ^",
		},
		{
			"a key like no other gets no far-fetched suggestion",
			"qos: 2\nzzz: 1\n",
			"f.yaml:2:1: unknown key \"zzz\"\n    2 | zzz: 1\n      | ^",
		},
		{
			"the mark is at the value inside a list",
			"window: [1, 0]\n",
			"f.yaml:1:13: window 0 is out of range, 1 to 65535: a connection has 65,535 Packet Identifiers, and a window needs at least 1\n" +
				"    1 | window: [1, 0]\n      |             ^",
		},
		{
			"every problem is reported, in the order of the file",
			"qos: 3\nwindow: 65536\nblocks: many\n",
			"f.yaml:1:6: qos 3 is out of range, 0 to 2: MQTT has QoS 0, 1 and 2\n    1 | qos: 3\n      |      ^\n" +
				"f.yaml:2:9: window 65536 is out of range, 1 to 65535: a connection has 65,535 Packet Identifiers, and a window needs at least 1\n    2 | window: 65536\n      |         ^\n" +
				"f.yaml:3:9: blocks \"many\" is not a whole number\n    3 | blocks: many\n      |         ^",
		},
		{"a key given twice is a slip, and which one counts is not guessed", "qos: 1\nqos: 2\n", `f.yaml:2:1: key "qos" is given twice`},
		{"a value listed twice would be one cell measured as two", "window: [1, 1]\n", "f.yaml:1:13: window 1 is listed twice"},
		{"a list where one value is needed", "blocks: [1, 2]\n", "f.yaml:1:9: blocks takes one value, not a list"},
		{"a duration without a unit is not guessed", "duration: 800\n", `f.yaml:1:11: duration "800" is not a duration: write it with a unit, as 800ms or 2s`},
		{"a negative duration must not pass as off", "control: -1s\n", "f.yaml:1:10: control -1s is negative"},
		{"the measured time cannot be off", "duration: off\n", `duration "off" is not a duration`},
		{"a typing error in a duration does not become a week", "duration: 200h\n", "duration 200h0m0s is out of range: 1ms to 10m0s"},
		{"a size with an unknown unit", "payload: 1KB\n", `f.yaml:1:10: payload "1KB" is not a size: write bytes, or 1KiB, 64KiB, 1MiB`},
		{"a payload without room for the ledger", "payload: 8\n", "payload 8 is out of range, 32 to 1048576: at least 32 B, for what tells messages apart"},
		{"a size whose product would overflow", "payload: 9000000000000MiB\n", "payload 9000000000000MiB is out of range"},
		{"a key without a value is no request for the default", "qos: 1\nnodes:\n", "nodes has no value"},
		{"a gate's rule is read when the file is", "gate: [throughput >= 1x, 'p99 <= fast']\n", `f.yaml:1:26: rule "p99 <= fast": limit "fast" is neither a ratio`},
		{"a gate without rules", "gate: []\n", "f.yaml:1:7: gate is an empty list"},
		{"an empty list", "window: []\n", "f.yaml:1:9: window is an empty list"},
		{"a map where a value is needed", "window: {a: 1}\n", "f.yaml:1:9: window is a value, or a list"},
		{"arms that are not a list", "arms: null\n", "f.yaml:1:7: arms is a list of targets"},
		{"an arm without a target", "arms:\n  - name: x\n", "f.yaml:2:5: this arm has no target"},
		{"an unknown key of an arm", "arms:\n  - target: null\n    nme: x\n", `f.yaml:3:5: unknown key "nme": did you mean "name"?`},
		{"an arm's name becomes a column heading", "arms:\n  - {name: 'a b', target: null}\n", `f.yaml:2:12: arm name "a b": letters, digits`},
		{"the name becomes a part of a directory's name", "name: ../x\n", `f.yaml:1:7: name "../x": letters, digits`},
		{"quick changes settings, not arms", "quick: {arms: [null]}\n", `f.yaml:1:9: unknown key "arms"`},
		{"a wrong value of the quick section is found without --quick", "quick: {blocks: 0}\n", "f.yaml:1:17: blocks 0 is out of range, 1 to 100"},
		{"YAML that does not parse has its place too", "a: [1\n", "f.yaml:1:4: not valid YAML: "},
		{"aliases have no use here and have sunk other programs", "qos: &a 1\n", "f.yaml:1:6: anchors, aliases and tags are not used"},
		{"an empty file", "# nothing\n", "f.yaml: holds no scenario: it needs at least arms"},
		{"a list at the top", "- 1\n", "f.yaml:1:1: a scenario is a map of keys"},
		{"the second of two documents would be ignored", "qos: 1\n---\nqos: 2\n", "f.yaml:3:1: a second document: one scenario per file"},
		{"a file that was surely not meant", strings.Repeat("#", maxFile+1), "f.yaml: larger than 16 KiB: not a scenario file"},
	} {
		s, err := Load("f.yaml", []byte(test.data))
		var problems *FileError
		if !errors.As(err, &problems) || s != nil {
			t.Errorf("%s: Load(%.40q) = %v, %v, want a *FileError alone", test.why, test.data, s, err)
			continue
		}
		if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Load(%.40q):\n%v\nwant in it:\n%s", test.why, test.data, err, test.want)
		}
	}
}

func TestBuiltin(t *testing.T) {
	if len(BuiltinNames()) == 0 {
		t.Fatal("no built-in scenario is embedded")
	}
	for _, name := range BuiltinNames() {
		s, err := Builtin(name)
		if err != nil {
			t.Errorf("Builtin(%q): %v", name, err)
			continue
		}
		if s.Name != name {
			t.Errorf("the scenario in %s.yaml is named %q: results would not say which it was", name, s.Name)
		}
		if s.Question == "" {
			t.Errorf("%s asks no question", name)
		}
		for form, s := range map[string]Scenario{"full": *s, "quick": s.Quicken()} {
			if err := s.Validate(); err != nil {
				t.Errorf("%s, %s form: %v", name, form, err)
			}
		}
	}
	_, err := Builtin("qos2-pipelin")
	if want := `no built-in scenario "qos2-pipelin": did you mean "qos2-pipeline"?`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Builtin of a mistyped name: %v, want %s", err, want)
	}
}

// The main job is a promise of the README: these values are not to change by accident.
func TestBuiltinMainJob(t *testing.T) {
	s, err := Builtin("qos2-pipeline")
	if err != nil {
		t.Fatal(err)
	}
	got := s.WithDefaults()
	got.Question, got.QuickForm = "", nil
	want := Scenario{
		Name: "qos2-pipeline",
		Arms: []Arm{
			{Name: "A", Target: "reference?store=staged&pipeline=off", Client: ClientWire},
			{Name: "B", Target: "reference?store=staged", Client: ClientWire},
		},
		QoS: []int{2}, Windows: []int{1, 10, 20, 256}, Connections: []int{1}, Payloads: []int{256},
		Passes: 2, Nodes: 3, Replicas: 3, Rates: []int{0}, Topics: 1, SubscriberSession: SessionClean, Version: MQTT311, Client: ClientWire, Pin: PinOff, Seed: 1,
		// How long is measured may be tuned.
		Duration: got.Duration, Warmup: got.Warmup, Control: got.Control, Verify: got.Verify, Drain: got.Drain, Blocks: got.Blocks,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Blocks*got.Passes < 6 {
		t.Errorf("%d blocks in all: below 6 there is no finite interval worth the name", got.Blocks*got.Passes)
	}
}

func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"qos: 2\nwindow: [1, 10]\narms: [null, 'tcp://h:1']\n",
		"arms:\n  - name: a\n    target: null\nquick:\n  blocks: 2\n",
		"window: [1, 0,\n  65536, 1]\npayload: 1KiB\ncontrol: off\n",
		"question: |\n  a\n  b\n---\nqos: 1\n",
		"a: &x [*x, !!t 1, {b: c}]\n? [k]\n: v\n",
		"\t- \xff\n\"quoted\": 'x'\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Load("f.yaml", data)
		if err != nil {
			var problems *FileError
			if !errors.As(err, &problems) || len(problems.Problems) == 0 {
				t.Fatalf("an error without a problem: %v", err)
			}
			if !strings.HasPrefix(err.Error(), "f.yaml:") {
				t.Fatalf("an error that does not start with the file: %v", err)
			}
			return
		}
		// What Load lets pass has only problems of the whole, each named by Validate, and every stored value is one that
		// the same setting takes again.
		full := s.WithDefaults()
		for _, k := range keys() {
			if text := k.check(&full); len(text) > 0 {
				t.Fatalf("Load let pass %v", text)
			}
			var again Scenario
			if err := again.Set(k.Name, strings.Split(full.Get(k.Name), ",")...); err != nil {
				t.Fatalf("%s %s is not taken again: %v", k.Name, full.Get(k.Name), err)
			}
		}
	})
}
