// Package ledger is exactly-once accounting under load: what was published, what was acknowledged, what was delivered.
// It does no I/O and costs O(1) per message. A message is known by the run, the connection and the sequence number that
// it carries in the first bytes of its payload.
package ledger
