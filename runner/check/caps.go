package check

import (
	"strconv"
	"strings"
)

// KeepIn writes the capabilities into a history's facts, from which CapsOf reads them again.
func (c *Caps) KeepIn(facts map[string]string) {
	flag := func(on bool) string { return strconv.FormatBool(on) }
	facts["cap.max_qos"] = strconv.Itoa(int(c.MaxQoS))
	facts["cap.receive_maximum"] = strconv.Itoa(c.Receive)
	facts["cap.retain"] = flag(c.Retain)
	facts["cap.wildcards"] = flag(c.Wildcards)
	facts["cap.shared"] = flag(c.Shared)
	facts["cap.subscription_ids"] = flag(c.SubIDs)
	facts["cap.max_packet"] = strconv.Itoa(c.MaxPacket)
	facts["cap.topic_aliases"] = strconv.Itoa(c.Aliases)
	facts["cap.delivers"] = flag(c.Delivers)
	facts["cap.method"] = c.Method
	facts["cap.ordered_acks"] = flag(c.OrderedAcks)
	facts["cap.in_order"] = flag(c.InOrder)
	facts["cap.durable"] = flag(c.Durable)
	facts["cap.nodes"] = strconv.Itoa(c.Nodes)
	facts["cap.hooks"] = strings.Join(c.Hooks, ",")
}

// CapsOf reads the capabilities from a history's facts.
func CapsOf(facts map[string]string) Caps {
	number := func(key string) int {
		n, _ := strconv.Atoi(facts["cap."+key])
		return n
	}
	flag := func(key string) bool { return facts["cap."+key] == "true" }
	c := Caps{
		MaxQoS: byte(number("max_qos")), Receive: number("receive_maximum"), Retain: flag("retain"), Wildcards: flag("wildcards"),
		Shared: flag("shared"), SubIDs: flag("subscription_ids"), MaxPacket: number("max_packet"), Aliases: number("topic_aliases"),
		Delivers: flag("delivers"), Method: facts["cap.method"], OrderedAcks: flag("ordered_acks"), InOrder: flag("in_order"),
		Durable: flag("durable"), Nodes: number("nodes"), Facts: facts,
	}
	if hooks := facts["cap.hooks"]; hooks != "" {
		c.Hooks = strings.Split(hooks, ",")
	}
	return c
}
