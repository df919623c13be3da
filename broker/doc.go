// Package broker is the reference pipelined MQTT broker: MQTT 3.1.1 and 5.0 over TCP, TLS and WebSocket, on an embedded
// JetStream node (alone or as a member of a cluster), on NATS servers that are already running, or on a store in memory.
//
// It owns the connections, the goroutines and the locks; the protocol itself is package session, what survives is
// package store.
//
// # One connection
//
// The reader splits packets and hands them to the session's state machines in arrival order. It never waits for storage:
// an operation is started and the next packet is read. The writer takes finished operations, lets the state machines say
// what may leave, and writes it. Store callbacks only queue the outcome and wake the writer, so that a slow connection
// holds up nobody else. With Pipeline off the reader waits until nothing is pending before it reads on: the same code,
// stop-and-wait.
//
// # MQTT 5.0
//
// Both versions share one path. What 5.0 adds is in conn5.go and client5.go, and travels with a message in the form in which
// it goes out again. Each version reads what the other published. To a client of 5.0 the broker says why it closes the
// connection; it never says so to one of 3.1.1. Enhanced authentication is refused. A client that takes Topic Aliases gets
// them, see [session.Sender]. PUBACK and PUBREC never say that nobody has subscribed (0x10): only a store in memory could
// know, and the answer does not wait for the count.
//
// # Shared subscriptions
//
// $share/{ShareName}/{filter} is a member of a group, for a client of either version; its rights are those of the filter.
// A message goes to one of the members that are connected, in turn, and waits while none is, if one has a kept session. What
// was given to a member that loses its connection waits for it; when its session ends, QoS 1 and what had not been sent to
// it goes to another member, QoS 2 that it had begun to get goes to nobody. So the feed of a shared subscription is open
// only while its client is connected, other than that of an ordinary one. The topics below $SYS are not shared.
//
// # Wills, and sessions whose node is gone
//
// The will of a connection is in its session's record from the CONNECT on, of a clean session as well. The node that serves
// a session publishes its will, after its delay, and ends it when it has expired. A store that outlives the process lets
// others do so when that node is gone:
//
//   - each node writes a record of its own every 2 s; one whose record has not changed for 10 s is gone, and one that shuts
//     down says so and is gone at once;
//   - the others adopt its sessions, all but those that are kept for ever and have no will: of those that try, one writes
//     itself into the session's record, on condition that it is still the one that it read. A Will Delay Interval and a
//     Session Expiry Interval that were not running yet count from when the node was seen to be gone;
//   - a node that starts adopts its own sessions of before. Their connections ended when it wrote its record last;
//   - whoever resumes a session in time takes the will out of its record, on the same condition;
//   - every write of a record has that condition. A node that was only not heard of finds out with its next one, and looks
//     by itself when it was late, and closes the connections of sessions that are another node's by then.
//
// A will of QoS 2 is published once, also by nodes that fail in the middle of it. One of QoS 1 may come twice then, one of
// QoS 0 not at all. After a DISCONNECT the will is not published [MQTT-3.14.4-3], unless the node fails before that is in
// the record; that is so before the connection is closed. The client's right to its will is checked with the CONNECT and,
// while its node lives, once more when it is due.
//
// # Who may do what
//
// Package listen gives connections, and so does whoever calls ServeConn; package auth decides. A CONNECT is answered with 4
// for a wrong password and 5 for a client that is not let in or whose will it may not publish (5.0: 0x86 and 0x87). A
// PUBLISH that is not allowed closes the connection (5.0: is answered with 0x87), a subscription that is not allowed gets
// 0x80 (5.0: 0x87). A session is resumed only by a client that may have all its subscriptions; anybody else starts a new
// one. A reload closes the connections that would not be let in any more.
//
// # NATS servers that are already running
//
// Brokers on the same servers are one broker, as the members of a cluster are; each claims its node name at its start. When
// the connection to the servers is lost, operations fail, which closes their connections, and the others stay. Once it is
// back, the sessions that another broker took over meanwhile are given up. After 20 seconds without the servers all are: they
// remove the consumers of a clean session after a minute, and a subscriber must not go on without its messages.
//
// # Operations
//
// With OpsListen set, package ops serves metrics, health and profiles. Reader and writer count packets in plain fields and
// fold them into the totals once a batch; gauges are read from the sessions at the scrape. The $SYS topics are told by
// each node to its own sessions. Serve ends with Drain, which answers what was read, and Shutdown, which closes what is
// left. The wills of clients that did not disconnect are published by another node, or by this one when it is back; on the
// memory store nobody is left to get them.
//
// # Locks
//
// client.mu guards a session: its pipeline, receiver, sender and output. conn.doneMu guards the finished operations and
// is taken last. Server.mu guards the table of sessions and is never held while a client's lock is taken. Connecting,
// taking over, adopting and ending of one Client Identifier are serialised by Server.lockID. client.saving is held while a
// session's record is written, orphan.mu while an adopted session is attended to; both are taken before client.mu and
// Server.mu.
package broker
