package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"inflight/runner/history"
)

// Finding is one thing that a broker did against a rule.
type Finding struct {
	Level  Level
	Text   string
	Events []int // of the history, those that show it
}

// Verdict is a judgement of one history.
type Verdict struct {
	Outcome  Outcome
	Level    Level  // of the worst finding
	Why      string // it is inconclusive
	Findings []Finding
	Notes    []string // what was observed beside
	Timeout  bool     // all that was found is that something did not come in time
}

// J is what a rule's judgement sees and says.
type J struct {
	*view
	Rule *Rule
	Caps Caps
	V    byte

	findings []Finding
	notes    []string
	unsure   string
	void     string
	stuckOK  bool
}

// Judge decides what a history says about the rule. It is a function of its arguments alone.
func Judge(r *Rule, h *history.History) Verdict {
	if why := saysNothing(h); why != "" {
		return Verdict{Outcome: Inconclusive, Why: why}
	}
	return judge(r, h, newView(h))
}

// JudgeAll is Judge and Invariants of one history, which is decoded once.
func JudgeAll(r *Rule, h *history.History) (Verdict, map[*Rule]Verdict) {
	if h.Full {
		return Judge(r, h), nil
	}
	v := newView(h)
	found := broken(h, v)
	if why := saysNothing(h); why != "" {
		return Verdict{Outcome: Inconclusive, Why: why}, found
	}
	return judge(r, h, v), found
}

// saysNothing is why a history cannot be judged by a rule, "" if it can.
func saysNothing(h *history.History) string {
	switch {
	case h.Trouble != "":
		return h.Trouble
	case h.Full:
		return "more happened than a history holds"
	}
	return ""
}

func judge(r *Rule, h *history.History, seen *view) Verdict {
	j := &J{view: seen, Rule: r, Caps: CapsOf(h.Facts), V: h.Version}
	r.Judge(j)
	if j.void != "" {
		return Verdict{Outcome: Inconclusive, Why: j.void, Notes: j.notes}
	}
	stuck := h.Stuck != "" && !j.stuckOK
	if stuck {
		marked := []int{}
		if n := len(h.Events); n > 0 {
			marked = append(marked, n-1)
		}
		j.findings = slices.Insert(j.findings, 0, Finding{r.Level, h.Stuck, marked})
	}
	verdict := Verdict{Outcome: OK, Notes: j.notes, Findings: j.findings, Timeout: stuck}
	for _, f := range j.findings {
		verdict.Level = max(verdict.Level, f.Level)
	}
	switch {
	case len(j.findings) > 0:
		verdict.Outcome = Violated
	case j.unsure != "":
		verdict.Outcome, verdict.Why = Inconclusive, j.unsure
	}
	return verdict
}

// Find adds a finding of a level, at some events.
func (j *J) Find(level Level, at []Item, format string, args ...any) {
	f := Finding{Level: level, Text: fmt.Sprintf(format, args...)}
	for _, i := range at {
		f.Events = append(f.Events, i.Event)
	}
	j.findings = append(j.findings, f)
}

// Fail adds a finding of the rule's own level.
func (j *J) Fail(at []Item, format string, args ...any) { j.Find(j.Rule.Level, at, format, args...) }

// Note adds an observation.
func (j *J) Note(format string, args ...any) { j.notes = append(j.notes, fmt.Sprintf(format, args...)) }

// Unsure makes the run inconclusive unless something was found.
func (j *J) Unsure(format string, args ...any) { j.unsure = fmt.Sprintf(format, args...) }

// Void makes the run inconclusive whatever was found: the script itself did not keep a time that the rule is about, because
// the machine was busy.
func (j *J) Void(format string, args ...any) { j.void = fmt.Sprintf(format, args...) }

// StuckIsFine says that the script may have ended early: what it waited for was not an obligation.
func (j *J) StuckIsFine() { j.stuckOK = true }

// Is5 reports whether the history is of MQTT 5.0.
func (j *J) Is5() bool { return j.V == history.Level5 }

// Order is the level of acknowledgement order: a contract where it is declared.
func (j *J) Order() Level {
	if j.Caps.OrderedAcks {
		return Contract
	}
	return Info
}

// Got are the packets that a client received, of the given types.
func (j *J) Got(name string, types ...history.Type) []Item {
	return j.packets(name, history.Received, types...)
}

// Put are the packets that a client sent, of the given types.
func (j *J) Put(name string, types ...history.Type) []Item {
	return j.packets(name, history.Sent, types...)
}

// Test is a judgement that rules are put together from.
type Test func(j *J)

// All makes one judgement of several.
func All(tests ...Test) func(*J) {
	return func(j *J) {
		for _, t := range tests {
			t(j)
		}
	}
}

// None finds nothing: the expectations of the script are all that is asked.
func None(*J) {}

// Once wants each of the bodies delivered exactly once to the client, in this order, and nothing else.
func Once(name string, bodies ...string) Test {
	return func(j *J) { j.once(name, bodies, true) }
}

// OnceAnyOrder wants each exactly once, and nothing else.
func OnceAnyOrder(name string, bodies ...string) Test {
	return func(j *J) { j.once(name, bodies, false) }
}

func (j *J) once(name string, bodies []string, order bool) {
	want := map[string]int{}
	for _, b := range bodies {
		want[b]++
	}
	got := map[string][]Item{}
	var sequence []Delivery
	for _, d := range j.deliveries(name) {
		got[d.Body] = append(got[d.Body], d.Item)
		switch {
		case want[d.Body] == 0:
			j.Fail([]Item{d.Item}, "%s got %q, which it must not get", name, d.Body)
		case len(got[d.Body]) > want[d.Body]:
			j.Fail(got[d.Body], "%s got %q %d times, want %d", name, d.Body, len(got[d.Body]), want[d.Body])
		default:
			sequence = append(sequence, d)
		}
	}
	var missing []string
	for _, b := range bodies {
		if len(got[b]) < want[b] && !slices.Contains(missing, b) {
			missing = append(missing, b)
		}
	}
	if len(missing) > 0 && j.h.Stuck == "" {
		j.Fail(nil, "%s did not get %s", name, shortList(missing))
	}
	if !order || len(missing) > 0 {
		return
	}
	for i, d := range sequence {
		if i < len(bodies) && d.Body != bodies[i] {
			j.Fail([]Item{d.Item}, "%s got %q where %q was due: the order of publication is not kept", name, d.Body, bodies[i])
			return
		}
	}
}

// AtLeastOnce wants each delivered to the client, nothing but copies beside, and first deliveries in this order.
func AtLeastOnce(name string, bodies ...string) Test {
	return func(j *J) {
		place := map[string]int{}
		for i, b := range bodies {
			place[b] = i
		}
		seen, last := map[string]bool{}, -1
		for _, d := range j.deliveries(name) {
			at, known := place[d.Body]
			switch {
			case !known:
				j.Fail([]Item{d.Item}, "%s got %q, which it must not get", name, d.Body)
			case seen[d.Body]:
			case at < last:
				j.Fail([]Item{d.Item}, "%s got %q after a later message: the order of publication is not kept", name, d.Body)
			default:
				last = at
			}
			seen[d.Body] = true
		}
		var missing []string
		for _, b := range bodies {
			if !seen[b] {
				missing = append(missing, b)
			}
		}
		if len(missing) > 0 && j.h.Stuck == "" {
			j.Fail(nil, "%s did not get %s", name, shortList(missing))
		}
	}
}

// Never wants none of the bodies delivered to the client; without bodies, nothing at all.
func Never(name string, bodies ...string) Test {
	return func(j *J) {
		for _, d := range j.deliveries(name) {
			if len(bodies) == 0 || slices.Contains(bodies, d.Body) {
				j.Fail([]Item{d.Item}, "%s got %q, which it must not get", name, d.Body)
			}
		}
	}
}

// Answered wants as many packets of the type for each identifier as questions were sent on all connections of the client,
// counting only what it was sent itself; more than that is found by the invariants.
func Answered(name string, question, answer history.Type, qos byte) Test {
	return func(j *J) {
		left := map[uint16]int{}
		for _, i := range j.items {
			if j.name(i) != name {
				continue
			}
			switch {
			case i.Kind == history.Sent && i.P.Type == question && (question != history.PUBLISH || i.P.QoS == qos):
				left[i.P.ID]++
			case i.Kind == history.Received && i.P.Type == answer:
				if left[i.P.ID]--; left[i.P.ID] < 0 {
					j.Fail([]Item{i}, "%v(%d) is one more than there were packets to answer", answer, i.P.ID)
				}
			}
		}
		if j.h.Stuck != "" {
			return
		}
		var missing []string
		for id, n := range left {
			if n > 0 {
				missing = append(missing, strconv.Itoa(int(id)))
			}
		}
		if len(missing) > 0 {
			slices.Sort(missing)
			j.Fail(nil, "%s got no %v for the identifiers %s", name, answer, shortList(missing))
		}
	}
}

// InOrder wants the answers on each connection in the order of what they answer.
func InOrder(level func(*J) Level, name string, question, answer history.Type, qos byte) Test {
	return func(j *J) {
		queues := map[int][]uint16{}
		for _, i := range j.items {
			if j.name(i) != name {
				continue
			}
			switch {
			case i.Kind == history.Sent && i.P.Type == question && (question != history.PUBLISH || i.P.QoS == qos):
				queues[i.Conn] = append(queues[i.Conn], i.P.ID)
			case i.Kind == history.Received && i.P.Type == answer:
				q := queues[i.Conn]
				switch at := slices.Index(q, i.P.ID); {
				case at == 0:
					queues[i.Conn] = q[1:]
				case at > 0:
					j.Find(level(j), []Item{i}, "%v(%d) came before %v(%d), whose %v was sent earlier", answer, i.P.ID, answer, q[0], question)
					return
				}
			}
		}
	}
}

// Ordered is the level of a declared order.
func Ordered(j *J) Level { return j.Order() }

// RecOrder is that of PUBREC: a broker that delivers at PUBREL must keep it, because a client that obeys [MQTT-4.6.0-4]
// sends its PUBRELs in the order of the PUBRECs, and so disorders the deliveries.
func RecOrder(j *J) Level {
	if j.Caps.Method == "A" {
		return Must
	}
	return j.Order()
}

// Codes wants each packet of the type that a client received to have one of the Reason Codes.
func Codes(level Level, name string, t history.Type, codes ...byte) Test {
	return func(j *J) {
		for _, i := range j.Got(name, t) {
			if !slices.Contains(codes, i.P.Reason) {
				j.Find(level, []Item{i}, "%v(%d) has the Reason Code 0x%02X, want one of % X", t, i.P.ID, i.P.Reason, codes)
			}
		}
	}
}

// Present wants Session Present in the CONNACK of the client's nth connection, from 1. It says nothing about one that was
// refused.
func Present(name string, nth int, want bool) Test {
	return func(j *J) {
		for _, i := range j.nth(j.Got(name, history.CONNACK), nth) {
			if i.P.Reason == 0 && i.P.Present != want {
				j.Fail([]Item{i}, "Session Present of connection %d of %s is %v, want %v", nth, name, i.P.Present, want)
			}
		}
	}
}

// NoneOf wants that the client received no packet of the types.
func NoneOf(name string, types ...history.Type) Test {
	return func(j *J) {
		for _, i := range j.Got(name, types...) {
			j.Fail([]Item{i}, "%s got %v, which nothing asked for", name, i.P.String())
		}
	}
}

// closedBy reports whether the broker ended a connection of the client.
func (j *J) closedBy(name string) bool { return len(j.packets(name, history.Closed)) > 0 }

// shortList is a list for people.
func shortList(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more (%d in all)", strings.Join(all[:most], ", "), len(all)-most, len(all))
}

// Number is a fact of the script that is a number, 0 if there is none.
func (j *J) Number(key string) int {
	n, _ := strconv.Atoi(j.h.Facts[key])
	return n
}
