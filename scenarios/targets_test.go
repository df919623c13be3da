package scenarios

import (
	"slices"
	"testing"
)

func TestTargets(t *testing.T) {
	names := TargetNames()
	for _, want := range []string{"mochi", "mosquitto", "nats-server", "null", "reference"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %v", want, names)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("%v is not in order", names)
	}
	for _, name := range names {
		if data, ok := Target(name); !ok || len(data) == 0 {
			t.Errorf("%s: no description", name)
		}
	}
	if data, ok := TargetProgram("mochi"); !ok || len(data) == 0 {
		t.Error("mochi: no command around the library")
	}
	for _, name := range []string{"null", "../targets/mochi", "no-such-broker"} {
		if _, ok := TargetProgram(name); ok {
			t.Errorf("%q has a command", name)
		}
	}
	for _, name := range []string{"", ".", "../targets/null", "null.yaml", "no-such-broker"} {
		if _, ok := Target(name); ok {
			t.Errorf("%q has a description", name)
		}
	}
}
