package session

import (
	"fmt"
	"testing"

	"inflight/broker/packet"
)

// line is a Pipeline with the slots that a test reserved, by name: the packet type's last word and the identifier.
type line struct {
	t     testing.TB
	p     Pipeline
	slots []Slot
	buf   []byte
}

func (l *line) reserve(kind packet.Type, ids ...uint16) {
	for _, id := range ids {
		l.slots = append(l.slots, l.p.Reserve(kind, id))
	}
}

// complete completes the n-th reservation of the test.
func (l *line) complete(n ...int) {
	for _, i := range n {
		l.p.Complete(l.slots[i])
	}
}

func (l *line) want(reason, packets string) {
	l.t.Helper()
	l.buf = l.p.Append(l.buf[:0])
	if got := list(text(l.t, l.buf)); got != packets {
		l.t.Fatalf("%s: sent %s, want %s", reason, got, packets)
	}
}

func (l *line) pending(reason string, n int) {
	l.t.Helper()
	if got := l.p.Pending(); got != n {
		l.t.Fatalf("%s: %d slots pending, want %d", reason, got, n)
	}
}

func TestPipelineOrder(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(l *line)
	}{
		{"A1-03 PUBACKs leave in PUBLISH order, completed last to first", func(l *line) {
			l.reserve(packet.PUBACK, 1, 2, 3)
			l.complete(2)
			l.want("the third waits for the first two", "nothing")
			l.complete(1)
			l.want("so does the second", "nothing")
			l.complete(0)
			l.want("the first frees all", "PUBACK 1, PUBACK 2, PUBACK 3")
		}},
		{"Q2I-02 PUBRECs leave in PUBLISH order [MQTT-4.6.0-6]", func(l *line) {
			l.reserve(packet.PUBREC, 9, 4, 7)
			l.complete(0, 2)
			l.want("the prefix only", "PUBREC 9")
			l.complete(1)
			l.want("then the rest", "PUBREC 4, PUBREC 7")
		}},
		{"Q2I-03 PUBCOMPs leave in PUBREL order", func(l *line) {
			l.reserve(packet.PUBCOMP, 3, 2, 1)
			l.complete(1, 2)
			l.want("behind the first", "nothing")
			l.complete(0)
			l.want("arrival order, not that of the numbers", "PUBCOMP 3, PUBCOMP 2, PUBCOMP 1")
		}},
		{"Q2I-23 each packet type is ordered among itself and waits for no other", func(l *line) {
			l.reserve(packet.PUBREC, 1)
			l.reserve(packet.PUBACK, 2)
			l.reserve(packet.PUBCOMP, 3)
			l.complete(2)
			l.want("the PUBCOMP waits for no PUBREC or PUBACK", "PUBCOMP 3")
			l.complete(1)
			l.want("the PUBACK waits for no PUBREC", "PUBACK 2")
			l.complete(0)
			l.want("the PUBREC was first to arrive and last to be done", "PUBREC 1")
		}},
		{"a response leaves once", func(l *line) {
			l.reserve(packet.PUBACK, 1)
			l.complete(0)
			l.want("when it is complete", "PUBACK 1")
			l.want("and not again", "nothing")
		}},
		{"completing a slot twice before it left changes nothing", func(l *line) {
			l.reserve(packet.PUBREC, 1, 2)
			l.complete(1, 1)
			l.want("twice complete is not two slots", "nothing")
			l.complete(0, 0)
			l.want("each once", "PUBREC 1, PUBREC 2")
		}},
		{"completing a slot again after it left completes no later slot", func(l *line) {
			l.reserve(packet.PUBREC, 1)
			l.complete(0)
			l.want("first", "PUBREC 1")
			l.reserve(packet.PUBREC, 2)
			l.complete(0)
			l.want("the slot is gone, the ring entry is another's", "nothing")
			l.complete(1)
			l.want("its own completion", "PUBREC 2")
		}},
		{"Q2I-06 the same identifier may hold several slots", func(l *line) {
			l.reserve(packet.PUBREC, 7, 7, 7)
			l.complete(1)
			l.want("the second copy waits for the first", "nothing")
			l.complete(0)
			l.want("two are done", "PUBREC 7, PUBREC 7")
			l.complete(2)
			l.want("the third", "PUBREC 7")
		}},
		{"nothing reserved, nothing sent", func(l *line) { l.want("empty", "nothing") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &line{t: t}
			tc.run(l)
			l.pending("at the end", 0)
		})
	}
}

// The ring grows while its contents wrap around its end, at every offset of the head.
func TestPipelineRingGrowsWrapped(t *testing.T) {
	for offset := range 16 {
		t.Run(fmt.Sprintf("head at %d", offset), func(t *testing.T) {
			l := &line{t: t}
			for i := range offset {
				l.reserve(packet.PUBACK, uint16(i+1))
				l.complete(i)
			}
			l.buf = l.p.Append(l.buf[:0])
			const n = 40 // two growths, 16 to 32 to 64
			first := len(l.slots)
			var ids []int
			for i := range n {
				l.reserve(packet.PUBACK, uint16(100+i))
				ids = append(ids, 100+i)
				if i%3 == 1 {
					l.complete(first + i) // marks made before a growth survive it
				}
			}
			l.pending("all open", n)
			for i := n - 1; i > 0; i-- {
				l.complete(first + i)
				l.want("the first is open", "nothing")
			}
			l.complete(first)
			l.want("all in order", answers("PUBACK", ids...))
			l.pending("all gone", 0)
		})
	}
}

// A slot that left long ago must not complete one that lives, also where its entry is in use again.
func TestPipelineStaleSlotInAFullRing(t *testing.T) {
	l := &line{t: t}
	l.reserve(packet.PUBREC, 1)
	l.complete(0)
	l.want("the first", "PUBREC 1")
	l.reserve(packet.PUBREC, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17) // all 16 entries
	l.complete(0)
	for i := 1; i < 16; i++ {
		l.complete(i)
	}
	l.want("all but the last", answers("PUBREC", 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16))
	l.complete(16)
	l.want("the last", "PUBREC 17")
}

// The ring keeps its place over many turns without growing.
func TestPipelineRingTurns(t *testing.T) {
	var p Pipeline
	var buf []byte
	const window = 11
	var open []Slot
	next, sent := uint16(0), uint16(0)
	for range 5000 {
		for len(open) < window {
			next++
			open = append(open, p.Reserve(packet.PUBREC, next))
		}
		// The last of every three completes first; the prefix decides all the same.
		for _, i := range []int{2, 0, 1} {
			p.Complete(open[i])
		}
		open = open[3:]
		buf = p.Append(buf[:0])
		for _, got := range text(t, buf) {
			sent++
			if want := fmt.Sprintf("PUBREC %d", sent); got != want {
				t.Fatalf("sent %s, want %s", got, want)
			}
		}
		if p.Pending() != window-3 {
			t.Fatalf("%d pending, want %d", p.Pending(), window-3)
		}
	}
	if got := len(p.lane[lanePubrec].buf); got != 16 {
		t.Errorf("ring of a window of %d has %d entries, want 16", window, got)
	}
}

// A slot that was never reserved must not complete one that is.
func TestPipelineForeignSlot(t *testing.T) {
	l := &line{t: t}
	l.reserve(packet.PUBREC, 1)
	l.p.Complete(Slot{lane: lanePubrec, seq: 1}) // not reserved yet
	l.want("a future slot", "nothing")
	l.reserve(packet.PUBREC, 2)
	l.complete(0)
	l.want("the second is not complete", "PUBREC 1")
}

// steady runs one message through a pipeline that holds window-1 others.
func steady(p *Pipeline, open []Slot, next *int, buf []byte) []byte {
	i := *next % len(open)
	p.Complete(open[i])
	buf = p.Append(buf[:0])
	open[i] = p.Reserve(packet.PUBREC, uint16(*next)|1)
	*next++
	return buf
}

func TestPipelineAllocations(t *testing.T) {
	var p Pipeline
	open := make([]Slot, 256)
	for i := range open {
		open[i] = p.Reserve(packet.PUBREC, uint16(i+1))
	}
	buf := make([]byte, 0, 1024)
	next := 0
	if n := testing.AllocsPerRun(5000, func() { buf = steady(&p, open, &next, buf) }); n != 0 {
		t.Errorf("%v allocations per response in the steady state, want 0", n)
	}
}

func BenchmarkPipeline(b *testing.B) {
	for _, window := range []int{1, 20, 256} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			b.ReportAllocs()
			var p Pipeline
			open := make([]Slot, window)
			for i := range open {
				open[i] = p.Reserve(packet.PUBREC, uint16(i+1))
			}
			buf := make([]byte, 0, 1024)
			next := 0
			for b.Loop() {
				buf = steady(&p, open, &next, buf)
			}
		})
	}
}
