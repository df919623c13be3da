package load

import (
	"fmt"
	"time"
)

// Fences is the closed loop of one connection at QoS 0. It belongs to the goroutine that owns the connection.
//
// Nothing answers a QoS 0 PUBLISH, and without an answer a loop measures only how fast a socket swallows bytes. A broker
// handles the packets of a connection in order, so the PINGRESP to a PINGREQ behind a batch says that the batch has been
// taken in. A fence goes out behind every max(1, window/8) messages, and at most window messages are not behind an
// answered fence: about eight batches are under way, and the broker never idles while one is answered. It measures the
// broker's intake of QoS 0 messages, not that it delivered them.
type Fences struct {
	meter
	size, batch int
	open        int // messages given out since the last fence
	unfenced    int // messages given out whose fence is not answered
	fresh       int // messages given out, not stamped yet
	seq         int64
	ring        []fence
	head, n     int
	stamped     int // of the n fences
}

type fence struct {
	sent     time.Duration
	messages int
}

// NewFences returns an empty loop with at most window messages that are not behind an answered fence.
func NewFences(window int) (*Fences, error) {
	if window < 1 || window > MaxWindow {
		return nil, fmt.Errorf("window %d: must be 1 to %d", window, MaxWindow)
	}
	batch := max(1, window/8)
	return &Fences{size: window, batch: batch, ring: make([]fence, window/batch+2)}, nil
}

// Room is the number of messages that may be published before the next fence is due.
func (f *Fences) Room() int { return min(f.size-f.unfenced, f.batch-f.open) }

// Outstanding is the number of messages whose fence has not been answered.
func (f *Fences) Outstanding() int { return f.unfenced }

// Published is the number of messages given out so far; it is the sequence number of the next.
func (f *Fences) Published() int64 { return f.seq }

// Publish takes a slot for the next message. It must not be called without Room.
func (f *Fences) Publish() (seq int64) {
	f.open++
	f.unfenced++
	f.fresh++
	f.seq++
	return f.seq - 1
}

// Due reports whether a PINGREQ must go out now: the batch is full or, when no more messages follow, not empty. Short
// batches of several runs can fill the ring; the fence then waits for an answer.
func (f *Fences) Due(last bool) bool {
	return (f.open == f.batch || (last && f.open > 0)) && f.n < len(f.ring)
}

// Fence notes that a PINGREQ goes out.
func (f *Fences) Fence() {
	f.ring[(f.head+f.n)%len(f.ring)] = fence{messages: f.open}
	f.n++
	f.open = 0
}

// Sent stamps everything given out since the last call: now is just before the write.
func (f *Fences) Sent(now time.Duration) {
	for ; f.stamped < f.n; f.stamped++ {
		f.ring[(f.head+f.stamped)%len(f.ring)].sent = now
	}
	f.add(now, f.fresh)
	f.fresh = 0
}

// Pingresp answers the oldest fence: messages first to first+n-1 are processed. leg is PINGREQ sent -> PINGRESP.
func (f *Fences) Pingresp(now time.Duration) (first int64, n int, leg time.Duration, err error) {
	if f.stamped == 0 {
		return 0, 0, 0, fmt.Errorf("%w: PINGRESP without a PINGREQ", ErrProtocol)
	}
	oldest := f.ring[f.head]
	f.head = (f.head + 1) % len(f.ring)
	f.n--
	f.stamped--
	first = f.seq - int64(f.unfenced)
	f.unfenced -= oldest.messages
	f.add(now, -oldest.messages)
	return first, oldest.messages, now - oldest.sent, nil
}
