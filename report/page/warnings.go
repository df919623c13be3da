package page

import (
	"fmt"
	"strings"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// place is where a comparison stands.
type place struct {
	arm string
	at  stat.Point
}

// warnings joins those of the run and those of the comparisons; the same text at several places is said once.
func warnings(r *result.Result) []string {
	var out []string
	for _, w := range r.Warnings {
		if w.Code != stat.CodePartial { // the headline begins with it
			out = append(out, human.Clean(w.Text))
		}
	}
	type entry struct{ metric, text string }
	type told struct {
		place
		code string
	}
	var order []entry
	all, places := map[string][]place{}, map[entry][]place{}
	said := map[told]bool{} // what goes for the throughput need not be said again for the p99
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		p := place{c.Arm, stat.PointOfComparison(c)}
		all[c.Metric] = append(all[c.Metric], p)
		for _, w := range c.Warnings {
			if said[told{p, w.Code}] {
				continue
			}
			said[told{p, w.Code}] = true
			e := entry{c.Metric, human.Clean(w.Text)}
			if places[e] == nil {
				order = append(order, e)
			}
			places[e] = append(places[e], p)
		}
	}
	for _, e := range order {
		where, named := whereAll(r, all[e.metric], places[e])
		switch {
		case e.metric != stat.P99:
		case named:
			where = "p99 of " + where
		default:
			where = "p99 " + where
		}
		out = append(out, where+": "+e.text)
	}
	return out
}

// whereAll says which of all places some are, arm by arm where these differ: then it names them.
func whereAll(r *result.Result, all, some []place) (where string, named bool) {
	of := func(list []place, arm string) (points []stat.Point) {
		for _, p := range list {
			if p.arm == arm {
				points = append(points, p.at)
			}
		}
		return points
	}
	var texts []string
	arms := map[string][]string{} // by text
	silent := 0
	for _, a := range r.Arms[min(1, len(r.Arms)):] {
		have := of(some, a.Name)
		if len(have) == 0 {
			silent += len(of(all, a.Name))
			continue
		}
		text := wherePoints(of(all, a.Name), have)
		if arms[text] == nil {
			texts = append(texts, text)
		}
		arms[text] = append(arms[text], human.Clean(a.Name+"/"+r.Arms[0].Name))
	}
	if silent == 0 && len(texts) == 1 {
		return texts[0], false
	}
	for i, text := range texts {
		texts[i] = human.List(arms[text]) + " " + text
	}
	return strings.Join(texts, "; "), true
}

// wherePoints says which of all points some are: group by group where there are several.
func wherePoints(all, some []stat.Point) string {
	if len(some) == len(all) && len(all) > 1 {
		return "everywhere"
	}
	line := func(p stat.Point) stat.Point {
		p.Window = 0
		return p
	}
	whole, windows := map[stat.Point]int{}, map[stat.Point][]string{}
	for _, p := range all {
		whole[line(p)]++
	}
	var order []stat.Point
	for _, p := range some {
		l := line(p)
		if windows[l] == nil {
			order = append(order, l)
		}
		windows[l] = append(windows[l], human.Count(int64(p.Window)))
	}
	var parts []string
	for _, l := range order {
		at := fmt.Sprintf("at %s in flight", human.List(windows[l]))
		switch {
		case len(whole) == 1:
		case len(windows[l]) == whole[l]:
			at = "at " + describe(l, false)
		default:
			at = fmt.Sprintf("at %s, %s in flight", describe(l, false), human.List(windows[l]))
		}
		parts = append(parts, at)
	}
	return strings.Join(parts, "; ")
}
