package ledger

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inflight/runner/result"
)

const (
	run  = 0x1122334455667788
	size = 64
)

// publish stamps, publishes and acknowledges n messages on each connection and returns their payloads in the order in
// which a correct broker would deliver them.
func publish(l *Ledger, n int) (payloads [][]byte) {
	for conn := range l.Connections() {
		b := l.Book(conn)
		for seq := range int64(n) {
			p := []byte(strings.Repeat("x", size))
			b.Stamp(p, seq)
			b.Published(seq)
			b.Acknowledged(seq)
			payloads = append(payloads, p)
		}
	}
	return payloads
}

// Every fault is planted into the same correct delivery of 2 connections with 100 messages each.
func TestPlantedFaults(t *testing.T) {
	clean := result.Ledger{Published: 200, Acknowledged: 200, Delivered: 200, DrainNS: 90}
	for _, c := range []struct {
		name  string
		fault func(l *Ledger, d [][]byte) [][]byte
		want  func(a *result.Ledger)
		first string
		bad   [3]bool // whether it breaks what QoS 0, 1 and 2 promise
	}{
		{name: "none", fault: func(_ *Ledger, d [][]byte) [][]byte { return d }, want: func(*result.Ledger) {}},
		{
			name:  "one is dropped",
			fault: func(_ *Ledger, d [][]byte) [][]byte { return append(d[:17:17], d[18:]...) },
			want:  func(a *result.Ledger) { a.Delivered, a.Lost = 199, 1 },
			first: "connection 0, message 17: acknowledged, never delivered",
			bad:   [3]bool{false, true, true},
		},
		{
			name:  "the last is dropped",
			fault: func(_ *Ledger, d [][]byte) [][]byte { return d[:199] },
			want:  func(a *result.Ledger) { a.Delivered, a.Lost = 199, 1 },
			first: "connection 1, message 99: acknowledged, never delivered",
			bad:   [3]bool{false, true, true},
		},
		{
			name:  "one is delivered twice",
			fault: func(_ *Ledger, d [][]byte) [][]byte { return append(d, d[5]) },
			want:  func(a *result.Ledger) { a.Duplicated = 1 },
			first: "connection 0, message 5: delivered again",
			bad:   [3]bool{false, false, true},
		},
		{
			name:  "two are swapped",
			fault: func(_ *Ledger, d [][]byte) [][]byte { d[150], d[151] = d[151], d[150]; return d },
			want:  func(a *result.Ledger) { a.Reordered = 1 },
			first: "connection 1, message 50: delivered after message 51",
			bad:   [3]bool{true, true, true},
		},
		{
			name: "a message of another run",
			fault: func(_ *Ledger, d [][]byte) [][]byte {
				return append(d, publish(New(run+1, 1), 1)...)
			},
			want:  func(a *result.Ledger) { a.Corrupt = 1 },
			first: "message of another run",
			bad:   [3]bool{true, true, true},
		},
		{
			name:  "a payload is damaged behind the header",
			fault: func(_ *Ledger, d [][]byte) [][]byte { d[3][size-1] ^= 1; return d },
			want:  func(a *result.Ledger) { a.Delivered, a.Lost, a.Corrupt = 199, 1, 1 },
			first: "delivery 4: checksum does not match the payload",
			bad:   [3]bool{true, true, true},
		},
		{
			name:  "a payload is cut",
			fault: func(_ *Ledger, d [][]byte) [][]byte { d[3] = d[3][:HeaderSize-1]; return d },
			want:  func(a *result.Ledger) { a.Delivered, a.Lost, a.Corrupt = 199, 1, 1 },
			first: "shorter than the ledger's header",
			bad:   [3]bool{true, true, true},
		},
		{
			name: "a message that was never published",
			fault: func(_ *Ledger, d [][]byte) [][]byte {
				return append(d, publish(New(run, 1), 101)[100])
			},
			want:  func(a *result.Ledger) { a.Corrupt = 1 },
			first: "connection 0, message 100: delivered, never published",
			bad:   [3]bool{true, true, true},
		},
		{
			name: "a connection that does not exist",
			fault: func(_ *Ledger, d [][]byte) [][]byte {
				return append(d, publish(New(run, 3), 1)[2])
			},
			want:  func(a *result.Ledger) { a.Corrupt = 1 },
			first: "no such connection",
			bad:   [3]bool{true, true, true},
		},
		{
			name: "a sequence number beyond the limit",
			fault: func(_ *Ledger, d [][]byte) [][]byte {
				p := append([]byte(nil), d[0]...)
				binary.BigEndian.PutUint64(p[16:], 1<<63)
				binary.BigEndian.PutUint32(p, crc32.Checksum(p[4:], castagnoli))
				return append(d, p)
			},
			want:  func(a *result.Ledger) { a.Corrupt = 1 },
			first: "sequence number",
			bad:   [3]bool{true, true, true},
		},
		{
			name: "published, unacknowledged, delivered: legal",
			fault: func(l *Ledger, d [][]byte) [][]byte {
				p := append([]byte(nil), d[0]...)
				l.Book(1).Stamp(p, 100)
				l.Book(1).Published(100)
				return append(d, p)
			},
			want: func(a *result.Ledger) { a.Published, a.Delivered = 201, 201 },
		},
		{
			name: "published, unacknowledged, not delivered: legal",
			fault: func(l *Ledger, d [][]byte) [][]byte {
				l.Book(1).Published(100)
				return d
			},
			want: func(a *result.Ledger) { a.Published = 201 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := New(run, 2)
			for i, p := range c.fault(l, publish(l, 100)) {
				l.Delivered(p, time.Duration(min(i, 199)+1))
			}
			want := clean
			c.want(&want)
			got := l.Account(110)
			first := got.First
			got.First, got.DrainNS, want.DrainNS = "", 0, 0
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("account (-want +got):\n%s", diff)
			}
			if c.first == "" && first != "" || !strings.Contains(first, c.first) {
				t.Errorf("first problem %q, want %q", first, c.first)
			}
			for qos, bad := range c.bad {
				if got.Violated(qos) != bad {
					t.Errorf("violated at QoS %d: %v, want %v", qos, !bad, bad)
				}
			}
		})
	}
}

func TestDrainTime(t *testing.T) {
	l := New(run, 1)
	for i, p := range publish(l, 3) {
		l.Delivered(p, time.Duration(10*i))
	}
	for lastAck, want := range map[time.Duration]int64{5: 15, 20: 0, 90: 0} {
		if got := l.Account(lastAck).DrainNS; got != want {
			t.Errorf("last acknowledgement at %v, last delivery at 20ns: drain %d, want %d", lastAck, got, want)
		}
	}
}

// TestAccountAgainstModel delivers random sequences and compares with maps.
func TestAccountAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New(run, 1)
		b := l.Book(0)
		published := rapid.Int64Range(0, 3*pageBits).Draw(t, "published")
		if published > 0 {
			b.Published(published - 1)
		}
		seqs := rapid.SliceOf(rapid.Int64Range(0, 3*pageBits)).Draw(t, "delivered")
		acked := map[int64]bool{}
		for _, seq := range rapid.SliceOf(rapid.Int64Range(0, 3*pageBits)).Draw(t, "acknowledged") {
			b.Acknowledged(seq)
			acked[seq] = true
		}
		want := result.Ledger{Published: published, Acknowledged: int64(len(acked))}
		seen, highest := map[int64]bool{}, int64(-1)
		p := make([]byte, HeaderSize)
		for _, seq := range seqs {
			b.Stamp(p, seq)
			l.Delivered(p, 0)
			switch {
			case seen[seq]:
				want.Duplicated++
				continue
			case seq < highest:
				want.Reordered++
			}
			highest = max(highest, seq)
			seen[seq] = true
			if seq < published {
				want.Delivered++
			} else {
				want.Corrupt++
			}
		}
		for seq := range acked {
			if !seen[seq] {
				want.Lost++
			}
		}
		got := l.Account(0)
		got.First = ""
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("account (-want +got):\n%s", diff)
		}
		if again := l.Account(0); again.Lost != got.Lost || again.Delivered != got.Delivered {
			t.Fatal("a second account differs")
		}
	})
}

func TestNoAllocationPerMessage(t *testing.T) {
	l := New(run, 1)
	b := l.Book(0)
	p := make([]byte, 256)
	seq := int64(0)
	message := func() {
		b.Stamp(p, seq)
		b.Published(seq)
		b.Acknowledged(seq)
		l.Delivered(p, 0)
		seq++
	}
	message()
	if n := testing.AllocsPerRun(10_000, message); n != 0 {
		t.Errorf("%v allocations per message", n)
	}
}

func TestBookOutOfRange(t *testing.T) {
	l := New(run, 1)
	for _, conn := range []int{-1, 1} {
		if l.Book(conn) != nil {
			t.Errorf("connection %d of 1 has a book", conn)
		}
	}
	l.Book(0).Acknowledged(MaxSequence) // beyond the limit: no memory for it
	if a := l.Account(0); a.Acknowledged != 0 {
		t.Errorf("acknowledged beyond the limit: %+v", a)
	}
}

func BenchmarkMessage(b *testing.B) {
	l := New(run, 1)
	book := l.Book(0)
	p := make([]byte, 256)
	for i := range p {
		p[i] = byte(rand.Uint32())
	}
	b.ReportAllocs()
	for i := range b.N {
		seq := int64(i) % MaxSequence
		book.Stamp(p, seq)
		book.Published(seq)
		book.Acknowledged(seq)
		l.Delivered(p, 0)
	}
}

// TestSubscribersAndTopics: each subscriber has its own side, and a topic its own order.
func TestSubscribersAndTopics(t *testing.T) {
	l := For(7, Shape{Connections: 1, Topics: 2, Subscribers: 2})
	book := l.Book(0)
	payloads := make([][]byte, 4)
	for seq := range payloads {
		payloads[seq] = make([]byte, TimedSize)
		book.StampAt(payloads[seq], int64(seq), time.Duration(seq)*time.Second)
		book.Published(int64(seq))
		book.Acknowledged(int64(seq))
	}
	if at, ok := MadeAt(payloads[3]); !ok || at != 3*time.Second {
		t.Errorf("made at %v, %v", at, ok)
	}
	for _, seq := range []int{1, 0, 3, 2} { // two topics: 0, 2 and 1, 3
		if !l.Inbox(0).Delivered(payloads[seq], time.Second) {
			t.Errorf("message %d is no first delivery", seq)
		}
	}
	for _, seq := range []int{0, 2, 1, 1} {
		l.Inbox(1).Delivered(payloads[seq], 2*time.Second)
	}
	want := result.Ledger{Published: 4, Acknowledged: 4, Delivered: 7, Subscribers: 2, Lost: 1, Duplicated: 1, DrainNS: int64(time.Second), First: "subscriber 1, connection 0, message 1: delivered again"}
	if got := l.Account(time.Second); got != want {
		t.Errorf("account %+v, want %+v", got, want)
	}
	if l.Distinct() != 7 || l.Inbox(1).Distinct() != 3 || l.Inbox(2) != nil {
		t.Errorf("distinct %d, %d", l.Distinct(), l.Inbox(1).Distinct())
	}
}

// Where publishes have no order, that of deliveries is not judged, and the account says so; all else is.
func TestUnordered(t *testing.T) {
	l := For(run, Shape{Connections: 1, Unordered: true})
	payloads := publish(l, 4)
	for _, i := range []int{2, 0, 1, 1} {
		l.Delivered(payloads[i], 0)
	}
	a := l.Account(0)
	if !a.Unordered || a.Reordered != 0 || a.Duplicated != 1 || a.Lost != 1 || a.Delivered != 3 {
		t.Errorf("%+v", a)
	}
}
