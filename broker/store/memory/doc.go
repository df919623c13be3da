// Package memory is the store that keeps nothing across a restart: the ceiling of what a broker can do, and the
// yardstick for memory. It serves a node of its own; it is no member of a cluster.
//
// A message is retained once, however many subscriptions queue it: queues hold pointers.
// What waits for a shared subscription counts against a limit of its own, as large as that of a session.
package memory
