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
	if points := len(full.QoS) * len(full.Windows) * len(full.Connections) * len(full.payloads()) * len(full.rates()); valid && points > MaxPoints {
		add("%d combinations of qos, window, connections, payload and rate: at most %d in one run", points, MaxPoints)
	}
	for _, text := range s.Gate {
		if _, err := rule.Parse(text); err != nil {
			add("gate: %v", err)
		}
	}
	full.validateLoad(add)
	s.validateClients(&full, add)
	for _, setting := range s.QuickForm {
		var trial Scenario
		if err := trial.Set(setting.Key, setting.Values...); err != nil {
			add("quick: %v", err)
		}
	}
	return errors.Join(problems...)
}

// validateLoad finds settings that say nothing together.
func (s *Scenario) validateLoad(add func(format string, args ...any)) {
	if s.FindMax != (Limit{}) {
		for _, p := range s.rates() {
			if p.Rate > 0 {
				add("find-max with a rate: the search tries rates of its own; leave rate away")
				break
			}
		}
		for _, qos := range s.QoS {
			if qos == 0 {
				add("find-max at QoS 0: nothing acknowledges a message there, so it has no response time; qos must be 1 or 2")
			}
		}
		if s.Messages > 0 {
			add("find-max with messages: a trial lasts as long as the duration; leave messages away")
		}
	}
	for _, p := range s.rates() {
		if p.Rate > 0 && s.Messages == 0 && p.MeanRate()*s.Duration.Seconds() < 1 {
			add("rate %g for %v: not one message in a run; a longer duration is needed", p.MeanRate(), s.Duration)
		}
		if p.RampTo > 0 && s.Messages > 0 {
			add("rate %s with messages: a ramp lasts as long as the duration, and messages end a run without one", p.Ramp())
		}
	}
	if s.Subscribers > 0 {
		for _, qos := range s.QoS {
			if s.SubscriberQoS != nil {
				qos = min(qos, *s.SubscriberQoS)
			}
			if s.SubscriberDelay > 0 && qos == 0 {
				add("subscriber-delay at QoS 0: there is no acknowledgement to withhold; qos and subscriber-qos must be 1 or 2")
				break
			}
		}
		return
	}
	for _, of := range []struct {
		name string
		set  bool
	}{
		{"subscriber-qos", s.SubscriberQoS != nil},
		{"subscriber-delay", s.SubscriberDelay > 0},
		{"subscriber-session", s.SubscriberSession == SessionKept},
	} {
		if of.set {
			add("%s without subscribers: set subscribers to 1 or more", of.name)
		}
	}
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
