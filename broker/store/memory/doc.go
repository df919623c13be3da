// Package memory is the store that keeps nothing across a restart: the ceiling of what a broker can do, and the
// yardstick for memory. It serves a node of its own; it is no member of a cluster.
//
// A message is retained once, however many subscriptions queue it: queues hold pointers.
package memory
