// Package fault is what goes wrong between a broker's parts beside the wire of a client: a [Relay] stands in the way of TCP
// connections and makes them slow, a [Dilation] says when a program is stopped, and for how long, to be slower by a share.
//
// A relay carries bytes and knows no protocol, so that it serves whatever two ends speak: the members of a JetStream cluster wait
// for each other's acknowledgement of every write, and a relay in their way is a slow store to their clients.
package fault
