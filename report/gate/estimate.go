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

// estimate is a value with what bounds it: a ratio, or an absolute value.
type estimate struct {
	ratio          float64
	low, high      *float64 // nil: why says the reason
	why            string
	unfit          string   // in the place of all else: why there is no number
	value, against *float64 // of the ratio
	normalised     bool     // each side is divided by its own control
	pHolm          *float64
}

const noInterval = "no interval: too few blocks"

// estimate compares a pair at a point; nil when one side was not measured there.
func (j *judge) estimate(r *rule.Rule, p pair, at stat.Point) *estimate {
	if j.Baseline != nil {
		return j.acrossRuns(r, p, at)
	}
	of := j.cellValue(r, j.Result)
	value, against := pooled(j.Result, p.arm, at, of), pooled(j.Result, p.base, at, of)
	if broken := incorrect(j.Result, p.base, at); broken != "" && value != nil {
		return &estimate{unfit: "the base is incorrect there, its numbers do not count: " + broken}
	}
	if metric := comparedAs(r); metric != "" {
		for i := range j.Result.Comparisons {
			c := &j.Result.Comparisons[i]
			if c.Metric == metric && stat.PointOfComparison(c) == at && j.isOf(c, p) {
				return &estimate{ratio: c.Ratio, low: c.Low, high: c.High, why: noInterval, value: value, against: against, pHolm: c.PHolm}
			}
		}
		return nil
	}
	return ofPasses(passes(j.Result, p.arm, at, of), passes(j.Result, p.base, at, of), false)
}

// isOf reports whether a comparison is that of the pair. Results of an older inflight name no arms: B over A.
func (j *judge) isOf(c *result.Comparison, p pair) bool {
	if c.Arm == "" && c.Base == "" {
		return len(j.Result.Arms) > 1 && p.base == j.Result.Arms[0].Name && p.arm == j.Result.Arms[1].Name
	}
	return c.Arm == p.arm && c.Base == p.base
}

// comparedAs is the metric of report/stat that a rule's metric is; empty when stat does not compare it.
func comparedAs(r *rule.Rule) string {
	switch r.Metric {
	case rule.Throughput:
		return stat.Throughput
	case "ack-service.p99":
		return stat.P99
	}
	return ""
}

func (j *judge) acrossRuns(r *rule.Rule, p pair, at stat.Point) *estimate {
	of, before := j.cellValue(r, j.Result), j.cellValue(r, j.Baseline)
	value, against := pooled(j.Result, p.arm, at, of), pooled(j.Baseline, p.base, at, before)
	if value == nil || against == nil {
		return nil
	}
	if broken := incorrect(j.Baseline, p.base, at); broken != "" {
		return &estimate{unfit: "the baseline is incorrect there, its numbers do not count: " + broken}
	}
	metric := comparedAs(r)
	if !j.like && r.Metric != rule.Throughput {
		return &estimate{unfit: "not compared: the baseline was made on another machine, and there is no control to divide it by"}
	}
	if metric == "" {
		return ofPasses(passes(j.Result, p.arm, at, of), passes(j.Baseline, p.base, at, before), true)
	}
	across := stat.Across(j.Baseline, j.Result, p.base, p.arm, at, metric, !j.like)
	if across == nil {
		if !j.like {
			return &estimate{unfit: "not compared: the baseline was made on another machine, and one of the two runs has no QoS 0 control"}
		}
		return &estimate{unfit: "not compared: the blocks have no such value"}
	}
	return &estimate{ratio: across.Ratio, low: across.Low, high: across.High, why: noInterval, value: value, against: against, normalised: !j.like}
}

// minPasses have to agree where a metric has no blocks.
const minPasses = 2

// ofPasses compares two arms by the values of their passes. Passes of one run belong together, in their order; those of
// two runs do not, and the range is that of all their ratios.
func ofPasses(arm, base []float64, apart bool) *estimate {
	if len(arm) == 0 || len(base) == 0 {
		return nil
	}
	value, against := geometric(arm), geometric(base)
	e := &estimate{ratio: value / against, value: &value, against: &against, why: "no interval: a single pass, and what a pass has one of needs two that agree"}
	var ratios []float64
	for i, a := range arm {
		for k, b := range base {
			if apart || i == k {
				ratios = append(ratios, a/b)
			}
		}
	}
	if len(arm) >= minPasses && len(base) >= minPasses {
		low, high := slices.Min(ratios), slices.Max(ratios)
		e.low, e.high = &low, &high
	}
	return e
}

// absoluteOf is an arm's own value at a point, with the interval of its blocks or the range of its passes; nil when it was
// not measured.
func (j *judge) absoluteOf(rl *rule.Rule, arm string, at stat.Point) *estimate {
	r := j.Result
	values := passes(r, arm, at, j.cellValue(rl, r))
	if len(values) == 0 {
		return nil
	}
	e := &estimate{ratio: geometric(values)}
	if metric := comparedAs(rl); metric != "" {
		if s := stat.Summarise(r, arm, at); s != nil {
			m := s.Throughput
			if metric == stat.P99 {
				m = s.P99
			}
			if m != nil {
				e.ratio, e.low, e.high = m.Value, m.Low, m.High
			}
		}
		if e.low != nil {
			return e
		}
	}
	low, high := min(e.ratio, slices.Min(values)), max(e.ratio, slices.Max(values))
	e.low, e.high = &low, &high
	return e
}

// cellValue returns what a rule's metric is of a cell of one of the results; 0 when it is absent. A histogram that cannot be
// read is remembered in unread.
func (j *judge) cellValue(r *rule.Rule, of *result.Result) func(*result.Cell) float64 {
	latency, figure := r.Latency()
	q, read := r.Quantile(), j.Percentile
	if of == j.Baseline {
		read = j.BaselinePercentile
	}
	return func(c *result.Cell) float64 {
		switch r.Metric {
		case rule.Throughput:
			return c.ThroughputPerS
		case rule.Delivered:
			if c.DeliveredPerS != nil {
				return *c.DeliveredPerS
			}
			return 0
		case rule.RSS:
			return number(c.RSSPeak)
		case rule.CPU:
			if c.CPUSeconds == nil || c.Messages == 0 {
				return 0
			}
			return *c.CPUSeconds * 1e9 / float64(c.Messages)
		}
		d := distribution(&c.Latency, latency)
		if d == nil {
			return 0
		}
		if q > 0 {
			return j.fromHistogram(read, c, latency, q)
		}
		switch figure {
		case "p50":
			return number(d.P50)
		case "p90":
			return number(d.P90)
		case "p99":
			return number(d.P99)
		case "p999":
			return number(d.P999)
		case "max":
			return float64(d.Max)
		}
		return float64(d.Mean)
	}
}

func (j *judge) fromHistogram(read Percentile, c *result.Cell, latency string, q float64) float64 {
	if read == nil {
		j.unread = errors.New("there are no histograms")
		return 0
	}
	ns, ok, err := read(c, strings.ReplaceAll(latency, "-", "_"), q)
	if err != nil && j.unread == nil {
		j.unread = err
	}
	if err != nil || !ok {
		return 0
	}
	return float64(ns)
}

// tooFew is the place of a rule about a percentile where an arm, or what it is compared with, recorded the latency but has too
// few samples to say where the percentile is; nil where that is not so.
func (j *judge) tooFew(r *rule.Rule, p pair, at stat.Point) *Place {
	latency, figure := r.Latency()
	if latency == "" {
		return nil
	}
	before := j.Result
	if j.Baseline != nil {
		before = j.Baseline
	}
	sides := []struct {
		of  *result.Result
		arm string
	}{{j.Result, p.arm}, {before, p.base}}
	if p.base == "" { // an absolute limit
		sides = sides[:1]
	}
	short := ""
	for _, s := range sides {
		recorded := pooled(s.of, s.arm, at, func(c *result.Cell) float64 {
			if d := distribution(&c.Latency, latency); d != nil {
				return float64(d.Count)
			}
			return 0
		})
		if recorded == nil {
			return nil // not measured there
		}
		if pooled(s.of, s.arm, at, j.cellValue(r, s.of)) == nil && short == "" {
			short = fmt.Sprintf("%s has too few samples for a %s (%s in a pass)", human.Clean(s.arm), figure, human.Count(int64(*recorded)))
		}
	}
	if short == "" {
		return nil
	}
	place := newPlace(p.arm, p.base, at)
	place.Outcome, place.Text = Inconclusive, fmt.Sprintf("%s at %s: %s", r.Metric, where(at), short)
	return &place
}

func distribution(l *result.Latency, name string) *result.Distribution {
	switch name {
	case "ack-service":
		return l.AckService
	case "ack-response":
		return l.AckResponse
	case "publish-to-pubrec":
		return l.Receive
	case "pubrel-to-pubcomp":
		return l.Release
	case "end-to-end":
		return l.EndToEnd
	}
	return nil
}

func number(v *int64) float64 {
	if v == nil {
		return 0
	}
	return float64(*v)
}

// passes are the values of an arm's cells at a point, in the order of the passes; what is absent is left out.
func passes(r *result.Result, arm string, at stat.Point, of func(*result.Cell) float64) []float64 {
	var out []float64
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Arm != arm || c.Control || stat.PointOf(c) != at {
			continue
		}
		if v := of(c); v > 0 && !math.IsInf(v, 0) {
			out = append(out, v)
		}
	}
	return out
}

func pooled(r *result.Result, arm string, at stat.Point, of func(*result.Cell) float64) *float64 {
	values := passes(r, arm, at, of)
	if len(values) == 0 {
		return nil
	}
	v := geometric(values)
	return &v
}

func geometric(values []float64) float64 {
	if slices.Min(values) == slices.Max(values) {
		return values[0] // without the rounding of logarithms
	}
	sum := 0.0
	for _, v := range values {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}
