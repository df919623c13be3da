// Package ledger is exactly-once accounting under load: what was published, what was acknowledged, what was delivered.
// It does no I/O and costs O(1) per message. A message is known by the run, the connection and the sequence number that
// it carries in the first bytes of its payload, big-endian:
//
//	 0  checksum    4 bytes, CRC-32C of everything behind it, the rest of the payload included
//	 4  run         8 bytes
//	12  connection  4 bytes
//	16  sequence    8 bytes, from 0 without gaps on each connection
//
// What the account says: acknowledged and not delivered is lost; every further copy is duplicated; a first delivery
// behind a later message of its connection is reordered; a payload whose checksum, run, connection or sequence number
// cannot be this run's is corrupt. Published, not acknowledged and delivered all the same is legal.
//
// Memory is two bits for each message that was published (pages of 65,536), at most [MaxSequence] messages on each
// connection. What the counts mean at a QoS is judged by whoever reads them.
package ledger
