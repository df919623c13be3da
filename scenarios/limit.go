package scenarios

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limit is what a search for the highest rate keeps to: a percentile of the response time, from the instant that the schedule
// of an open loop wants a message written at until its acknowledgement. The zero value is no search.
type Limit struct {
	Percentile float64       // above 0 and below 100
	Below      time.Duration // above 0
}

// Bounds of a Limit. A percentile beyond the highest would take more messages than a trial has time for.
const (
	maxPercentile = 99.99
	maxLimit      = time.Minute
)

// String is the limit as a file and a flag give it, "off" for none.
func (l Limit) String() string {
	if l == (Limit{}) {
		return noLimit
	}
	return "p" + strconv.FormatFloat(l.Percentile, 'f', -1, 64) + "<" + l.Below.String()
}

const noLimit = "off"

func parseLimit(text string) (Limit, error) {
	if text == noLimit {
		return Limit{}, nil
	}
	problem := fmt.Errorf("find-max %q: write the percentile of the response time and its bound, as p99<20ms", text)
	name, bound, ok := strings.Cut(text, "<")
	number, isPercentile := strings.CutPrefix(strings.TrimSpace(name), "p")
	if !ok || !isPercentile {
		return Limit{}, problem
	}
	percentile, err := strconv.ParseFloat(number, 64)
	below, err2 := time.ParseDuration(strings.TrimSpace(bound))
	if errors.Join(err, err2) != nil {
		return Limit{}, problem
	}
	l := Limit{percentile, below}
	return l, l.validate()
}

func (l Limit) validate() error {
	switch {
	case l == Limit{}:
		return nil
	case !(l.Percentile > 0 && l.Percentile <= maxPercentile):
		return fmt.Errorf("find-max: p%g is out of range: above p0, up to p%g", l.Percentile, maxPercentile)
	case l.Below <= 0 || l.Below > maxLimit:
		return fmt.Errorf("find-max: %v is out of range: above 0, up to %v", l.Below, maxLimit)
	}
	return nil
}

func findMax() key {
	return key{
		Key: Key{Name: "find-max", Word: true, Help: "search for the highest rate at which a percentile of the response time keeps below a bound, as p99<20ms; off: none"},
		set: func(s *Scenario, i int, value string) error {
			if i > 0 {
				return errors.New("find-max takes one value, not a list")
			}
			l, err := parseLimit(value)
			if err == nil {
				s.FindMax = l
			}
			return err
		},
		get: func(s *Scenario) string { return s.FindMax.String() },
		check: func(s *Scenario) []string {
			if err := s.FindMax.validate(); err != nil {
				return []string{err.Error()}
			}
			return nil
		},
	}
}
