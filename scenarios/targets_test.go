package scenarios

import (
	"slices"
	"testing"
)

func TestTargets(t *testing.T) {
	names := TargetNames()
	for _, want := range []string{"nats-server", "null", "reference"} {
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
	for _, name := range []string{"", ".", "../targets/null", "null.yaml", "no-such-broker"} {
		if _, ok := Target(name); ok {
			t.Errorf("%q has a description", name)
		}
	}
}
