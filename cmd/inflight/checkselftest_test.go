package main

import (
	"slices"
	"testing"

	"inflight/broker/misbehave"
	"inflight/runner/check"
)

// Every must and contract of the groups about exchanges and order has a planted fault that it is to find, every fault that
// a rule names exists, and every fault has a rule.
func TestEveryRuleHasAFault(t *testing.T) {
	groups := []string{"A1", "Q2I", "RES", "Q2O", "ORD", "E2E"}
	named := map[string]bool{}
	for _, r := range append(check.Catalogue(), check.AllInvariants()...) {
		if slices.Contains(groups, r.Group()) && r.Level > check.Info && len(r.Faults) == 0 {
			t.Errorf("%s has no planted fault", r.ID)
		}
		for _, f := range r.Faults {
			if _, err := misbehave.New(f); err != nil {
				t.Errorf("%s: %v", r.ID, err)
			}
			named[f] = true
		}
	}
	for _, f := range misbehave.Faults() {
		if !named[f.Name] {
			t.Errorf("no rule is to find the fault %s", f.Name)
		}
	}
}
