package packet

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"testing/iotest"
)

// segments gives the bytes of data in reads of the given sizes in turn; a size of 0 is a read without bytes or error.
type segments struct {
	data  []byte
	sizes []byte
	next  int
	err   error // at the end
}

func (s *segments) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, s.err
	}
	n := len(s.data)
	if len(s.sizes) > 0 {
		n = int(s.sizes[s.next%len(s.sizes)])
		s.next++
	}
	n = copy(p, s.data[:min(n, len(s.data))])
	s.data = s.data[n:]
	return n, nil
}

type read struct {
	header byte
	body   string
}

// splitAll is what a Reader must give: the packets of data one after the other, and the error after them.
func splitAll(data []byte, limit int) (all []read, err error) {
	for {
		f, n, _, err := V311.Split(data, limit)
		switch {
		case err != nil:
			return all, err
		case n == 0 && len(data) == 0:
			return all, io.EOF
		case n == 0:
			return all, io.ErrUnexpectedEOF
		}
		all = append(all, read{f.Header, string(f.Body)})
		data = data[n:]
	}
}

func readAll(r *Reader) (all []read, err error) {
	for {
		f, err := r.Next()
		if err != nil {
			return all, err
		}
		all = append(all, read{f.Header, string(f.Body)})
	}
}

// FuzzReader checks that segmentation changes nothing: the same packets and the same error as from the whole at once.
func FuzzReader(f *testing.F) {
	var stream []byte
	for _, v := range loadVectors(f) {
		f.Add(v.raw, []byte{1}, uint8(0), uint16(0))
		if v.legal() && len(v.raw) < 200 {
			stream = append(stream, v.raw...)
		}
	}
	f.Add(stream, []byte{1}, uint8(0), uint16(0))
	f.Add(stream, []byte{0, 0, 3, 200}, uint8(255), uint16(100))
	f.Add(stream, []byte{7, 1, 64, 65}, uint8(70), uint16(20))
	f.Fuzz(func(t *testing.T, data, sizes []byte, buffer uint8, limit uint16) {
		if len(sizes) > 0 && slices.Max(sizes) == 0 {
			t.Skip("these sizes make no progress")
		}
		r := NewReader(&segments{data: data, sizes: sizes, err: io.EOF}, int(buffer), int(limit))
		want, wantErr := splitAll(data, r.limit)
		got, gotErr := readAll(r)
		if len(sizes) >= maxEmptyReads && errors.Is(gotErr, io.ErrNoProgress) {
			t.Skip("these sizes make no progress")
		}
		if !slices.Equal(got, want) || gotErr.Error() != wantErr.Error() {
			t.Errorf("reads of %v, buffer %d: %d packets, then %v; want %d, then %v", sizes, buffer, len(got), gotErr, len(want), wantErr)
		}
		if biggest := len(r.buf); biggest > max(256, 2*len(data)) {
			t.Errorf("a buffer of %d bytes for a stream of %d", biggest, len(data))
		}
		if _, again := r.Next(); again.Error() != gotErr.Error() {
			t.Errorf("first %v, then %v", gotErr, again)
		}
	})
}

func TestReaderEnds(t *testing.T) {
	failed := errors.New("cable cut")
	for _, c := range []struct {
		why     string
		data    string
		err     error // of the source, at the end
		limit   int
		packets int
		want    error
	}{
		{"a clean end", "\xc0\x00\xd0\x00", io.EOF, 0, 2, io.EOF},
		{"nothing at all", "", io.EOF, 0, 0, io.EOF},
		{"an end inside a length", "\xc0\x00\x30", io.EOF, 0, 1, io.ErrUnexpectedEOF},
		{"an end inside a body: half a PUBLISH is never delivered", "\xc0\x00\x30\x05\x00\x01a", io.EOF, 0, 1, io.ErrUnexpectedEOF},
		{"another error is given as it is", "\xc0\x00\x30\x05", failed, 0, 1, failed},
		{"a packet above the limit, before its body", "\xc0\x00\x30\x7f", io.EOF, 126, 1, ErrTooLarge},
		{"a source that gives nothing and no error", "\xc0\x00", nil, 0, 1, io.ErrNoProgress},
	} {
		all, err := readAll(NewReader(&segments{data: []byte(c.data), err: c.err}, 0, c.limit))
		if len(all) != c.packets || !errors.Is(err, c.want) {
			t.Errorf("%s: %d packets, then %v; want %d, then %v", c.why, len(all), err, c.packets, c.want)
		}
	}
}

// TestReaderBadPacketInWindow has a bad packet between good ones: those before it are read, none after it.
func TestReaderBadPacketInWindow(t *testing.T) {
	for _, bad := range []string{"\x00\x00", "\xf0\x00", "\x34\x80\x80\x80\x80\x01"} {
		var stream []byte
		for id := range uint16(20) {
			stream = AppendPublish(stream, &Publish{Topic: []byte("a"), QoS: 2, ID: id + 1})
		}
		stream = append(stream, bad...)
		stream = AppendPublish(stream, &Publish{Topic: []byte("a"), QoS: 2, ID: 21})
		r := NewReader(iotest.OneByteReader(bytes.NewReader(stream)), 0, 0)
		for want := range uint16(20) {
			f, err := r.Next()
			if err != nil {
				t.Fatalf("% x: packet %d: %v", bad, want+1, err)
			}
			if p, err := ParsePublish(f); p.ID != want+1 || err != nil {
				t.Errorf("% x: got identifier %d, %v, want %d", bad, p.ID, err, want+1)
			}
		}
		for range 2 {
			if f, err := r.Next(); !errors.As(err, new(*Error)) {
				t.Errorf("% x: got %v, %v, want an *Error and nothing after it", bad, f, err)
			}
		}
	}
}

// TestReaderGoesOnAfterATimeout has a read deadline pass at each place of a packet, as a keep-alive check makes it.
func TestReaderGoesOnAfterATimeout(t *testing.T) {
	stream := AppendPublish(nil, &Publish{Topic: []byte("a/b"), Payload: []byte("payload"), QoS: 1, ID: 7})
	for cut := range stream {
		src := &segments{data: stream[:cut], err: os.ErrDeadlineExceeded}
		r := NewReader(src, 0, 0)
		if _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after %d bytes: got %v, want the timeout", cut, err)
		}
		src.data = stream[cut:]
		f, err := r.Next()
		if err != nil {
			t.Fatalf("after %d bytes: %v", cut, err)
		}
		if p, err := ParsePublish(f); err != nil || p.ID != 7 || string(p.Payload) != "payload" {
			t.Errorf("after %d bytes: got %+v, %v", cut, p, err)
		}
	}
}

// TestReaderClaimCostsNothing has a client claim the largest packet: memory follows what arrives, not what is claimed.
func TestReaderClaimCostsNothing(t *testing.T) {
	src := &segments{data: []byte("\x30\xff\xff\xff\x7f"), err: os.ErrDeadlineExceeded}
	r := NewReader(src, 64, 0)
	for sent := 5; sent < 1<<20; sent *= 2 {
		if _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if len(r.buf) > max(64, 4*sent) {
			t.Errorf("%d bytes have arrived, the buffer has %d", sent, len(r.buf))
		}
		src.data = make([]byte, sent)
	}
}

// TestReaderBuffered checks that what has arrived is given without another read, which is how a writer knows that there
// is more to come before it flushes.
func TestReaderBuffered(t *testing.T) {
	src := &segments{data: []byte("\xc0\x00\xd0\x00\x40\x02\x00"), err: io.EOF}
	r := NewReader(src, 64, 0)
	if _, ok, err := r.Buffered(); ok || err != nil {
		t.Errorf("before the first read: %v, %v", ok, err)
	}
	if err := r.Fill(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []Type{PINGREQ, PINGRESP} {
		if f, ok, err := r.Buffered(); !ok || err != nil || f.Type() != want {
			t.Errorf("got %v, %v, %v, want %v", f, ok, err, want)
		}
	}
	if f, ok, err := r.Buffered(); ok || err != nil {
		t.Errorf("got %v, %v from a part of a packet", f, err)
	}
	src.data = []byte("\x09")
	if f, err := r.Next(); err != nil || f.Type() != PUBACK || string(f.Body) != "\x00\x09" {
		t.Errorf("got %v, %v, want the PUBACK in two pieces", f, err)
	}
}

// TestFrameKeepsToItself checks that appending to a view does not write over the packet that follows in the buffer.
func TestFrameKeepsToItself(t *testing.T) {
	stream := []byte("\x30\x04\x00\x01ax\xc0\x00")
	f, n, _, err := V311.Split(stream, MaxRemaining)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePublish(f)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(p.Payload, "!!"...) // as long as what follows: more would be copied elsewhere anyway
	_ = append(f.Body, "!!"...)    // as long as what follows: more would be copied elsewhere anyway
	if f, _, _, err := V311.Split(stream[n:], MaxRemaining); err != nil || f.Type() != PINGREQ {
		t.Errorf("the next packet is now %v, %v", f, err)
	}
}

// sizes is a source whose reads fill what they are given, at most n bytes, with PINGREQs, and that notes what that was.
type sizes struct {
	n     int
	asked []int
}

func (s *sizes) Read(p []byte) (int, error) {
	s.asked = append(s.asked, len(p))
	n := min(s.n, len(p)) &^ 1
	for i := 0; i < n; i += 2 {
		p[i], p[i+1] = byte(PINGREQ)<<4, 0
	}
	return n, nil
}

// A reader that little comes to waits with a small buffer; one that is busy has a large one from its second read on.
func TestReaderIdle(t *testing.T) {
	src := &sizes{}
	r := NewReader(src, 32<<10, 0)
	round := func(n int) int {
		src.n = n
		if err := r.Fill(); err != nil {
			t.Fatal(err)
		}
		for {
			if _, ok, err := r.Buffered(); err != nil {
				t.Fatal(err)
			} else if !ok {
				return src.asked[len(src.asked)-1]
			}
		}
	}
	for i, step := range []struct {
		why        string
		n          int // bytes that come
		rounds     int
		first, all int // room for the first of them, and for those after it
	}{
		{"a new connection, and one that only pings", 2, 20, idleBuffer, idleBuffer},
		{"the first read of a burst finds it small", 32 << 10, 5, idleBuffer, 32 << 10},
		{"a small read does not make it idle", 2, idleReads, 32 << 10, 32 << 10},
		{"many do", 2, 3, idleBuffer, idleBuffer},
		{"reads that do not fill it leave it small", idleBuffer - 2, 20, idleBuffer, idleBuffer},
		{"one that does, and ends where the buffer ends", idleBuffer, 3, idleBuffer, 32 << 10},
		{"a large one among small ones keeps it", idleBuffer, 1, 32 << 10, 0},
	} {
		for n := range step.rounds {
			want := step.all
			if n == 0 {
				want = step.first
			}
			if got := round(step.n); got != want {
				t.Errorf("step %d, %s: read %d has room for %d bytes, want %d", i+1, step.why, n+1, got, want)
			}
		}
	}
}

// chunks gives data in reads of up to the next of the given sizes, in turn.
type chunks struct {
	data  []byte
	sizes []int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.data[:min(c.sizes[0], len(c.data))])
	c.data, c.sizes = c.data[n:], append(c.sizes[1:], c.sizes[0])
	return n, nil
}

// A packet that spans the change of buffers comes out whole, whatever the sizes of the reads.
func TestReaderChangesBuffers(t *testing.T) {
	var stream []byte
	for id := range uint16(3000) {
		payload := bytes.Repeat([]byte{byte(id)}, int(id)%900)
		stream = AppendPublish(stream, &Publish{Topic: []byte("a"), QoS: 1, ID: id + 1, Payload: payload})
	}
	for _, sizes := range [][]int{{1 << 20}, {1}, {600, 1, 600}, {5000, 40, 30, 20, 10, 5, 40, 30, 20, 10, 5, 4, 3, 2, 1}} {
		r := NewReader(&chunks{data: stream, sizes: sizes}, 4<<10, 0)
		want, _ := splitAll(stream, r.limit)
		got, err := readAll(r)
		if !slices.Equal(got, want) || !errors.Is(err, io.EOF) {
			t.Errorf("reads of %v: %d packets of %d, then %v", sizes[:1], len(got), len(want), err)
		}
	}
}
