package stat

import (
	"fmt"
	"math"

	"inflight/report/internal/human"
	"inflight/runner/result"
)

// Between is what can be said of an arm of one run over an arm of an earlier one, at one point. The runs are not paired, so it
// is no verdict. What varied inside the runs is in the interval; what varied between them only the QoS 0 control knows, and
// only of two builds of one broker, which share that path.
type Between struct {
	Base, Arm  string
	Point      Point
	*Ratio            // of the throughput; nil: nothing can be said, and Says tells why
	PerControl bool   // each side was divided by its own QoS 0 control first, because the machines differ
	Says       string // in words
}

// BetweenRuns compares each arm of the later of some runs that stand side by side with one of the first run: that of the same
// target, or else another build of the same broker, or else the one of the same name, or else its first arm.
func BetweenRuns(r *result.Result) []Between {
	if len(r.Runs) < 2 || len(r.Runs[0].Arms) == 0 {
		return nil
	}
	targets := map[string]string{}
	for _, a := range r.Arms {
		targets[a.Name] = a.Target
	}
	first := &r.Runs[0]
	var out []Between
	for i := range r.Runs[1:] {
		run := &r.Runs[1+i]
		like := len(Unlike(first.Environment, run.Environment)) == 0
		for k, arm := range run.Arms {
			base, best := first.Arms[0], 0
			for n, candidate := range first.Arms {
				fit := 0
				if n < len(first.OwnNames) && k < len(run.OwnNames) && first.OwnNames[n] == run.OwnNames[k] {
					fit = 1
				}
				if SameKind(targets[candidate], targets[arm]) {
					fit += 2
				}
				if targets[candidate] == targets[arm] {
					fit += 4
				}
				if fit > best {
					base, best = candidate, fit
				}
			}
			for _, at := range Points(r) {
				if Summarise(r, base, at) != nil && Summarise(r, arm, at) != nil {
					out = append(out, between(r, base, arm, at, like, SameKind(targets[base], targets[arm])))
				}
			}
		}
	}
	return out
}

func between(r *result.Result, base, arm string, at Point, like, alike bool) Between {
	b := Between{Base: base, Arm: arm, Point: at, PerControl: !like}
	switch {
	case Summarise(r, base, at).Incorrect || Summarise(r, arm, at).Incorrect:
		b.Says = "nothing: a broker broke its contract there"
		return b
	case !like && !alike:
		b.Says = "nothing: the machines differ, and two different brokers share no path to divide by"
		return b
	}
	if b.Ratio = Across(r, r, base, arm, at, Throughput, !like); b.Ratio == nil {
		b.Says = "nothing: the machines differ, and one of the runs has no QoS 0 control"
		if like {
			b.Says = "nothing: the blocks have no values"
		}
		return b
	}
	control := AcrossControl(r, r, base, arm)
	switch {
	case b.Low == nil || b.High == nil:
		b.Says = "too few blocks for an interval"
	case !alike:
		b.Says = "two different brokers share no path that would show what varied between the runs"
	case !like:
		b.Says = outside(b.Ratio, 0, "another share of its own QoS 0 rate than before", "no other share of its own QoS 0 rate than before")
	case control == nil:
		b.Says = "without a QoS 0 control in both, what varied between the runs is not known"
	default:
		spread := Spread(control)
		differ := fmt.Sprintf("than the runs differ at QoS 0 (%.0f %%)", 100*math.Expm1(spread))
		b.Says = outside(b.Ratio, spread, "more "+differ, "no more "+differ)
	}
	return b
}

// outside chooses a text by whether the whole interval is further from 1 than the margin, a logarithm.
func outside(r *Ratio, margin float64, yes, no string) string {
	if math.Log(*r.Low) > margin || math.Log(*r.High) < -margin {
		return yes
	}
	return no
}

// Unlike says in what two machines differ, for people; empty for machines whose rates compare.
func Unlike(there, here result.Environment) []string {
	var out []string
	add := func(what, x, y string) {
		if x != y {
			out = append(out, fmt.Sprintf("%s %s, here %s", what, human.Clean(orUnknown(x)), human.Clean(orUnknown(y))))
		}
	}
	add("processor", there.CPU, here.CPU)
	add("cores", fmt.Sprint(there.Cores), fmt.Sprint(here.Cores))
	add("GOMAXPROCS", fmt.Sprint(there.GOMAXPROCS), fmt.Sprint(here.GOMAXPROCS))
	add("system", there.OS+"/"+there.Arch, here.OS+"/"+here.Arch)
	return out
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
