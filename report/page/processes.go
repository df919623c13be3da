package page

import (
	"slices"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// processesOf is what each node and the load generator took in a group; nil where nothing is known of them.
func (m *Model) processesOf(r *result.Result, g Group) *Table {
	columns := []struct {
		head string
		of   func(*stat.Process) string
	}{
		{"peak RSS", func(p *stat.Process) string { return orBytes(p.RSSPeak) }},
		{"growth", func(p *stat.Process) string { return orBytes(p.RSSGrowth) }},
		{"slope/s", func(p *stat.Process) string { return orSlope(p.RSSSlope) }},
		{"B/in flight", func(p *stat.Process) string { return orRate(p.BytesPerInFlight) }},
		{"CPU s/1,000", func(p *stat.Process) string { return small(p.CPUPer1000) }},
		{"disk B/msg", func(p *stat.Process) string { return orRate(p.DiskPerMessage) }},
		{"writes/msg", func(p *stat.Process) string { return small(p.WritesPerMessage) }},
		{"threads", func(p *stat.Process) string { return orCount(p.Threads) }},
		{"descriptors", func(p *stat.Process) string { return orCount(p.FDs) }},
	}
	t := &Table{Heading: g.Heading, Head: []string{"in flight", "arm", "process"}, Text: []bool{false, true, true}}
	for _, c := range columns {
		t.Head, t.Text = append(t.Head, c.head), append(t.Text, false)
	}
	for _, row := range g.Rows {
		for i, arm := range r.Arms {
			name := m.Arms[i].Name
			if row.Cells[i].Incorrect {
				name += " (INCORRECT)"
			}
			for _, p := range stat.ProcessesOf(r, arm.Name, row.Point) {
				line := []string{row.InFlight, name, human.Clean(p.Name)}
				for _, c := range columns {
					line = append(line, c.of(&p))
				}
				t.Rows = append(t.Rows, line)
			}
		}
	}
	if !t.keep(3) {
		return nil
	}
	return t
}

// payloads is how many bytes of payload each arm takes a second, over all sizes: messages per second alone fall with the size.
func (m *Model) payloads(r *result.Result) {
	if len(r.Scenario.Payloads)+len(r.Scenario.PayloadSizes) < 2 && len(r.Scenario.PayloadSizes) == 0 {
		return
	}
	t := Table{
		Heading: "Payload bytes per second",
		Head:    []string{"payload", "in flight", "QoS", "connections", "rate"}, Text: []bool{false, false, false, false, false},
	}
	fixed := len(t.Head)
	for _, a := range m.Arms {
		t.Head, t.Text = append(t.Head, a.Name), append(t.Text, false)
	}
	for _, g := range m.Groups {
		for _, row := range g.Rows {
			p := row.Point
			line := []string{
				sizeOf(&p), row.InFlight, human.Count(int64(p.QoS)), human.Count(int64(p.Connections)), rateOf(&p),
			}
			for i, arm := range r.Arms {
				cell := human.Absent
				if s := stat.ResourcesOf(r, arm.Name, p); s != nil {
					cell = orBytesPerS(s.PayloadPerS)
				}
				if row.Cells[i].Incorrect {
					cell = stat.Incorrect
				}
				line = append(line, cell)
			}
			t.Rows = append(t.Rows, line)
		}
	}
	if !slices.ContainsFunc(t.Rows, func(row []string) bool {
		return slices.ContainsFunc(row[fixed:], func(s string) bool { return s != human.Absent && s != stat.Incorrect })
	}) {
		return // a run of before they were counted
	}
	for i := fixed - 1; i >= 2; i-- { // what does not vary is in the other tables' headings
		if !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != t.Rows[0][i] }) {
			t.drop(i)
		}
	}
	m.Payloads = &t
}
