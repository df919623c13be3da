// Package probe runs the scripts of package check against a broker and keeps what happened. It owns the sockets, the
// clock and the goroutines that package check does without; what a history means it leaves to check.
//
// # A run of a script
//
// [run] interprets one script in one goroutine. Each connection has a reader that records every packet, gives the answers
// that the connection's mode asks for, and wakes the script. A step that waits gives up after the run's timeout, or as
// soon as it cannot be fulfilled because the broker ended the connection; the history then says what was expected.
// Client Identifiers, topics and share names are unique to the run of the script, so that checks run side by side, also on a
// broker that is in use; kept sessions and retained messages are removed afterwards.
//
// # A whole check
//
// [Run] learns what the broker can do in each version ([detect]), runs what applies, several checks at once, repeats the
// racy ones, judges the histories, and asks for a green control before it calls anything a violation. What mostly waits
// begins first and runs beside everything else; rounds of a racy check run side by side. An expectation that only timed
// out is tried once more when little else runs, because a machine may be late.
package probe
