package check

import (
	"strings"
	"time"
)

// Level is how binding a rule is.
type Level byte

// The levels, ascending.
const (
	Info     Level = iota + 1 // a should, an unnumbered sentence, or what is only observed
	Contract                  // what a broker declares beyond the specification: ordered acknowledgements, durability
	Must                      // a numbered statement binds the Server, or follows from those that do
)

// String is the level in a word.
func (l Level) String() string {
	switch l {
	case Info:
		return "info"
	case Contract:
		return "contract"
	case Must:
		return "must"
	}
	return ""
}

// Outcome is what became of a check.
type Outcome string

// The outcomes.
const (
	OK            Outcome = "ok"
	Violated      Outcome = "violated"
	Inconclusive  Outcome = "inconclusive"
	NotApplicable Outcome = "not applicable"
)

// Versions of a rule.
const (
	V4   = 1 << iota // MQTT 3.1.1
	V5               // MQTT 5.0
	Both = V4 | V5
)

// Rule is one row of the catalogue: how to provoke the broker, and how to judge what it did. It is data; the script is
// interpreted by who owns sockets, the judgement reads nothing but the history.
type Rule struct {
	ID    string
	Title string // what must be, in one sentence
	In    int    // V4, V5 or Both

	// Statements has the numbers of the specification's normative statements, "3.1.1's | 5.0's"; without a bar for both.
	Statements string
	Level      Level  // of the most binding part
	Why        string // for a must that no numbered statement says: what it follows from; for others: a remark

	Needs   []Need // conditions without which the row says nothing
	Racy    bool   // runs several rounds
	Heavy   bool   // uses much CPU or memory: not beside another heavy one
	Alone   bool   // disturbs others: runs when nothing else does
	Slow    bool   // left out by --quick: it waits
	Control string // of which control must be green for a violation to count

	// Faults are the planted faults of the reference broker that this rule catches.
	Faults []string

	Script func(s *Script)
	Judge  func(j *J)
}

// Group is the part of the ID before the last dash.
func (r *Rule) Group() string {
	i := strings.LastIndexByte(r.ID, '-')
	if i < 0 {
		return r.ID
	}
	return r.ID[:i]
}

// StatementsOf are the statements of one version, level 4 or 5.
func (r *Rule) StatementsOf(level byte) []string {
	four, five, split := strings.Cut(r.Statements, "|")
	if split && level == 5 {
		four = five
	}
	var all []string
	for _, s := range strings.Fields(four) {
		if s != "-" {
			all = append(all, "MQTT-"+s)
		}
	}
	return all
}

// Applies reports whether the rule is of the version, level 4 or 5.
func (r *Rule) Applies(level byte) bool {
	if level == 5 {
		return r.In&V5 != 0
	}
	return r.In&V4 != 0
}

// Need is a capability or a hook that a rule depends on.
type Need string

// The needs.
const (
	QoS1      Need = "QoS 1"
	QoS2      Need = "QoS 2"
	Retain    Need = "retained messages"
	Wildcards Need = "wildcard subscriptions"
	Shared    Need = "shared subscriptions"
	SubIDs    Need = "subscription identifiers"
	MethodA   Need = "delivery at PUBREL (method A)"
	Aliases   Need = "a Topic Alias Maximum above 0"
	SmallRM   Need = "an announced Receive Maximum of at most 10,000"
	SmallSize Need = "an announced Maximum Packet Size of at most 16 MiB"
	LowQoS    Need = "an announced Maximum QoS below 2"
	Deliver   Need = "deliveries to subscribers"
	Memory    Need = "the broker's process, to read its memory"
)

// Caps is what a broker can do, as it announced or as was observed in one version.
type Caps struct {
	MaxQoS    byte
	Receive   int // Receive Maximum, 65,535 where none is announced
	Retain    bool
	Wildcards bool
	Shared    bool
	SubIDs    bool
	MaxPacket int // bytes, 0: no limit announced
	Aliases   int // Topic Alias Maximum
	Delivers  bool
	Method    string // A: delivery at PUBREL, B: at PUBLISH, "": not seen

	OrderedAcks bool // declared: PUBACK, PUBREC and PUBCOMP in the order of what they answer
	InOrder     bool // observed in the probe
	Durable     bool // declared: what was acknowledged survives a restart

	Nodes int      // of the cluster, as far as their addresses are known
	Hooks []string // what can be done beside the wire, by name
	Facts map[string]string
}

// Lacks says what of the needs is not there; "" if nothing.
func (c *Caps) Lacks(needs []Need) string {
	for _, n := range needs {
		have := true
		switch n {
		case QoS1:
			have = c.MaxQoS >= 1
		case QoS2:
			have = c.MaxQoS >= 2
		case Retain:
			have = c.Retain
		case Wildcards:
			have = c.Wildcards
		case Shared:
			have = c.Shared
		case SubIDs:
			have = c.SubIDs
		case MethodA:
			have = c.Method == "A"
		case Aliases:
			have = c.Aliases > 0
		case SmallRM:
			have = c.Receive <= 10_000
		case SmallSize:
			have = c.MaxPacket > 0 && c.MaxPacket <= 16<<20
		case LowQoS:
			have = c.MaxQoS < 2
		case Deliver:
			have = c.Delivers
		case Memory:
			have = c.Hook("memory")
		case Durable:
			have = c.Durable
		case Cluster:
			have = c.Nodes > 1
		default:
			have = c.Hook(n.hook())
		}
		if !have {
			return "needs " + string(n)
		}
	}
	return ""
}

// Settle is how long a script waits for what must not come, after it saw what had to come.
const Settle = 80 * time.Millisecond
