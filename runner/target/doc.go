// Package target is the broker under test: an address that is only measured, or child processes that are built or found,
// started, made ready, watched and stopped.
//
// A target string names it:
//
//	reference?store=staged&pipeline=off      this program's own broker, as a process of its own
//	nats-server@v2.15.3?nodes=3&sync=always  built once from the Go module proxy
//	null?delay=5ms                           acknowledges and does nothing else
//	tcp://host:1883                          already running; mqtt:// is the same
//
// What a kind takes and how it is started is data: one file for each in scenarios/targets, read strictly (see the type
// description). Adding a broker is adding a file.
//
// # Life of a broker
//
// [Parse] knows what is wrong with the string itself. [Prepare] builds or finds the program and asks it for its version.
// [Program.Start] chooses free loopback ports, writes the configuration of every node, starts all nodes at once and
// returns when a client has done a QoS 2 round trip on each, and for a cluster from the first node to the last.
// [Broker.Died] reports a process that ends on its own. [Broker.Stop] ends what is left and removes the data.
//
// # No process is left behind
//
// Each child leads a process group of its own, so that Ctrl-C in a terminal reaches only the harness, and so that
// stopping it also stops what it started. On Linux the kernel kills a child when the thread that forked it ends
// (PR_SET_PDEATHSIG), which covers a harness that was killed itself. The Go runtime ends idle threads as it likes, so the
// children of a broker are forked by one goroutine that stays locked to its thread until the last of them has ended.
//
// The broker under test is always another process: its memory, its garbage collection and its crashes stay its own.
package target
