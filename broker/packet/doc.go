// Package packet is the MQTT control-packet codec: MQTT 3.1.1 (OASIS, 29 October 2014), no I/O beyond an io.Reader.
//
// Encoders append to a byte slice and never allocate when it has room. Decoders return views into the bytes that they
// were given: a [Frame], and the byte slices of a [Publish], are valid only as long as those bytes are.
//
// Decoding is strict: whatever the specification calls malformed is an [*Error], which names the statement. What a
// packet means in the state of a connection (an unknown Packet Identifier, say) is left to package session.
package packet
