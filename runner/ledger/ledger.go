package ledger

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"

	"inflight/runner/result"
)

// HeaderSize is the number of bytes at the start of a payload that the ledger needs.
const HeaderSize = 24

// MaxSequence bounds the messages of one connection, and with them the memory: 16 MiB for each connection at the very
// most. A publisher stops there; a delivery beyond it is corrupt.
const MaxSequence = 1 << 26

// castagnoli is CRC-32C, for which common processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Ledger is the account of one run. Each Book belongs to the goroutine that publishes on its connection, Delivered to
// the one goroutine that receives; they share nothing until Account, which needs all of them finished.
type Ledger struct {
	run   uint64
	books []Book

	// The receiving side.
	received   []receipt // by connection
	distinct   atomic.Int64
	duplicated int64
	reordered  int64
	corrupt    int64
	first      string
	last       time.Duration // of the last delivery
}

type receipt struct {
	delivered bitset
	highest   int64 // sequence number delivered so far, -1: none
}

// Book is the publishing side of one connection.
type Book struct {
	run       uint64
	conn      uint32
	published int64 // sequence numbers below it went out
	count     int64
	acked     bitset
	_         [64]byte // books of different goroutines do not share a cache line
}

// New returns a ledger of a run with that many publishing connections, numbered from 0. Run tells its messages from those
// of all other runs, it should be random.
func New(run uint64, connections int) *Ledger {
	l := &Ledger{run: run, books: make([]Book, max(connections, 0)), received: make([]receipt, max(connections, 0))}
	for i := range l.books {
		l.books[i].run, l.books[i].conn = run, uint32(i)
		l.received[i].highest = -1
	}
	return l
}

// Connections is the number of books.
func (l *Ledger) Connections() int { return len(l.books) }

// Book returns the book of a connection; nil if there is no such connection.
func (l *Ledger) Book(conn int) *Book {
	if conn < 0 || conn >= len(l.books) {
		return nil
	}
	return &l.books[conn]
}

// Stamp writes the header of message seq into payload, which must have HeaderSize bytes or more. The rest of the payload
// must be as it goes out: the checksum covers it.
func (b *Book) Stamp(payload []byte, seq int64) {
	binary.BigEndian.PutUint64(payload[4:], b.run)
	binary.BigEndian.PutUint32(payload[12:], b.conn)
	binary.BigEndian.PutUint64(payload[16:], uint64(seq))
	binary.BigEndian.PutUint32(payload, crc32.Checksum(payload[4:], castagnoli))
}

// Published notes that message seq goes out. Sequence numbers rise by one from 0 and stay below MaxSequence.
func (b *Book) Published(seq int64) { b.published = max(b.published, seq+1) }

// Room is how many more messages the book can take.
func (b *Book) Room() int64 { return MaxSequence - b.published }

// Acknowledged notes that message seq was acknowledged.
func (b *Book) Acknowledged(seq int64) {
	if seq >= 0 && seq < MaxSequence && b.acked.add(seq) {
		b.count++
	}
}

// Delivered notes a delivery at time now, on a clock of the caller's choice. payload is not kept.
func (l *Ledger) Delivered(payload []byte, now time.Duration) {
	l.last = now
	conn, seq, why := l.read(payload)
	if why != "" {
		l.corrupt++
		l.note("delivery %d: %s", l.distinct.Load()+l.duplicated+l.corrupt, why)
		return
	}
	r := &l.received[conn]
	if !r.delivered.add(seq) {
		l.duplicated++
		l.note("connection %d, message %d: delivered again", conn, seq)
		return
	}
	l.distinct.Add(1)
	if seq < r.highest {
		l.reordered++
		l.note("connection %d, message %d: delivered after message %d", conn, seq, r.highest)
		return
	}
	r.highest = seq
}

// read takes the header apart; why says what is wrong with it.
func (l *Ledger) read(payload []byte) (conn uint32, seq int64, why string) {
	if len(payload) < HeaderSize {
		return 0, 0, "payload shorter than the ledger's header"
	}
	if crc32.Checksum(payload[4:], castagnoli) != binary.BigEndian.Uint32(payload) {
		return 0, 0, "checksum does not match the payload"
	}
	if binary.BigEndian.Uint64(payload[4:]) != l.run {
		return 0, 0, "message of another run"
	}
	conn = binary.BigEndian.Uint32(payload[12:])
	n := binary.BigEndian.Uint64(payload[16:])
	if int64(conn) >= int64(len(l.received)) || n >= MaxSequence {
		return 0, 0, "no such connection or sequence number in this run"
	}
	return conn, int64(n), ""
}

// note keeps the first problem in words.
func (l *Ledger) note(format string, args ...any) {
	if l.first == "" {
		l.first = fmt.Sprintf(format, args...)
	}
}

// Distinct is the number of distinct messages delivered so far; it may be called from any goroutine. Once the publishers
// have finished and everything was acknowledged, all is delivered when it equals the number published.
func (l *Ledger) Distinct() int64 { return l.distinct.Load() }

// Account closes the ledger, once every publisher and the subscriber have finished. lastAck is the time of the last
// acknowledgement on the clock of Delivered. It may be called again, and says the same.
func (l *Ledger) Account(lastAck time.Duration) result.Ledger {
	a := result.Ledger{
		Delivered:  l.distinct.Load(),
		Duplicated: l.duplicated,
		Reordered:  l.reordered,
		Corrupt:    l.corrupt,
		First:      l.first,
		DrainNS:    int64(max(0, l.last-lastAck)),
	}
	for i := range l.books {
		b, r := &l.books[i], &l.received[i]
		a.Published += b.published
		a.Acknowledged += b.count
		// Delivered, and this run never published it: only now are both sides known.
		foreign, n := r.delivered.from(b.published)
		if foreign > 0 {
			a.Delivered -= foreign
			a.Corrupt += foreign
			if a.First == "" {
				a.First = fmt.Sprintf("connection %d, message %d: delivered, never published", i, n)
			}
		}
		lost, n := b.acked.without(&r.delivered)
		a.Lost += lost
		if lost > 0 && a.First == "" {
			a.First = fmt.Sprintf("connection %d, message %d: acknowledged, never delivered", i, n)
		}
	}
	return a
}
