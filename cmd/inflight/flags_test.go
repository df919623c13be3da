package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"inflight/scenarios"
)

// scenarioOf is the scenario that a command line measures.
func scenarioOf(t *testing.T, base scenarios.Scenario, args ...string) (scenarios.Scenario, error) {
	t.Helper()
	cmd := &cobra.Command{}
	flags := addRunFlags(cmd, &base)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return flags.apply(base)
}

// Every flag and the key of the same name make the same scenario.
func TestFlagsAndFilesMakeTheSameScenario(t *testing.T) {
	base := mainScenario()
	base.Name, base.Question = "same", "Is it?"
	base.Arms = []scenarios.Arm{{Target: "null"}, {Target: "null?delay=5ms"}}
	const head = "name: same\nquestion: Is it?\narms: [null, 'null?delay=5ms']\n"

	for _, test := range []struct {
		why   string
		flags string
		file  string
	}{
		{"no flag, the main job's values", "", "window: [1, 10, 20, 256]"},
		{"a list in one flag", "--window 1,20", "window: [1, 20]"},
		{"a list in several flags", "--window 1 --window 20", "window: [1, 20]"},
		{"blanks after the comma", "--window=1,·20", "window: [1, 20]"},
		{"a single value", "--qos 1", "qos: 1"},
		{"sizes", "--payload 64,1KiB", "payload: [64, 1KiB]"},
		{"switched off", "--control off --verify 0", "control: off\nverify: 0"},
		{"replicas follow nodes", "--nodes 1", "nodes: 1"},
		{"replicas do not follow when set", "--nodes 3 --replicas 1", "nodes: 3\nreplicas: 1"},
		{"the last single value counts", "--blocks 2 --blocks 4", "blocks: 4"},
		{
			"all of them",
			"--qos 0,1,2 --window 5 --connections 1,100 --payload 64 --duration 2s --warmup 1s --control 300ms --passes 4 --blocks 6 --nodes 5 --replicas 5 --verify 1s --drain 1m",
			"qos: [0, 1, 2]\nwindow: 5\nconnections: [1, 100]\npayload: 64\nduration: 2s\nwarmup: 1s\ncontrol: 300ms\npasses: 4\nblocks: 6\nnodes: 5\nreplicas: 5\nverify: 1s\ndrain: 1m",
		},
	} {
		args := strings.Fields(test.flags)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "·", " ") // inside one argument
		}
		fromFlags, err := scenarioOf(t, base, args...)
		if err != nil {
			t.Errorf("%s: %v", test.why, err)
			continue
		}
		loaded, err := scenarios.Load("same.yaml", []byte(head+test.file))
		if err != nil {
			t.Errorf("%s: %v", test.why, err)
			continue
		}
		fromFile, err := scenarioOf(t, *loaded)
		if err != nil {
			t.Errorf("%s: %v", test.why, err)
			continue
		}
		if diff := cmp.Diff(fromFile, fromFlags); diff != "" {
			t.Errorf("%s: %s and the file differ: %s", test.why, test.flags, diff)
		}
	}
}

func TestQuickFlag(t *testing.T) {
	s, err := scenarios.Load("q.yaml", []byte("arms: [null]\nblocks: 9\nduration: 5s\nquick: {blocks: 1, duration: 100ms}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		why, flags string
		want       string
		quick      bool
	}{
		{"the section has no effect by itself", "", "9 5s", false},
		{"the section replaces the file's values", "--quick", "1 100ms", true},
		{"a flag replaces the section's, wherever it stands", "--duration 1s --quick", "1 1s", true},
	} {
		got, err := scenarioOf(t, *s, strings.Fields(test.flags)...)
		if err != nil {
			t.Fatal(err)
		}
		if text := got.Get("blocks") + " " + got.Get("duration"); text != test.want || got.Quick != test.quick {
			t.Errorf("%s: %s, quick %v, want %s, %v", test.why, text, got.Quick, test.want, test.quick)
		}
	}
}

func TestFlagsReportEveryProblem(t *testing.T) {
	base := mainScenario()
	_, err := scenarioOf(t, base, "--nodes", "2", "--replicas", "3", "--window", "1,2")
	if exitCode(err) != exitUsage || !strings.Contains(err.Error(), "replicas 3 with nodes 2") {
		t.Errorf("%v (exit %d), want the problem of the whole as a usage error", err, exitCode(err))
	}
}

func TestMainScenarioIsValid(t *testing.T) {
	s, err := scenarioOf(t, mainScenario())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Arms) != 2 || s.Name != mainJob {
		t.Errorf("compare without arguments measures %q with %d arms", s.Name, len(s.Arms))
	}
	if err := checkTargets(&s); err != nil {
		t.Error(err)
	}
}
