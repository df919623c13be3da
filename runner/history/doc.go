// Package history is what one run of a check sent and received: every connection, every write, every packet, with its
// time and its raw bytes. A [History] is only ever appended to, is kept in a file of its own, and can be judged again
// long after the broker is gone.
//
// # Its own decoder
//
// [Decode] reads one control packet of MQTT 3.1.1 or 5.0, as strictly as the specification allows a receiver to be. It
// shares nothing with the codec of the load generator and the reference broker: a fault that both sides of a codec have
// in common must not hide from the judge. It is made for judging, not for speed: it copies what it returns.
//
// # Time
//
// Times are those of the recording process's monotonic clock since the start of the history. An event of a write is
// recorded before the write, so that no answer can stand before its question; an event of a packet after its last byte
// was read.
//
// # Files
//
// [Write] and [Read] are the format of a file: a magic, then fields with their lengths, gzip-compressed, with a checksum
// at the end. A reader refuses what is longer than it says, other versions, and trailing bytes. [Transcript] is a history
// for people, [WritePcapng] one for Wireshark.
package history
