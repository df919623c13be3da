package page

import (
	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// between is what can be said of runs that stand side by side.
func (m *Model) between(r *result.Result) {
	all := stat.BetweenRuns(r)
	if len(all) == 0 {
		return
	}
	t := Table{
		Heading: "Throughput of each run over the first",
		Head:    []string{"at", "arms", "ratio", "95 % inside the runs", "what can be said"},
		Text:    []bool{true, true, false, false, true},
	}
	for _, b := range all {
		at := human.Count(int64(b.Point.Window)) + " in flight"
		if len(m.Groups) > 1 {
			at = describe(b.Point, false) + ", " + at
		}
		row := []string{at, human.Clean(b.Arm + "/" + b.Base), human.Absent, human.Absent, b.Says}
		if b.PerControl {
			row[1] += ", each over its QoS 0 control"
		}
		if b.Ratio != nil {
			row[2], row[3] = human.Ratio(b.Ratio.Ratio), human.Interval(b.Low, b.High)
		}
		t.Rows = append(t.Rows, row)
	}
	m.Between = &t
	m.betweenLines(all)
}

// betweenLines says the same in a line for each pair of arms and finding.
func (m *Model) betweenLines(all []stat.Between) {
	type key struct {
		arms, says string
		perControl bool
	}
	var order []key
	points, every := map[key][]stat.Point{}, map[string][]stat.Point{}
	low, high := map[key]float64{}, map[key]float64{}
	for _, b := range all {
		k := key{human.Clean(b.Arm + "/" + b.Base), b.Says, b.PerControl}
		if points[k] == nil {
			order = append(order, k)
		}
		points[k], every[k.arms] = append(points[k], b.Point), append(every[k.arms], b.Point)
		if b.Ratio == nil {
			continue
		}
		if low[k] == 0 || b.Ratio.Ratio < low[k] {
			low[k] = b.Ratio.Ratio
		}
		high[k] = max(high[k], b.Ratio.Ratio)
	}
	for _, k := range order {
		text := k.arms + " " + wherePoints(every[k.arms], points[k]) + ": "
		if low[k] > 0 {
			text += human.Ratio(low[k])
			if human.Ratio(low[k]) != human.Ratio(high[k]) {
				text += " to " + human.Ratio(high[k])
			}
			text += " times the throughput"
			if k.perControl {
				text += ", each over its own QoS 0 control"
			}
			text += ": "
		}
		m.BetweenText = append(m.BetweenText, text+k.says)
	}
}
