package session

import (
	"errors"
	"strings"
	"testing"
	"time"

	"inflight/broker/store"
)

// found restores a sender and gives it every body that it asks for, except the lost ones.
func (o *outlet) found(lost ...uint16) {
	o.t.Helper()
	s, missing, err := Restore(10, o.s.Record(nil))
	if err != nil {
		o.t.Fatal(err)
	}
	for _, m := range missing {
		gone := m.Seq == 0
		for _, id := range lost {
			gone = gone || id == m.ID
		}
		if gone {
			s.Lost(m.ID)
		} else {
			s.Found(m.ID, &store.Message{Topic: "t", Payload: []byte("again")})
		}
	}
	o.s, o.src = s, s.Source("t")
}

func TestRecord(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(o *outlet)
	}{
		{"Q2O-10 identifiers go on where they were, around those in use", func(o *outlet) {
			o.s.last = 65_533
			o.send(2, "A", "B", "C", "D")
			o.pubrec(65_534, 65_535)
			o.puback()
			o.found()
			o.resume()
			o.want("owed", "PUBREL 65534, PUBREL 65535, PUBLISH 1 q2 t again dup, PUBLISH 2 q2 t again dup")
			o.s.last = 65_532
			o.send(1, "E", "F")
			o.want("new ones pass those in use", "PUBLISH 65533 q1 t E, PUBLISH 3 q1 t F")
		}},
		{"a body that is nowhere: QoS 2 is completed, QoS 1 is over", func(o *outlet) {
			o.send(2, "A")
			o.send(1, "B", "C")
			o.found(1, 2)
			o.resume()
			o.want("owed", "PUBREL 1, PUBLISH 3 q1 t again dup")
		}},
		{"Q2O-17 a message of a subscription that is gone, and a retained one, are in the record", func(o *outlet) {
			o.send(2, "A")
			o.s.Drop(o.src)
			d := o.delivery(1, 0, "R")
			d.Retain = true
			o.out = o.s.Send(o.out, o.s.Source("t"), d)
			o.found()
			o.resume()
			o.want("as they were", "PUBLISH 1 q2 t A dup, PUBLISH 2 q1 t R dup retain")
		}},
		{"too large for the record", func(o *outlet) {
			big := strings.Repeat("x", maxInline-10)
			for _, payload := range []string{big, "0123456789", "y"} {
				o.out = o.s.Send(o.out, nil, o.delivery(1, 0, payload))
			}
			if n := len(o.s.Record(nil)); n > maxInline+100 {
				o.t.Fatalf("record of %d bytes", n)
			}
			o.found()
			o.resume()
			o.want("what there was room for", "PUBLISH 1 q1 t "+big+" dup, PUBLISH 3 q1 t y dup")
		}},
		{"acknowledged before the store delivers it again", func(o *outlet) {
			o.send(1, "A")
			o.send(2, "B")
			o.found()
			o.puback(1)
			o.pubrec(2)
			if !o.src.Before(o.delivery(1, 1, "A")) || !o.src.Before(o.delivery(2, 2, "B")) {
				o.t.Fatal("taken for a new message")
			}
			o.wantSettled("when it comes", "A, B")
		}},
		{"what must be durable first", func(o *outlet) {
			for _, step := range []struct {
				name    string
				do      func()
				durable bool
			}{
				{"QoS 0", func() { o.send(0, "A") }, false},
				{"QoS 1", func() { o.send(1, "A") }, true},
				{"QoS 2", func() { o.send(2, "A") }, true},
				{"PUBACK", func() { o.puback(1) }, false},
				{"PUBREC", func() { o.pubrec(2) }, true},
				{"PUBREC again", func() { o.pubrec(2) }, false},
				{"PUBCOMP", func() { o.pubcomp(2) }, false},
			} {
				before := o.s.Version()
				step.do()
				if changed := o.s.Version() != before; changed != step.durable {
					o.t.Fatalf("%s: changed %v, want %v", step.name, changed, step.durable)
				}
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(newOutlet(t, 10)) })
	}
}

func FuzzRestore(f *testing.F) {
	o := newOutlet(f, 10)
	o.send(2, "A", "B")
	o.send(1, "C")
	o.pubrec(1)
	f.Add(o.s.Record(nil))
	o.s.Drop(o.src)
	f.Add(o.s.Record(nil))
	f.Add([]byte{1})
	f.Add([]byte{2, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, missing, err := Restore(10, b)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
			return
		}
		if len(b) > 0 && s.InFlight() > len(b) {
			t.Fatalf("%d outstanding from %d bytes", s.InFlight(), len(b))
		}
		for i, m := range missing {
			if i%2 == 0 {
				s.Found(m.ID, &store.Message{Topic: "t"})
			} else {
				s.Lost(m.ID)
			}
		}
		s.Resend(nil, time.Time{})
		again, _, err := Restore(10, s.Record(nil))
		if err != nil {
			t.Fatalf("the record of what was restored: %v", err)
		}
		if again.InFlight() != s.InFlight() {
			t.Fatalf("%d outstanding, then %d", s.InFlight(), again.InFlight())
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	b.ReportAllocs()
	s := NewSender(1024)
	src := s.Source("a/#")
	d := store.Delivery{Message: &store.Message{Topic: "a/b", QoS: 2}, QoS: 2, Settle: func() {}}
	var buf []byte
	for i := range 1024 {
		d.Seq = uint64(1_000_000 + i)
		buf = s.Send(buf[:0], src, d)
	}
	for b.Loop() {
		buf = s.Record(buf[:0])
	}
}
