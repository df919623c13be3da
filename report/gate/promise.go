package gate

import (
	"errors"
	"fmt"
	"math"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
	"inflight/scenarios/rule"
)

// account is what an arm did with its promises at a point, over all passes.
type account struct {
	cells, verified                      int
	published                            int64
	order                                int64
	lost, duplicated, reordered, corrupt int64 // only what the QoS forbids
	first                                string
}

func accountOf(r *result.Result, arm string, at stat.Point) account {
	var a account
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Arm != arm || c.Control || stat.PointOf(c) != at {
			continue
		}
		a.cells++
		a.order += c.Order.Violations
		if a.first == "" && c.Order.Violations > 0 {
			a.first = c.Order.First
		}
		l := c.Ledger
		if l == nil {
			continue
		}
		a.verified++
		a.published += l.Published
		a.reordered += l.Reordered
		a.corrupt += l.Corrupt
		if c.QoS > 0 {
			a.lost += l.Lost
		}
		if c.QoS == 2 {
			a.duplicated += l.Duplicated
		}
		if a.first == "" && l.Violated(c.QoS) {
			a.first = l.First
		}
	}
	return a
}

func (a *account) once() string {
	if a.lost+a.duplicated+a.corrupt == 0 {
		return ""
	}
	return a.because(fmt.Sprintf("%s lost, %s duplicated, %s corrupt of %s", human.Count(a.lost), human.Count(a.duplicated),
		human.Count(a.corrupt), human.Plural(a.published, "message")))
}

func (a *account) disorder() string {
	if a.order+a.reordered == 0 {
		return ""
	}
	return a.because(fmt.Sprintf("%s and %s out of order", human.Plural(a.order, "acknowledgement"),
		human.Plural(a.reordered, "message")))
}

func (a *account) because(text string) string {
	if a.first != "" {
		text += " (" + human.Clean(a.first) + ")"
	}
	return text
}

// incorrect says what is wrong with an arm at a point; empty when nothing is.
func incorrect(r *result.Result, arm string, at stat.Point) string {
	a := accountOf(r, arm, at)
	if text := a.once(); text != "" {
		return text
	}
	return a.disorder()
}

func (j *judge) promise(r *rule.Rule, arm string, at stat.Point) Place {
	a := accountOf(j.Result, arm, at)
	place := newPlace(arm, "", at)
	broken, checked := a.once(), a.published > 0 && a.verified > 0
	unchecked := "not checked: no message was verified"
	if r.Metric == rule.Ordering {
		broken, checked = a.disorder(), a.cells > 0
	}
	place.Text = fmt.Sprintf("%s at %s: %s ", r.Metric, where(at), human.Clean(arm))
	switch {
	case broken != "":
		place.Outcome, place.Broken, place.badness = Fail, true, math.Inf(1)
		place.Text += "broke it: " + broken
	case !checked:
		place.Outcome = Inconclusive
		place.Text += unchecked
	default:
		place.Outcome = Pass
		place.Text += "kept it"
		if r.Metric == rule.ExactlyOnce {
			place.Text += fmt.Sprintf(" for %s", human.Plural(a.published, "message"))
		}
	}
	return place
}

// always judges exactly once and order where no rule asked: no result passes that broke them.
func (j *judge) always(out *Report, asked map[string]bool) {
	for _, metric := range []string{rule.ExactlyOnce, rule.Ordering} {
		if asked[metric] {
			continue
		}
		r := &rule.Rule{Metric: metric}
		places, err := j.rule(r)
		if err != nil {
			continue // nothing was measured at all: an earlier rule said so
		}
		unchecked := true
		for i := range places {
			unchecked = unchecked && places[i].Outcome == Inconclusive
		}
		if unchecked {
			out.Notes = append(out.Notes, metric+" was not checked: the run had no verification block")
			continue
		}
		out.add(metric, places)
	}
}

// conformance judges a conformance check: violated rows of the level and above fail, inconclusive ones leave it open.
func (j *judge) conformance(r *rule.Rule) ([]Place, error) {
	c := j.Check
	if c == nil {
		return nil, errors.New("matches nothing: there is no conformance check beside the result (make one with inflight check, and name its directory with --check)")
	}
	levels := map[string]int{result.LevelMust: 1, result.LevelContract: 2, result.LevelInfo: 3}
	wanted := levels[r.Level]
	place := Place{Outcome: Pass}
	violated, open, rows, first, firstOpen := 0, 0, 0, "", ""
	for i := range c.Rows {
		row := &c.Rows[i]
		switch {
		case row.Outcome == result.CheckViolated && levels[row.ViolatedLevel] <= wanted:
			violated++
			if first == "" {
				first = fmt.Sprintf("%s in MQTT %s, %s", row.ID, row.MQTT, human.Clean(row.Title))
			}
		case row.Outcome == result.CheckInconclusive && levels[row.Level] <= wanted:
			open++
			if firstOpen == "" {
				firstOpen = fmt.Sprintf("%s in MQTT %s: %s", row.ID, row.MQTT, human.Clean(row.Why))
			}
		}
		if row.Outcome != result.CheckNotApplicable && levels[row.Level] <= wanted {
			rows++
		}
	}
	if rows+violated == 0 {
		return nil, fmt.Errorf("matches nothing: the check judged no rule of level %s", r.Level)
	}
	switch {
	case violated > 0:
		place.Outcome, place.Broken, place.badness = Fail, true, math.Inf(1)
		place.Text = fmt.Sprintf("conformance of %s: %s of level %s or above violated; first %s", human.Clean(c.Target), human.Plural(int64(violated), "rule"), r.Level, first)
	case c.Partial:
		place.Outcome, place.Text = Inconclusive, fmt.Sprintf("conformance of %s: the check was cut off: %s", human.Clean(c.Target), human.Clean(c.Trouble))
	case open > 0:
		place.Outcome = Inconclusive
		place.Text = fmt.Sprintf("conformance of %s: %s inconclusive; first %s", human.Clean(c.Target), human.Plural(int64(open), "rule"), firstOpen)
	default:
		place.Text = fmt.Sprintf("conformance of %s: %s of level %s or above kept", human.Clean(c.Target), human.Plural(int64(rows), "rule"), r.Level)
	}
	return []Place{place}, nil
}
