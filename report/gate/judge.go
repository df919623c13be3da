package gate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
	"inflight/scenarios/rule"
)

// significance of a Holm-corrected p value.
const significance = 0.05

// judge holds what all rules need.
type judge struct {
	Input
	pairs  []pair           // what a ratio compares
	judged []string         // arms that are on trial
	spread map[pair]float64 // log, of the control of each pair
	like   bool             // the baseline's machine is like this one
	notes  []string
	unread error // why a histogram that the rule at hand needs could not be read
}

// pair is an arm and what it is compared with: an arm of the same run, or of the baseline.
type pair struct{ arm, base string }

func (j *judge) prepare() error {
	names := func(r *result.Result) (out []string) {
		for _, a := range r.Arms {
			out = append(out, a.Name)
		}
		return out
	}
	arms := names(j.Result)
	if len(arms) == 0 || len(stat.Points(j.Result)) == 0 {
		return errors.New("nothing was measured: the result has no cells")
	}
	j.like, j.judged, j.spread = true, arms, map[pair]float64{}
	if j.Baseline == nil {
		if len(arms) > 1 {
			j.judged = arms[1:]
			for _, arm := range j.judged {
				p := pair{arm, arms[0]}
				j.pairs = append(j.pairs, p)
				if builds(targetOf(j.Result, p.arm), targetOf(j.Result, p.base)) {
					j.spread[p] = stat.Spread(stat.ControlOf(j.Result, p.arm))
				}
			}
		}
		return nil
	}
	old := names(j.Baseline)
	for _, arm := range arms {
		if slices.Contains(old, arm) {
			j.pairs = append(j.pairs, pair{arm, arm})
		}
	}
	if len(arms) == 1 && len(old) == 1 {
		j.pairs = []pair{{arms[0], old[0]}}
	}
	common := 0
	before := stat.Points(j.Baseline)
	for _, p := range stat.Points(j.Result) {
		if slices.Contains(before, p) {
			common++
		}
	}
	if len(j.pairs) == 0 || common == 0 {
		return fmt.Errorf("the baseline has no cell in common with the result: it has arms %s and %s; the result has arms %s and %s",
			strings.Join(old, ", "), places(before), strings.Join(arms, ", "), places(stat.Points(j.Result)))
	}
	j.baselineNotes()
	return nil
}

// unlikeClients refuses a ratio of two arms that are loaded through different clients.
func (j *judge) unlikeClients() error {
	old := j.Baseline
	if old == nil {
		old = j.Result
	}
	for _, p := range j.pairs {
		arm, base := armOf(j.Result, p.arm), armOf(old, p.base)
		if arm != nil && base != nil && stat.UnlikeClients(arm, base) {
			return fmt.Errorf("%s is loaded through client %s and %s through %s: their ratio compares clients, not brokers; gate arms of one client",
				human.Clean(p.arm), human.Clean(stat.ClientName(arm)), human.Clean(p.base), human.Clean(stat.ClientName(base)))
		}
	}
	return nil
}

func armOf(r *result.Result, name string) *result.Arm {
	for i := range r.Arms {
		if r.Arms[i].Name == name {
			return &r.Arms[i]
		}
	}
	return nil
}

func targetOf(r *result.Result, arm string) string {
	if a := armOf(r, arm); a != nil {
		return a.Target
	}
	return ""
}

// places lists a few points, for people.
func places(points []stat.Point) string {
	const shown = 4
	var out []string
	for _, p := range points[:min(len(points), shown)] {
		out = append(out, fmt.Sprintf("QoS %d window %d connections %d payload %d", p.QoS, p.Window, p.Connections, p.Payload))
	}
	if n := len(points) - shown; n > 0 {
		out = append(out, fmt.Sprintf("%d more", n))
	}
	if len(out) == 0 {
		return "no points"
	}
	return strings.Join(out, "; ")
}

func (j *judge) baselineNotes() {
	differs := stat.Unlike(j.Baseline.Environment, j.Result.Environment)
	j.like = len(differs) == 0
	if j.like {
		j.notes = append(j.notes, "the baseline was made on a machine like this one: values are compared as they are, less the control's spread; run both builds in one job to be surer")
		for _, p := range j.pairs {
			if c := stat.AcrossControl(j.Baseline, j.Result, p.base, p.arm); c != nil {
				j.spread[p] = stat.Spread(c)
			}
		}
		return
	}
	j.notes = append(j.notes, "the baseline was made on another machine ("+strings.Join(differs, "; ")+
		"): only throughputs divided by their own QoS 0 control are compared, every other ratio is left open")
}

// rule returns the places of a rule, at least one, or why there is none.
func (j *judge) rule(r *rule.Rule) ([]Place, error) {
	if r.Kind() == rule.Level {
		return j.conformance(r)
	}
	if j.Result == nil {
		return nil, errors.New("there is no result of a run to judge, only a conformance check")
	}
	if r.Ratio {
		if err := j.unlikeClients(); err != nil {
			return nil, err
		}
	}
	var out []Place
	j.unread = nil
	for _, at := range stat.Points(j.Result) {
		if !r.Matches(at.QoS, at.Window, at.Connections, at.Payload, at.Rate) {
			continue
		}
		switch {
		case r.Kind() == rule.Promise:
			for _, arm := range j.judged {
				out = append(out, j.promise(r, arm, at))
			}
		case r.Ratio:
			for _, p := range j.pairs {
				if place, ok := j.ratio(r, p, at); ok {
					out = append(out, place)
				} else if few := j.tooFew(r, p, at); few != nil {
					out = append(out, *few)
				}
			}
		default:
			for _, arm := range j.judged {
				if place, ok := j.absolute(r, arm, at); ok {
					out = append(out, place)
				} else if few := j.tooFew(r, pair{arm: arm}, at); few != nil {
					out = append(out, *few)
				}
			}
		}
	}
	if j.unread != nil {
		return nil, fmt.Errorf("%s is read from the histograms of the run, and %w; result.json itself has p50, p90, p99, p999, max and mean", r.Metric, j.unread)
	}
	if len(out) > 0 {
		return append(out, j.overall(r)...), nil
	}
	if r.Ratio && len(j.pairs) == 0 {
		return nil, errors.New("matches nothing: a ratio needs a second arm, or a baseline (--baseline)")
	}
	return nil, fmt.Errorf("matches nothing: %s was not measured at such a place; the result has %s", r.Metric, places(stat.Points(j.Result)))
}

// overall judges a rule for every place by the ratio over all points together as well, where the run has one: a loss that
// no place shows for certain is plain over several.
func (j *judge) overall(r *rule.Rule) (out []Place) {
	if !r.Ratio || j.Baseline != nil || r.Metric != rule.Throughput || r.QoS != nil || r.Windows != nil || r.Connections != nil || r.Payloads != nil || r.Rates != nil {
		return nil
	}
	for i := range j.Result.Overall {
		c := &j.Result.Overall[i]
		p := pair{c.Arm, c.Base}
		if c.Verdict == stat.Incorrect || !slices.Contains(j.pairs, p) {
			continue // an incorrect place has failed already
		}
		place := Place{Arm: c.Arm, Base: c.Base, Ratio: &c.Ratio, Low: c.Low, High: c.High}
		place.Text = fmt.Sprintf("%s over all points together: %s is %sx %s of %s", r.Metric, human.Clean(c.Arm), human.Ratio(c.Ratio), human.Interval(c.Low, c.High), j.against(p))
		j.decide(r, &place, &estimate{ratio: c.Ratio, low: c.Low, high: c.High, why: noInterval, pHolm: c.PHolm})
		out = append(out, place)
	}
	return out
}

func where(at stat.Point) string {
	text := fmt.Sprintf("QoS %d, %s in flight, %s, %s", at.QoS, human.Count(int64(at.Window)),
		human.Plural(int64(at.Connections), "connection"), human.Payload(at.Payload, at.Sizes))
	if pace := human.Pace(at.Rate, at.Ramp); pace != "" {
		text += ", " + pace
	}
	return text
}

func newPlace(arm, base string, at stat.Point) Place {
	return Place{Arm: arm, Base: base, QoS: at.QoS, Window: at.Window, Connections: at.Connections, Payload: at.Payload, Rate: at.Rate, Ramp: at.Ramp, Sizes: at.Sizes}
}

// ratio judges one pair at one point; ok is false when one of the two was not measured there.
func (j *judge) ratio(r *rule.Rule, p pair, at stat.Point) (place Place, ok bool) {
	e := j.estimate(r, p, at)
	if e == nil {
		return Place{}, false
	}
	place = newPlace(p.arm, p.base, at)
	what := fmt.Sprintf("%s at %s: ", r.Metric, where(at))
	if broken := incorrect(j.Result, p.arm, at); broken != "" {
		place.Outcome, place.Broken, place.badness = Fail, true, math.Inf(1)
		place.Text = what + fmt.Sprintf("%s is incorrect there, its numbers do not count: %s", human.Clean(p.arm), broken)
		return place, true
	}
	if e.unfit != "" {
		place.Outcome, place.Text = Inconclusive, what+e.unfit
		return place, true
	}
	place.Value, place.Against, place.Ratio, place.Low, place.High = e.value, e.against, &e.ratio, e.low, e.high
	against := j.against(p)
	place.Text = what + fmt.Sprintf("%s is %sx %s of %s", human.Clean(p.arm), human.Ratio(e.ratio), human.Interval(e.low, e.high), against)
	if e.value != nil && e.against != nil && !e.normalised {
		place.Text += fmt.Sprintf(" (%s against %s)", write(r, *e.value), write(r, *e.against))
	}
	if e.normalised {
		place.Text += ", each over its own QoS 0 control"
	}
	j.decide(r, &place, e)
	return place, true
}

func (j *judge) against(p pair) string {
	if j.Baseline != nil {
		return "the baseline"
	}
	return human.Clean(p.base)
}

// decide gives the place its outcome; the package comment says how.
func (j *judge) decide(r *rule.Rule, place *Place, e *estimate) {
	d := distanceOf(r, e.ratio)
	place.badness = -d
	need, allowed := -math.Log1p(-r.Effect), ""
	if !r.AtLeast {
		need = math.Log1p(r.Effect)
	}
	if r.Effect > 0 {
		allowed = fmt.Sprintf(" (%s %% would not matter)", percent(r.Effect))
	}
	limit := fmt.Sprintf(" the limit of %s%s", r.LimitText(), allowed)
	if e.low == nil || e.high == nil {
		place.Outcome = Inconclusive
		place.Text += "; " + e.why
		return
	}
	low, high := distanceOf(r, *e.low), distanceOf(r, *e.high)
	if low > high {
		low, high = high, low
	}
	spread := 0.0
	if !e.normalised { // the control is in the ratio already
		spread = j.spread[pair{place.Arm, place.Base}]
	}
	switch {
	case low >= -need:
		place.Outcome = Pass
		place.Text += ": within" + limit
	case high < -spread && d <= -need && !(r.Limit == 1 && e.pHolm != nil && *e.pHolm > significance):
		place.Outcome = Fail
		place.Text += ": " + beyond(r, e.ratio) + limit
	default:
		place.Outcome = Inconclusive
		place.Text += ": not told apart from" + limit
		if spread > math.Log1p(0.02) {
			place.Text += fmt.Sprintf(" (the control's spread is %.0f %%)", 100*math.Expm1(spread))
		}
	}
}

// distanceOf is how far, as a logarithm, a value is on the good side of the limit.
func distanceOf(r *rule.Rule, v float64) float64 {
	d := math.Log(v) - math.Log(r.Limit)
	if !r.AtLeast {
		d = -d
	}
	return d
}

// beyond says by how much a value misses the limit.
func beyond(r *rule.Rule, v float64) string {
	if r.AtLeast {
		return fmt.Sprintf("%.0f %% below", 100*(1-v/r.Limit))
	}
	return fmt.Sprintf("%.0f %% above", 100*(v/r.Limit-1))
}

func percent(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*f), ".0") }

// absolute judges the value of one arm at one point.
func (j *judge) absolute(r *rule.Rule, arm string, at stat.Point) (Place, bool) {
	e := j.absoluteOf(r, arm, at)
	if e == nil {
		return Place{}, false
	}
	place := newPlace(arm, "", at)
	what := fmt.Sprintf("%s at %s: ", r.Metric, where(at))
	if broken := incorrect(j.Result, arm, at); broken != "" {
		place.Outcome, place.Broken, place.badness = Fail, true, math.Inf(1)
		place.Text = what + fmt.Sprintf("%s is incorrect there, its numbers do not count: %s", human.Clean(arm), broken)
		return place, true
	}
	place.Value = &e.ratio
	place.Text = what + fmt.Sprintf("%s has %s", human.Clean(arm), write(r, e.ratio))
	if e.low != nil && e.high != nil {
		place.Low, place.High = e.low, e.high
		place.Text += fmt.Sprintf(" [%s, %s]", write(r, *e.low), write(r, *e.high))
	}
	e.normalised = true // an absolute value has no control
	j.decide(r, &place, e)
	return place, true
}

// write is a value with the unit of the rule's metric.
func write(r *rule.Rule, v float64) string {
	switch r.Kind() {
	case rule.PerSecond:
		return human.Rate(v) + "/s"
	case rule.Bytes:
		return human.Bytes(int64(v))
	default:
		return human.Latency(v)
	}
}

// builds reports whether two targets are builds of one broker. Of two addresses that cannot be seen; but who gates one
// against the other asks for a regression, which only a build of the same broker can be.
func builds(a, b string) bool {
	return stat.SameKind(a, b) || strings.Contains(a, "://") && strings.Contains(b, "://")
}
