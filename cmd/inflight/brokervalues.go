package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"inflight/scenarios"
)

// defaultSysInterval is how often a broker tells about itself unless it is told otherwise.
const defaultSysInterval = 10 * time.Second

// choiceValue is a flag that takes one of a few words.
type choiceValue struct {
	value   string
	allowed []string
}

func (v *choiceValue) String() string { return v.value }

func (v *choiceValue) Set(s string) error {
	if !slices.Contains(v.allowed, s) {
		hint := scenarios.DidYouMean(s, v.allowed)
		if hint == "" {
			hint = fmt.Sprintf(" (there are: %s)", strings.Join(v.allowed, ", "))
		}
		return fmt.Errorf("unknown %q%s", s, hint)
	}
	v.value = s
	return nil
}

func (v *choiceValue) Type() string { return strings.Join(v.allowed, "|") }

// sizeUnits are what a size may be given in, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// sizeValue is a flag that takes a number of bytes, with or without a unit.
type sizeValue int

func (v *sizeValue) String() string {
	n := int64(*v)
	for _, u := range sizeUnits {
		if u.bytes > 1 && n > 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

func (v *sizeValue) Set(s string) error {
	number, unit := s, int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt/unit {
		return fmt.Errorf("%q is not a size: write bytes, or a unit as in 64KiB, 4MiB, 1GiB", s)
	}
	*v = sizeValue(n * unit)
	return nil
}

func (v *sizeValue) Type() string { return "size" }
