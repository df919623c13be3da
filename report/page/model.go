package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"inflight/report/internal/human"
	"inflight/report/stat"
	"inflight/runner/result"
)

// Model is a result in words and formatted numbers, in the order in which a reader wants them.
type Model struct {
	Title    string
	Name     string   // of the scenario
	State    string   // better, worse, same, inconclusive, incorrect or measured: sets the tone of the headline
	Headline []string // the verdict in sentences
	Partial  bool
	Trouble  []string // further lines about why it is partial: what a broker printed last

	Arms        []Arm
	Compared    bool // there are an A and a B, of one run
	PerArm      bool // more arms than fit beside one another: tables have a line for each
	Groups      []Group
	Sections    []Section // of figures, once Draw was called
	Overall     []Overall
	Control     string // in words; empty without one
	ControlText string // what it means for these arms

	Clients     []Table  // what the clients cost, one for each group, where one of them is not the wire client
	Delivery    []Table  // what subscribers and an open loop saw, one for each group that has either
	Resources   []Table  // what the load took, one for each group
	Processes   []Table  // the same for each node and for the load generator
	Payloads    *Table   // payload bytes per second, where payloads are of several sizes; nil where all are of one
	Between     *Table   // of runs side by side, what can be said of one over the first; nil for a single run
	BetweenText []string // the same in sentences
	Gaps        *Table   // how much of its throughput at QoS 1 each arm keeps at QoS 2; nil unless both were measured

	Correctness []Correctness
	Correct     string // the same, summed, in one line
	Warnings    []string
	Calibration string   // of the machine, in a line; empty without one
	Limits      []string // what bounded the rate of each arm

	Environment []Pair
	Scenario    []Pair
	Method      []string
	Tool        string
	Started     string // UTC, RFC 3339
}

// Arm is one side of the run.
type Arm struct {
	Name, Target, Version, Durability, Command string

	Alike bool // another build or setting of the first arm's broker, so that the control between them must be at 1.00
}

// Group is the points that differ in the window only.
type Group struct {
	Heading string
	Rows    []Row
}

// Latency is the head of a column with a percentile of the time from sending to acknowledgement. Beside the response times of an
// open loop it says which of the two it is.
func (g Group) Latency(percentile string) string {
	if len(g.Rows) > 0 && g.Rows[0].Point.Rate > 0 {
		return "service " + percentile
	}
	return percentile
}

// Row is one point. Cells has one entry per arm, in their order. The rest is the second arm over the first; that of
// further arms is in their cells alone.
type Row struct {
	Point    stat.Point
	InFlight string
	Cells    []Cell
	Ratios
}

// Ratios is one arm over the first.
type Ratios struct {
	Ratio, Interval              string // of the throughput
	Corrected, CorrectedInterval string // the same with the control's ratio taken out; absent between two different brokers
	P99Ratio, P99Interval        string
	SlotEffect                   string
	Verdict, P99Verdict          string
}

// Overall is the throughput of one arm over the first, over all points together.
type Overall struct {
	Arm, Base       string
	Ratio, Interval string
	Verdict         string
	Smallest        string // the least ratio that the run would have told from 1 four times in five
}

// Incorrect reports whether any number of the row is struck out.
func (r Row) Incorrect() bool {
	for _, c := range r.Cells {
		if c.Incorrect {
			return true
		}
	}
	return false
}

// Cell is one arm at one point.
type Cell struct {
	Rate, RateInterval string
	P50, P99           string
	RSSPeak            string
	Incorrect          bool
	Number             Numbers
	Versus             Ratios // over the first arm; of that one empty
}

// Numbers are what a table is sorted by, as text without units; empty when absent.
type Numbers struct{ Rate, P99, Ratio, P99Ratio string }

func plain(v float64) string { return strconv.FormatFloat(v, 'g', 8, 64) }

// Correctness is the account of one arm at one QoS, summed over its points.
type Correctness struct {
	Arm                                           string
	QoS                                           int
	Order                                         string // acknowledgements out of order
	Published, Acknowledged, Delivered            string
	Lost, Duplicated, Reordered, Corrupt, Verdict string
	orders                                        int64
}

// Pair is a name and a value.
type Pair struct{ Name, Value string }

// New makes the model of a judged result.
func New(r *result.Result) *Model {
	m := &Model{
		Title:   human.Clean(r.Scenario.Question),
		Name:    human.Clean(r.Scenario.Name),
		Partial: r.Partial,
		Tool:    strings.TrimSpace(human.Clean(r.Tool.Name + " " + r.Tool.Version)),
		Started: r.Started.UTC().Format(time.RFC3339),
	}
	if m.Title == "" {
		m.Title = "Throughput against what is in flight"
	}
	for _, a := range r.Arms {
		m.Arms = append(m.Arms, Arm{
			Name: human.Clean(a.Name), Target: human.Clean(a.Label()), Version: human.Clean(versions(&a)),
			Durability: human.Clean(a.Durability), Command: human.Clean(strings.Join(a.Command, " ")),
			Alike: stat.SameKind(r.Arms[0].Target, a.Target),
		})
	}
	m.Compared = len(r.Arms) >= 2 && !r.SideBySide
	m.PerArm = len(r.Arms) > 2
	m.groups(r)
	for i := range r.Overall {
		m.Overall = append(m.Overall, overall(&r.Overall[i]))
	}
	m.Control, m.ControlText = control(r), m.controlText()
	m.details(r)
	m.correctness(r)
	m.Limits = m.limits(r)
	m.Calibration = calibration(r.Environment.Calibration)
	m.Warnings = warnings(r)
	m.headline(r)
	m.Environment, m.Scenario, m.Method = environment(r), scenario(r), method(r)
	return m
}

// versions are those of the broker and of the client library.
func versions(a *result.Arm) string {
	if a.Version == "" || a.ClientVersion == "" {
		return a.Version + a.ClientVersion
	}
	return a.Version + "; " + a.ClientVersion
}

func (m *Model) groups(r *result.Result) {
	index := map[stat.Point]int{}
	for _, p := range stat.Points(r) {
		key := p
		key.Window = 0
		i, ok := index[key]
		if !ok {
			i = len(m.Groups)
			index[key] = i
			m.Groups = append(m.Groups, Group{Heading: describe(p, false)})
		}
		m.Groups[i].Rows = append(m.Groups[i].Rows, row(r, p))
	}
}

func row(r *result.Result, p stat.Point) Row {
	out := Row{Point: p, InFlight: human.Count(int64(p.Window))}
	for _, a := range r.Arms {
		out.Cells = append(out.Cells, cell(stat.Summarise(r, a.Name, p)))
	}
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		if stat.PointOfComparison(c) != p {
			continue
		}
		for k, a := range r.Arms {
			switch {
			case k == 0 || a.Name != c.Arm:
			case c.Metric == stat.Throughput:
				out.Cells[k].Number.Ratio = plain(c.Ratio)
			case c.Metric == stat.P99:
				out.Cells[k].Number.P99Ratio = plain(c.Ratio)
			}
		}
	}
	out.Ratios = absentRatios()
	for i := 1; i < len(r.Arms); i++ {
		out.Cells[i].Versus = ratios(r, &r.Arms[i], p)
	}
	if len(r.Arms) > 1 {
		out.Ratios = out.Cells[1].Versus
	}
	return out
}

func absentRatios() Ratios {
	return Ratios{
		Ratio: human.Absent, Interval: human.Absent, Corrected: human.Absent, CorrectedInterval: human.Absent,
		P99Ratio: human.Absent, P99Interval: human.Absent, SlotEffect: human.Absent,
	}
}

// ratios is what the comparisons say about one arm at one point.
func ratios(r *result.Result, arm *result.Arm, p stat.Point) Ratios {
	out := absentRatios()
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		if c.Arm != arm.Name || stat.PointOfComparison(c) != p {
			continue
		}
		switch c.Metric {
		case stat.Throughput:
			out.Ratio, out.Interval, out.Verdict = human.Ratio(c.Ratio), human.Interval(c.Low, c.High), c.Verdict
			if c.SlotEffect != nil {
				out.SlotEffect = human.Ratio(*c.SlotEffect)
			}
			// Two brokers do not share a QoS 0 path: taking it out would answer another question.
			if k := c.Corrected; k != nil && stat.SameKind(r.Arms[0].Target, arm.Target) {
				out.Corrected, out.CorrectedInterval = human.Ratio(k.Ratio), human.Interval(k.Low, k.High)
			}
		case stat.P99:
			out.P99Ratio, out.P99Interval, out.P99Verdict = human.Ratio(c.Ratio), human.Interval(c.Low, c.High), c.Verdict
		}
	}
	return out
}

func overall(c *result.Comparison) Overall {
	o := Overall{
		Arm: human.Clean(c.Arm), Base: human.Clean(c.Base),
		Ratio: human.Ratio(c.Ratio), Interval: human.Interval(c.Low, c.High), Verdict: c.Verdict, Smallest: human.Absent,
	}
	if c.SmallestEffect != nil {
		o.Smallest = human.Ratio(*c.SmallestEffect)
	}
	return o
}

// control says where the control of each arm over the first is.
func control(r *result.Result) string {
	all := r.Controls
	if all == nil && r.Control != nil {
		all = []result.Control{*r.Control}
	}
	var out []string
	for i := range all {
		c := &all[i]
		text := fmt.Sprintf("%s %s over %s", human.Ratio(c.Ratio), human.Interval(c.Low, c.High), human.Plural(int64(c.Blocks), "block"))
		if len(all) > 1 {
			text = human.Clean(c.Arm+"/"+c.Base) + " " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// controlText says what the control is good for: only two builds of one broker share the path that it measures.
func (m *Model) controlText() string {
	alike := 0
	for i := 1; i < len(m.Arms); i++ {
		if m.Arms[i].Alike {
			alike++
		}
	}
	switch {
	case alike == len(m.Arms)-1:
		return "Between two builds of one broker it must sit at 1.00."
	case alike == 0:
		return "Two different brokers do not share a QoS 0 path: it need not sit at 1.00, and nothing is corrected by it."
	}
	return "Between two builds of one broker it must sit at 1.00; two different brokers do not share a QoS 0 path."
}

func cell(s *stat.Summary) Cell {
	c := Cell{Rate: human.Absent, RateInterval: human.Absent, P50: human.Absent, P99: human.Absent, RSSPeak: human.Absent}
	if s == nil {
		return c
	}
	c.Incorrect = s.Incorrect
	if t := s.Throughput; t != nil {
		c.Rate, c.Number.Rate = human.Rate(t.Value), plain(t.Value)
		if t.Low != nil && t.High != nil {
			c.RateInterval = "[" + human.Rate(*t.Low) + ", " + human.Rate(*t.High) + "]"
		}
	}
	if s.P99 != nil {
		c.P99, c.Number.P99 = human.Latency(s.P99.Value), plain(s.P99.Value)
	}
	if s.P50 != nil {
		c.P50 = human.Latency(*s.P50)
	}
	if s.RSSPeak != nil {
		c.RSSPeak = human.Bytes(*s.RSSPeak)
	}
	return c
}

func (m *Model) correctness(r *result.Result) {
	var total, allowed stat.Account // what breaks a promise of its QoS, and what does not
	var orders int64
	var unseen, unordered []string // arms whose client does not show the order of acknowledgements, or keeps none of publishes
	verified := false
	for _, a := range r.Arms {
		if a.Client != "" {
			unseen = append(unseen, human.Clean(a.Name))
		}
		if slices.ContainsFunc(r.Cells, func(c result.Cell) bool { return c.Arm == a.Name && c.Ledger != nil && c.Ledger.Unordered }) {
			unordered = append(unordered, human.Clean(a.Name))
		}
		seen := map[int]bool{}
		for _, p := range stat.Points(r) {
			if seen[p.QoS] {
				continue
			}
			seen[p.QoS] = true
			if c, account := correctnessOf(r, a.Name, p.QoS); c != nil {
				m.Correctness = append(m.Correctness, *c)
				orders += c.orders
				if account != nil {
					verified = true
					total.Published += account.Published
					total.Delivered += account.Delivered
					lost, duplicated := &total.Lost, &total.Duplicated
					if p.QoS == 0 {
						lost = &allowed.Lost
					}
					if p.QoS < 2 {
						duplicated = &allowed.Duplicated
					}
					*lost += account.Lost
					*duplicated += account.Duplicated
					total.Reordered += account.Reordered
					total.Corrupt += account.Corrupt
				}
			}
		}
	}
	m.Correct = fmt.Sprintf("%s out of order", human.Plural(orders, "acknowledgement"))
	if len(unseen) > 0 {
		m.Correct += ", not seen through the clients of " + human.List(unseen)
	}
	if len(unseen) == len(r.Arms) {
		m.Correct = "order of acknowledgements not seen through a client library"
	}
	if len(unordered) > 0 {
		m.Correct += "; order of deliveries not judged for " + human.List(unordered) + ", whose client keeps none among its publishes"
	}
	if !verified {
		m.Correct += "; loss and duplication not checked"
		return
	}
	m.Correct = fmt.Sprintf("%s lost, %s duplicated, %s reordered of %s; %s", human.Count(total.Lost), human.Count(total.Duplicated),
		human.Count(total.Reordered), human.Plural(total.Published, "message"), m.Correct)
	if allowed.Lost > 0 {
		m.Correct += fmt.Sprintf("; %s dropped at QoS 0, which may be", human.Count(allowed.Lost))
	}
	if allowed.Duplicated > 0 {
		m.Correct += fmt.Sprintf("; %s repeated below QoS 2, which may be", human.Count(allowed.Duplicated))
	}
}

func correctnessOf(r *result.Result, arm string, qos int) (*Correctness, *stat.Account) {
	c := &Correctness{Arm: human.Clean(arm), QoS: qos, Verdict: "ok"}
	var account *stat.Account
	cells := 0
	unseen, unordered := true, true
	for i := range r.Cells {
		cell := &r.Cells[i]
		if cell.Arm != arm || cell.QoS != qos || cell.Control {
			continue
		}
		cells++
		unseen = unseen && cell.Client != ""
		unordered = unordered && cell.Ledger != nil && cell.Ledger.Unordered
		c.orders += cell.Order.Violations
		if cell.Ledger != nil {
			if account == nil {
				account = new(stat.Account)
			}
			account.Add(cell.Ledger)
		}
		if cell.Incorrect() {
			c.Verdict = stat.Incorrect
		}
	}
	if cells == 0 {
		return nil, nil
	}
	c.Order = human.Count(c.orders)
	if unseen {
		c.Order = human.Absent
	}
	c.Published, c.Acknowledged, c.Delivered = human.Absent, human.Absent, human.Absent
	c.Lost, c.Duplicated, c.Reordered, c.Corrupt = human.Absent, human.Absent, human.Absent, human.Absent
	if account == nil {
		if c.Verdict == "ok" {
			c.Verdict = "order only"
			if unseen {
				c.Verdict = "not checked"
			}
		}
		return c, nil
	}
	c.Published, c.Acknowledged, c.Delivered = human.Count(account.Published), human.Count(account.Acknowledged), human.Count(account.Delivered)
	c.Lost, c.Duplicated, c.Reordered = human.Count(account.Lost), human.Count(account.Duplicated), human.Count(account.Reordered)
	if unordered {
		c.Reordered = human.Absent
	}
	c.Corrupt = human.Count(account.Corrupt)
	return c, account
}

// calibration says in a line what is known of the machine; empty if nothing is.
func calibration(c *result.Calibration) string {
	if c == nil {
		return ""
	}
	text := "of " + c.Started.UTC().Format(time.DateOnly)
	var best *result.Ceiling
	for i := range c.Ceilings {
		if k := &c.Ceilings[i]; k.QoS > 0 && (best == nil || k.ThroughputPerS > best.ThroughputPerS) {
			best = k
		}
	}
	if best != nil {
		text += fmt.Sprintf(": the generator reaches up to %s msg/s against null", human.Rate(best.ThroughputPerS))
	}
	if c.NoiseEffect != nil {
		text += fmt.Sprintf("; %s compared with itself: an effect of %s is found in four runs of five", human.Clean(c.NoiseTarget), human.Ratio(*c.NoiseEffect))
	}
	return text
}

// pinning says which CPUs each had; empty where the scheduler placed them.
func pinning(p *result.Pinning) string {
	switch {
	case p == nil:
		return ""
	case p.Generator == "":
		return p.Note
	}
	text := "generator on CPU " + p.Generator
	for i, set := range p.Slots {
		text += fmt.Sprintf(", slot %d on CPU %s", i+1, set)
	}
	if p.Note != "" {
		text += "; " + p.Note
	}
	return text
}

// placement says which streams each node led in a pass.
func placement(p *result.Placement) string {
	byNode := map[string][]string{}
	for _, l := range p.Leaders {
		byNode[l.Node] = append(byNode[l.Node], l.Stream)
	}
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		name := node
		switch node {
		case "":
			name = "nobody"
		case p.First:
			name += " (of the first publisher)"
		}
		parts = append(parts, name+": "+strings.Join(byNode[node], ", "))
	}
	for _, l := range p.Moved {
		parts = append(parts, fmt.Sprintf("%s moved to %s", l.Stream, cmp.Or(l.Node, "nobody")))
	}
	return strings.Join(parts, "; ")
}

func environment(r *result.Result) []Pair {
	e := r.Environment
	var out []Pair
	add := func(name, value string) {
		if value != "" {
			out = append(out, Pair{name, human.Clean(value)})
		}
	}
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	add("processor", e.CPU)
	add("cores", number(e.Cores))
	add("system", strings.TrimSpace(e.OS+"/"+e.Arch+" "+e.Kernel))
	add("Go", e.Go)
	add("GOMAXPROCS", number(e.GOMAXPROCS))
	add("pinning", pinning(e.Pinning))
	add("calibration", calibration(e.Calibration))
	add("TCP_NODELAY", map[bool]string{true: "on", false: "off"}[e.TCPNoDelay])
	for i := range r.Placements {
		p := &r.Placements[i]
		add(fmt.Sprintf("streams of %s led in pass %d", human.Clean(p.Arm), p.Pass), placement(p))
	}
	return out
}

func scenario(r *result.Result) []Pair {
	s := r.Scenario
	ints := func(values []int) string {
		var out []string
		for _, v := range values {
			out = append(out, human.Count(int64(v)))
		}
		return strings.Join(out, "; ")
	}
	span := func(ns int64) string {
		if ns <= 0 {
			return "none"
		}
		return human.Duration(time.Duration(ns))
	}
	out := []Pair{
		{"scenario", human.Clean(s.Name)},
		{"QoS", ints(s.QoS)},
		{"in flight", ints(s.Windows)},
		{"connections", ints(s.Connections)},
		{"payload bytes", strings.Trim(ints(s.Payloads)+"; "+human.Clean(strings.Join(s.PayloadSizes, "; ")), "; ")},
		{"passes", strconv.Itoa(s.Passes)},
		{"blocks per pass and point", strconv.Itoa(s.Blocks)},
		{"one run of an arm", span(s.DurationNS)},
		{"warm-up before it", span(s.WarmupNS)},
		{"one control run", span(s.ControlNS)},
		{"one verification block", span(s.VerifyNS)},
		{"nodes", strconv.Itoa(s.Nodes)},
		{"replicas", strconv.Itoa(s.Replicas)},
	}
	if s.Quick {
		out = append(out, Pair{"quick", "yes: fewer and shorter blocks"})
	}
	return append(out, Pair{"took", human.Duration(time.Duration(r.DurationNS))})
}

func method(r *result.Result) []string {
	out := []string{
		"Closed loop: each connection keeps its window of exchanges outstanding; a place is free again at PUBACK or PUBCOMP. The p99 is the time from sending a PUBLISH to that acknowledgement; ~ stands for too few samples.",
	}
	if slices.ContainsFunc(stat.Points(r), func(p stat.Point) bool { return p.Rate > 0 }) || len(r.Searches) > 0 {
		out = append(out, "Open loop (paced, ramped): messages are due at instants of a schedule that does not wait for the broker. Service is the time from sending to acknowledgement; response is that from the intended instant, so that a message which waited for a stalled broker has its wait in it. Late were written after their instant, missed not within the measured time.")
	}
	if len(r.Arms) < 2 {
		return append(out, "Values of several passes are pooled as their geometric mean.")
	}
	return append(out,
		"Crossover: each pass gives the arms other slots (a slot is where a broker runs); inside a pass they alternate in blocks A B B A. The ratio is B over A, from the geometric means inside each block, pooled over the passes as their geometric mean, so that a difference between the slots cancels.",
		"Intervals are 95 % each (Student's t on the blocks' log ratios, stratified by pass). The control is the same ratio at QoS 0, over all blocks of the run; corrected is the ratio over that of the control, with the errors of both. Between two builds of one broker the control must sit at 1.00; two different brokers need not share a QoS 0 path.",
		fmt.Sprintf("Same: the whole interval within %.0f %% of 1. Better or worse: a difference that a run without any would show, anywhere among its comparisons, in one of twenty runs (Holm's correction, half of it for the ratio over all points), if the passes agree on the direction and, between two builds of one broker whose control is off, the corrected interval excludes 1 as well. Inconclusive: anything else. Incorrect: a cell lost, duplicated or reordered what it must not, or acknowledged out of order; its numbers are struck out.", 100*stat.SameMargin),
	)
}
