package session

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"inflight/broker/store"
)

// outlet is a Sender with a subscriber that the test plays.
type outlet struct {
	t       tester
	s       *Sender
	src     *Source
	seq     uint64 // of the subscription's last message
	out     []byte
	settled []string
}

func newOutlet(t tester, window int) *outlet { return &outlet{t: t, s: NewSender(window)} }

// delivery is a message as the store delivers it.
func (o *outlet) delivery(qos byte, seq uint64, payload string) store.Delivery {
	return store.Delivery{
		Message: &store.Message{Topic: "t", Payload: []byte(payload), QoS: 2, Retain: true},
		QoS:     qos,
		Seq:     seq,
		Settle:  func() { o.settled = append(o.settled, payload) },
	}
}

func (o *outlet) send(qos byte, payloads ...string) {
	for _, payload := range payloads {
		if o.src == nil {
			o.src = o.s.Source("t")
		}
		seq := uint64(0) // of a QoS 0 delivery the store keeps nothing
		if qos > 0 {
			o.seq++
			seq = o.seq
		}
		o.out = o.s.Send(o.out, o.src, o.delivery(qos, seq, payload))
	}
}

func (o *outlet) ok(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *outlet) puback(ids ...uint16) {
	o.t.Helper()
	for _, id := range ids {
		o.ok(o.s.Puback(id))
	}
}

func (o *outlet) pubrec(ids ...uint16) {
	o.t.Helper()
	for _, id := range ids {
		var err error
		o.out, err = o.s.Pubrec(o.out, id)
		o.ok(err)
	}
}

func (o *outlet) pubcomp(ids ...uint16) {
	o.t.Helper()
	for _, id := range ids {
		o.ok(o.s.Pubcomp(id))
	}
}

// resume is a new connection: what was not written is lost.
func (o *outlet) resume() { o.out = o.s.Resend(nil, time.Time{}) }

func (o *outlet) want(reason, packets string) {
	o.t.Helper()
	if got := list(text(o.t, o.out)); got != packets {
		o.t.Fatalf("%s: sent %s, want %s", reason, got, packets)
	}
	o.out = nil
}

func (o *outlet) wantSettled(reason, payloads string) {
	o.t.Helper()
	if got := list(o.settled); got != payloads {
		o.t.Fatalf("%s: settled %s, want %s", reason, got, payloads)
	}
}

func TestSender(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(o *outlet)
	}{
		{"QoS 0 takes no identifier and no room", func(o *outlet) {
			o.send(0, "A", "B")
			o.want("identifier 0 stands for none; RETAIN is 0 for a live delivery [MQTT-3.3.1-9]", "PUBLISH 0 q0 t A, PUBLISH 0 q0 t B")
			if o.s.InFlight() != 0 {
				o.t.Fatalf("%d in flight, want 0", o.s.InFlight())
			}
		}},
		{"Q2O-01 identifiers start at 1, DUP is 0 the first time [MQTT-2.3.1-1] [MQTT-4.3.3-1]", func(o *outlet) {
			o.send(1, "A")
			o.send(2, "B")
			o.want("one for each", "PUBLISH 1 q1 t A, PUBLISH 2 q2 t B")
			o.puback(1)
			o.pubrec(2)
			o.want("Q2O-02 PUBREL with the same identifier", "PUBREL 2")
			o.wantSettled("QoS 1 at PUBACK, QoS 2 at PUBREC", "A, B")
			o.pubcomp(2)
		}},
		{"Q2O-03 PUBRELs in PUBREC order [MQTT-4.6.0-4]", func(o *outlet) {
			o.send(2, "A", "B", "C")
			o.out = nil
			o.pubrec(3, 1, 2)
			o.want("as received", answers("PUBREL", 3, 1, 2))
			o.pubcomp(1, 2, 3)
		}},
		{"Q2O-04 a second PUBREC gets the PUBREL again, never the PUBLISH", func(o *outlet) {
			o.send(2, "A")
			o.out = nil
			o.pubrec(1, 1)
			o.want("both", "PUBREL 1, PUBREL 1")
			o.wantSettled("once", "A")
			o.pubcomp(1)
			o.pubrec(1)
			o.want("also after the PUBCOMP", "PUBREL 1")
			o.wantSettled("once", "A")
		}},
		{"Q2O-05 the identifier is in use until PUBCOMP", func(o *outlet) {
			o.send(2, "A")
			o.pubrec(1)
			if o.s.InFlight() != 1 {
				o.t.Fatal("PUBREC freed the slot")
			}
			o.out = nil
			o.s.last = 65_535
			o.send(1, "B")
			o.want("1 is in use", "PUBLISH 2 q1 t B")
			o.pubcomp(1)
			o.puback(2)
		}},
		{"Q2O-15 an identifier that is held is skipped at every turn", func(o *outlet) {
			o.send(2, "held")
			for i := range 2 * 65_536 {
				o.out = nil
				o.send(1, "x")
				id := o.s.last
				if id == 0 || id == 1 {
					o.t.Fatalf("message %d took identifier %d", i, id)
				}
				o.puback(id)
			}
			o.out = nil
			o.resume()
			o.want("the held one", "PUBLISH 1 q2 t held dup")
			o.pubrec(1)
			o.pubcomp(1)
		}},
		{"identifiers are used in turn, not again at once", func(o *outlet) {
			o.send(1, "A")
			o.puback(1)
			o.send(1, "B")
			o.want("a late PUBACK of A cannot be taken for B's", "PUBLISH 1 q1 t A, PUBLISH 2 q1 t B")
			o.puback(2)
		}},
		{"a late PUBACK or PUBCOMP frees nothing and is no error", func(o *outlet) {
			o.puback(7)
			o.pubcomp(7)
			o.wantSettled("nothing", "nothing")
		}},
		{"Q2O-19 PUBRECs of unknown identifiers leave no state", func(o *outlet) {
			for id := range uint16(10_000) {
				o.pubrec(id + 1)
				o.out = o.out[:0]
			}
			if o.s.InFlight() != 0 || len(o.s.rels) != 0 || len(o.s.order) != 0 {
				o.t.Fatalf("%d in flight, %d PUBRELs, %d in order", o.s.InFlight(), len(o.s.rels), len(o.s.order))
			}
			o.resume()
			o.want("nothing is owed", "nothing")
		}},
		{"Q2O-06, -07 a resume sends again what is unacknowledged, in order, DUP, same identifiers [MQTT-4.4.0-1]", func(o *outlet) {
			o.send(1, "A")
			o.send(2, "B", "C")
			o.send(1, "D")
			o.puback(4)
			o.resume()
			o.want("not D", "PUBLISH 1 q1 t A dup, PUBLISH 2 q2 t B dup, PUBLISH 3 q2 t C dup")
			o.resume()
			o.want("every time", "PUBLISH 1 q1 t A dup, PUBLISH 2 q2 t B dup, PUBLISH 3 q2 t C dup")
			o.puback(1)
			o.pubrec(2, 3)
			o.pubcomp(2, 3)
		}},
		{"Q2O-08 after PUBREC only the PUBREL is sent again [MQTT-4.3.3-1]", func(o *outlet) {
			o.send(2, "A")
			o.pubrec(1)
			o.resume()
			o.want("no PUBLISH", "PUBREL 1")
			o.pubcomp(1)
			o.resume()
			o.want("nothing is owed", "nothing")
		}},
		{"Q2O-09 a mix: owed PUBRELs first in PUBREC order, then the PUBLISHes, nothing that is complete", func(o *outlet) {
			o.send(2, "A", "B", "C", "D", "E")
			o.send(1, "F", "G")
			o.pubrec(4, 2, 5)
			o.pubcomp(5)
			o.puback(7)
			o.resume()
			o.want("exactly what is owed", "PUBREL 4, PUBREL 2, PUBLISH 1 q2 t A dup, PUBLISH 3 q2 t C dup, PUBLISH 6 q1 t F dup")
			o.pubcomp(4, 2)
			o.pubrec(1, 3)
			o.pubcomp(1, 3)
			o.puback(6)
		}},
		{"Q2O-10 new identifiers never meet owed PUBRELs", func(o *outlet) {
			o.s.last = 65_533
			o.send(2, "A", "B", "C") // 65,534, 65,535, 1
			o.pubrec(65_534, 65_535, 1)
			o.resume()
			o.want("owed", answers("PUBREL", 65_534, 65_535, 1))
			o.s.last = 65_533
			o.send(1, "D")
			o.want("around all of them", "PUBLISH 2 q1 t D")
			o.pubcomp(65_534, 65_535, 1)
			o.puback(2)
		}},
		{"Q2O-20 what was acknowledged is not sent again", func(o *outlet) {
			o.send(1, "A", "B")
			o.puback(1)
			o.resume()
			o.want("B only", "PUBLISH 2 q1 t B dup")
			o.puback(2)
		}},
		{"an identifier that was used before keeps the place of its last message", func(o *outlet) {
			o.send(1, "old1", "B") // 1, 2
			o.puback(1)
			o.s.last = 0
			o.send(1, "new1") // 1 again
			o.resume()
			o.want("B is older", "PUBLISH 2 q1 t B dup, PUBLISH 1 q1 t new1 dup")
			o.puback(1, 2)
		}},
		{"an identifier that was released before keeps the place of its last PUBREC", func(o *outlet) {
			o.send(2, "A", "B")
			o.pubrec(1, 2)
			o.pubcomp(1)
			o.s.last = 0
			o.send(2, "C") // 1 again
			o.pubrec(1)
			o.resume()
			o.want("2 was first", answers("PUBREL", 2, 1))
			o.pubcomp(1, 2)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOutlet(t, 65_535)
			tc.run(o)
			if n := o.s.InFlight(); n != 0 {
				t.Errorf("%d are still in flight at the end", n)
			}
		})
	}
}

// Q2O-18: an answer of the wrong type is an error, and changes nothing.
func TestSenderUnexpectedAck(t *testing.T) {
	for _, tc := range []struct {
		name string
		qos  byte
		rec  bool // PUBREC before
		ack  func(s *Sender) error
		then string // what a resume owes
	}{
		{"PUBACK for QoS 2", 2, false, func(s *Sender) error { return s.Puback(1) }, "PUBLISH 1 q2 t A dup"},
		{"PUBACK for QoS 2 after PUBREC", 2, true, func(s *Sender) error { return s.Puback(1) }, "PUBREL 1"},
		{"PUBREC for QoS 1", 1, false, func(s *Sender) error { _, err := s.Pubrec(nil, 1); return err }, "PUBLISH 1 q1 t A dup"},
		{"PUBCOMP before PUBREC", 2, false, func(s *Sender) error { return s.Pubcomp(1) }, "PUBLISH 1 q2 t A dup"},
		{"PUBCOMP for QoS 1", 1, false, func(s *Sender) error { return s.Pubcomp(1) }, "PUBLISH 1 q1 t A dup"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOutlet(t, 10)
			o.send(tc.qos, "A")
			if tc.rec {
				o.pubrec(1)
			}
			settled := len(o.settled)
			if err := tc.ack(o.s); !errors.Is(err, ErrUnexpectedAck) {
				t.Errorf("error %v, want ErrUnexpectedAck", err)
			}
			if len(o.settled) != settled {
				t.Error("the message was settled")
			}
			o.resume()
			o.want("nothing is lost", tc.then)
		})
	}
}

func TestSenderWindow(t *testing.T) {
	for _, tc := range []struct{ asked, got int }{{-1, 1}, {0, 1}, {1, 1}, {10, 10}, {65_535, 65_535}, {70_000, 65_535}} {
		t.Run(fmt.Sprint(tc.asked), func(t *testing.T) {
			o := newOutlet(t, tc.asked)
			n := 0
			for ; !o.s.Full() && n <= 65_536; n++ {
				o.send(1, "x")
				o.out = o.out[:0]
			}
			if n != tc.got || o.s.InFlight() != n {
				t.Fatalf("%d messages fit, %d in flight, want %d", n, o.s.InFlight(), tc.got)
			}
			o.puback(1)
			if o.s.Full() {
				t.Error("a PUBACK frees no room")
			}
		})
	}
}

// A session that never resumes must not keep a record of all that it ever sent.
func TestSenderForgetsWhatIsComplete(t *testing.T) {
	o := newOutlet(t, 100)
	for i := range 50_000 {
		if o.s.Full() {
			t.Fatal("full")
		}
		o.send(byte(1+i%2), "x")
		if i >= 20 {
			if id := uint16((i-20)%65_535 + 1); i%2 == 0 {
				o.puback(id)
			} else {
				o.pubrec(id)
				o.pubcomp(id)
			}
		}
		o.out = o.out[:0]
		if len(o.s.order) > 200 || len(o.s.rels) > 200 {
			t.Fatalf("after %d messages: %d in order, %d PUBRELs for %d in flight", i, len(o.s.order), len(o.s.rels), o.s.InFlight())
		}
	}
}
