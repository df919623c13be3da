package check

import (
	"fmt"
	"slices"
	"strings"
)

// Hooks are what can be done to a broker beside the wire, by name. A rule that needs one has it in its Needs.
const (
	HookRestart   = "restart"     // the broker is asked to end and started again
	HookKill      = "kill"        // it is killed without a warning and started again
	HookKillNode  = "kill-node"   // one node of a cluster is killed
	HookStartNode = "start-node"  // and started again
	HookStopStore = "stop-store"  // what the broker writes to its store fails from now on
	HookFixStore  = "start-store" // it works again, after a restart if need be
	HookSlowStore = "slow-store"  // what the broker writes to its store takes some 50 ms longer
	HookFastStore = "fast-store"  // as before
	HookACL       = "acl"         // the broker refuses to publish to Denied
)

// hookPairs are hooks that are of use together only.
var hookPairs = map[string]string{HookKillNode: HookStartNode, HookStopStore: HookFixStore, HookSlowStore: HookFastStore}

// HookNames are all hooks, in the order of the documentation.
func HookNames() []string {
	return []string{HookRestart, HookKill, HookKillNode, HookStartNode, HookStopStore, HookFixStore, HookSlowStore, HookFastStore, HookACL}
}

// Denied is the Topic Filter to which a broker with the hook acl lets nobody publish, and deniedTopic the script's name of
// such a topic.
const (
	Denied      = "inflight/+/" + deniedTopic
	deniedTopic = "denied"
)

// Needs of hooks, and of what goes with them.
const (
	Durable Need = "a store that is declared durable"
	Cluster Need = "a cluster of which more than one node is known"

	hookNeed = "the hook "

	NeedsRestart  Need = hookNeed + HookRestart
	NeedsKill     Need = hookNeed + HookKill
	NeedsKillNode Need = hookNeed + HookKillNode
	NeedsStore    Need = hookNeed + HookStopStore
	NeedsSlow     Need = hookNeed + HookSlowStore
	NeedsACL      Need = hookNeed + HookACL
)

// hook is the name of the hook that is needed, "" if the need is none.
func (n Need) hook() string {
	name, ok := strings.CutPrefix(string(n), hookNeed)
	if !ok {
		return ""
	}
	return name
}

// Hook reports whether there is the hook, and the one that undoes it.
func (c *Caps) Hook(name string) bool {
	other, paired := hookPairs[name]
	return slices.Contains(c.Hooks, name) && (!paired || slices.Contains(c.Hooks, other))
}

// Hooked reports whether the rule needs a hook, and so a broker that may be stopped.
func (r *Rule) Hooked() bool {
	return slices.ContainsFunc(r.Needs, func(n Need) bool { return n.hook() != "" })
}

// Blow is what happens to the broker once while flows go on, when After of their messages are acknowledged. A hook that is
// undone by another one is undone when the flows have ended.
type Blow struct {
	Hook  string
	Node  int // of kill-node, from 0
	After int
}

// Undo is the hook that undoes another one, "" if there is none.
func Undo(hook string) string { return hookPairs[hook] }

// hookText is a hook for people.
func hookText(name string, node int) string {
	switch name {
	case HookKillNode, HookStartNode:
		return fmt.Sprintf("%s: node %d", name, node+1)
	}
	return name + ": the broker"
}

// Hook does something beside the wire.
func (s *Script) Hook(name string) { s.HookAt(name, 0) }

// HookAt does something to one node, from 0.
func (s *Script) HookAt(name string, node int) {
	s.add(Step{Op: OpHook, Name: name, N: node}, "hook %s", hookText(name, node))
}

// Storm publishes flows side by side while a blow falls on the broker. The clients in keep, which have kept sessions, are
// resumed meanwhile whenever the broker ends their connections. They, and those of flows that are Patient, are connected at
// the end.
func (s *Script) Storm(blow Blow, keep []string, streams ...Stream) {
	s.Flows(nil, streams...)
	step := &s.Steps[len(s.Steps)-1]
	step.Blow, step.Keep = &blow, keep
	step.Text += fmt.Sprintf("; after %d acknowledgements hook %s", blow.After, hookText(blow.Hook, blow.Node))
	if undo := Undo(blow.Hook); undo != "" {
		step.Text += ", and at the end hook " + undo
	}
	if len(keep) > 0 {
		step.Text += fmt.Sprintf("; resume %s when the connection ends", strings.Join(keep, ", "))
	}
}
