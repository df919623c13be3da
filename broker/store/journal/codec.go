package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"inflight/broker/store"
)

// pos is the place of a record: the stream sequence of its batch above the record's index in it. Positions order all that
// ever took effect. 0 is none.
type pos uint64

const (
	indexBits  = 16
	maxRecords = 1 << indexBits // of one batch
)

func at(seq uint64, index int) pos { return pos(seq<<indexBits | uint64(index)) }
func (p pos) seq() uint64          { return uint64(p) >> indexBits }
func (p pos) index() int           { return int(p & (maxRecords - 1)) }

// kind is what a record does.
type kind byte

// The kinds. A number is never used for anything else.
const (
	kindSync        kind = 1  // nothing: its own position is what is wanted
	kindClaim       kind = 2  // client: its author serves it from now on, under the record's position as epoch
	kindSession     kind = 3  // who, record: the session's record
	kindSessionGone kind = 4  // who, revision: the session's record goes unless it is newer
	kindPublish     kind = 5  // message
	kindHold        kind = 6  // who, Packet Identifier, message
	kindRelease     kind = 7  // who, position of the hold
	kindDiscard     kind = 8  // who, position of the hold
	kindForget      kind = 9  // who
	kindSubscribe   kind = 10 // who, options
	kindUnsubscribe kind = 11 // who, Topic Filter
	kindSettle      kind = 12 // who, subscription's position, deliveries: see settled
	kindOutbound    kind = 13 // who, data
	kindRetain      kind = 14 // message: retained, delivered elsewhere
	kindCarry       kind = 15 // position of a message, the message: its bytes move here
	kindTrim        kind = 16 // sequence: what is below is no longer needed
	kindSwap        kind = 17 // who, revision, record: the session's record, in the place of the one that it was made from
	kindJoin        kind = 18 // who, options: as kindSubscribe, of a shared subscription that ends with its connection
	kindTake        kind = 19 // who, position of a member's seat, number: up to there the entries are the member's
	kindPart        kind = 20 // who, position of a member's seat: it is not connected any more
	kindBack        kind = 21 // who, seat, numbers: taken, and for another member all the same
	kindGone        kind = 22 // author: it is gone, and its members are not connected any more
	kindLimit       kind = 23 // bytes that wait for one session, or one group, at most
)

// who names the session that a record is of: by the epoch of the claim under which its author serves it, or, of a client
// that was never claimed, by its identifier.
type who struct {
	epoch  pos
	client string
}

// conditional reports whether a record says itself on which state of a session it depends: it may be of any node.
func (r *record) conditional() bool {
	return r.kind == kindSwap || r.kind == kindSessionGone && r.ref != anyRevision
}

// anyRevision is above the revision of every session's record.
const anyRevision = ^pos(0)

// record is a decoded record. Slices are views into the batch.
type record struct {
	kind   kind
	epoch  pos
	client []byte // kindClaim, and where epoch is 0
	id     uint16
	ref    pos    // what it refers to: a hold, a subscription, a message, a sequence
	data   []byte // message, options, filter, record, deliveries
}

// upto is the number of a take record; 0 when there is none.
func (r *record) upto() pos {
	d := decoder{b: r.data}
	return pos(d.uvarint())
}

// Layout of a batch: version, author (8 bytes), number (8), the records, CRC-32C of all that (4), all big endian.
const (
	batchV1    = 1
	headerSize = 1 + 8 + 8
	crcSize    = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errCorrupt says that bytes are no batch.
var errCorrupt = errors.New("journal batch is corrupt")

// seal fills the header of a batch, whose first headerSize bytes are reserved for it, and appends the checksum.
func seal(b []byte, author, number uint64) []byte {
	b[0] = batchV1
	binary.BigEndian.PutUint64(b[1:], author)
	binary.BigEndian.PutUint64(b[9:], number)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// checksum is the one that a batch carries, right or wrong.
func checksum(b []byte) uint32 {
	if len(b) < crcSize {
		return 0
	}
	return binary.BigEndian.Uint32(b[len(b)-crcSize:])
}

// batch is an opened batch.
type batch struct {
	author, number uint64
	records        []byte
	whole          bool // the checksum is right
}

// open checks a batch. The records are checked as they are decoded: [decodeAll] tells about all of them at once.
func open(b []byte) (batch, error) {
	n := len(b) - crcSize
	if n < headerSize || b[0] != batchV1 || crc32.Checksum(b[:n], castagnoli) != binary.BigEndian.Uint32(b[n:]) {
		return batch{}, errCorrupt
	}
	return batch{
		author: binary.BigEndian.Uint64(b[1:]), number: binary.BigEndian.Uint64(b[9:]), records: b[headerSize:n], whole: true,
	}, nil
}

// decodeAll decodes every record of a batch into buf. A batch is applied as a whole or not at all.
func (b batch) decodeAll(buf []record) ([]record, error) {
	buf = buf[:0]
	for rest := b.records; len(rest) > 0; {
		if len(buf) == maxRecords {
			return nil, errCorrupt
		}
		buf = append(buf, record{})
		var err error
		if rest, err = buf[len(buf)-1].decode(rest); err != nil {
			return nil, err
		}
	}
	return buf, nil
}

// bringing counts the records that bring a message.
func bringing(records []record) (n int) {
	for i := range records {
		switch records[i].kind {
		case kindPublish, kindHold, kindRetain, kindCarry:
			n++
		}
	}
	return n
}

func appendWho(b []byte, w who) []byte {
	b = binary.AppendUvarint(b, uint64(w.epoch))
	if w.epoch == 0 {
		b = appendString(b, w.client)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBytes(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

func appendMessage(b []byte, m *store.Message) []byte {
	return store.Encode(binary.AppendUvarint(b, uint64(4+m.Size())), m)
}

// append encodes a record whose data is bytes.
func (r *record) append(b []byte) []byte {
	b = append(b, byte(r.kind))
	if r.kind.named() {
		b = appendWho(b, who{r.epoch, string(r.client)})
	}
	switch r.kind {
	case kindClaim:
		b = appendBytes(b, r.client)
	case kindHold:
		b = binary.BigEndian.AppendUint16(b, r.id)
	case kindRelease, kindDiscard, kindSettle, kindCarry, kindTrim, kindSwap, kindSessionGone, kindTake, kindPart, kindBack, kindGone,
		kindLimit:
		b = binary.AppendUvarint(b, uint64(r.ref))
	}
	if r.kind.bulky() {
		b = appendBytes(b, r.data)
	}
	return b
}

// named reports whether records of the kind begin with a who.
func (k kind) named() bool {
	switch k {
	case kindSync, kindClaim, kindPublish, kindRetain, kindCarry, kindTrim, kindGone, kindLimit:
		return false
	}
	return true
}

// bulky reports whether records of the kind end with bytes.
func (k kind) bulky() bool {
	switch k {
	case kindSession, kindPublish, kindHold, kindSubscribe, kindUnsubscribe, kindSettle, kindOutbound, kindRetain, kindCarry, kindSwap,
		kindJoin, kindTake, kindBack:
		return true
	}
	return false
}

// decode takes one record from the beginning of b and returns the rest.
func (r *record) decode(b []byte) ([]byte, error) {
	d := decoder{b: b}
	r.kind = kind(d.byte())
	if r.kind < kindSync || r.kind > kindLimit {
		return nil, errCorrupt
	}
	if r.kind.named() {
		if r.epoch = pos(d.uvarint()); r.epoch == 0 {
			r.client = d.bytes()
		}
	}
	switch r.kind {
	case kindClaim:
		r.client = d.bytes()
	case kindHold:
		r.id = d.uint16()
	case kindRelease, kindDiscard, kindSettle, kindCarry, kindTrim, kindSwap, kindSessionGone, kindTake, kindPart, kindBack, kindGone,
		kindLimit:
		r.ref = pos(d.uvarint())
	}
	if r.kind.bulky() {
		r.data = d.bytes()
	}
	if d.bad {
		return nil, errCorrupt
	}
	return d.b, nil
}

// decoder takes bytes apart. After the end, or after something that cannot be, bad is set and everything is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() { d.bad, d.b = true, nil }

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uint16() uint16 {
	if len(d.b) < 2 {
		d.fail()
		return 0
	}
	n := binary.BigEndian.Uint16(d.b)
	d.b = d.b[2:]
	return n
}

func (d *decoder) uint64() uint64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	n := binary.BigEndian.Uint64(d.b)
	d.b = d.b[8:]
	return n
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[size:]
	return n
}

// count is a number of things that take at least a byte each, so that a wrong one cannot take memory.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) bytes() []byte {
	n := d.count()
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

// settled is a list of deliveries: each as the difference to the one before it, so that neighbours take few bytes.
type settled struct {
	b    []byte
	last pos
	n    int
}

func (s *settled) add(p pos) {
	s.b = binary.AppendVarint(s.b, int64(p-s.last))
	s.last = p
	s.n++
}

// eachSettled calls each with the deliveries of an encoded list; false when it is no such list.
func eachSettled(b []byte, each func(pos)) bool {
	var p pos
	for len(b) > 0 {
		n, size := binary.Varint(b)
		if size <= 0 {
			return false
		}
		b = b[size:]
		p += pos(n)
		each(p)
	}
	return true
}
