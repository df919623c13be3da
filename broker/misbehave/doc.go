// Package misbehave plants faults into a broker, so that a conformance check can show that it finds them. It is a man in
// the middle: it wraps the connections of a broker that is right and changes, drops, repeats and makes up control packets
// on the way. The broker itself knows nothing of it, and has no code for it.
//
// A fault spares what shows that the broker is otherwise well: publications whose Packet Identifier is 30,000 or more, and
// deliveries whose payload begins with "~" or "=". The checks use them for their fences, controls and detection, so that a
// fault is found by the rule that is about it, and not by everything.
//
// Only "slow:N%" is no fault of conformance: it slows the connections of one broker, whoever drives it, by about that share. A
// comparison that starts its brokers itself has a target parameter for it, which stops their processes and is exact.
//
// Faults of several names can be combined. State of a session (which identifiers it uses) is kept per Client Identifier,
// over its connections, as long as the process lives.
//
// A wrapped connection has two goroutines that meet here, the broker's reader and its writer. Everything is done under the
// lock of the Set, which is no place for speed.
package misbehave
