package main

import (
	"os"
	"slices"
	"strings"
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

// The README's table is what a self-test prints that finds everything.
func TestFaultTableOfTheReadme(t *testing.T) {
	all := plantings(append(check.Catalogue(), check.AllInvariants()...))
	for _, p := range all {
		for _, r := range p.rules {
			p.found[r.ID] = []string{"3.1.1", "5.0"}
		}
	}
	var want strings.Builder
	faultTable(&want, all)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "\n"+want.String()+"\n") {
		t.Errorf("the README does not have this table (inflight check --self-test --format markdown prints it):\n%s", want.String())
	}
}

// A self-test fails when a rule misses its fault, when it finds something where nothing is, and when a broker did not run.
func TestJudgeSelfTest(t *testing.T) {
	rules := []*check.Rule{check.ByID("A1-01")}
	all := plantings(rules)
	for _, p := range all[1:] {
		p.found["A1-01"], p.ran["A1-01"] = []string{"5.0"}, []string{"3.1.1", "5.0"}
	}
	if err := judgeSelfTest(all); err != nil {
		t.Errorf("found in one version: %v", err)
	}
	var table strings.Builder
	ruleTable(&table, all)
	if !strings.Contains(table.String(), "A1-01       4 of 4  puback-drop in 5.0 ") {
		t.Errorf("the table:\n%s", table.String())
	}
	delete(all[1].found, "A1-01")
	if err := judgeSelfTest(all); exitCode(err) != exitGate || !strings.Contains(err.Error(), "A1-01 does not find puback-drop") {
		t.Errorf("a fault that is missed: %v", err)
	}
	table.Reset()
	ruleTable(&table, all)
	if !strings.Contains(table.String(), "A1-01       3 of 4  (puback-drop) ") {
		t.Errorf("the table:\n%s", table.String())
	}
	all[0].alarms = []string{"A1-01 (MQTT 5.0) violated"}
	if err := judgeSelfTest(all[:1]); exitCode(err) != exitGate || !strings.Contains(err.Error(), "without a fault: A1-01") {
		t.Errorf("a false alarm: %v", err)
	}
	all[0].alarms, all[0].err = nil, os.ErrClosed
	if err := judgeSelfTest(all[:1]); exitCode(err) != exitTrouble {
		t.Errorf("a broker that did not run: %v", err)
	}
}
