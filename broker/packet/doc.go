// Package packet is the MQTT control-packet codec: MQTT 3.1.1 (OASIS, 29 October 2014), no I/O beyond an io.Reader.
//
// Encoders append to a byte slice and never allocate when it has room. They write what they are given, also what is not
// legal (a Packet Identifier of 0, a Topic Name with a wildcard), because a conformance check must be able to send it. The
// caller sees to it that no string is longer than 65,535 bytes and no packet longer than [MaxRemaining]; a longer one
// cannot be written down and comes out malformed.
//
// Decoders return views into the bytes that they
// were given: a [Frame], and the byte slices of a [Publish], are valid only as long as those bytes are.
//
// Decoding is strict: whatever the specification calls malformed is an [*Error], which names the statement. A decoder
// trusts that the frame is of its type, which is for the caller to switch on. What a
// packet means in the state of a connection (an unknown Packet Identifier, say) is left to package session.
package packet
