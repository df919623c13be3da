// Package client is the wire client: raw MQTT 3.1.1 connections that publish with a true in-flight window, and a
// subscriber that keeps the receiver's side of the protocol.
//
// True window means: exactly Window exchanges are outstanding on a connection, and a slot is freed by the PUBACK (QoS 1)
// or PUBCOMP (QoS 2), never by the write. At QoS 0 there is nothing that frees a slot, so batches are fenced with a
// PINGREQ and a message counts as processed when the PINGRESP behind it arrives, see [load.Fences].
//
// One goroutine owns a connection. It reads what is there, handles every packet in the buffer, then writes all that has
// become sendable in one write, in sequence order. There is no goroutine, timer, channel or allocation per message; the
// clock is read once per read and once per write. Writes never block: when the socket is full the loop goes on reading,
// so two sides that are both full cannot wait for each other (a window of 65,535 holds far more than socket buffers do).
//
// Latencies are taken from just before the write of the PUBLISH (or PUBREL) to just after the read of its answer. Only
// exchanges that complete within the measured time are counted; the order of acknowledgements is checked on every packet,
// warm-up and drain included.
//
// The state of the window is package load's, the account of messages is package ledger's; this package does the I/O.
package client
