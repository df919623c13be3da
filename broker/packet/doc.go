// Package packet is the MQTT control-packet codec: MQTT 3.1.1 (OASIS, 29 October 2014) and MQTT 5.0 (OASIS, 7 March
// 2019), no I/O beyond an io.Reader.
//
// A [Codec] serves one connection of either version through one set of methods: it takes the version from the CONNECT,
// and what 3.1.1 does not have ([Properties], most Reason Codes) is absent there. [Reader.SetVersion] tells the reader.
// The functions of the package, such as [ParsePublish] and [AppendPublish], are 3.1.1 alone.
//
// Encoders append to a byte slice and never allocate when it has room. They write what they are given, also what is not
// legal (a Packet Identifier of 0, a Topic Name with a wildcard, a property of another packet), because a conformance
// check must be able to send it. The caller sees to it that no string is longer than 65,535 bytes and no packet longer
// than [MaxRemaining]; a longer one cannot be written down and comes out malformed.
//
// Decoders return views into the bytes that they were given: a [Frame], and the byte slices of a [Publish], are valid only
// as long as those bytes are. The properties of most packets are views kept in the Codec, valid until the next packet, so
// that a message with properties costs no allocation; [Properties.Clone] keeps them.
//
// Decoding is strict: whatever the specification calls malformed or a Protocol Error is an [*Error], which names the
// statement and, for 5.0, the Reason Code to answer with ([CodeOf]). A Codec is told whose packets it decodes, because
// some Reason Codes and properties are for one side only. A decoder trusts that the frame is of its type, which is for the
// caller to switch on. What a packet means in the state of a connection is left to package session: an unknown Packet
// Identifier, a Topic Alias above the maximum or not yet defined, Receive Maximum, an AUTH that nobody asked for; and the
// syntax of Topic Filters to package topic. That the payload is the UTF-8 that its Payload Format Indicator promises, a
// receiver may check, section 3.3.2.3.2; this one does not.
package packet
