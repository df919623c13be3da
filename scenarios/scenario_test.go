package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPoints(t *testing.T) {
	s := Scenario{QoS: []int{1, 2}, Windows: []int{1, 10}, Connections: []int{1}, Payloads: []int{64, 256}}
	want := []Point{
		{QoS: 1, Window: 1, Connections: 1, Payload: 64},
		{QoS: 1, Window: 10, Connections: 1, Payload: 64},
		{QoS: 1, Window: 1, Connections: 1, Payload: 256},
		{QoS: 1, Window: 10, Connections: 1, Payload: 256},
		{QoS: 2, Window: 1, Connections: 1, Payload: 64},
		{QoS: 2, Window: 10, Connections: 1, Payload: 64},
		{QoS: 2, Window: 1, Connections: 1, Payload: 256},
		{QoS: 2, Window: 10, Connections: 1, Payload: 256},
	}
	if diff := cmp.Diff(want, s.Points()); diff != "" {
		t.Error(diff)
	}
}

func TestWithDefaults(t *testing.T) {
	for _, test := range []struct {
		why        string
		s          Scenario
		key, value string
	}{
		{"the published windows", Scenario{}, "window", "1,10,20,256"},
		{"a real cluster", Scenario{}, "nodes", "3"},
		{"replicas on every node", Scenario{}, "replicas", "3"},
		{"one node alone needs no second setting", Scenario{Nodes: 1}, "replicas", "1"},
		{"more nodes do not mean more copies", Scenario{Nodes: 5}, "replicas", "3"},
		{"what is set stays", Scenario{Nodes: 5, Replicas: 1}, "replicas", "1"},
		{"no control is not the default control", Scenario{Control: None}, "control", "off"},
		{"no verification is not the default one", Scenario{Verify: None}, "verify", "off"},
	} {
		got := test.s.WithDefaults()
		if value := got.Get(test.key); value != test.value {
			t.Errorf("%s: %s %s, want %s", test.why, test.key, value, test.value)
		}
		if diff := cmp.Diff(got, got.WithDefaults()); diff != "" {
			t.Errorf("%s: defaults of defaults differ: %s", test.why, diff)
		}
	}
	s := Scenario{Windows: []int{5}, Arms: []Arm{{Target: "null"}, {Name: "x", Target: "null"}}}
	full := s.WithDefaults()
	full.Windows[0], full.Arms[1].Name = 6, "y"
	if s.Windows[0] != 5 || s.Arms[1].Name != "x" {
		t.Error("the copy shares its lists with the original")
	}
	if full.Arms[0].Name != "A" {
		t.Errorf("the first arm is named %q, want A", full.Arms[0].Name)
	}
}

func TestQuicken(t *testing.T) {
	s := Scenario{Blocks: 9, Duration: time.Second}
	if q := s.Quicken(); q.Blocks != 2 || q.Duration != 150*time.Millisecond || !q.Quick || s.Quick {
		t.Errorf("the general short form is %+v", q)
	}
	s.QuickForm = []Setting{{"window", []string{"1", "20"}}}
	q := s.Quicken()
	if diff := cmp.Diff(Scenario{Blocks: 9, Duration: time.Second, Windows: []int{1, 20}, Quick: true}, q); diff != "" {
		t.Errorf("a quick section replaces the general short form: %s", diff)
	}
}

func TestSet(t *testing.T) {
	var s Scenario
	for _, setting := range []Setting{{"window", []string{"1", "10"}}, {"duration", []string{"2s"}}, {"window", []string{"5"}}, {"control", []string{"0s"}}} {
		if err := s.Set(setting.Key, setting.Values...); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(Scenario{Windows: []int{5}, Duration: 2 * time.Second, Control: None}, s); diff != "" {
		t.Errorf("setting again replaces: %s", diff)
	}
	for _, test := range []struct {
		why string
		Setting
		want string
	}{
		{"both problems", Setting{"window", []string{"0", "x"}}, "window 0 is out of range, 1 to 65535: a connection has 65,535 Packet Identifiers, and a window needs at least 1\nwindow \"x\" is not a whole number"},
		{"a suggestion", Setting{"widnow", []string{"1"}}, `unknown setting "widnow": did you mean "window"?`},
		{"nothing given", Setting{"window", nil}, "window has no value"},
		{"one value only", Setting{"nodes", []string{"1", "3"}}, "nodes takes one value, not a list"},
	} {
		if err := s.Set(test.Key, test.Values...); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.why, err, test.want)
		}
	}
}

// Every setting has a help line, a default that it takes itself, and shows its default.
func TestKeys(t *testing.T) {
	full := Scenario{}.WithDefaults()
	for _, k := range Keys() {
		value := full.Get(k.Name)
		if k.Help == "" || value == "" {
			t.Errorf("%s: help %q, default %q", k.Name, k.Help, value)
		}
		var s Scenario
		if err := s.Set(k.Name, strings.Split(value, ",")...); err != nil {
			t.Errorf("the default of %s is not taken: %v", k.Name, err)
		}
		if s.Get(k.Name) != value {
			t.Errorf("%s %s came back as %s", k.Name, value, s.Get(k.Name))
		}
	}
}

func TestValidate(t *testing.T) {
	arms := []Arm{{Target: "null"}, {Target: "null"}}
	for _, test := range []struct {
		why  string
		s    Scenario
		want []string // none: valid
	}{
		{"an A/A run calibrates", Scenario{Arms: arms}, nil},
		{"one arm is a sweep", Scenario{Arms: arms[:1]}, nil},
		{"the largest window", Scenario{Arms: arms, Windows: []int{MaxWindow}}, nil},
		{"nothing to measure", Scenario{}, []string{"no arm: name a target to measure"}},
		{"all arms run at the same time", Scenario{Arms: slices.Repeat(arms, 4)}, []string{"8 arms: at most 6 in one run"}},
		{"columns could not be told apart", Scenario{Arms: []Arm{{Name: "x", Target: "null"}, {Name: "x", Target: "null"}}}, []string{`two arms are named "x"`}},
		{"a given name may be another's default", Scenario{Arms: []Arm{{Name: "B", Target: "null"}, {Name: "", Target: "null"}}}, []string{`two arms are named "B"`}},
		{"an arm without a target", Scenario{Arms: []Arm{{Name: "x", Target: ""}}}, []string{"arm 1 has no target"}},
		{"more copies than nodes", Scenario{Arms: arms, Nodes: 2, Replicas: 3}, []string{"replicas 3 with nodes 2"}},
		{
			"every problem at once, of values made in code too",
			Scenario{Arms: arms, QoS: []int{3}, Windows: []int{0, 65_536, 7, 7}, Passes: -1, Warmup: -1, Duration: time.Hour},
			[]string{
				"qos 3 is out of range", "window 0 is out of range", "window 65536 is out of range", "window 7 is listed twice",
				"passes -1 is out of range", "warmup -1ns is out of range", "duration 1h0m0s is out of range: 1ms to 10m0s",
			},
		},
		{
			"a week of load",
			Scenario{Arms: arms, Windows: upTo(600), Payloads: []int{64, 256}},
			[]string{"1200 combinations of qos, window, connections, payload and rate: at most 1000"},
		},
		{"a quick section made in code", Scenario{Arms: arms, QuickForm: []Setting{{"blocks", []string{"0"}}}}, []string{"quick: blocks 0 is out of range"}},
	} {
		err := test.s.Validate()
		var got []string
		if err != nil {
			got = strings.Split(err.Error(), "\n")
		}
		if len(got) != len(test.want) {
			t.Errorf("%s: %d problems, want %d: %q", test.why, len(got), len(test.want), got)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no problem says %q: %q", test.why, want, got)
			}
		}
	}
}

func TestClosest(t *testing.T) {
	candidates := []string{"qos", "window", "passes", "payload", "blocks"}
	for _, test := range []struct{ why, word, want string }{
		{"one letter more", "windows", "window"},
		{"two neighbours swapped", "widnow", "window"},
		{"a letter less", "pases", "passes"},
		{"two changes", "bloxxs", "blocks"},
		{"too far", "dockers", ""},
		{"a short word may not be rewritten entirely", "abc", ""},
		{"nothing", "", ""},
		{"a flood", strings.Repeat("window", 100), ""},
	} {
		if got := Closest(test.word, candidates); got != test.want {
			t.Errorf("%s: Closest(%.20q) = %q, want %q", test.why, test.word, got, test.want)
		}
	}
}

func upTo(n int) []int {
	var list []int
	for i := range n {
		list = append(list, i+1)
	}
	return list
}
