package history

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"time"
)

// magic begins a history file; its last byte is the version of the format.
const magic = "inflight history\x01"

// maxField bounds one string or slice of bytes of a file: the largest control packet and its fixed header.
const maxField = 268_435_455 + 5

// Write writes the history as a file: the magic, then gzip-compressed its fields and a CRC-32 of them.
func Write(w io.Writer, h *History) error {
	if _, err := io.WriteString(w, magic); err != nil {
		return fmt.Errorf("write a history: %w", err)
	}
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed) // a check writes hundreds of them while it measures times
	if err != nil {
		return fmt.Errorf("write a history: %w", err)
	}
	sum := crc32.NewIEEE()
	buffered := bufio.NewWriterSize(io.MultiWriter(zip, sum), 64<<10)
	e := &encoder{w: buffered}
	e.history(h)
	err = errors.Join(e.err, buffered.Flush())
	if err == nil {
		_, err = zip.Write(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
	}
	if err = errors.Join(err, zip.Close()); err != nil {
		return fmt.Errorf("write a history: %w", err)
	}
	return nil
}

type encoder struct {
	w   *bufio.Writer
	buf [binary.MaxVarintLen64]byte
	err error
}

func (e *encoder) uint(v uint64) {
	if e.err == nil {
		_, e.err = e.w.Write(e.buf[:binary.PutUvarint(e.buf[:], v)])
	}
}

func (e *encoder) bytes(b []byte) {
	e.uint(uint64(len(b)))
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

func (e *encoder) text(s string) { e.bytes([]byte(s)) }

func (e *encoder) history(h *History) {
	e.text(h.Check)
	e.uint(uint64(h.Version))
	e.uint(uint64(h.Round))
	e.uint(h.Seed)
	e.uint(uint64(h.Started.UnixNano()))
	e.uint(uint64(len(h.Facts)))
	for _, k := range slices.Sorted(maps.Keys(h.Facts)) {
		e.text(k)
		e.text(h.Facts[k])
	}
	e.text(h.Trouble)
	e.text(h.Stuck)
	full := uint64(0)
	if h.Full {
		full = 1
	}
	e.uint(full)
	e.uint(uint64(len(h.Conns)))
	for _, c := range h.Conns {
		e.text(c.Name)
		e.uint(uint64(c.Nth))
		e.text(c.Client)
		e.uint(uint64(c.Version))
		e.text(c.Addr)
	}
	e.uint(uint64(len(h.Events)))
	for _, v := range h.Events {
		e.uint(uint64(v.At))
		e.uint(uint64(v.Conn + 1))
		e.uint(uint64(v.Kind))
		e.bytes(v.Raw)
		e.text(v.Text)
	}
}

// ErrFormat says that a file is no history, or a damaged one.
var ErrFormat = errors.New("not a history file, or a damaged one")

// Read reads a file. Every error wraps ErrFormat or is the reader's.
func Read(r io.Reader) (*History, error) {
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(r, head); err != nil || !bytes.Equal(head[:len(head)-1], []byte(magic)[:len(magic)-1]) {
		return nil, fmt.Errorf("read a history: %w", ErrFormat)
	}
	if head[len(head)-1] != magic[len(magic)-1] {
		return nil, fmt.Errorf("read a history: version %d of the format, want %d: %w", head[len(head)-1], magic[len(magic)-1], ErrFormat)
	}
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read a history: %w: %w", ErrFormat, err)
	}
	d := &fileReader{r: bufio.NewReaderSize(zip, 64<<10), left: MaxBytes * 2}
	h := d.history()
	if d.err == nil {
		sum := d.sum // before the checksum's own bytes
		if want := binary.BigEndian.Uint32(d.fixed(4)); d.err == nil && want != sum {
			d.err = errors.New("the checksum is another")
		}
	}
	if d.err == nil {
		if _, err := d.r.ReadByte(); !errors.Is(err, io.EOF) {
			d.err = errors.New("bytes follow the end")
		}
	}
	if d.err != nil {
		return nil, fmt.Errorf("read a history: %w: %w", ErrFormat, d.err)
	}
	return h, nil
}

// fileReader reads fields, counting down what a file may hold in all so that a small file cannot ask for all memory.
type fileReader struct {
	r    *bufio.Reader
	sum  uint32
	left int
	err  error
}

// ReadByte serves binary.ReadUvarint.
func (d *fileReader) ReadByte() (byte, error) {
	b, err := d.r.ReadByte()
	if err == nil {
		d.sum = crc32.Update(d.sum, crc32.IEEETable, []byte{b})
	}
	return b, err
}

func (d *fileReader) uint(limit uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(d)
	if err == nil && v > limit {
		err = fmt.Errorf("a number of %d, at most %d makes sense there", v, limit)
	}
	d.err = err
	if err != nil {
		return 0
	}
	return v
}

// fixed reads n bytes in pieces: memory is only taken for bytes that are there.
func (d *fileReader) fixed(n int) []byte {
	if d.left -= n; d.left < 0 && d.err == nil {
		d.err = errors.New("more bytes than a history may hold")
	}
	if d.err != nil {
		return make([]byte, min(n, 8))
	}
	var out []byte
	for len(out) < n {
		piece := min(n-len(out), 64<<10)
		start := len(out)
		out = append(out, make([]byte, piece)...)
		if _, err := io.ReadFull(d.r, out[start:]); err != nil {
			d.err = err
			return make([]byte, min(n, 8))
		}
	}
	d.sum = crc32.Update(d.sum, crc32.IEEETable, out)
	return out
}

func (d *fileReader) bytes() []byte {
	n := int(d.uint(maxField))
	if n == 0 || d.err != nil {
		return nil
	}
	return d.fixed(n)
}

func (d *fileReader) text() string { return string(d.bytes()) }

func (d *fileReader) history() *History {
	h := &History{Check: d.text(), Version: byte(d.uint(255)), Round: int(d.uint(1 << 30)), Seed: d.uint(1<<64 - 1)}
	h.Started = time.Unix(0, int64(d.uint(1<<63-1))).UTC()
	h.Facts = map[string]string{}
	for range d.uint(1 << 12) {
		k := d.text()
		h.Facts[k] = d.text()
		if d.err != nil {
			break
		}
	}
	h.Trouble, h.Stuck, h.Full = d.text(), d.text(), d.uint(1) == 1
	for range d.uint(MaxConns) {
		h.Conns = append(h.Conns, Conn{Name: d.text(), Nth: int(d.uint(MaxConns)), Client: d.text(), Version: byte(d.uint(255)), Addr: d.text()})
		if d.err != nil {
			break
		}
	}
	for range d.uint(MaxEvents) {
		v := Event{
			At: time.Duration(d.uint(1<<63 - 1)), Conn: int(d.uint(uint64(len(h.Conns)))) - 1, Kind: Kind(d.uint(uint64(Mark))),
			Raw: d.bytes(), Text: d.text(),
		}
		if d.err != nil {
			break
		}
		h.Events = append(h.Events, v)
	}
	return h
}
