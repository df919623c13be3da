package runner

import (
	"fmt"
	"slices"
	"strings"

	"inflight/runner/pin"
	"inflight/runner/result"
	"inflight/runner/target"
	"inflight/scenarios"
)

// EnvironmentOf describes this machine as a run of s will find it, with the CPUs that it will keep to. An error is in the
// scenario: it asks for CPUs that are not there.
func EnvironmentOf(s *scenarios.Scenario) (result.Environment, error) {
	e := Environment()
	plan, err := pin.Here(s)
	e.Pinning = pinning(plan)
	return e, err
}

// pinning is the plan in the words of a result.
func pinning(plan *pin.Plan) *result.Pinning {
	if plan == nil {
		return nil
	}
	p := &result.Pinning{Auto: plan.Auto, Generator: pin.Format(plan.Generator), Note: plan.Note}
	for _, set := range plan.Slots {
		p.Slots = append(p.Slots, pin.Format(set))
	}
	return p
}

// pinSelf keeps this process to the generator's CPUs until the function returned is called, and tells the user the plan.
// It is called once every program is built: a compiler wants all CPUs.
func (r *run) pinSelf() (back func(), err error) {
	if r.pins == nil {
		return func() {}, nil
	}
	r.events.send(Event{Kind: Talk, Text: describePins(pinning(r.pins))})
	for _, a := range r.arms {
		if a.program.Spec().Kind == target.KindAddress {
			r.events.send(Event{Kind: Talk, Text: fmt.Sprintf("arm %s (%s) is not ours to pin", a.Name, a.Target)})
		}
	}
	if len(r.pins.Generator) == 0 {
		return func() {}, nil
	}
	return pin.Self(r.pins.Generator)
}

// describePins says a plan in a line.
func describePins(p *result.Pinning) string {
	if p.Generator == "" {
		return p.Note
	}
	text := "pinned: the generator to CPU " + p.Generator
	if same := slices.Compact(slices.Clone(p.Slots)); len(same) == 1 {
		text += ", every slot to CPU " + same[0]
	} else {
		text += ", the slots to CPU " + strings.Join(p.Slots, ", CPU ")
	}
	if p.Note != "" {
		text += " (" + p.Note + ")"
	}
	return text
}

// slotCPUs are those of a slot, from 1; none: any.
func (r *run) slotCPUs(slot int) []int {
	if r.pins == nil || slot > len(r.pins.Slots) {
		return nil
	}
	return r.pins.Slots[slot-1]
}
