package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Words of the pin setting; anything else is a list of CPU sets.
const (
	PinOff  = "off"
	PinAuto = "auto"
)

// MaxCPU is the highest number of a CPU that may be named, the kernel's own limit on Linux.
const MaxCPU = 1023

// Pins are the CPU sets of a pin setting that lists them.
type Pins struct {
	Generator []int
	Slots     [][]int // one for all slots, or one for each
}

// ParsePins reads CPU sets: the load generator's, then one for all slots or one for each, as 0/1-3 or 0,4/1-2/5-6.
func ParsePins(text string) (Pins, error) {
	var sets [][]int
	for _, part := range strings.Split(text, "/") {
		set, err := parseCPUs(part)
		if err != nil {
			return Pins{}, fmt.Errorf("pin %q: %w", text, err)
		}
		sets = append(sets, set)
	}
	if len(sets) < 2 {
		return Pins{}, fmt.Errorf("pin %q: want auto, off, or CPU sets with a / between them, the generator's first, as 0/1-3 (all slots) or 0/1/2 (each slot its own)", text)
	}
	return Pins{Generator: sets[0], Slots: sets[1:]}, nil
}

// parseCPUs reads one set in the kernel's form: 0,4 or 1-3 or both. It is in ascending order, each CPU once.
func parseCPUs(text string) ([]int, error) {
	var set []int
	for _, part := range strings.Split(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(low)
		last := first
		if ranged && err == nil {
			last, err = strconv.Atoi(high)
		}
		if err != nil || first < 0 || last < first {
			return nil, fmt.Errorf("%q is no CPU and no range of them, as 0 or 1-3", part)
		}
		if last > MaxCPU {
			return nil, fmt.Errorf("CPU %d is out of range, 0 to %d", last, MaxCPU)
		}
		for cpu := first; cpu <= last; cpu++ {
			set = append(set, cpu)
		}
	}
	slices.Sort(set)
	return slices.Compact(set), nil
}

// pinKey is the setting of where processes may run.
func pinKey() key {
	const name = "pin"
	problem := func(s *Scenario, value string) string {
		if value == "" || value == PinOff || value == PinAuto {
			return ""
		}
		pins, err := ParsePins(value)
		switch {
		case err != nil:
			return err.Error()
		case len(pins.Slots) > 1 && len(s.Arms) > 0 && len(pins.Slots) != len(s.Arms):
			return fmt.Sprintf("pin %q: %d CPU sets for %d slots (one for each arm); one set is shared by all of them", value, len(pins.Slots), len(s.Arms))
		}
		return ""
	}
	return key{
		Key: Key{
			Name: name, Word: true,
			Help: "CPUs for generator and brokers, on Linux: off, auto (a plan for this machine), or the generator's and the slots' sets as 0/1-3",
		},
		set: func(s *Scenario, i int, value string) error {
			if i > 0 {
				return errors.New("pin takes one value, not a list")
			}
			if text := problem(&Scenario{}, value); text != "" || value == "" {
				return errors.New(cmp.Or(text, "pin is empty"))
			}
			s.Pin = value
			return nil
		},
		get: func(s *Scenario) string { return cmp.Or(s.Pin, PinOff) },
		check: func(s *Scenario) []string {
			if text := problem(s, s.Pin); text != "" {
				return []string{text}
			}
			return nil
		},
	}
}
