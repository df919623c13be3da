package ledger

import (
	"time"

	"inflight/runner/result"
)

// HeaderSize is the number of bytes at the start of a payload that the ledger needs.
const HeaderSize = 24

// Ledger is the account of one run.
type Ledger struct{}

// Book is one connection's side of it. It belongs to the publishing goroutine.
type Book struct{}

// New returns a ledger of a run with that many publishing connections.
func New(run uint64, connections int) *Ledger { return &Ledger{} }

// Book returns the book of a connection, numbered from 0.
func (l *Ledger) Book(conn int) *Book { return &Book{} }

// Stamp writes the header of message seq into the start of payload.
func (b *Book) Stamp(payload []byte, seq int64) {}

// Published notes that message seq goes out.
func (b *Book) Published(seq int64) {}

// Acknowledged notes that message seq was acknowledged.
func (b *Book) Acknowledged(seq int64) {}

// Delivered notes a delivery at time now. It belongs to the subscriber's goroutine.
func (l *Ledger) Delivered(payload []byte, now time.Duration) {}

// Distinct is the number of distinct messages delivered so far; safe from any goroutine. Once the publishers have
// finished with everything acknowledged, all is delivered when it equals the number published.
func (l *Ledger) Distinct() int64 { return 0 }

// Account closes the books, once publishers and subscriber are finished. lastAck is the time of the last
// acknowledgement on the clock of Delivered.
func (l *Ledger) Account(lastAck time.Duration) result.Ledger { return result.Ledger{} }
