package page

import (
	"fmt"
	"slices"
	"strconv"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// searches is what the searches for the highest rate found, as an interval; nil without any.
func searches(r *result.Result) *Table {
	all := stat.Searches(r)
	if len(all) == 0 {
		return nil
	}
	limit := human.Clean(all[0].Limit)
	t := &Table{
		Heading: fmt.Sprintf("Highest rate with %s of the response time, from the intended instant to the acknowledgement", limit),
		Head:    []string{"in flight", "arm", "holds at", "breaks at", "there", "trials", "QoS", "connections", "payload"},
		Text:    []bool{false, true, false, false, false, false, false, false, true},
	}
	for _, f := range all {
		there := human.Absent
		if f.ValueNS != nil {
			there = human.Latency(float64(*f.ValueNS))
		}
		t.Rows = append(t.Rows, []string{
			human.Count(int64(f.Point.Window)), human.Clean(f.Arm), perSecondOf(f.Low), perSecondOf(f.High), there,
			strconv.Itoa(f.Trials), strconv.Itoa(f.Point.QoS), human.Count(int64(f.Point.Connections)), sizeOf(&f.Point),
		})
	}
	for i := len(t.Head) - 1; i >= 6; i-- { // what does not vary is in the other tables' headings
		if !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != t.Rows[0][i] }) {
			t.drop(i)
		}
	}
	return t
}

func perSecondOf(n *int) string {
	if n == nil {
		return human.Absent
	}
	return human.Count(int64(*n)) + "/s"
}
