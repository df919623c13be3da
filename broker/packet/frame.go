package packet

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Type is a control packet type, table 2.1.
type Type byte

// The control packet types.
const (
	CONNECT     Type = 1
	CONNACK     Type = 2
	PUBLISH     Type = 3
	PUBACK      Type = 4
	PUBREC      Type = 5
	PUBREL      Type = 6
	PUBCOMP     Type = 7
	SUBSCRIBE   Type = 8
	SUBACK      Type = 9
	UNSUBSCRIBE Type = 10
	UNSUBACK    Type = 11
	PINGREQ     Type = 12
	PINGRESP    Type = 13
	DISCONNECT  Type = 14
	AUTH        Type = 15 // MQTT 5.0; reserved in 3.1.1
)

var typeNames = [...]string{
	"reserved 0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP",
	"SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
}

// String is the specification's name of the type.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", byte(t))
}

// MaxRemaining is the largest Remaining Length that four bytes can carry, section 2.2.3.
const MaxRemaining = 268_435_455

// Error says why bytes are not a legal control packet. Statement is the normative statement that they break, or "" where
// the rule is unnumbered text. Code is what MQTT 5.0 answers it with: [MalformedPacket], [ProtocolError] or a more special
// one; what 3.1.1 forbids is [MalformedPacket], for it does not tell them apart.
type Error struct {
	Type      Type
	Statement string
	Reason    string
	Code      ReasonCode
}

// Error gives the packet type, what is wrong, and the statement.
func (e *Error) Error() string {
	s := fmt.Sprintf("malformed %v: %s", e.Type, e.Reason)
	if e.Code != MalformedPacket {
		s = fmt.Sprintf("%s in %v: %s", strings.ToLower(e.Code.String()), e.Type, e.Reason)
	}
	if e.Statement != "" {
		s += " [" + e.Statement + "]"
	}
	return s
}

func malformed(t Type, statement, reason string) error {
	return coded(t, MalformedPacket, statement, reason)
}

func protocolError(t Type, statement, reason string) error {
	return coded(t, ProtocolError, statement, reason)
}

func coded(t Type, code ReasonCode, statement, reason string) error {
	return &Error{Type: t, Statement: statement, Reason: reason, Code: code}
}

const reservedType = "the control packet type is reserved"

// Frame is one whole control packet, split but not yet parsed. Body is a view.
type Frame struct {
	Header byte   // type and flags, the first byte on the wire
	long   bool   // Remaining Length was not in its shortest form; here it leaves a Frame in four words, and so in registers
	Body   []byte // variable header and payload
}

// Type is the control packet type.
func (f Frame) Type() Type { return Type(f.Header >> 4) }

// Flags are the four low bits of the first byte.
func (f Frame) Flags() byte { return f.Header & 0x0F }

// ErrTooLarge is returned for a packet whose Remaining Length is above the limit that the reader was given.
var ErrTooLarge = errors.New("packet larger than the limit")

// Split returns the first whole packet in b and the number of bytes it takes. With n == 0 and no error, b holds only a
// part of a packet, and need is the number of bytes the packet takes in all (0: not known yet). limit is the largest
// Remaining Length accepted, in bytes; above it the error is [ErrTooLarge], before a byte of the body has arrived.
//
// The types 0 and 15 are refused, because both are reserved, table 2.1; in MQTT 5.0 the type 15 is AUTH. A Remaining Length
// that is not in its shortest form is accepted, because MQTT 3.1.1 does not forbid it; in 5.0 it is malformed
// [MQTT-1.5.5-1].
func (v Version) Split(b []byte, limit int) (f Frame, n, need int, err error) {
	if len(b) > 0 {
		if t := Type(b[0] >> 4); t < CONNECT || t == AUTH && v != V5 {
			return Frame{}, 0, 0, malformed(t, "", reservedType)
		}
	}
	if len(b) < 2 {
		return Frame{}, 0, 0, nil
	}
	length, shift := 0, 0
	for i := 1; ; i++ {
		if i > 4 {
			return Frame{}, 0, 0, malformed(Type(b[0]>>4), "", "Remaining Length takes more than four bytes")
		}
		if i >= len(b) {
			return Frame{}, 0, 0, nil
		}
		length |= int(b[i]&0x7F) << shift
		shift += 7
		if b[i]&0x80 == 0 {
			long := i > 1 && b[i] == 0
			if long && v == V5 {
				return Frame{}, 0, 0, malformed(Type(b[0]>>4), "MQTT-1.5.5-1", "Remaining Length "+notShortest)
			}
			if length > limit {
				return Frame{}, 0, 0, fmt.Errorf("%v of %d bytes, limit %d: %w", Type(b[0]>>4), length, limit, ErrTooLarge)
			}
			total := i + 1 + length
			if len(b) < total {
				return Frame{}, 0, total, nil
			}
			return Frame{Header: b[0], Body: b[i+1 : total : total], long: long}, total, total, nil
		}
	}
}

// maxEmptyReads is how many reads in succession may return neither bytes nor an error; a broken io.Reader must not make
// Next spin.
const maxEmptyReads = 100

// idleBuffer is how many bytes a Reader has while little comes, which is after idleReads reads in a row that gave less.
// Most connections of a broker are idle most of the time, and their buffers are most of what they cost.
const (
	idleBuffer = 512
	idleReads  = 8
)

// Reader reads frames from a stream through one buffer that grows to the largest packet seen, at most the limit.
// It belongs to one goroutine.
//
// The buffer is small until a read fills it; then it takes its full size at once, and keeps it while much comes.
type Reader struct {
	src        io.Reader
	buf        []byte
	start, end int
	size       int    // of the buffer while much comes
	idle       []byte // the small one
	full       bool   // the last read filled the buffer
	little     int    // reads in a row that the small one would have held
	limit      int
	version    Version
}

// NewReader returns a Reader of src that reads up to size bytes at once, more only for a larger packet, and refuses
// packets with a Remaining Length above limit bytes (0: [MaxRemaining]).
func NewReader(src io.Reader, size, limit int) *Reader {
	if limit <= 0 || limit > MaxRemaining {
		limit = MaxRemaining
	}
	size = max(size, 64)
	idle := make([]byte, min(size, idleBuffer))
	return &Reader{src: src, buf: idle, idle: idle, size: size, limit: limit}
}

// SetVersion makes what follows packets of the version, as [Version.Split] says. Until it is called they are of 3.1.1,
// which suits a CONNECT of any version.
func (r *Reader) SetVersion(v Version) { r.version = v }

// Next returns the next packet, reading from the source as needed. The frame is valid until the next call of Next. At a
// clean end of the stream the error is io.EOF, inside a packet io.ErrUnexpectedEOF; a malformed fixed header is an
// [*Error] or [ErrTooLarge], again at each further call, since what follows it cannot be told apart.
func (r *Reader) Next() (Frame, error) {
	for empty := 0; empty < maxEmptyReads; empty++ {
		f, ok, err := r.Buffered()
		if ok || err != nil {
			return f, err
		}
		had := r.end - r.start
		if err := r.Fill(); err != nil {
			return Frame{}, err
		}
		if r.end-r.start > had {
			empty = -1
		}
	}
	return Frame{}, io.ErrNoProgress
}

// Buffered returns the next packet if it is already in the buffer whole; it never reads from the source.
func (r *Reader) Buffered() (f Frame, ok bool, err error) {
	f, n, need, err := r.version.Split(r.buf[r.start:r.end], r.limit)
	if err != nil {
		return Frame{}, false, err
	}
	if n == 0 {
		r.room(need)
		return Frame{}, false, nil
	}
	r.start += n
	return f, true, nil
}

// Fill reads once from the source into the buffer. Frames returned before are invalid afterwards. A read error is
// returned as it is (net timeouts can be retried), the end of the stream as described at [Reader.Next].
func (r *Reader) Fill() error {
	r.room(0)
	switch {
	case r.full && len(r.buf) < r.size:
		r.grow()
	case r.start == r.end && r.little >= idleReads:
		r.buf = r.idle
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	r.full = r.end == len(r.buf)
	if r.little++; n >= len(r.idle) {
		r.little = 0
	}
	if n > 0 {
		return nil
	}
	if err == io.EOF && r.end > r.start {
		return io.ErrUnexpectedEOF
	}
	return err
}

// room makes space to read into: need is the whole size of the packet at start, 0 if not known. The buffer only grows by
// what has arrived (it doubles), so that a claimed length alone costs no memory.
func (r *Reader) room(need int) {
	if r.start == r.end {
		r.start, r.end = 0, 0
		return
	}
	if r.end < len(r.buf) && (need == 0 || r.start+need <= len(r.buf)) {
		return
	}
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
		r.start, r.end = 0, r.end-r.start
	}
	if r.end == len(r.buf) {
		r.grow()
	}
}

func (r *Reader) grow() {
	grown := make([]byte, max(2*len(r.buf), r.size))
	copy(grown, r.buf[r.start:r.end])
	r.start, r.end = 0, r.end-r.start
	r.buf = grown
}
