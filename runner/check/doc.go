// Package check is the conformance catalogue: what an MQTT broker must do, how to provoke it, and how to tell from a
// history whether it did. It does no I/O and reads no clock; package probe plays the scripts.
//
// # A rule
//
// A [Rule] is data: an id, the statements of both specifications, a level, what it needs, a script and a judgement. The
// script is a list of [Step]s that a [Script]'s methods append: send, expect, withhold, cut, fence, wait. What is sent is
// a list of [Msg], packets that may be edited to be illegal. `inflight check --explain ID` prints it.
//
// The judgement is a function of a [history.History] alone. It sees the packets as the history's own decoder reads them,
// under the script's names. Whatever it must know beside them (the capabilities of the broker, a number that the script
// chose) stands in the history's facts, so that a history can be judged again at any time.
//
// An expectation of the script is part of the rule: that it is not met is a finding, and ends the script. What is no
// obligation is waited for with Maybe.
//
// # Levels
//
// Must: a numbered statement binds the Server, or it follows from some, and then Why says how. Contract: what a broker
// declares beyond the specification. [MQTT-4.6.0-2], -3 and -4 order the acknowledgements of a Client, so that the order of
// those that a broker sends is a contract, and only info where nobody declared it; but a broker that delivers at PUBREL
// must keep the order of its PUBRECs, since a Client that obeys sends its PUBRELs in that order. Info: a should, an
// unnumbered sentence, or what is only observed. A finding may be of a lower level than its rule.
//
// # Fences
//
// "Nothing more comes" is told by a fence, a later message of the same publisher, topic and QoS that has arrived, and then
// a short quiet. PINGRESP is no fence: in a pipelined broker it may overtake a PUBACK.
//
// # Invariants and controls
//
// Invariants are judged on every connection of every check, whatever it is about: strict decoding, no acknowledgement of
// what was not sent, no identifier in use, the window within Receive Maximum, nothing after DISCONNECT. Controls are the
// flows without a fault that must be green before a violation counts.
//
// # A new rule
//
// Add it to its group's file, record a history of a broker that keeps it into testdata/histories (`inflight check
// --quick --rounds 1` leaves one below histories/), and add to violations_test.go at least one change that makes it a
// history of a broker that does not. A test holds that every rule has both.
package check
