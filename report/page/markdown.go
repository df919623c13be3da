package page

import (
	"fmt"
	"io"
	"strings"

	"inflight/report/internal/human"
	"inflight/report/stat"
)

// Files that the Markdown links to, beside itself.
const (
	ThroughputFile = "throughput.svg"
	P99File        = "p99.svg"
)

// Markdown writes the model in GitHub's Markdown. The charts are linked as [ThroughputFile] and [P99File], described by
// the texts in charts.
func (m *Model) Markdown(w io.Writer, charts Charts) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", escape(m.Title))
	for _, s := range m.Headline {
		fmt.Fprintf(&b, "**%s**\n\n", escape(s))
	}
	if len(m.Trouble) > 0 {
		b.WriteString("<details><summary>The trouble in full</summary>\n\n")
		for _, line := range m.Trouble {
			fmt.Fprintf(&b, "    %s\n", line)
		}
		b.WriteString("\n</details>\n\n")
	}
	m.armsTable(&b)
	for _, g := range m.Groups {
		fmt.Fprintf(&b, "## %s\n\n", g.Heading)
		m.groupTable(&b, g)
	}
	for _, o := range m.Overall {
		ratio, seen := escape(o.Ratio+" "+o.Interval), ""
		if o.Verdict == stat.Incorrect {
			ratio = strike(o.Ratio, true)
		}
		if o.Smallest != human.Absent {
			seen = "; an effect of " + escape(o.Smallest) + " would have been seen"
		}
		fmt.Fprintf(&b, "All points together (%s/%s throughput): %s %s%s.\n\n", escape(o.Arm), escape(o.Base), ratio, shout(o.Verdict), seen)
	}
	if m.Control != "" {
		of := ""
		if len(m.Arms) == 2 {
			of = ", " + m.Arms[1].Name + "/" + m.Arms[0].Name
		}
		fmt.Fprintf(&b, "Control at QoS 0%s: %s. %s\n\n", escape(of), escape(m.Control), escape(m.ControlText))
	}
	if len(m.Groups) > 0 {
		fmt.Fprintf(&b, "![%s](%s)\n\n![%s](%s)\n\n", escape(charts.ThroughputAlt), ThroughputFile, escape(charts.P99Alt), P99File)
	}
	m.detailTables(&b)
	for _, s := range m.Limits {
		fmt.Fprintf(&b, "- %s\n", escape(s))
	}
	if len(m.Limits) > 0 {
		b.WriteString("\n")
	}
	m.correctnessTable(&b)
	if len(m.Warnings) > 0 {
		b.WriteString("## Reservations\n\n")
		for _, s := range m.Warnings {
			fmt.Fprintf(&b, "- %s\n", escape(s))
		}
		b.WriteString("\n")
	}
	details(&b, "Environment", m.Environment)
	details(&b, "Scenario", m.Scenario)
	b.WriteString("<details><summary>Method</summary>\n\n")
	for _, s := range m.Method {
		fmt.Fprintf(&b, "%s\n\n", escape(s))
	}
	b.WriteString("</details>\n\n")
	fmt.Fprintf(&b, "%s, run started %s. The numbers are in `result.json`.\n", escape(m.Tool), m.Started)
	_, err := io.WriteString(w, b.String())
	return err
}

func (m *Model) armsTable(b *strings.Builder) {
	if len(m.Arms) == 0 {
		return
	}
	rows := [][]string{{"arm", "target", "version", "durability"}}
	for _, a := range m.Arms {
		rows = append(rows, []string{escape(a.Name), code(a.Target), escape(orAbsent(a.Version)), escape(orAbsent(a.Durability))})
	}
	pipes(b, "llll", rows)
}

func (m *Model) groupTable(b *strings.Builder, g Group) {
	head, align, p99 := []string{"in flight"}, "r", g.Latency("p99")
	add := func(a string, names ...string) {
		for _, name := range names {
			head = append(head, escape(name))
			align += a
		}
	}
	corrected := m.corrects()
	first := ""
	if m.Compared {
		first = m.Arms[0].Name
	}
	switch {
	case m.PerArm:
		add("l", "arm")
		add("r", "msg/s", p99)
	default:
		for _, a := range m.Arms {
			add("r", a.Name+" msg/s", a.Name+" "+p99)
		}
	}
	if m.Compared {
		over := func(metric string) string {
			if m.PerArm {
				return metric + " over " + first
			}
			return m.Arms[1].Name + "/" + first + " " + metric
		}
		add("r", over("throughput"))
		if corrected {
			add("r", "corrected")
		}
		add("r", over(p99))
		add("l", "verdict")
	}
	rows := [][]string{head}
	for _, r := range g.Rows {
		row := []string{r.InFlight}
		for i, c := range r.Cells {
			if m.PerArm {
				row = []string{r.InFlight, escape(m.Arms[i].Name)}
			}
			row = append(row, strike(c.Rate, c.Incorrect), strike(c.P99, c.Incorrect))
			if m.Compared && (m.PerArm || i == 1) {
				row = append(row, versus(c.Versus, corrected)...)
			}
			if c.Incorrect && !m.Compared {
				row[0] = r.InFlight + " (INCORRECT)"
			}
			if m.PerArm {
				rows = append(rows, row)
			}
		}
		if !m.PerArm {
			rows = append(rows, row)
		}
	}
	pipes(b, align, rows)
}

// corrects reports whether any ratio is divided by its control.
func (m *Model) corrects() bool {
	for _, g := range m.Groups {
		for _, r := range g.Rows {
			for _, c := range r.Cells {
				if c.Versus.Corrected != human.Absent && c.Versus.Corrected != "" {
					return true
				}
			}
		}
	}
	return false
}

// versus is the cells of an arm over the first; of that one they are empty.
func versus(v Ratios, corrected bool) []string {
	pair := func(ratio, interval string) string {
		if ratio == human.Absent || v.Verdict == stat.Incorrect {
			return strike(ratio, v.Verdict == stat.Incorrect)
		}
		return escape(strings.TrimSpace(ratio + " " + interval))
	}
	row := []string{pair(v.Ratio, v.Interval)}
	if corrected {
		row = append(row, pair(v.Corrected, v.CorrectedInterval))
	}
	row = append(row, pair(v.P99Ratio, v.P99Interval))
	if v.Ratio == "" {
		return append(row, "")
	}
	return append(row, shout(v.Verdict))
}

// detailTables writes what came of the load and what it took.
func (m *Model) detailTables(b *strings.Builder) {
	if m.Between != nil {
		b.WriteString("## Between the runs\n\n")
		detailTable(b, []Table{*m.Between})
	}
	if len(m.Clients) > 0 {
		b.WriteString("## Clients\n\n")
		detailTable(b, m.Clients)
	}
	if len(m.Delivery) > 0 {
		b.WriteString("## Delivery\n\n")
		detailTable(b, m.Delivery)
	}
	if m.Payloads != nil {
		b.WriteString("## Payloads\n\n")
		detailTable(b, []Table{*m.Payloads})
	}
	if m.Gaps != nil {
		b.WriteString("## QoS 2 beside QoS 1\n\n")
		detailTable(b, []Table{*m.Gaps})
	}
	if len(m.Resources) > 0 {
		b.WriteString("<details><summary>Resources</summary>\n\n")
		detailTable(b, m.Resources)
		b.WriteString("</details>\n\n")
	}
	if len(m.Processes) > 0 {
		b.WriteString("<details><summary>Resources of each node and of the load generator</summary>\n\n")
		detailTable(b, m.Processes)
		b.WriteString("</details>\n\n")
	}
}

func detailTable(b *strings.Builder, tables []Table) {
	for _, t := range tables {
		fmt.Fprintf(b, "%s\n\n", escape(t.Heading))
		align := ""
		rows := [][]string{{}}
		for i, head := range t.Head {
			rows[0] = append(rows[0], escape(head))
			align += map[bool]string{true: "l", false: "r"}[t.Text[i]]
		}
		for _, line := range t.Rows {
			var row []string
			for _, s := range line {
				row = append(row, escape(s))
			}
			rows = append(rows, row)
		}
		pipes(b, align, rows)
	}
}

func (m *Model) correctnessTable(b *strings.Builder) {
	if len(m.Correctness) == 0 {
		return
	}
	b.WriteString("## Correctness\n\n")
	rows := [][]string{{"arm", "QoS", "published", "acknowledged", "delivered", "lost", "duplicated", "reordered", "corrupt", "out of order", "verdict"}}
	for _, c := range m.Correctness {
		row := []string{escape(c.Arm), fmt.Sprint(c.QoS)}
		for _, v := range []string{c.Published, c.Acknowledged, c.Delivered, c.Lost, c.Duplicated, c.Reordered, c.Corrupt, c.Order} {
			row = append(row, escape(v))
		}
		rows = append(rows, append(row, shout(c.Verdict)))
	}
	pipes(b, "l"+strings.Repeat("r", 9)+"l", rows)
}

// pipes writes a table whose first row is the head; align has an r or an l for each column.
func pipes(b *strings.Builder, align string, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i > 0 {
			continue
		}
		for _, a := range align {
			b.WriteString("|---")
			if a == 'r' {
				b.WriteString(":")
			}
		}
		b.WriteString("|\n")
	}
	b.WriteString("\n")
}

func details(b *strings.Builder, summary string, pairs []Pair) {
	fmt.Fprintf(b, "<details><summary>%s</summary>\n\n", summary)
	rows := [][]string{{"", ""}}
	for _, p := range pairs {
		rows = append(rows, []string{escape(p.Name), escape(p.Value)})
	}
	pipes(b, "ll", rows)
	b.WriteString("</details>\n\n")
}

func orAbsent(s string) string {
	if s == "" {
		return human.Absent
	}
	return s
}

// strike strikes a number out.
func strike(s string, struck bool) string {
	if struck && s != human.Absent {
		return "~~" + escape(s) + "~~"
	}
	return escape(s)
}

// shout makes the one verdict that must not be overlooked loud.
func shout(verdict string) string {
	if verdict == stat.Incorrect {
		return "**INCORRECT**"
	}
	return orDash(verdict)
}

func orDash(s string) string {
	if s == "" {
		return escape(human.Absent)
	}
	return s
}

// escape keeps text from being taken for Markdown or HTML.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\\`*_[]<>|~&", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// code writes a code span; a pipe needs its backslash even there, because the table is split first.
func code(s string) string {
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	pad := ""
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		pad = " "
	}
	return fence + pad + strings.ReplaceAll(s, "|", `\|`) + pad + fence
}
