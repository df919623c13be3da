package rule

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of what is accepted.
const (
	MaxText   = 200 // bytes of one rule
	MaxRules  = 50  // of one scenario or command line
	maxValues = 32  // of one key
)

// Kind says what a metric's numbers are.
type Kind int

// The kinds of metrics.
const (
	PerSecond Kind = iota + 1 // messages per second; more is better
	Time                      // nanoseconds; less is better
	Bytes                     // less is better
	Promise                   // kept or broken: no limit
	Level                     // of conformance: must, contract or info
)

// The metrics that are no percentile of a latency.
const (
	Throughput  = "throughput"
	Delivered   = "delivered"
	RSS         = "rss"
	CPU         = "cpu" // of all nodes, per message
	ExactlyOnce = "exactly-once"
	Ordering    = "ordering"
	Conformance = "conformance"
)

// Latencies are the recorded times, as result.json names them but with hyphens.
var latencies = []string{"ack-service", "ack-response", "publish-to-pubrec", "pubrel-to-pubcomp", "end-to-end"}

// kept are the figures that a result itself has of each latency. Other percentiles come from its histograms.
var kept = []string{"p50", "p90", "p99", "p999", "max", "mean"}

// percentile is p and two digits; what follows them, with a point or without one, are decimals: p95, p99.5, p9999.
var percentile = regexp.MustCompile(`^p([0-9]{2})\.?([0-9]{0,3})$`)

// figure returns the one spelling of a figure of a latency; ok is false for what is none.
func figure(text string) (name string, ok bool) {
	if slices.Contains(kept, text) {
		return text, true
	}
	m := percentile.FindStringSubmatch(text)
	if m == nil || strings.HasSuffix(text, ".") {
		return "", false
	}
	whole, decimals := m[1], strings.TrimRight(m[2], "0")
	switch {
	case whole == "00" && decimals == "", text == "p"+whole+m[2] && m[2] != "" && decimals == "":
		return "", false // p100 is not the tenth percentile
	case whole == "99" && decimals == "9":
		return "p999", true
	case decimals != "":
		decimals = "." + decimals
	}
	return "p" + whole + decimals, true
}

// Rule is one parsed rule. Slices that are nil stand for every value.
type Rule struct {
	Metric      string // in its full name: p99 alone is ack-service.p99
	AtLeast     bool   // the limit is a lower one
	Limit       float64
	Ratio       bool // the limit is a ratio of arm over base, not absolute
	Effect      float64
	Level       string // of Conformance
	QoS         []int
	Windows     []int
	Connections []int
	Payloads    []int
	Rates       []int // of an open loop, messages per second; 0 is a closed one
}

// Kind is the kind of the rule's metric.
func (r *Rule) Kind() Kind { return kindOf(r.Metric) }

// Latency splits the metric into the latency and its figure: p50, p90, p99, p999, max or mean, which results keep, or
// another percentile. Both are empty for another metric.
func (r *Rule) Latency() (latency, figure string) {
	latency, figure, ok := strings.Cut(r.Metric, ".")
	if !ok {
		return "", ""
	}
	return latency, figure
}

// Quantile is the share of samples below the percentile of the rule, as 0.995 for p99.5; 0 for another metric and for what
// a result keeps itself.
func (r *Rule) Quantile() float64 {
	_, name := r.Latency()
	digits, ok := strings.CutPrefix(name, "p")
	if !ok || slices.Contains(kept, name) {
		return 0
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0
	}
	return math.Round(v*1e3) / 1e5 // the nearest to what was written
}

func kindOf(metric string) Kind {
	switch metric {
	case Throughput, Delivered:
		return PerSecond
	case RSS:
		return Bytes
	case CPU:
		return Time
	case ExactlyOnce, Ordering:
		return Promise
	case Conformance:
		return Level
	}
	latency, name, ok := strings.Cut(metric, ".")
	if spelling, is := figure(name); ok && is && spelling == name && slices.Contains(latencies, latency) {
		return Time
	}
	return 0
}

// Metrics lists every metric's name, of the percentiles only those that results keep.
func Metrics() []string {
	names := []string{Throughput, Delivered, RSS, CPU, ExactlyOnce, Ordering, Conformance}
	for _, l := range latencies {
		for _, p := range kept {
			names = append(names, l+"."+p)
		}
	}
	return names
}

var operator = regexp.MustCompile(`\s*(>=|<=)\s*`)

// Parse reads one rule. Its error says what is wrong and what would be right.
func Parse(text string) (*Rule, error) {
	text = strings.TrimSpace(text)
	if len(text) > MaxText {
		return nil, fmt.Errorf("rule %.30q... is longer than %d characters", text, MaxText)
	}
	words := strings.Fields(operator.ReplaceAllString(text, " $1 "))
	if len(words) == 0 {
		return nil, errors.New("the rule is empty: write one as throughput >= 0.9x")
	}
	r := &Rule{Metric: words[0]}
	latency, name, two := strings.Cut(r.Metric, ".")
	if !two || strings.HasPrefix(latency, "p") && !slices.Contains(latencies, latency) {
		latency, name = "ack-service", r.Metric // p99.5 has a point too
	}
	if spelling, ok := figure(name); ok {
		r.Metric = latency + "." + spelling
	}
	if kindOf(r.Metric) == 0 {
		return nil, fmt.Errorf("rule %q: unknown metric %q: there are throughput, delivered, rss, cpu, exactly-once, ordering, conformance, and LATENCY.FIGURE with the latencies %s and the figures max, mean and any percentile, as p50, p99.5 or p999",
			text, words[0], strings.Join(latencies, ", "))
	}
	rest, err := r.limit(words[1:])
	if err == nil {
		err = r.clauses(rest)
	}
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", text, err)
	}
	return r, nil
}

// limit reads the part behind the metric and returns what follows it.
func (r *Rule) limit(words []string) ([]string, error) {
	first := ""
	if len(words) > 0 {
		first = words[0]
	}
	isOp := first == ">=" || first == "<="
	switch r.Kind() {
	case Promise:
		if isOp {
			return nil, fmt.Errorf("%s is kept or broken, it has no limit", r.Metric)
		}
		return words, nil
	case Level:
		if !slices.Contains([]string{"must", "contract", "info"}, first) {
			return nil, fmt.Errorf("%s needs a level: must, contract or info", r.Metric)
		}
		r.Level = first
		return words[1:], nil
	}
	if !isOp || len(words) < 2 {
		return nil, fmt.Errorf("%s needs a limit, as %s", r.Metric, r.example())
	}
	r.AtLeast = first == ">="
	if r.AtLeast != (r.Kind() == PerSecond) {
		return nil, fmt.Errorf("%s %s can only fail by getting better: did you mean %s?", r.Metric, first, r.example())
	}
	return words[2:], r.value(words[1])
}

func (r *Rule) example() string {
	switch r.Kind() {
	case PerSecond:
		return ">= 0.9x or >= 5000/s"
	case Bytes:
		return "<= 1.2x or <= 200MiB"
	default:
		return "<= 1.2x or <= 20ms"
	}
}

// byteUnits in the order in which they are tried and written.
var byteUnits = []struct {
	suffix string
	bytes  float64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}

func (r *Rule) value(text string) error {
	if number, ok := strings.CutSuffix(text, "x"); ok {
		v, err := positive(number)
		if err != nil {
			return fmt.Errorf("limit %q is not a ratio: write it as %s", text, r.example())
		}
		r.Limit, r.Ratio = v, true
		return nil
	}
	wrong := fmt.Errorf("limit %q is neither a ratio nor has the unit of %s: write it as %s", text, r.Metric, r.example())
	switch r.Kind() {
	case PerSecond:
		number, ok := strings.CutSuffix(text, "/s")
		v, err := positive(number)
		if !ok || err != nil {
			return wrong
		}
		r.Limit = v
	case Time:
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return wrong
		}
		r.Limit = float64(d)
	case Bytes:
		for _, u := range byteUnits {
			number, ok := strings.CutSuffix(text, u.suffix)
			if !ok {
				continue
			}
			v, err := positive(number)
			if err != nil {
				return wrong
			}
			r.Limit = v * u.bytes
			return nil
		}
		return wrong
	}
	return nil
}

func positive(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, errors.New("not a positive number")
	}
	return v, nil
}

// clauses reads what is behind the limit.
func (r *Rule) clauses(words []string) error {
	seen := map[string]bool{}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if seen[word] {
			return fmt.Errorf("%s is given twice", word)
		}
		seen[word] = true
		switch word {
		case "at":
			n := 0
			for n < len(words) && strings.Contains(words[n], "=") {
				if err := r.where(words[n], seen); err != nil {
					return err
				}
				n++
			}
			if n == 0 {
				return errors.New("at needs a place, as at qos=2 window=20,256")
			}
			words = words[n:]
		case "effect":
			if len(words) == 0 {
				return errors.New("effect needs a percentage, as effect 10%")
			}
			number, ok := strings.CutSuffix(words[0], "%")
			v, err := positive(number)
			if !ok || err != nil || v >= 100 {
				return fmt.Errorf("effect %q is not a percentage below 100: write it as effect 10%%", words[0])
			}
			if r.Kind() == Promise || r.Kind() == Level {
				return fmt.Errorf("%s is kept or broken, it has no effect size", r.Metric)
			}
			r.Effect, words = v/100, words[1:]
		default:
			return fmt.Errorf("%q is not understood: a limit may be followed by at KEY=N,... and effect N%%", word)
		}
	}
	return nil
}

func (r *Rule) where(clause string, seen map[string]bool) error {
	key, list, _ := strings.Cut(clause, "=")
	field := r.field(key)
	if field == nil || r.Kind() == Level {
		if r.Kind() == Level {
			return fmt.Errorf("%s is of the whole broker, not of a place", r.Metric)
		}
		return fmt.Errorf("unknown key %q: there are qos, window, connections, payload, rate", key)
	}
	if seen[key+"="] {
		return fmt.Errorf("%s is given twice", key)
	}
	seen[key+"="] = true
	values := strings.Split(list, ",")
	if len(values) > maxValues {
		return fmt.Errorf("%s has more than %d values", key, maxValues)
	}
	for _, text := range values {
		n, err := strconv.Atoi(text)
		if key == "rate" && text == closedLoop {
			n, err = 0, nil
		}
		if err != nil || n < 0 {
			return fmt.Errorf("%s %q is not a whole number", key, text)
		}
		*field = append(*field, n)
	}
	return nil
}

func (r *Rule) field(key string) *[]int {
	switch key {
	case "qos":
		return &r.QoS
	case "window":
		return &r.Windows
	case "connections":
		return &r.Connections
	case "payload":
		return &r.Payloads
	case "rate":
		return &r.Rates
	}
	return nil
}

// closedLoop is the rate that is none, as scenarios spell it.
const closedLoop = "max"

// Matches reports whether the rule is for a point. A rate of 0 is a closed loop.
func (r *Rule) Matches(qos, window, connections, payload, rate int) bool {
	in := func(list []int, n int) bool { return list == nil || slices.Contains(list, n) }
	return in(r.QoS, qos) && in(r.Windows, window) && in(r.Connections, connections) && in(r.Payloads, payload) && in(r.Rates, rate)
}

// String is the rule in its one spelling, which Parse takes again.
func (r *Rule) String() string {
	var b strings.Builder
	b.WriteString(r.Metric)
	switch {
	case r.Kind() == Level:
		b.WriteString(" " + r.Level)
	case r.Kind() != Promise:
		op := " <= "
		if r.AtLeast {
			op = " >= "
		}
		b.WriteString(op + r.LimitText())
	}
	at := " at"
	for _, key := range []string{"qos", "window", "connections", "payload", "rate"} {
		if list := *r.field(key); list != nil {
			var words []string
			for _, n := range list {
				if key == "rate" && n == 0 {
					words = append(words, closedLoop)
					continue
				}
				words = append(words, strconv.Itoa(n))
			}
			b.WriteString(at + " " + key + "=" + strings.Join(words, ","))
			at = ""
		}
	}
	if r.Effect > 0 {
		b.WriteString(" effect " + strconv.FormatFloat(math.Round(r.Effect*1e6)/1e4, 'f', -1, 64) + "%")
	}
	return b.String()
}

// LimitText is the limit with its unit.
func (r *Rule) LimitText() string {
	switch {
	case r.Ratio:
		return strconv.FormatFloat(r.Limit, 'f', -1, 64) + "x"
	case r.Kind() == PerSecond:
		return strconv.FormatFloat(r.Limit, 'f', -1, 64) + "/s"
	case r.Kind() == Time:
		return time.Duration(r.Limit).String()
	default:
		for _, u := range byteUnits {
			if v := r.Limit / u.bytes; v >= 1 && v == math.Trunc(v) && strings.HasSuffix(u.suffix, "iB") {
				return strconv.FormatFloat(v, 'f', -1, 64) + u.suffix
			}
		}
		return strconv.FormatFloat(r.Limit, 'f', -1, 64) + "B"
	}
}
