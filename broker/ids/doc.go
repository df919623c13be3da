// Package ids finds things by their Packet Identifier: exchanges of a connection, and what a store holds of a session. Like
// its users it does no I/O.
package ids
