package scenarios

import (
	"errors"
	"fmt"
	"strings"

	"inflight/scenarios/rule"
)

// Validate reports every problem of s at once, as one error joined of one per problem; nil when s can be run. Zero fields
// count as their defaults. Whether an arm's target exists is not known here.
func (s *Scenario) Validate() error {
	full := s.WithDefaults()
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if text := checkName("name", full.Name, 60); text != "" {
		add("%s", text)
	}
	switch {
	case len(full.Arms) == 0:
		add("no arm: name a target to measure")
	case len(full.Arms) > MaxArms:
		add("%d arms: at most %d in one run, since all of them run at the same time", len(full.Arms), MaxArms)
	}
	names := map[string]bool{}
	for i, arm := range full.Arms {
		if text := checkName("arm name", arm.Name, 16); text != "" {
			add("%s", text)
		}
		if arm.Target == "" {
			add("arm %d has no target", i+1)
		}
		if names[arm.Name] {
			add("two arms are named %q", arm.Name)
		}
		names[arm.Name] = true
	}
	valid := len(problems) == 0
	for _, k := range keys() {
		for _, text := range k.check(&full) {
			add("%s", text)
			valid = false
		}
	}
	if full.Replicas > full.Nodes {
		add("replicas %d with nodes %d: a stream cannot have more replicas than the cluster has nodes", full.Replicas, full.Nodes)
	}
	// Only sensible lists are multiplied.
	if points := len(full.QoS) * len(full.Windows) * len(full.Connections) * len(full.Payloads); valid && points > MaxPoints {
		add("%d combinations of qos, window, connections and payload: at most %d in one run", points, MaxPoints)
	}
	for _, text := range s.Gate {
		if _, err := rule.Parse(text); err != nil {
			add("gate: %v", err)
		}
	}
	for _, setting := range s.QuickForm {
		var trial Scenario
		if err := trial.Set(setting.Key, setting.Values...); err != nil {
			add("quick: %v", err)
		}
	}
	return errors.Join(problems...)
}

// checkName keeps names fit for a column heading and for a part of a file name.
func checkName(what, name string, limit int) string {
	const also = "-_."
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(also, r)
	}
	switch {
	case name == "":
		return what + " is empty"
	case len(name) > limit:
		return fmt.Sprintf("%s %.20q... is longer than %d characters", what, name, limit)
	case strings.ContainsFunc(name, bad) || strings.HasPrefix(name, "."):
		return fmt.Sprintf("%s %q: letters, digits and any of %s only, not starting with a dot", what, name, also)
	}
	return ""
}
