package gate

import (
	"errors"
	"fmt"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
	"inflight/scenarios/rule"
)

// Outcome of a rule, or of a rule at one place.
type Outcome string

// The outcomes, from good to bad.
const (
	Pass         Outcome = "pass"
	Inconclusive Outcome = "inconclusive"
	Fail         Outcome = "fail"
)

func (o Outcome) worse(than Outcome) bool {
	rank := map[Outcome]int{Pass: 1, Inconclusive: 2, Fail: 3}
	return rank[o] > rank[than]
}

// Defaults are the rules of a comparison that has none: a fifth of the throughput lost for certain is a regression, and
// exactly once and order are judged anyway. Percentiles are left out: the short runs that a pull request can afford have
// too few samples for an interval.
func Defaults() []string { return []string{"throughput >= 1x effect 20%"} }

// Input is what there is to judge by. Result may be nil when all rules are about conformance.
type Input struct {
	Result   *result.Result // judged by report/stat
	Baseline *result.Result // nil: the run's own base arm
	Check    *result.Check  // nil: none was made
	Rules    []string       // none: those of the result's scenario, or else Defaults

	// Percentiles that result.json does not keep, of Result and of Baseline; nil where there are no histograms.
	Percentile, BaselinePercentile Percentile
}

// Percentile returns the value below which the share q of a cell's samples of a latency is, which is named as in result.json;
// ok is false where there are too few samples beyond it. Package report/hist reads it from a run's directory.
type Percentile func(c *result.Cell, latency string, q float64) (ns int64, ok bool, err error)

// Report is what the gate found.
type Report struct {
	Schema   string    `json:"schema"` // inflight.gate/1
	Scenario string    `json:"scenario"`
	Outcome  Outcome   `json:"outcome"`
	Broken   bool      `json:"conformance_violated"` // something was lost, doubled, reordered, or against a must
	Verdicts []Verdict `json:"rules"`
	Notes    []string  `json:"notes,omitempty"`
	Reruns   int       `json:"reruns"` // further runs of places that were inconclusive
}

// Schema names the format of a Report as JSON.
const Schema = "inflight.gate/1"

// Verdict is one rule. Places has at least one entry.
type Verdict struct {
	Rule    string  `json:"rule"`
	Outcome Outcome `json:"outcome"`
	Broken  bool    `json:"conformance_violated,omitempty"`
	Places  []Place `json:"places"`
}

// Place is a rule at one point of the sweep, for one arm. Text says in one line what, where and by how much.
type Place struct {
	Arm         string   `json:"arm,omitempty"`
	Base        string   `json:"base,omitempty"`
	QoS         int      `json:"qos"`
	Window      int      `json:"window"`
	Connections int      `json:"connections"`
	Payload     int      `json:"payload_bytes"`
	Rate        int      `json:"rate_per_s,omitempty"` // of an open loop
	Ramp        string   `json:"rate_ramp,omitempty"`
	Sizes       string   `json:"payload_sizes,omitempty"`
	Outcome     Outcome  `json:"outcome"`
	Broken      bool     `json:"conformance_violated,omitempty"`
	Text        string   `json:"text"`
	Value       *float64 `json:"value,omitempty"` // of the arm, in the metric's unit
	Against     *float64 `json:"against,omitempty"`
	Ratio       *float64 `json:"ratio,omitempty"`
	Low         *float64 `json:"low,omitempty"`
	High        *float64 `json:"high,omitempty"`

	badness float64 // how far beyond the limit, to find the worst
}

// Worst is the place that decided the verdict.
func (v *Verdict) Worst() *Place {
	worst := &v.Places[0]
	for i := range v.Places[1:] {
		p := &v.Places[i+1]
		if p.Outcome.worse(worst.Outcome) || p.Outcome == worst.Outcome && p.badness > worst.badness {
			worst = p
		}
	}
	return worst
}

// Count is how many places of the verdict have an outcome.
func (v *Verdict) Count(o Outcome) int {
	n := 0
	for i := range v.Places {
		if v.Places[i].Outcome == o {
			n++
		}
	}
	return n
}

// Judge applies the rules. Its errors are the user's: a rule that cannot be read or matches nothing, a baseline without a
// cell in common.
func Judge(in Input) (*Report, error) {
	texts := in.Rules
	if len(texts) == 0 && in.Result != nil {
		texts = in.Result.Scenario.Gate
	}
	if len(texts) == 0 {
		texts = defaults(in)
	}
	rules, err := parse(texts)
	if err != nil {
		return nil, err
	}
	j := &judge{Input: in}
	if in.Result != nil {
		if err := j.prepare(); err != nil {
			return nil, err
		}
	}
	out := &Report{Schema: Schema, Outcome: Pass, Notes: j.notes}
	if in.Result != nil {
		out.Scenario = human.Clean(in.Result.Scenario.Name)
		out.Reruns = len(in.Result.Reruns)
		if in.Result.Partial {
			out.Notes = append(out.Notes, "the run is partial: "+human.Clean(in.Result.Trouble))
		}
	}
	var problems []error
	asked := map[string]bool{}
	for _, r := range rules {
		asked[r.Metric] = true
		places, err := j.rule(r)
		if err != nil {
			problems = append(problems, fmt.Errorf("rule %q: %w", r, err))
			continue
		}
		out.add(r.String(), places)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if in.Result != nil {
		j.always(out, asked)
		if in.Result.Partial && out.Outcome == Pass {
			out.Outcome = Inconclusive
		}
	}
	return out, nil
}

// defaults fit what there is: without a pair of arms there is no ratio.
func defaults(in Input) []string {
	switch {
	case in.Result == nil:
		return []string{"conformance must"}
	case in.Baseline == nil && len(in.Result.Arms) < 2:
		return []string{rule.ExactlyOnce, rule.Ordering}
	}
	return Defaults()
}

func parse(texts []string) ([]*rule.Rule, error) {
	if len(texts) > rule.MaxRules {
		return nil, fmt.Errorf("%d rules: at most %d", len(texts), rule.MaxRules)
	}
	var rules []*rule.Rule
	var problems []error
	for _, text := range texts {
		r, err := rule.Parse(text)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		rules = append(rules, r)
	}
	return rules, errors.Join(problems...)
}

func (r *Report) add(text string, places []Place) {
	v := Verdict{Rule: text, Outcome: Pass, Places: places}
	for i := range places {
		if places[i].Outcome.worse(v.Outcome) {
			v.Outcome = places[i].Outcome
		}
		v.Broken = v.Broken || places[i].Broken
	}
	r.Verdicts = append(r.Verdicts, v)
	if v.Outcome.worse(r.Outcome) {
		r.Outcome = v.Outcome
	}
	r.Broken = r.Broken || v.Broken
}

// Open are the points with a place that is inconclusive and that another measurement could decide.
func (r *Report) Open() []stat.Point {
	var points []stat.Point
	seen := map[stat.Point]bool{}
	for i := range r.Verdicts {
		for _, p := range r.Verdicts[i].Places {
			at := stat.Point{QoS: p.QoS, Window: p.Window, Connections: p.Connections, Payload: p.Payload, Rate: p.Rate, Ramp: p.Ramp, Sizes: p.Sizes}
			if p.Outcome == Inconclusive && p.Window > 0 && !seen[at] {
				seen[at] = true
				points = append(points, at)
			}
		}
	}
	return points
}

// Summary is the outcome in one line: what failed worst, where and by how much.
func (r *Report) Summary() string {
	var worst *Place
	failed, open := 0, 0
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		failed += v.Count(Fail)
		open += v.Count(Inconclusive)
		p := v.Worst()
		if worst == nil || p.Outcome.worse(worst.Outcome) || p.Outcome == worst.Outcome && (p.Broken && !worst.Broken || p.Broken == worst.Broken && p.badness > worst.badness) {
			worst = p
		}
	}
	switch {
	case r.Outcome == Fail:
		return worst.Text + more(failed-1, "place fails", "places fail")
	case r.Outcome == Inconclusive && worst != nil && worst.Outcome == Inconclusive:
		return worst.Text + more(open-1, "place is open", "places are open")
	case r.Outcome == Inconclusive:
		return "the run did not end"
	}
	return human.Plural(int64(len(r.Verdicts)), "rule") + " kept"
}

func more(n int, one, many string) string {
	switch {
	case n <= 0:
		return ""
	case n == 1:
		return "; 1 more " + one
	}
	return fmt.Sprintf("; %d more %s", n, many)
}
