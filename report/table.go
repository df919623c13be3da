package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"inflight/report/internal/human"
	"inflight/report/page"
	"inflight/report/stat"
	"inflight/runner/result"
)

// Widths of a table that is asked for without one, and the least that text is wrapped to.
const (
	defaultWidth = 80
	minWidth     = 40
	maxHead      = 8 // characters of an arm's own name in a column's head
)

// Table writes r for a terminal that is width columns wide (0: 80): a table for each combination of the swept values,
// the arms, the control, what the ledgers say, and the reservations. A number that does not count, because the broker
// broke its contract, is struck out: by the terminal with color, as ~~number~~ without it; and the verdict says
// INCORRECT. Columns that do not fit lose their separators first, then the interval.
func Table(w io.Writer, r *result.Result, width int, color bool) error {
	if width <= 0 {
		width = defaultWidth
	}
	t := table{model: page.New(judged(r)), width: max(width, minWidth), color: color}
	t.write()
	_, err := io.WriteString(w, t.b.String())
	return err
}

type table struct {
	model *page.Model
	width int
	color bool
	b     strings.Builder
}

func (t *table) write() {
	m := t.model
	t.text("", m.Title)
	for _, g := range m.Groups {
		fmt.Fprintf(&t.b, "\n%s\n", g.Heading)
		t.group(g)
	}
	if len(m.Groups) > 0 {
		t.b.WriteString("\n")
	}
	t.details()
	for _, s := range m.Headline {
		t.text("", s)
	}
	t.b.WriteString("\n")
	for i, a := range m.Arms {
		notes := ""
		for _, s := range []string{a.Version, a.Durability} {
			switch {
			case s != "" && notes == "":
				notes = s
			case s != "":
				notes += ", " + s
			}
		}
		if notes != "" {
			notes = " (" + notes + ")"
		}
		label := t.short(i) + " = "
		if t.short(i) != a.Name {
			label += a.Name + ": "
		}
		t.text(label, a.Target+notes)
	}
	t.overall()
	for _, s := range m.BetweenText {
		t.text("between ", s)
	}
	if m.Control != "" {
		t.text("control ", t.control())
	}
	for _, s := range m.Limits {
		t.text("limits ", s)
	}
	if len(m.Correctness) > 0 {
		t.text("correctness ", m.Correct)
	}
	if m.Calibration != "" {
		t.text("calibration ", m.Calibration)
	}
	for _, s := range m.Warnings {
		t.text("! ", s)
	}
}

// details writes what subscribers saw, and what the load took where they or a rate were part of it: there the question is what
// it cost.
func (t *table) details() {
	m := t.model
	tables := m.Delivery
	if len(tables) > 0 {
		tables = append(slices.Clone(tables), m.Resources...)
	}
	tables = append(slices.Clone(m.Clients), tables...)
	if m.Payloads != nil {
		tables = append(slices.Clone(tables), *m.Payloads)
	}
	if m.Gaps != nil {
		tables = append(slices.Clone(tables), *m.Gaps)
	}
	for _, d := range tables {
		fmt.Fprintf(&t.b, "%s\n", d.Heading)
		var columns []column
		for i, head := range d.Head {
			c := column{head: head, left: d.Text[i]}
			for j, row := range d.Rows {
				s := row[i]
				if i == 0 && j > 0 && d.Rows[j-1][0] == s {
					s = ""
				}
				c.cells = append(c.cells, s)
			}
			columns = append(columns, c)
		}
		// The last columns are those that a narrow terminal can do without; the page has all of them.
		for {
			lines, wide := layout(columns, "  ")
			if wide <= t.width || len(columns) <= 4 {
				t.b.WriteString(lines)
				break
			}
			columns = columns[:len(columns)-1]
		}
		t.b.WriteString("\n")
	}
}

// column is one column of a table: its head and its cells, all of them plain or with escape sequences.
type column struct {
	head  string
	left  bool
	bar   bool // a separator stands before it
	cells []string
}

// fitting is what a table gives up to become narrower, in this order.
type fitting struct {
	separator string
	strikeP99 bool // beside the struck-out rate, the word in the last column says it all
	interval  bool
}

func (t *table) group(g page.Group) {
	fittings := []fitting{{" | ", true, true}, {"  ", true, true}, {"  ", false, true}, {"  ", false, false}}
	for i, f := range fittings {
		columns := t.columns(g, f)
		if lines, wide := layout(columns, f.separator); wide <= t.width || i == len(fittings)-1 {
			t.b.WriteString(lines)
			return
		}
	}
}

func (t *table) columns(g page.Group, f fitting) []column {
	m := t.model
	if len(m.Arms) > 2 {
		return t.armPerLine(g, f)
	}
	columns := []column{{head: "in flight"}}
	for i := range m.Arms {
		columns = append(columns, column{head: t.short(i) + " msg/s", bar: true})
		if !m.Compared {
			columns = append(columns, column{head: g.Latency("p50")}, column{head: g.Latency("p99")}, column{head: "peak RSS", bar: true})
		} else {
			columns = append(columns, column{head: g.Latency("p99")})
		}
	}
	if m.Compared {
		columns = append(columns, column{head: t.ratioHead(), left: true, bar: true})
	}
	judged := m.Compared || anyIncorrect(g)
	if judged {
		columns = append(columns, column{head: "verdict", left: true, bar: true})
	}
	for _, row := range g.Rows {
		cells := []string{row.InFlight}
		for _, c := range row.Cells {
			cells = append(cells, t.strike(c.Rate, c.Incorrect))
			if !m.Compared {
				cells = append(cells, t.strike(c.P50, c.Incorrect && f.strikeP99))
			}
			cells = append(cells, t.strike(c.P99, c.Incorrect && f.strikeP99))
			if !m.Compared {
				cells = append(cells, c.RSSPeak)
			}
		}
		if m.Compared {
			cells = append(cells, t.ratio(row.Ratios, f))
		}
		if judged {
			cells = append(cells, t.verdict(row))
		}
		add(columns, cells)
	}
	return columns
}

// armPerLine is the form of the table for more arms than fit side by side.
func (t *table) armPerLine(g page.Group, f fitting) []column {
	columns := []column{
		{head: "in flight"},
		{head: "arm", left: true, bar: true},
		{head: "msg/s", bar: true},
		{head: g.Latency("p99")},
		{head: "peak RSS", bar: true},
		{head: "over " + t.short(0), left: true, bar: true},
		{head: "verdict", left: true, bar: true},
	}
	if !t.model.Compared {
		columns = columns[:5]
	}
	for _, row := range g.Rows {
		for i, c := range row.Cells {
			cells := []string{"", t.short(i), t.strike(c.Rate, c.Incorrect), t.strike(c.P99, c.Incorrect && f.strikeP99), c.RSSPeak, "", ""}
			if i == 0 {
				cells[0] = row.InFlight
			}
			if i > 0 && t.model.Compared {
				cells[5], cells[6] = t.ratio(c.Versus, f), c.Versus.Verdict
			}
			if c.Incorrect {
				cells[6] = "INCORRECT" // struck out as well: the column may not be there
			}
			add(columns, cells[:len(columns)])
		}
	}
	return columns
}

func add(columns []column, cells []string) {
	for i, s := range cells {
		columns[i].cells = append(columns[i].cells, s)
	}
}

func (t *table) ratio(r page.Ratios, f fitting) string {
	if r.Verdict == stat.Incorrect {
		return t.strike(r.Ratio, true)
	}
	if !f.interval {
		return r.Ratio
	}
	return r.Ratio + " " + r.Interval
}

// overall writes a line for each arm: the ratio over all points, and that of each point without the control's.
func (t *table) overall() {
	for _, o := range t.model.Overall {
		text := fmt.Sprintf("%s/%s ", t.label(o.Arm), t.label(o.Base))
		if o.Verdict == stat.Incorrect {
			text += t.strike(o.Ratio, true) + " INCORRECT"
		} else {
			text += fmt.Sprintf("%s %s %s", o.Ratio, o.Interval, o.Verdict)
			if o.Smallest != human.Absent {
				text += fmt.Sprintf("; an effect of %s would have been seen", o.Smallest)
			}
		}
		t.text("overall ", text)
	}
	for i := 1; i < len(t.model.Arms); i++ {
		var parts []string
		for _, g := range t.model.Groups {
			for _, row := range g.Rows {
				if v := row.Cells[i].Versus; v.Corrected != human.Absent && v.Verdict != stat.Incorrect {
					parts = append(parts, v.Corrected+" "+v.CorrectedInterval)
				}
			}
		}
		if len(parts) > 0 {
			t.text("corrected ", fmt.Sprintf("%s/%s by the control: %s", t.short(i), t.short(0), strings.Join(parts, ", ")))
		}
	}
}

func (t *table) control() string {
	if len(t.model.Arms) > 2 {
		return "at QoS 0: " + t.model.Control
	}
	return fmt.Sprintf("%s/%s at QoS 0: %s", t.short(1), t.short(0), t.model.Control)
}

// label is the short form of an arm's name.
func (t *table) label(name string) string {
	for i, a := range t.model.Arms {
		if a.Name == name {
			return t.short(i)
		}
	}
	return name
}

// short is an arm's own name in the head of a column, or its letter when that is too long.
func (t *table) short(arm int) string {
	if name := t.model.Arms[arm].Name; utf8.RuneCountInString(name) <= maxHead {
		return name
	}
	return string(rune('A' + arm%26))
}

func (t *table) ratioHead() string { return t.short(1) + "/" + t.short(0) + " throughput" }

func anyIncorrect(g page.Group) bool {
	for _, row := range g.Rows {
		if row.Incorrect() {
			return true
		}
	}
	return false
}

func (t *table) verdict(row page.Row) string {
	switch {
	case row.Incorrect():
		return "INCORRECT"
	case row.Verdict == "" && t.model.Compared:
		return human.Absent
	default:
		return row.Verdict
	}
}

// Escape sequences for struck-out text.
const (
	struckOn  = "\x1b[9m"
	struckOff = "\x1b[29m"
)

func (t *table) strike(s string, struck bool) string {
	switch {
	case !struck || s == human.Absent:
		return s
	case t.color:
		return struckOn + s + struckOff
	default:
		return "~~" + s + "~~"
	}
}

// layout aligns the columns and returns the lines and the width of the widest.
func layout(columns []column, separator string) (string, int) {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = visible(c.head)
		for _, s := range c.cells {
			widths[i] = max(widths[i], visible(s))
		}
	}
	var b strings.Builder
	widest := 0
	line := func(text func(column) string) {
		var l strings.Builder
		for i, c := range columns {
			switch {
			case i == 0:
			case c.bar:
				l.WriteString(separator)
			default:
				l.WriteString("  ")
			}
			s := text(c)
			pad := strings.Repeat(" ", widths[i]-visible(s))
			if c.left {
				l.WriteString(s + pad)
			} else {
				l.WriteString(pad + s)
			}
		}
		s := strings.TrimRight(l.String(), " ")
		widest = max(widest, visible(s))
		b.WriteString(s + "\n")
	}
	line(func(c column) string { return c.head })
	for row := range columns[0].cells {
		line(func(c column) string { return c.cells[row] })
	}
	return b.String(), widest
}

// visible counts the characters of s that take up room.
func visible(s string) int {
	s = strings.ReplaceAll(strings.ReplaceAll(s, struckOn, ""), struckOff, "")
	return utf8.RuneCountInString(s)
}

// text writes s behind a label, wrapped to the width, with further lines indented by that of the label.
func (t *table) text(label, s string) {
	indent := strings.Repeat(" ", visible(label))
	room := max(t.width-visible(label), minWidth/2)
	line, first := "", true
	flush := func() {
		if first {
			t.b.WriteString(label + line + "\n")
		} else {
			t.b.WriteString(indent + line + "\n")
		}
		line, first = "", false
	}
	for _, word := range strings.Fields(s) {
		if line != "" && visible(line)+1+visible(word) > room {
			flush()
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" || first {
		flush()
	}
}
