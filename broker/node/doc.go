// Package node is where a broker process keeps its state: the embedded NATS server with JetStream that it runs, alone or as
// one member of a cluster ([Start]), or NATS servers that are already running ([Dial]). To an embedded one nobody outside the
// process can connect, except the other members through the cluster listener.
//
// A full disk makes the server give JetStream up for good; an embedded one is made to start it again once there is room.
//
// # Servers that are already running
//
// Dial looks at everything that a broker needs before any client is served: credentials, version, permissions, JetStream,
// replicas. What is missing is one error that says what to do. It never shows a password: see [Redact].
//
// A connection that is lost comes back by itself. Nothing that is published meanwhile is kept for later: the operation has
// failed by then, its connection is closed, and its client sends again; what arrived after that would be taken for new.
// Answers come on subjects below the broker's own (inf.i), so that its user needs no others.
package node
