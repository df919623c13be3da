package pin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"inflight/scenarios"
)

// ErrImpossible is why nothing can be pinned here; what wraps it says more.
var ErrImpossible = errors.New("processes cannot be pinned here")

// CPU is one that this process may run on. CPUs of one Core share most of it.
type CPU struct {
	Number, Package, Core int
}

// Plan is which CPUs each may run on. Without a Generator nothing is pinned, and Note says why.
type Plan struct {
	Auto      bool
	Generator []int
	Slots     [][]int // one for each slot
	Note      string  // for people; "" where there is nothing to say
}

// Here is the plan that a scenario with its defaults asks for on this machine: nil when it asks for none. An automatic plan
// that is impossible has a Note and nothing else; a list that is impossible is an error.
func Here(s *scenarios.Scenario) (*Plan, error) {
	if s.Pin == "" || s.Pin == scenarios.PinOff {
		return nil, nil
	}
	cpus, err := allowed()
	if err == nil {
		return planOf(s.Pin, len(s.Arms), cpus)
	}
	if s.Pin == scenarios.PinAuto {
		return &Plan{Auto: true, Note: "not pinned: " + err.Error()}, nil
	}
	return nil, fmt.Errorf("pin %q: %w", s.Pin, err)
}

// planOf is the plan of a pin setting for so many slots on cpus.
func planOf(setting string, slots int, cpus []CPU) (*Plan, error) {
	if setting == scenarios.PinAuto {
		return divide(cpus, slots), nil
	}
	pins, err := scenarios.ParsePins(setting)
	if err != nil {
		return nil, err
	}
	var have, missing []int
	for _, c := range cpus {
		have = append(have, c.Number)
	}
	for _, set := range append(slices.Clone(pins.Slots), pins.Generator) {
		for _, n := range set {
			if !slices.Contains(have, n) && !slices.Contains(missing, n) {
				missing = append(missing, n)
			}
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		slices.Sort(have)
		return nil, fmt.Errorf("pin %q: %s is not among the CPUs that this process may run on, %s", setting, Format(missing), Format(have))
	}
	p := &Plan{Generator: pins.Generator, Slots: pins.Slots}
	for len(p.Slots) < slots && len(pins.Slots) == 1 {
		p.Slots = append(p.Slots, pins.Slots[0])
	}
	p.Note = p.overlap()
	return p, nil
}

// overlap says what a list makes share a CPU with the generator.
func (p *Plan) overlap() string {
	for i, set := range p.Slots {
		for _, n := range set {
			if slices.Contains(p.Generator, n) {
				return fmt.Sprintf("the generator and slot %d share CPU %d", i+1, n)
			}
		}
	}
	return ""
}

// Parts of an automatic plan.
const (
	generatorShare = 4 // the generator gets a quarter of the cores, and one at least
	ownAtLeast     = 2 // cores: below, a slot of its own would be smaller than what two slots in turns can share
)

// divide gives the generator a quarter of the cores, and the slots the others: each its own where there are two or more
// for each of them, otherwise all of them the same, since only one slot is loaded at a time. CPUs of one core stay together
// where there is more than one core.
func divide(cpus []CPU, slots int) *Plan {
	units := cores(cpus)
	if len(units) == 1 && len(cpus) > 1 {
		units = nil
		for _, c := range cpus {
			units = append(units, []int{c.Number})
		}
		slices.SortFunc(units, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	}
	p := &Plan{Auto: true}
	if len(units) < 2 {
		p.Note = "not pinned: there is one CPU for generator and brokers"
		return p
	}
	own := max(1, len(units)/generatorShare)
	p.Generator = union(units[:own])
	rest := units[own:]
	if each := len(rest) / max(1, slots); each >= ownAtLeast {
		for i := range slots {
			p.Slots = append(p.Slots, union(rest[i*each:(i+1)*each]))
		}
		return p
	}
	for range slots {
		p.Slots = append(p.Slots, union(rest))
	}
	if all := union(rest); len(all) == 1 {
		p.Note = fmt.Sprintf("every node of a broker shares CPU %d: rates are lower than without a plan, and steadier", all[0])
	}
	return p
}

// cores are the CPUs of each core, in the order of packages and cores.
func cores(cpus []CPU) [][]int {
	cpus = slices.Clone(cpus)
	slices.SortFunc(cpus, func(a, b CPU) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Core, b.Core), cmp.Compare(a.Number, b.Number))
	})
	var units [][]int
	for i, c := range cpus {
		if i == 0 || cpus[i-1].Package != c.Package || cpus[i-1].Core != c.Core {
			units = append(units, nil)
		}
		units[len(units)-1] = append(units[len(units)-1], c.Number)
	}
	return units
}

func union(sets [][]int) []int {
	all := slices.Concat(sets...)
	slices.Sort(all)
	return all
}

// Format writes a set in ascending order in the kernel's form: 0,2-3.
func Format(set []int) string {
	var b strings.Builder
	for i := 0; i < len(set); {
		last := i
		for last+1 < len(set) && set[last+1] == set[last]+1 {
			last++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(set[i]))
		if last > i {
			b.WriteString("-" + strconv.Itoa(set[last]))
		}
		i = last + 1
	}
	return b.String()
}
