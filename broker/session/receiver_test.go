package session

import (
	"fmt"
	"testing"

	"inflight/broker/store"
)

func TestReceiver(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(l *link)
	}{
		{"Q2I-01 one exchange [MQTT-4.3.3-2]", func(l *link) {
			l.p2(1, "A")
			l.wantOps("the message is held first", "hold 1")
			l.want("no PUBREC before it is durable", "nothing")
			l.report("hold 1")
			l.want("durable", "PUBREC 1")
			l.wantDelivered("method A: nobody sees it before PUBREL", "nothing")
			l.pubrel(1)
			l.wantOps("PUBREL releases", "release 1")
			l.want("no PUBCOMP before the release is durable", "nothing")
			l.report("release 1")
			l.want("released", "PUBCOMP 1")
			l.wantDelivered("once", "A")
		}},
		{"A1-01 QoS 1 [MQTT-4.3.2-2]", func(l *link) {
			l.p1(1, "A")
			l.wantOps("delivered at once", "publish 1")
			l.want("no PUBACK before it is durable", "nothing")
			l.report("publish 1")
			l.want("durable", "PUBACK 1")
		}},
		{"A1-04 a QoS 1 message on an acknowledged identifier is new", func(l *link) {
			l.p1(5, "A")
			l.report("publish 5")
			l.p1(5, "B")
			l.report("publish 5")
			l.want("each", "PUBACK 5, PUBACK 5")
			l.wantDelivered("both", "A, B")
		}},
		{"A1-05 two copies of a QoS 1 message get two PUBACKs", func(l *link) {
			l.p1(5, "A")
			l.p1(5, "A")
			l.report("publish 5", "publish 5")
			l.want("each its own", "PUBACK 5, PUBACK 5")
		}},
		{"a QoS 1 and a QoS 2 message on one identifier are two exchanges", func(l *link) {
			l.p2(5, "A")
			l.p1(5, "B")
			l.report("publish 5", "hold 5")
			l.want("each its own answer", "PUBACK 5, PUBREC 5")
			l.pubrel(5)
			l.report("release 5")
			l.wantDelivered("both", "B, A")
			l.want("once", "PUBCOMP 5")
		}},
		{"Q2I-02 PUBRECs in PUBLISH order though the holds end last to first", func(l *link) {
			for id := uint16(1); id <= 4; id++ {
				l.p2(id, fmt.Sprint(id))
			}
			l.report("hold 4", "hold 3", "hold 2")
			l.want("the first hold is open", "nothing")
			l.report("hold 1")
			l.want("all", answers("PUBREC", 1, 2, 3, 4))
			l.pubrel(1, 2, 3, 4)
			l.wantOps("releases start in PUBREL order", "hold 1, hold 2, hold 3, hold 4, release 1, release 2, release 3, release 4")
			l.report("release 3", "release 2", "release 4")
			l.want("the first release is open", "nothing")
			l.report("release 1")
			l.want("Q2I-03 PUBCOMPs in PUBREL order", answers("PUBCOMP", 1, 2, 3, 4))
			l.wantDelivered("Q2I-05 in order", "1, 2, 3, 4")
		}},
		{"Q2I-06 copies that come after the PUBREC", func(l *link) {
			l.p2(7, "A")
			l.report("hold 7")
			l.p2(7, "A")
			l.p2(7, "A")
			l.want("each copy its own", "PUBREC 7, PUBREC 7, PUBREC 7")
			l.wantOps("one hold", "hold 7")
			l.pubrel(7)
			l.report("release 7")
			l.want("one", "PUBCOMP 7")
			l.wantDelivered("once", "A")
		}},
		{"Q2I-07 copies in one burst: no PUBREC before the first is durable", func(l *link) {
			l.p2(7, "A")
			l.p2(7, "A")
			l.p2(7, "A")
			l.want("the hold is open", "nothing")
			l.wantOps("one hold", "hold 7")
			l.report("hold 7")
			l.want("each copy its own", "PUBREC 7, PUBREC 7, PUBREC 7")
			l.pubrel(7)
			l.report("release 7")
			l.wantDelivered("once", "A")
			l.want("one", "PUBCOMP 7")
		}},
		{"Q2I-09 the first copy wins", func(l *link) {
			l.p2(7, "A")
			l.p2(7, "B")
			l.report("hold 7")
			l.p2(7, "C")
			l.pubrel(7)
			l.report("release 7")
			l.want("three copies, one release", "PUBREC 7, PUBREC 7, PUBREC 7, PUBCOMP 7")
			l.wantDelivered("the first", "A")
		}},
		{"Q2I-10 the PUBREC of a copy keeps its place", func(l *link) {
			l.p2(1, "1")
			l.p2(2, "2")
			l.report("hold 2")
			l.p2(2, "2") // held already, but 1 is not answered yet
			l.p2(3, "3")
			l.report("hold 3")
			l.want("1 is open", "nothing")
			l.report("hold 1")
			l.want("in order of arrival", answers("PUBREC", 1, 2, 2, 3))
			l.pubrel(1, 2, 3)
			l.report("release 1", "release 2", "release 3")
			l.want("each one", answers("PUBCOMP", 1, 2, 3))
			l.wantDelivered("each once", "1, 2, 3")
		}},
		{"Q2I-11 PUBREL three times while the release is under way", func(l *link) {
			l.p2(3, "A")
			l.report("hold 3")
			l.pubrel(3, 3, 3)
			l.wantOps("one release", "hold 3, release 3")
			l.want("no PUBCOMP before it is durable", "PUBREC 3")
			l.report("release 3")
			l.want("each PUBREL its own", "PUBCOMP 3, PUBCOMP 3, PUBCOMP 3")
			l.wantDelivered("once", "A")
		}},
		{"Q2I-11 PUBREL again after the PUBCOMP", func(l *link) {
			l.p2(3, "A")
			l.report("hold 3")
			l.pubrel(3)
			l.report("release 3")
			l.pubrel(3)
			l.wantOps("nothing is left to release", "hold 3, release 3")
			l.want("a PUBCOMP all the same", "PUBREC 3, PUBCOMP 3, PUBCOMP 3")
			l.wantDelivered("once", "A")
		}},
		{"Q2I-12 PUBREL of an unknown identifier [MQTT-4.3.3-2]", func(l *link) {
			l.pubrel(4242)
			l.want("at once", "PUBCOMP 4242")
			l.wantOps("no operation", "nothing")
		}},
		{"Q2I-12 PUBREL of an unknown identifier keeps its place", func(l *link) {
			l.p2(1, "A")
			l.report("hold 1")
			l.pubrel(1, 4242)
			l.want("behind the release", "PUBREC 1")
			l.report("release 1")
			l.want("in PUBREL order", answers("PUBCOMP", 1, 4242))
		}},
		{"Q2I-13 one identifier again and again", func(l *link) {
			var want []string
			for i := range 200 {
				payload := fmt.Sprint(i)
				l.p2(1, payload)
				l.report("hold 1")
				l.pubrel(1)
				l.report("release 1")
				l.want("each exchange", "PUBREC 1, PUBCOMP 1")
				want = append(want, payload)
			}
			l.wantDelivered("each once, in order", list(want))
		}},
		{"Q2I-15 a PUBLISH on an identifier that is being released is a new publication", func(l *link) {
			l.p2(9, "A")
			l.report("hold 9")
			l.pubrel(9)
			l.p2(9, "B")
			l.wantOps("both are stored", "hold 9, release 9, hold 9")
			l.report("hold 9")
			l.want("B has its own PUBREC", "PUBREC 9, PUBREC 9")
			l.report("release 9")
			l.want("A is complete, B is not", "PUBCOMP 9")
			if n := l.r.Open(); n != 1 {
				l.t.Fatalf("%d exchanges are open, want 1: the end of A must not end B", n)
			}
			l.pubrel(9)
			l.report("release 9")
			l.want("B is complete", "PUBCOMP 9")
			l.wantDelivered("both", "A, B")
		}},
		{"Q2I-15 PUBREL for the new publication while the old one is being released", func(l *link) {
			l.p2(9, "A")
			l.report("hold 9")
			l.pubrel(9)
			l.p2(9, "B")
			l.report("hold 9")
			l.pubrel(9)
			l.wantOps("two releases", "hold 9, release 9, hold 9, release 9")
			l.open[0], l.open[1] = l.open[1], l.open[0]
			l.report("release 9") // B's
			l.want("in PUBREL order", "PUBREC 9, PUBREC 9")
			l.report("release 9")
			l.want("both", "PUBCOMP 9, PUBCOMP 9")
			l.wantDelivered("both", "A, B")
		}},
		{"Q2I-15 [P2 PUBREL P2] on one identifier in one burst: the second message is not lost", func(l *link) {
			l.p2(9, "A")
			l.pubrel(9)
			l.p2(9, "B")
			l.report("hold 9", "hold 9")
			l.pubrel(9)
			l.report("release 9", "release 9")
			l.want("both are acknowledged", "PUBREC 9, PUBREC 9, PUBCOMP 9, PUBCOMP 9")
			l.wantDelivered("so both are delivered", "A, B")
		}},
		{"Q2I-16 a PUBREL that overtakes its PUBREC waits for the store", func(l *link) {
			l.p2(3, "A")
			l.pubrel(3)
			l.want("nothing is durable", "nothing")
			l.wantOps("no release of what is not held", "hold 3")
			l.report("hold 3")
			l.want("now", "PUBREC 3")
			l.wantOps("then it is released", "release 3")
			l.report("release 3")
			l.want("complete", "PUBCOMP 3")
			l.wantDelivered("once", "A")
		}},
		{"Q2I-16 three PUBRELs that overtake their PUBREC", func(l *link) {
			l.p2(3, "A")
			l.pubrel(3, 3, 3)
			l.report("hold 3")
			l.wantOps("one release", "hold 3, release 3")
			l.report("release 3")
			l.want("each its own", "PUBREC 3, PUBCOMP 3, PUBCOMP 3, PUBCOMP 3")
			l.wantDelivered("once", "A")
		}},
		{"Q2I-21 PUBRELs that are withheld lose nothing", func(l *link) {
			for id := uint16(1); id <= 100; id++ {
				l.p2(id, "m")
				l.report(fmt.Sprintf("hold %d", id))
			}
			if l.r.Open() != 100 || l.pipe.Pending() != 0 {
				l.t.Fatalf("%d exchanges and %d slots, want 100 and 0", l.r.Open(), l.pipe.Pending())
			}
			for id := uint16(1); id <= 100; id++ {
				l.pubrel(id)
				l.report(fmt.Sprintf("release %d", id))
			}
			if len(l.delivered) != 100 {
				l.t.Fatalf("%d delivered, want 100", len(l.delivered))
			}
		}},
		{"Q2I-24 releases follow the PUBRELs, not the PUBLISHes", func(l *link) {
			for id := uint16(1); id <= 3; id++ {
				l.p2(id, fmt.Sprint(id))
			}
			l.report("hold 1", "hold 2", "hold 3")
			l.pubrel(3, 2, 1)
			l.report("release 1", "release 2", "release 3")
			l.want("in PUBREL order", answers("PUBREC", 1, 2, 3)+", "+answers("PUBCOMP", 3, 2, 1))
			l.wantDelivered("method A", "3, 2, 1")
		}},
		{"Q2I-16 early PUBRELs release in their own order, not in that of the holds", func(l *link) {
			for id := uint16(1); id <= 4; id++ {
				l.p2(id, fmt.Sprint(id))
			}
			l.pubrel(2, 4, 1, 3)
			l.report("hold 4", "hold 3", "hold 1")
			l.wantOps("2 was released first, and its hold is open", "hold 1, hold 2, hold 3, hold 4")
			l.report("hold 2")
			l.wantOps("then all", "release 2, release 4, release 1, release 3")
			l.report("release 3", "release 1", "release 4", "release 2")
			l.want("in order", answers("PUBREC", 1, 2, 3, 4)+", "+answers("PUBCOMP", 2, 4, 1, 3))
			l.wantDelivered("in PUBREL order [MQTT-4.6.0-5]", "2, 4, 1, 3")
		}},
		{"Q2I-16 a PUBREL in time waits behind an early one", func(l *link) {
			l.p2(1, "1")
			l.p2(2, "2")
			l.report("hold 2")
			l.pubrel(1, 2)
			l.wantOps("1 is not held", "hold 1, hold 2")
			l.report("hold 1", "release 2", "release 1")
			l.want("in order", answers("PUBREC", 1, 2)+", "+answers("PUBCOMP", 1, 2))
			l.wantDelivered("in PUBREL order [MQTT-4.6.0-5]", "1, 2")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLink(t, roomy)
			tc.run(l)
			l.wantIdle()
		})
	}
}

func TestReceiverResumed(t *testing.T) {
	// held leaves a message in the store whose PUBREC was sent, and resumes.
	held := func(l *link, id uint16, payload string) {
		l.p2(id, payload)
		l.report(fmt.Sprintf("hold %d", id))
	}
	for _, tc := range []struct {
		name string
		run  func(l *link)
	}{
		{"RES-01 D2, PUBREL after a resume", func(l *link) {
			held(l, 3, "A")
			l.cut()
			l.p2(3, "A")
			l.want("the store has it", "PUBREC 3")
			l.wantOps("so it is not stored again", "nothing")
			l.pubrel(3)
			l.wantOps("the body is in the store", "fetch 3")
			l.report("fetch 3")
			l.wantOps("then it is released", "release 3")
			l.report("release 3")
			l.want("complete", "PUBCOMP 3")
			l.wantDelivered("once", "A")
		}},
		{"RES-03 PUBREL alone after a resume, three times", func(l *link) {
			held(l, 3, "A")
			l.cut()
			l.pubrel(3, 3)
			l.report("fetch 3")
			l.pubrel(3)
			l.wantOps("one fetch, one release", "fetch 3, release 3")
			l.want("nothing is durable", "nothing")
			l.report("release 3")
			l.want("each its own", "PUBCOMP 3, PUBCOMP 3, PUBCOMP 3")
			l.wantDelivered("once", "A")
		}},
		{"RES-04 PUBREL after its release took effect but was not reported", func(l *link) {
			held(l, 3, "A")
			l.pubrel(3)
			l.cut()
			l.pubrel(3)
			l.want("nothing is held any more", "PUBCOMP 3")
			l.wantDelivered("once", "A")
		}},
		{"RES-05 D2 that the broker never saw", func(l *link) {
			l.p2(5, "A")
			l.wantOps("a new publication", "hold 5")
			l.report("hold 5")
			l.pubrel(5)
			l.report("release 5")
			l.want("one exchange", "PUBREC 5, PUBCOMP 5")
			l.wantDelivered("once", "A")
		}},
		{"RES-06 cut between the hold and its report", func(l *link) {
			l.p2(6, "A")
			l.cut()
			l.p2(6, "A")
			l.wantOps("the store has it", "nothing")
			l.want("at once", "PUBREC 6")
			l.pubrel(6)
			l.report("fetch 6", "release 6")
			l.want("complete", "PUBCOMP 6")
			l.wantDelivered("never zero, never two", "A")
		}},
		{"RES-12 nothing unsolicited is sent on resume", func(l *link) {
			held(l, 1, "A")
			held(l, 2, "B")
			l.cut()
			l.flush()
			l.want("silence", "nothing")
			l.wantOps("nothing is read ahead", "nothing")
			l.pubrel(1, 2)
			l.report("fetch 1", "fetch 2", "release 1", "release 2")
			l.want("complete", answers("PUBCOMP", 1, 2))
		}},
		{"the newest copy of an identifier is the one that counts", func(l *link) {
			held(l, 9, "A")
			l.pubrel(9) // released, but the store has not let the copy go yet
			held(l, 9, "B")
			l.cut()
			l.pubrel(9)
			l.report("fetch 9", "release 9")
			l.wantDelivered("A before the cut, B after it", "A, B")
			l.want("complete", "PUBCOMP 9")
		}},
		{"releases keep PUBREL order with fetches in the middle", func(l *link) {
			held(l, 1, "1")
			held(l, 3, "3")
			l.cut()
			l.p2(2, "2")
			l.p2(4, "4")
			l.report("hold 4", "hold 2")
			l.wantOps("two new ones", "hold 2, hold 4")
			l.pubrel(2, 1, 4, 3, 99)
			l.wantOps("2 has its body; 1 has not, and 4 and 3 wait behind it", "release 2, fetch 1")
			l.report("release 2")
			l.want("2 is complete", "PUBREC 2, PUBREC 4, PUBCOMP 2")
			l.report("fetch 1")
			l.wantOps("1 and 4 go, 3 is read", "release 1, release 4, fetch 3")
			l.report("release 4", "fetch 3", "release 3")
			l.want("behind 1", "nothing")
			l.report("release 1")
			l.want("in PUBREL order", answers("PUBCOMP", 1, 4, 3, 99))
			l.wantDelivered("in PUBREL order", "2, 1, 4, 3")
		}},
		{"a new PUBLISH while the old exchange waits for its body", func(l *link) {
			held(l, 1, "1")
			held(l, 2, "OLD")
			l.cut()
			l.pubrel(1, 2)
			l.p2(2, "NEW")
			l.report("hold 2")
			l.pubrel(2)
			l.wantOps("all wait for the body of 1", "fetch 1, hold 2")
			l.report("fetch 1")
			l.wantOps("then for that of the old 2", "release 1, fetch 2")
			l.report("fetch 2", "release 1", "release 2", "release 2")
			l.want("all", answers("PUBREC", 2)+", "+answers("PUBCOMP", 1, 2, 2))
			l.wantDelivered("in PUBREL order", "1, OLD, NEW")
		}},
		{"the repeated PUBREL of an exchange that is queued behind a fetch", func(l *link) {
			held(l, 1, "1")
			held(l, 2, "2")
			l.cut()
			l.pubrel(1, 2, 2, 1)
			l.report("fetch 1", "fetch 2", "release 2", "release 1")
			l.want("each its own, in PUBREL order", answers("PUBCOMP", 1, 2, 2, 1))
			l.wantDelivered("once each", "1, 2")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLink(t, roomy)
			tc.run(l)
			l.wantIdle()
		})
	}
}

// A corrupt stored message fails the connection once; the retried PUBREL converges to a clean PUBCOMP.
func TestReceiverCorrupt(t *testing.T) {
	t.Run("on the same connection", func(t *testing.T) {
		l := newLink(t, roomy)
		l.p2(3, "A")
		l.report("hold 3")
		l.cut()
		l.corrupt[1] = true
		l.pubrel(3)
		l.report("fetch 3")
		l.want("no acknowledgement of what was not delivered", "nothing")
		if l.r.Known(3) || l.r.Open() != 0 {
			t.Fatal("the exchange is still there")
		}
		l.wantDelivered("never", "nothing")
	})
	t.Run("on the next one, once the copy is dropped", func(t *testing.T) {
		l := newLink(t, roomy)
		l.p2(3, "A")
		l.report("hold 3")
		l.cut()
		l.corrupt[1] = true
		l.pubrel(3)
		l.report("fetch 3")
		l.order = nil
		l.cut()
		l.pubrel(3)
		l.want("clean", "PUBCOMP 3")
		l.p2(3, "B")
		l.report("hold 3")
		l.pubrel(3)
		l.report("release 3")
		l.wantDelivered("the identifier is free for a new one", "B")
		l.wantIdle()
	})
	t.Run("a newer exchange on the identifier is not touched", func(t *testing.T) {
		l := newLink(t, roomy)
		l.p2(3, "A")
		l.report("hold 3")
		l.cut()
		l.corrupt[1] = true
		l.pubrel(3)
		l.p2(3, "B")
		l.report("hold 3", "fetch 3")
		if !l.r.Known(3) {
			t.Fatal("the new exchange is gone")
		}
	})
}

func TestReceiverLimits(t *testing.T) {
	hold := func(l *link, n int) {
		for id := 1; id <= n; id++ {
			l.p2(uint16(id), "12345678")
			l.report(fmt.Sprintf("hold %d", id))
		}
	}
	// fetches releases all and counts the bodies that had to be read back.
	fetches := func(l *link, n int) (count int) {
		for id := 1; id <= n; id++ {
			l.pubrel(uint16(id))
			name := fmt.Sprintf("fetch %d", id)
			if len(l.open) > 0 && opNames[l.open[0].Kind]+fmt.Sprintf(" %d", l.open[0].ID) == name {
				count++
				l.report(name)
			}
			l.report(fmt.Sprintf("release %d", id))
		}
		return count
	}
	size := (&store.Message{Topic: "t", Payload: []byte("12345678")}).Size()
	for _, tc := range []struct {
		reason  string
		limits  Limits
		held    int
		fetched int
	}{
		{"room for all", Limits{10, 1 << 20}, 10, 0},
		{"copies decide", Limits{4, 1 << 20}, 10, 6},
		{"bytes decide", Limits{100, 3 * size}, 10, 7},
		{"one byte less than three copies", Limits{100, 3*size - 1}, 10, 8},
		{"no copies at all", Limits{0, 1 << 20}, 5, 5},
		{"no bytes at all", Limits{100, 0}, 5, 5},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := newLink(t, tc.limits)
			hold(l, tc.held)
			if l.r.copies > tc.limits.Copies || l.r.bytes > tc.limits.Bytes {
				t.Errorf("%d copies of %d bytes are kept, limits are %+v", l.r.copies, l.r.bytes, tc.limits)
			}
			if got := fetches(l, tc.held); got != tc.fetched {
				t.Errorf("%d bodies were read back, want %d", got, tc.fetched)
			}
			if len(l.delivered) != tc.held {
				t.Errorf("%d delivered, want %d", len(l.delivered), tc.held)
			}
			l.wantIdle()
		})
	}
	t.Run("a body that was released makes room", func(t *testing.T) {
		l := newLink(t, Limits{Copies: 2, Bytes: 1 << 20})
		for range 50 {
			hold(l, 2)
			if n := fetches(l, 2); n != 0 {
				t.Fatalf("%d bodies were read back, want 0", n)
			}
		}
	})
	t.Run("a burst is back within the limits once it is held", func(t *testing.T) {
		l := newLink(t, Limits{Copies: 3, Bytes: 1 << 20})
		for id := uint16(1); id <= 20; id++ {
			l.p2(id, "x")
		}
		for id := 20; id >= 1; id-- {
			l.report(fmt.Sprintf("hold %d", id))
		}
		if l.r.copies > 3 {
			t.Errorf("%d copies are kept, limit 3", l.r.copies)
		}
		for id := uint16(1); id <= 20; id++ {
			l.pubrel(id)
			for len(l.open) > 0 {
				l.reportAt(0)
			}
		}
		if len(l.delivered) != 20 {
			t.Errorf("%d delivered, want 20", len(l.delivered))
		}
		l.wantIdle()
	})
}
