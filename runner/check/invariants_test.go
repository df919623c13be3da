package check

import (
	"testing"

	"inflight/runner/history"
)

// wire is a history that is written down packet by packet.
type wire struct {
	h history.History
}

func newWire(level byte) *wire {
	return &wire{history.History{Version: level, Facts: map[string]string{}}}
}

// open begins a connection of client p; receive is its Receive Maximum, present the broker's answer.
func (w *wire) open(clean bool, receive int, present byte) *wire {
	nth := len(w.h.Conns) + 1
	w.h.Conns = append(w.h.Conns, history.Conn{Name: "p", Nth: nth, Client: "p", Version: w.h.Version})
	flags := byte(0)
	if clean {
		flags = 2
	}
	connect := []byte{0, 4, 'M', 'Q', 'T', 'T', w.h.Version, flags, 0, 0}
	answer := []byte{0x20, 2, present, 0}
	if w.h.Version == history.Level5 {
		if receive > 0 {
			connect = append(connect, 3, 33, 0, byte(receive))
		} else {
			connect = append(connect, 0)
		}
		answer = []byte{0x20, 3, present, 0, 0}
	}
	connect = append(connect, 0, 1, 'p')
	return w.put(append([]byte{0x10, byte(len(connect))}, connect...)...).got(answer...)
}

func (w *wire) event(kind history.Kind, b []byte) *wire {
	w.h.Events = append(w.h.Events, history.Event{Conn: len(w.h.Conns) - 1, Kind: kind, Raw: b})
	return w
}

func (w *wire) put(b ...byte) *wire { return w.event(history.Sent, b) }
func (w *wire) got(b ...byte) *wire { return w.event(history.Received, b) }

// publish is a delivery.
func (w *wire) publish(head, id byte) *wire {
	if w.h.Version == history.Level5 {
		return w.got(head, 6, 0, 1, 't', 0, id, 0)
	}
	return w.got(head, 5, 0, 1, 't', 0, id)
}

// TestInvariants breaks each invariant, and comes as near to it as is legal.
func TestInvariants(t *testing.T) {
	for _, test := range []struct {
		why  string
		h    *wire
		want string // the invariant that is broken, "" for none
	}{
		{"a malformed packet", newWire(4).open(true, 0, 0).put(0xC0, 0).got(0xD1, 0), "INV-DECODE"},
		{"no CONNACK first", func() *wire {
			w := newWire(4).open(true, 0, 0)
			w.h.Events[1].Raw = []byte{0x30, 3, 0, 1, 0x74}
			return w
		}(), "INV-FIRST"},
		{"a second CONNACK", newWire(4).open(true, 0, 0).got(0x20, 2, 0, 0), "INV-FIRST"},
		{"an AUTH before the CONNACK", func() *wire { w := newWire(5).open(true, 0, 0); w.h.Events[1].Raw = []byte{0xF0, 0}; return w }(), ""},
		{"a PUBACK that nothing asked for", newWire(4).open(true, 0, 0).got(0x40, 2, 0, 1), "INV-ACK"},
		{"a PUBACK too many", newWire(4).open(true, 0, 0).put(0x32, 5, 0, 1, 't', 0, 1).got(0x40, 2, 0, 1).got(0x40, 2, 0, 1), "INV-ACK"},
		{"a PUBACK for each", newWire(4).open(true, 0, 0).put(0x32, 5, 0, 1, 't', 0, 1, 0x32, 5, 0, 1, 't', 0, 2).got(0x40, 2, 0, 1).got(0x40, 2, 0, 2), ""},
		{"a PINGRESP too many", newWire(4).open(true, 0, 0).put(0xC0, 0).got(0xD0, 0).got(0xD0, 0), "INV-ACK"},
		{"a late PUBREC after a resumption", newWire(4).open(false, 0, 0).put(0x34, 5, 0, 1, 't', 0, 1).open(false, 0, 1).got(0x50, 2, 0, 1), ""},
		{"a late PUBREC in a clean session", newWire(4).open(false, 0, 0).put(0x34, 5, 0, 1, 't', 0, 1).open(true, 0, 0).got(0x50, 2, 0, 1), "INV-ACK"},
		{"SUBACK, UNSUBACK, PUBCOMP asked for", newWire(4).open(true, 0, 0).put(0x82, 6, 0, 1, 0, 1, 't', 0).put(0xA2, 5, 0, 2, 0, 1, 't').put(0x62, 2, 0, 3).
			got(0x90, 3, 0, 1, 0).got(0xB0, 2, 0, 2).got(0x70, 2, 0, 3), ""},

		{"an identifier in use", newWire(4).open(true, 0, 0).publish(0x32, 1).publish(0x32, 1), "INV-ID"},
		{"free after the PUBACK", newWire(4).open(true, 0, 0).publish(0x32, 1).put(0x40, 2, 0, 1).publish(0x32, 1), ""},
		{"not free after the PUBREC", newWire(4).open(true, 0, 0).publish(0x34, 1).put(0x50, 2, 0, 1).publish(0x34, 1), "INV-ID"},
		{"free after a PUBREC that refuses", newWire(5).open(true, 0, 0).publish(0x34, 1).put(0x50, 3, 0, 1, 0x80).publish(0x34, 1), ""},
		{"free after the PUBCOMP", newWire(4).open(true, 0, 0).publish(0x34, 1).put(0x50, 2, 0, 1).got(0x62, 2, 0, 1).put(0x70, 2, 0, 1).publish(0x34, 1), ""},
		{"again on the same connection in 5.0", newWire(5).open(true, 0, 0).publish(0x32, 1).publish(0x3A, 1), "INV-ID"},
		{"again on the same connection in 3.1.1, with DUP", newWire(4).open(true, 0, 0).publish(0x32, 1).publish(0x3A, 1), ""},
		{"again on the next, with DUP", newWire(4).open(false, 0, 0).publish(0x32, 1).open(false, 0, 1).publish(0x3A, 1), ""},
		{"again on the next, without", newWire(4).open(false, 0, 0).publish(0x32, 1).open(false, 0, 1).publish(0x32, 1), "INV-ID"},
		{"a new session begins with free ones", newWire(4).open(false, 0, 0).publish(0x32, 1).open(true, 0, 0).publish(0x32, 1), ""},
		{"DUP on what was never sent", newWire(4).open(true, 0, 0).publish(0x3A, 1), "INV-ID"},

		{"within Receive Maximum", newWire(5).open(true, 2, 0).publish(0x32, 1).publish(0x32, 2).put(0x40, 2, 0, 1).publish(0x32, 3), ""},
		{"beyond it", newWire(5).open(true, 2, 0).publish(0x32, 1).publish(0x32, 2).publish(0x32, 3), "INV-WINDOW"},
		{"a PUBREC frees no place", newWire(5).open(true, 1, 0).publish(0x34, 1).put(0x50, 2, 0, 1).publish(0x34, 2), "INV-WINDOW"},
		{"an owed PUBREL fills one", newWire(5).open(false, 1, 0).publish(0x34, 1).put(0x50, 2, 0, 1).open(false, 1, 1).got(0x62, 2, 0, 1).publish(0x34, 2), "INV-WINDOW"},
		{"3.1.1 has no Receive Maximum", newWire(4).open(true, 0, 0).publish(0x32, 1).publish(0x32, 2), ""},

		{"something after the DISCONNECT", newWire(5).open(true, 0, 0).put(0xC0, 0).got(0xE0, 1, 0x8E).got(0xD0, 0), "INV-END"},
		{"the DISCONNECT alone", newWire(5).open(true, 0, 0).got(0xE0, 1, 0x8E), ""},
		{"noise", newWire(4).open(true, 0, 0).event(history.Garbage, []byte{0x30, 255, 255, 255, 255}), "INV-END"},
	} {
		var got []string
		for r, v := range Invariants(&test.h.h) {
			got = append(got, r.ID)
			if len(v.Findings[0].Events) == 0 {
				t.Errorf("%s: %s shows no event", test.why, r.ID)
			}
		}
		if len(got) != min(1, len(test.want)) || test.want != "" && got[0] != test.want {
			t.Errorf("%s: broken are %v, want %q", test.why, got, test.want)
		}
	}
}

// What the detection sees in the histories that it leaves.
func TestDetected(t *testing.T) {
	h := recorded(t, "detection")
	c := Detected(h)
	if c.MaxQoS != 2 || c.Receive != 64 || !c.Retain || !c.Wildcards || !c.Delivers || c.Method != "A" || !c.InOrder {
		t.Errorf("detected %+v", c)
	}
	for _, test := range []struct {
		why    string
		change mutation
		holds  func(c Caps) bool
	}{
		{"no PUBREC", drop("p", history.PUBREC, 30_002, ""), func(c Caps) bool { return c.MaxQoS == 1 }},
		{"no PUBACK", drop("p", history.PUBACK, 30_001, ""), func(c Caps) bool { return c.MaxQoS == 0 }},
		{"a subscription at QoS 1", edit("w", history.SUBACK, 0, "", func(b []byte) []byte { b[len(b)-1] = 1; return b }), func(c Caps) bool { return c.MaxQoS == 1 }},
		{"nothing is delivered", dropAll("w", history.PUBLISH, ""), func(c Caps) bool { return !c.Delivers && c.Method == "" }},
		{"nothing is retained", dropAll("q", history.PUBLISH, ""), func(c Caps) bool { return !c.Retain }},
		{"no wildcards", dropAll("f0", history.PUBLISH, ""), func(c Caps) bool { return !c.Wildcards }},
		{"out of order", swap("p", history.PUBREC), func(c Caps) bool { return !c.InOrder }},
	} {
		h := recorded(t, "detection")
		if !test.change(h) {
			t.Errorf("%s: no place for it", test.why)
		}
		if c := Detected(h); !test.holds(c) {
			t.Errorf("%s: detected %+v", test.why, c)
		}
	}
}

// What a broker sends again at a resumption is an observation, until it answers more than was ever asked on one connection.
func TestAckAfterResumption(t *testing.T) {
	publish := []byte{0x34, 5, 0, 1, 't', 0, 1}
	w := newWire(4).open(false, 0, 0).put(publish...).open(false, 0, 1).got(0x50, 2, 0, 1).put(publish...).got(0x50, 2, 0, 1)
	found := Invariants(&w.h)
	if v, ok := found[ByID("INV-ACK")]; !ok || v.Level != Info || len(found) != 1 {
		t.Errorf("sent again and answered: %v", found)
	}
	w = newWire(4).open(false, 0, 0).put(publish...).got(0x50, 2, 0, 1).got(0x50, 2, 0, 1)
	if v := Invariants(&w.h)[ByID("INV-ACK")]; v.Level != Must {
		t.Errorf("answered twice: %v", v)
	}
}

// What a script did too late says nothing, whatever was found.
func TestVoid(t *testing.T) {
	w := newWire(4).open(true, 0, 0)
	rule := &Rule{ID: "X-01", Level: Must, Judge: func(j *J) {
		j.Fail(nil, "found")
		j.Void("late by %d s", 3)
	}}
	if v := Judge(rule, &w.h); v.Outcome != Inconclusive || v.Why != "late by 3 s" || len(v.Findings) != 0 {
		t.Errorf("got %+v", v)
	}
	w.h.Stuck = "p: no PUBACK"
	if v := Judge(rule, &w.h); v.Outcome != Inconclusive || v.Timeout {
		t.Errorf("stuck: %+v", v)
	}
}
