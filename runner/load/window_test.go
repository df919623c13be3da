package load

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is the window as a specification would put it: slices, no cleverness.
type model struct {
	qos, size int
	now       time.Duration
	from, to  time.Duration

	used      map[uint16]*modelled
	toSend    []uint16 // PUBLISH given out, not stamped
	awaitAck  []uint16 // PUBLISH given out, in order, no PUBACK or PUBREC yet
	toRelease []uint16 // PUBREC read, PUBREL not given out
	releasing []uint16 // PUBREL given out, not stamped
	awaitComp []uint16 // PUBREC read, in order, no PUBCOMP yet

	seq                 int64
	checked, violations int64
	outstanding         int     // stamped and not complete
	area                float64 // outstanding times nanoseconds within from and to
}

type modelled struct {
	seq            int64
	sent, released time.Duration
	stamped, recd  bool
	relStamped     bool
}

func (m *model) advance(d time.Duration) {
	if a, b := max(m.now, m.from), min(m.now+d, m.to); b > a {
		m.area += float64(m.outstanding) * float64(b-a)
	}
	m.now += d
}

func remove(s []uint16, id uint16) []uint16 {
	return slices.DeleteFunc(s, func(x uint16) bool { return x == id })
}

// ack is an acknowledgement; legal says whether the specification allows it now.
func (m *model) legal(id uint16, comp bool) bool {
	e := m.used[id]
	if comp {
		return e != nil && e.recd && e.relStamped
	}
	return e != nil && e.stamped && !e.recd
}

// TestWindowAgainstModel drives a window and the model with the same random steps.
func TestWindowAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		qos := rapid.IntRange(1, 2).Draw(t, "qos")
		size := rapid.SampledFrom([]int{1, 2, 7, 64, 200}).Draw(t, "size")
		w, err := New(byte(qos), size)
		if err != nil {
			t.Fatal(err)
		}
		m := &model{qos: qos, size: size, used: map[uint16]*modelled{}}
		m.from = time.Duration(rapid.IntRange(0, 500).Draw(t, "from"))
		m.to = m.from + time.Duration(rapid.IntRange(1, 2000).Draw(t, "measured"))
		w.Measure(m.from, m.to)

		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) { m.advance(time.Duration(rapid.IntRange(0, 100).Draw(t, "ns"))) },
			"publish": func(t *rapid.T) {
				for range rapid.IntRange(1, size).Draw(t, "n") {
					publishBoth(t, w, m)
				}
			},
			"release": func(t *rapid.T) { releaseBoth(t, w, m, rapid.IntRange(1, size).Draw(t, "n")) },
			"sent": func(*rapid.T) {
				w.Sent(m.now)
				m.sent()
			},
			"next acknowledgement": func(t *rapid.T) {
				for range rapid.IntRange(1, size).Draw(t, "n") {
					comp := rapid.Bool().Draw(t, "pubcomp")
					if queue := m.queue(comp); len(queue) > 0 && m.legal(queue[0], comp) {
						ackBoth(t, w, m, queue[0], comp)
					}
				}
			},
			"any acknowledgement": func(t *rapid.T) {
				comp := rapid.Bool().Draw(t, "pubcomp")
				if queue := m.queue(comp); len(queue) > 0 {
					ackBoth(t, w, m, rapid.SampledFrom(queue).Draw(t, "id"), comp)
				}
			},
			"wild acknowledgement": func(t *rapid.T) {
				ackBoth(t, w, m, rapid.Uint16Range(1, 65_535).Draw(t, "id"), rapid.Bool().Draw(t, "pubcomp"))
			},
			"": func(t *rapid.T) { compare(t, w, m) },
		})
	})
}

func (m *model) queue(comp bool) []uint16 {
	if comp {
		return m.awaitComp
	}
	return m.awaitAck
}

func (m *model) sent() {
	for _, id := range m.toSend {
		m.used[id].stamped, m.used[id].sent = true, m.now
		m.outstanding++
	}
	for _, id := range m.releasing {
		m.used[id].relStamped, m.used[id].released = true, m.now
	}
	m.toSend, m.releasing = nil, nil
}

func publishBoth(t *rapid.T, w *Window, m *model) {
	if w.Room() != m.size-len(m.used) {
		t.Fatalf("room %d, model has %d of %d in use", w.Room(), len(m.used), m.size)
	}
	if w.Room() == 0 {
		return
	}
	id, seq := w.Publish()
	if id == 0 || m.used[id] != nil {
		t.Fatalf("Packet Identifier %d given out while it is in use, or 0 [MQTT-2.3.1-1]", id)
	}
	if seq != m.seq {
		t.Fatalf("message %d follows %d", seq, m.seq-1)
	}
	m.used[id] = &modelled{seq: seq}
	m.seq++
	m.toSend = append(m.toSend, id)
	m.awaitAck = append(m.awaitAck, id)
}

func releaseBoth(t *rapid.T, w *Window, m *model, n int) {
	for range n {
		if w.Releases() != (len(m.toRelease) > 0) {
			t.Fatalf("releases due %v, model has %d", w.Releases(), len(m.toRelease))
		}
		id, ok := w.Release()
		if !ok {
			return
		}
		if id != m.toRelease[0] {
			t.Fatalf("PUBREL for %d, the oldest PUBREC was for %d [MQTT-4.6.0-4]", id, m.toRelease[0])
		}
		m.toRelease = m.toRelease[1:]
		m.releasing = append(m.releasing, id)
	}
}

func ackBoth(t *rapid.T, w *Window, m *model, id uint16, comp bool) {
	legal := m.legal(id, comp) && (m.qos == 2 || !comp)
	e := m.used[id]
	var d Done
	var leg time.Duration
	var err error
	switch {
	case comp:
		d, err = w.Pubcomp(id, m.now)
	case m.qos == 1:
		d, err = w.Puback(id, m.now)
	default:
		leg, err = w.Pubrec(id, m.now)
	}
	if (err == nil) != legal {
		t.Fatalf("acknowledgement of %d (pubcomp %v): error %v, legal %v", id, comp, err, legal)
	}
	if err != nil {
		if !errors.Is(err, ErrProtocol) {
			t.Fatalf("not a protocol violation: %v", err)
		}
		return
	}
	m.checked++
	if m.queue(comp)[0] != id {
		m.violations++
	}
	switch {
	case m.qos == 2 && !comp:
		m.awaitAck = remove(m.awaitAck, id)
		m.awaitComp = append(m.awaitComp, id)
		m.toRelease = append(m.toRelease, id)
		e.recd = true
		if leg != m.now-e.sent {
			t.Fatalf("PUBLISH to PUBREC %v, want %v", leg, m.now-e.sent)
		}
		return
	case comp:
		m.awaitComp = remove(m.awaitComp, id)
		if d.Release != m.now-e.released {
			t.Fatalf("PUBREL to PUBCOMP %v, want %v", d.Release, m.now-e.released)
		}
	default:
		m.awaitAck = remove(m.awaitAck, id)
	}
	if d.Seq != e.seq || d.Service != m.now-e.sent {
		t.Fatalf("done %+v, want message %d after %v", d, e.seq, m.now-e.sent)
	}
	delete(m.used, id)
	m.outstanding--
}

func compare(t *rapid.T, w *Window, m *model) {
	if w.Outstanding() != len(m.used) {
		t.Fatalf("outstanding %d, model %d", w.Outstanding(), len(m.used))
	}
	if w.order.Checked != m.checked || w.order.Violations != m.violations {
		t.Fatalf("order %+v, model %d violations of %d", w.order, m.violations, m.checked)
	}
	want := 0.0
	if end := min(m.now, m.to); end > m.from {
		want = m.area / float64(end-m.from)
	}
	if got := w.Mean(m.now); got < want-1e-6 || got > want+1e-6 {
		t.Fatalf("mean in flight %v, model %v", got, want)
	}
}

// At the largest window every identifier is in use: none may be given out twice and none may be missing.
func TestWindowOfAllIdentifiers(t *testing.T) {
	w, err := New(1, MaxWindow)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[uint16]bool, MaxWindow)
	for w.Room() > 0 {
		id, _ := w.Publish()
		if id == 0 || seen[id] {
			t.Fatalf("identifier %d given out again after %d", id, len(seen))
		}
		seen[id] = true
	}
	if len(seen) != MaxWindow {
		t.Fatalf("%d identifiers in use, want %d", len(seen), MaxWindow)
	}
	if id, _ := w.Publish(); id != 0 {
		t.Fatalf("identifier %d given out beyond the window", id)
	}
	w.Sent(1)
	if _, err := w.Puback(40_000, 2); err != nil {
		t.Fatal(err)
	}
	if id, _ := w.Publish(); id != 40_000 {
		t.Fatalf("identifier %d, only 40000 is free", id)
	}
}

// An exchange that is never answered must not hold anything up, nor make anything grow, while others come and go.
func TestWindowWithOneStuckExchange(t *testing.T) {
	w, err := New(1, 4)
	if err != nil {
		t.Fatal(err)
	}
	stuck, _ := w.Publish()
	w.Sent(0)
	const n = 100_000
	for i := range n {
		id, _ := w.Publish()
		w.Sent(time.Duration(i))
		if _, err := w.Puback(id, time.Duration(i)); err != nil || id == stuck {
			t.Fatalf("exchange %d with identifier %d (stuck is %d): %v", i, id, stuck, err)
		}
	}
	if o := w.TakeOrder(); o.Violations != n || o.PUBACK != n || !strings.Contains(o.First, "expected Packet Identifier 1, got 2") {
		t.Fatalf("every one of %d came before the stuck one: %+v", n, o)
	}
	if o := w.TakeOrder(); o != (Order{}) {
		t.Fatalf("taken and still there: %+v", o)
	}
}

func TestWindowArguments(t *testing.T) {
	for _, c := range []struct {
		qos  byte
		size int
		why  string
	}{
		{0, 1, "QoS 0 has no acknowledgements"},
		{3, 1, "no such QoS"},
		{1, 0, "a window of nothing"},
		{1, 65_536, "more than there are Packet Identifiers"},
	} {
		if _, err := New(c.qos, c.size); err == nil {
			t.Errorf("QoS %d, window %d accepted: %s", c.qos, c.size, c.why)
		}
	}
}
