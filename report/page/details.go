package page

import (
	"slices"
	"strconv"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// Table is a table of its own: what the load delivered, and what it took, arm by arm. Columns that no arm has a value for are
// left out.
type Table struct {
	Heading string
	Head    []string
	Text    []bool // columns of words; the others are of numbers
	Rows    [][]string
}

// detail is one column of such a table.
type detail struct {
	head string
	text bool                                                  // a column of words
	of   func(s *stat.Resources, first *stat.Resources) string // human.Absent without a value
}

// clients are the columns about what a client costs.
func clients(base string) []detail {
	perMessage := func(s *stat.Resources) *float64 { return s.GeneratorPer1000 }
	return []detail{
		{"client", true, func(s, _ *stat.Resources) string {
			if s.Client == "" {
				return "wire"
			}
			return human.Clean(s.Client)
		}},
		{"msg/s", false, func(s, _ *stat.Resources) string { return orRate(s.Throughput) }},
		{"generator CPU s/1,000", false, func(s, _ *stat.Resources) string { return small(perMessage(s)) }},
		{"over " + base, false, func(s, first *stat.Resources) string {
			if s == first || first == nil || perMessage(s) == nil || perMessage(first) == nil || *perMessage(first) == 0 {
				return human.Absent
			}
			return human.Ratio(*perMessage(s) / *perMessage(first))
		}},
		{"msg per CPU s", false, func(s, _ *stat.Resources) string {
			if perMessage(s) == nil || *perMessage(s) == 0 {
				return human.Absent
			}
			return human.Rate(1000 / *perMessage(s))
		}},
		{"generator RSS", false, func(s, _ *stat.Resources) string { return orBytes(s.GeneratorRSSPeak) }},
	}
}

// delivery are the columns about what came of the load, beside acknowledgements.
func delivery() []detail {
	return []detail{
		{"delivered/s", false, func(s, _ *stat.Resources) string { return orRate(s.DeliveredPerS) }},
		{"end to end p50", false, func(s, _ *stat.Resources) string { return orLatency(s.EndToEnd50) }},
		{"end to end p99", false, func(s, _ *stat.Resources) string { return orLatency(s.EndToEnd99) }},
		{"response p50", false, func(s, _ *stat.Resources) string { return orLatency(s.Response50) }},
		{"response p99", false, func(s, _ *stat.Resources) string { return orLatency(s.Response99) }},
		{"late", false, func(s, _ *stat.Resources) string { return counted(s.Late, s.Open) }},
		{"missed", false, func(s, _ *stat.Resources) string { return counted(s.Missed, s.Open) }},
	}
}

// resources are the columns about what it took.
func resources(base string) []detail {
	return []detail{
		{"peak RSS", false, func(s, _ *stat.Resources) string { return orBytes(s.RSSPeak) }},
		{"over " + base, false, func(s, first *stat.Resources) string {
			if s == first || first == nil || s.RSSPeak == nil || first.RSSPeak == nil || *first.RSSPeak == 0 {
				return human.Absent
			}
			return human.Ratio(float64(*s.RSSPeak) / float64(*first.RSSPeak))
		}},
		{"growth", false, func(s, _ *stat.Resources) string { return orBytes(s.RSSGrowth) }},
		{"slope/s", false, func(s, _ *stat.Resources) string { return orSlope(s.RSSSlope) }},
		{"queued", false, func(s, _ *stat.Resources) string { return counted(s.QueuedPeak, s.QueuedPeak > 0) }},
		{"B/queued", false, func(s, _ *stat.Resources) string { return orRate(s.BytesPerQueued) }},
		{"B/in flight", false, func(s, _ *stat.Resources) string { return orRate(s.BytesPerInFlight) }},
		{"CPU s/1,000", false, func(s, _ *stat.Resources) string { return small(s.CPUPer1000) }},
		{"disk B/msg", false, func(s, _ *stat.Resources) string { return orRate(s.DiskPerMessage) }},
		{"writes/msg", false, func(s, _ *stat.Resources) string { return small(s.WritesPerMessage) }},
		{"threads", false, func(s, _ *stat.Resources) string { return orCount(s.Threads) }},
		{"descriptors", false, func(s, _ *stat.Resources) string { return orCount(s.FDs) }},
		{"generator CPU s/1,000", false, func(s, _ *stat.Resources) string { return small(s.GeneratorPer1000) }},
		{"generator RSS", false, func(s, _ *stat.Resources) string { return orBytes(s.GeneratorRSSPeak) }},
	}
}

func (m *Model) details(r *result.Result) {
	for _, g := range m.Groups {
		if t := m.tableOf(r, g, delivery()); t != nil {
			m.Delivery = append(m.Delivery, *t)
		}
	}
	if t := searches(r); t != nil {
		m.Delivery = append(m.Delivery, *t)
	}
	if slices.ContainsFunc(r.Arms, func(a result.Arm) bool { return a.Client != "" }) {
		for _, g := range m.Groups {
			if t := m.tableOf(r, g, clients(m.Arms[0].Name)); t != nil {
				m.Clients = append(m.Clients, *t)
			}
		}
	}
	measured := false
	for i := range r.Cells {
		// Results of before these were measured have the peak of the memory alone, which the other tables show.
		measured = measured || r.Cells[i].CPUPer1000 != nil || r.Cells[i].Threads != nil
	}
	base := ""
	if len(m.Arms) > 0 {
		base = m.Arms[0].Name
	}
	for _, g := range m.Groups {
		if t := m.tableOf(r, g, resources(base)); t != nil && measured {
			m.Resources = append(m.Resources, *t)
		}
		if t := m.processesOf(r, g); t != nil && measured {
			m.Processes = append(m.Processes, *t)
		}
	}
	m.payloads(r)
	m.gaps(r)
	m.between(r)
}

// tableOf is nil when no arm has any of the values in the group.
func (m *Model) tableOf(r *result.Result, g Group, columns []detail) *Table {
	t := &Table{Heading: g.Heading, Head: []string{"in flight", "arm"}, Text: []bool{false, true}}
	for _, c := range columns {
		t.Head, t.Text = append(t.Head, c.head), append(t.Text, c.text)
	}
	for _, row := range g.Rows {
		var first *stat.Resources
		for i, arm := range r.Arms {
			s := stat.ResourcesOf(r, arm.Name, row.Point)
			if i == 0 {
				first = s
			}
			if s == nil {
				continue
			}
			name := m.Arms[i].Name
			if row.Cells[i].Incorrect {
				name += " (INCORRECT)"
			}
			line := []string{row.InFlight, name}
			for _, c := range columns {
				line = append(line, c.of(s, first))
			}
			t.Rows = append(t.Rows, line)
		}
	}
	if !t.keep(2) {
		return nil
	}
	return t
}

// keep drops the columns behind the first that have no value at all, and reports whether any is left.
func (t *Table) keep(first int) bool {
	for i := len(t.Head) - 1; i >= first; i-- {
		if !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != human.Absent }) {
			t.drop(i)
		}
	}
	return len(t.Head) > first
}

// gaps is how much of its throughput at QoS 1 each arm keeps at QoS 2.
func (m *Model) gaps(r *result.Result) {
	t := Table{Heading: "Throughput at QoS 2 over that at QoS 1", Head: []string{"in flight", "connections", "payload", "rate"}, Text: make([]bool, 4)}
	for _, a := range m.Arms {
		t.Head, t.Text = append(t.Head, a.Name), append(t.Text, false)
	}
	rows := map[stat.Point]int{}
	for _, g := range stat.Gaps(r) {
		i, ok := rows[g.Point]
		if !ok {
			i = len(t.Rows)
			rows[g.Point] = i
			row := []string{human.Count(int64(g.Point.Window)), human.Count(int64(g.Point.Connections)), sizeOf(&g.Point), rateOf(&g.Point)}
			for range m.Arms {
				row = append(row, human.Absent)
			}
			t.Rows = append(t.Rows, row)
		}
		arm := slices.IndexFunc(r.Arms, func(a result.Arm) bool { return a.Name == g.Arm })
		t.Rows[i][4+arm] = human.Ratio(g.Ratio)
		if !g.Sound {
			t.Rows[i][4+arm] = stat.Incorrect
		}
	}
	if len(t.Rows) == 0 {
		return
	}
	if len(r.Scenario.RatesPerS) == 0 && len(r.Scenario.RateRamps) == 0 {
		t.drop(3)
	}
	if len(r.Scenario.Payloads)+len(r.Scenario.PayloadSizes) < 2 {
		t.drop(2)
	}
	m.Gaps = &t
}

// sizeOf is the payload of a point as a value of a column.
func sizeOf(p *stat.Point) string {
	if p.Sizes != "" {
		return human.Clean(p.Sizes)
	}
	return human.Count(int64(p.Payload))
}

// rateOf is its rate.
func rateOf(p *stat.Point) string {
	switch {
	case p.Ramp != "":
		return human.Clean(p.Ramp) + "/s"
	case p.Rate > 0:
		return human.Count(int64(p.Rate)) + "/s"
	}
	return "max"
}

// drop takes out a column.
func (t *Table) drop(i int) {
	t.Head, t.Text = slices.Delete(t.Head, i, i+1), slices.Delete(t.Text, i, i+1)
	for j := range t.Rows {
		t.Rows[j] = slices.Delete(t.Rows[j], i, i+1)
	}
}

func orRate(v *float64) string {
	if v == nil {
		return human.Absent
	}
	return human.Rate(*v)
}

// orSlope is how fast a memory grows or, with a minus, shrinks.
func orSlope(v *float64) string {
	if v != nil && *v <= -1 { // nothing is lost below a byte
		return "-" + human.Bytes(int64(-*v))
	}
	return orBytesPerS(v)
}

func orBytesPerS(v *float64) string {
	if v == nil {
		return human.Absent
	}
	return human.Bytes(int64(*v))
}

func orLatency(v *float64) string {
	if v == nil {
		return human.Absent
	}
	return human.Latency(*v)
}

func orBytes(v *int64) string {
	if v == nil {
		return human.Absent
	}
	return human.Bytes(*v)
}

func orCount(v *int64) string {
	if v == nil {
		return human.Absent
	}
	return human.Count(*v)
}

// counted is n where it was counted.
func counted(n int64, is bool) string {
	if !is {
		return human.Absent
	}
	return human.Count(n)
}

func small(v *float64) string {
	if v == nil {
		return human.Absent
	}
	return strconv.FormatFloat(*v, 'g', 3, 64)
}
