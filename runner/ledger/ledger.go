package ledger

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"

	"inflight/runner/result"
)

// Sizes of what is at the start of a payload, in bytes: what the ledger needs, and with the time at which the message was
// made, see [Book.StampAt].
const (
	HeaderSize = 24
	TimedSize  = HeaderSize + 8
)

// MaxSequence bounds the messages of one connection, and with them the memory: 16 MiB for each connection at the very
// most. A publisher stops there; a delivery beyond it is corrupt.
const MaxSequence = 1 << 26

// castagnoli is CRC-32C, for which common processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Ledger is the account of one run. Each Book belongs to the goroutine that publishes on its connection, each Inbox to the
// one goroutine that receives; they share nothing until Account, which needs all of them finished.
type Ledger struct {
	run     uint64
	books   []Book
	inboxes []Inbox
}

// Shape is what a ledger is kept of. Topics and Subscribers of 0 count as 1.
type Shape struct {
	Connections int  // that publish
	Topics      int  // of each: message seq goes to topic seq % Topics, and has its order among those of its topic only
	Subscribers int  // each of which is to get every message
	Unordered   bool // publishes that are under way together have no order among them: that of deliveries is not judged
}

// Inbox is the receiving side of one subscriber.
type Inbox struct {
	run        uint64
	topics     int64
	unordered  bool
	received   []receipt // by connection
	distinct   atomic.Int64
	duplicated int64
	reordered  int64
	corrupt    int64
	first      string
	last       time.Duration // of the last delivery
	_          [64]byte      // inboxes of different goroutines do not share a cache line
}

type receipt struct {
	delivered bitset
	highest   []int64 // by topic: sequence number delivered so far, -1: none
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

// New returns a ledger of a run with one subscriber and that many publishing connections of one topic each.
func New(run uint64, connections int) *Ledger { return For(run, Shape{Connections: connections}) }

// For returns a ledger of a run. Connections and subscribers are numbered from 0. Run tells its messages from those of all
// other runs, it should be random.
func For(run uint64, shape Shape) *Ledger {
	connections, topics := max(shape.Connections, 0), max(shape.Topics, 1)
	l := &Ledger{run: run, books: make([]Book, connections), inboxes: make([]Inbox, max(shape.Subscribers, 1))}
	for i := range l.books {
		l.books[i].run, l.books[i].conn = run, uint32(i)
	}
	for i := range l.inboxes {
		in := &l.inboxes[i]
		in.run, in.topics, in.unordered, in.received = run, int64(topics), shape.Unordered, make([]receipt, connections)
		highest := make([]int64, connections*topics)
		for j := range highest {
			highest[j] = -1
		}
		for j := range in.received {
			in.received[j].highest = highest[j*topics : (j+1)*topics]
		}
	}
	return l
}

// Inbox returns the receiving side of a subscriber; nil if there is no such subscriber.
func (l *Ledger) Inbox(subscriber int) *Inbox {
	if subscriber < 0 || subscriber >= len(l.inboxes) {
		return nil
	}
	return &l.inboxes[subscriber]
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

// StampAt is Stamp with a time in the header, which needs TimedSize bytes. [MadeAt] reads it.
func (b *Book) StampAt(payload []byte, seq int64, at time.Duration) {
	binary.BigEndian.PutUint64(payload[HeaderSize:], uint64(at))
	b.Stamp(payload, seq)
}

// MadeAt is the time that StampAt put into a payload; ok is false if it is too short to have one.
func MadeAt(payload []byte) (at time.Duration, ok bool) {
	if len(payload) < TimedSize {
		return 0, false
	}
	return time.Duration(binary.BigEndian.Uint64(payload[HeaderSize:])), true
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

// Delivered notes a delivery to the first subscriber, see [Inbox.Delivered].
func (l *Ledger) Delivered(payload []byte, now time.Duration) { l.inboxes[0].Delivered(payload, now) }

// Delivered notes a delivery at time now, on a clock of the caller's choice, and reports whether it is the first one of a
// message of this run. payload is not kept.
func (in *Inbox) Delivered(payload []byte, now time.Duration) (first bool) {
	in.last = now
	conn, seq, why := in.read(payload)
	if why != "" {
		in.corrupt++
		in.note("delivery %d: %s", in.distinct.Load()+in.duplicated+in.corrupt, why)
		return false
	}
	r := &in.received[conn]
	if !r.delivered.add(seq) {
		in.duplicated++
		in.note("connection %d, message %d: delivered again", conn, seq)
		return false
	}
	in.distinct.Add(1)
	if in.unordered {
		return true
	}
	highest := &r.highest[seq%in.topics]
	if seq < *highest {
		in.reordered++
		in.note("connection %d, message %d: delivered after message %d", conn, seq, *highest)
		return true
	}
	*highest = seq
	return true
}

// read takes the header apart; why says what is wrong with it.
func (in *Inbox) read(payload []byte) (conn uint32, seq int64, why string) {
	if len(payload) < HeaderSize {
		return 0, 0, "payload shorter than the ledger's header"
	}
	if crc32.Checksum(payload[4:], castagnoli) != binary.BigEndian.Uint32(payload) {
		return 0, 0, "checksum does not match the payload"
	}
	if binary.BigEndian.Uint64(payload[4:]) != in.run {
		return 0, 0, "message of another run"
	}
	conn = binary.BigEndian.Uint32(payload[12:])
	n := binary.BigEndian.Uint64(payload[16:])
	if int64(conn) >= int64(len(in.received)) || n >= MaxSequence {
		return 0, 0, "no such connection or sequence number in this run"
	}
	return conn, int64(n), ""
}

// note keeps the first problem in words.
func (in *Inbox) note(format string, args ...any) {
	if in.first == "" {
		in.first = fmt.Sprintf(format, args...)
	}
}

// Distinct is the number of distinct messages delivered so far, to all subscribers together; it may be called from any
// goroutine. Once the publishers have finished and everything was acknowledged, all is delivered when it equals the number
// published times the subscribers.
func (l *Ledger) Distinct() (n int64) {
	for i := range l.inboxes {
		n += l.inboxes[i].distinct.Load()
	}
	return n
}

// Distinct is the number of distinct messages delivered so far; it may be called from any goroutine.
func (in *Inbox) Distinct() int64 { return in.distinct.Load() }

// Account closes the ledger, once every publisher and subscriber have finished. lastAck is the time of the last
// acknowledgement on the clock of Delivered. Published and Acknowledged count messages; Delivered, Lost, Duplicated,
// Reordered and Corrupt count deliveries, of which each subscriber is to have one of each message. It may be called again,
// and says the same.
func (l *Ledger) Account(lastAck time.Duration) result.Ledger {
	a := result.Ledger{Unordered: l.inboxes[0].unordered}
	if n := len(l.inboxes); n > 1 {
		a.Subscribers = n
	}
	for i := range l.books {
		a.Published += l.books[i].published
		a.Acknowledged += l.books[i].count
	}
	for i := range l.inboxes {
		in := &l.inboxes[i]
		who := ""
		if len(l.inboxes) > 1 {
			who = fmt.Sprintf("subscriber %d, ", i)
		}
		a.Delivered += in.distinct.Load()
		a.Duplicated += in.duplicated
		a.Reordered += in.reordered
		a.Corrupt += in.corrupt
		a.DrainNS = max(a.DrainNS, int64(in.last-lastAck))
		if a.First == "" && in.first != "" {
			a.First = who + in.first
		}
		for j := range l.books {
			in.close(&a, who, j, &l.books[j])
		}
	}
	return a
}

// close adds what only both sides together can tell of one connection.
func (in *Inbox) close(a *result.Ledger, who string, conn int, b *Book) {
	r := &in.received[conn]
	// Delivered, and this run never published it: only now are both sides known.
	foreign, n := r.delivered.from(b.published)
	if foreign > 0 {
		a.Delivered -= foreign
		a.Corrupt += foreign
		if a.First == "" {
			a.First = fmt.Sprintf("%sconnection %d, message %d: delivered, never published", who, conn, n)
		}
	}
	lost, n := b.acked.without(&r.delivered)
	a.Lost += lost
	if lost > 0 && a.First == "" {
		a.First = fmt.Sprintf("%sconnection %d, message %d: acknowledged, never delivered", who, conn, n)
	}
}
