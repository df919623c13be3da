// Package session is the MQTT protocol of one client without I/O: the acknowledgement [Pipeline], the [Receiver] of QoS 1
// and QoS 2 publications, and the [Sender] that delivers to a subscriber.
//
// Nothing here locks, waits, or reads the clock. One owner calls the methods, in the order in which packets arrive and
// store operations complete; what must be done in the store is handed back as an [Op], and what became sendable is
// appended to a buffer. Package broker owns the connection, the lock and the goroutines.
package session
