package stat

import (
	"fmt"
	"slices"
	"strings"

	"inflight/runner/result"
)

// Found is what the searches of all passes say about an arm at a point.
type Found struct {
	Arm       string
	Point     Point
	Limit     string
	Low, High *int   // the lowest rate that a pass found to hold, the highest that one found to break; nil where a pass found none
	ValueNS   *int64 // the highest percentile of the trials that held at Low
	Trials    int
	Open      []string // why Low or High is missing, in words, once for each reason
}

// Searches pools the searches of the passes. One pass is a life of the brokers, and they need not agree: the interval has the
// findings of all.
func Searches(r *result.Result) (all []Found) {
	for i := range r.Searches {
		s := &r.Searches[i]
		at := Point{QoS: s.QoS, Window: s.Window, Connections: s.Connections, Payload: s.Payload, Sizes: s.Sizes}
		var f *Found
		for k := range all {
			if all[k].Arm == s.Arm && all[k].Point == at && all[k].Limit == s.Limit {
				f = &all[k]
			}
		}
		if f == nil {
			all = append(all, Found{Arm: s.Arm, Point: at, Limit: s.Limit, Low: s.Low, High: s.High})
			f = &all[len(all)-1]
		}
		if s.Low == nil || f.Low != nil && *s.Low < *f.Low {
			f.Low = s.Low
		}
		if s.High == nil || f.High != nil && *s.High > *f.High {
			f.High = s.High
		}
		f.Trials += len(s.Trials)
		if why := whyOpen(s); why != "" && !slices.Contains(f.Open, why) {
			f.Open = append(f.Open, why)
		}
	}
	for k := range all {
		all[k].ValueNS = valueAt(r, &all[k])
	}
	return all
}

// whyOpen says in words why a search has not found both sides, or not near each other.
func whyOpen(s *result.Search) string {
	switch s.End {
	case "found":
		return ""
	case "lowest_breaks":
		lowest := 0
		for i := range s.Trials {
			if t := &s.Trials[i]; lowest == 0 || t.RatePerS < lowest {
				lowest = t.RatePerS
			}
		}
		return fmt.Sprintf("it breaks at %d/s already, the lowest rate whose trial has enough messages", lowest)
	case "highest_holds":
		return "it holds at the highest rate that can be asked for"
	case "generator_limit":
		for i := range s.Trials {
			if t := &s.Trials[len(s.Trials)-1-i]; t.Fault != "" {
				return fmt.Sprintf("above, the broker's limit is not known: at %d/s %s", t.RatePerS, t.Fault)
			}
		}
		return "above, the broker's limit is not known: the load generator may have been at fault"
	case "out_of_trials":
		return "the trials contradict each other, and the search ran out of them"
	}
	return "it ended for a reason that this version does not know: " + s.End
}

func valueAt(r *result.Result, f *Found) (highest *int64) {
	if f.Low == nil {
		return nil
	}
	for i := range r.Searches {
		s := &r.Searches[i]
		if s.Arm != f.Arm || s.Limit != f.Limit || (Point{QoS: s.QoS, Window: s.Window, Connections: s.Connections, Payload: s.Payload, Sizes: s.Sizes}) != f.Point {
			continue
		}
		for k := range s.Trials {
			if t := &s.Trials[k]; t.Held && t.RatePerS == *f.Low && t.ValueNS != nil && (highest == nil || *t.ValueNS > *highest) {
				highest = t.ValueNS
			}
		}
	}
	return highest
}

// openSearches warns of searches that did not find both sides of the limit.
func openSearches(r *result.Result, warn func(code, format string, args ...any)) {
	for _, f := range Searches(r) {
		if len(f.Open) > 0 {
			warn(CodeSearch, "%s: the search for the highest rate with %s %s: %s", f.Arm, f.Limit, pointName(f.Point), strings.Join(f.Open, "; "))
		}
	}
}
