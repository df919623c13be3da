package check

import (
	"strconv"
	"testing"

	"inflight/runner/history"
)

const (
	connackT = history.CONNACK
	publishT = history.PUBLISH
	pubackT  = history.PUBACK
	pubrecT  = history.PUBREC
	pubrelT  = history.PUBREL
	pubcompT = history.PUBCOMP
)

// violations are histories that break each rule, made from those of testdata/histories.
var violations = map[string][]violation{
	"H-01": {
		{"it never answers", stuck("p: no CONNACK within 10s"), "no CONNACK"},
		{"it refuses", edit("p", connackT, 0, "", func([]byte) []byte { return []byte{0x20, 3, 0, 0x88, 0} }), "the first packet is CONNACK code 0x88"},
	},
	"H-02": {{"a clean session is present", present(3, 1), "Session Present of connection 3"}},
	"H-03": {{"a kept one is not", present(2, 0), "Session Present of connection 2"}, {"a new one is", present(1, 1), "Session Present of connection 1"}},
	"H-04": {
		{"it goes on", stayOpen("p"), "did not close"},
		{"it answers", insert("p", 1, 0x40, 2, 0, 1), "PUBACK"},
		{"it delivers", deliver("w", "t", "A"), `"A"`},
	},
	"H-05": {{"it goes on", stayOpen("p"), "did not close"}, {"it accepts again", twice("p", connackT, 0, ""), "second CONNECT was accepted"}},
	"H-06": {{"a message is lost", drop("w", publishT, 0, "m2"), "did not get m2"}, {"no PUBACK", stuck("p: no PUBACK(1)"), "PUBACK"}},
	"H-07": {{"it processes", insert("p", 1, 0x50, 2, 0, 1), "PUBREC"}, {"it delivers", deliver("w", "t", "A"), `"A"`}},
	"H-08": {
		{"it says nothing", drop("p", connackT, 0, ""), "no CONNACK"},
		{"it says something else", edit("p", connackT, 0, "", func([]byte) []byte { return []byte{0x20, 2, 0, 2} }), "return code is 2"},
	},
	"H-09": {{"no identifier is assigned", edit("p", connackT, 0, "", func([]byte) []byte { return []byte{0x20, 3, 0, 0, 0} }), "no Assigned Client Identifier"}},
	"H-11": {{"it is accepted", insert("p", 1, 0x20, 3, 0, 0, 0), "accepted"}, {"it goes on", stayOpen("p"), "did not close"}},
	"H-12": {{"it is accepted", insert("p", 1, 0x20, 3, 0, 0, 0), "accepted"}},
	"H-13": {{"it is accepted", insert("p", 1, 0x20, 3, 0, 0, 0), "accepted"}},

	"A1-01": {
		{"no PUBACK", drop("p", pubackT, 1, ""), "no PUBACK"},
		{"two", twice("p", pubackT, 1, ""), "one more"},
		{"an error", reason("p", pubackT, 1, 0x97), "0x97"},
		{"not delivered", drop("w", publishT, 0, "A"), "did not get A"},
	},
	"A1-02": {{"one is missing", drop("p20", pubackT, 7, ""), "no PUBACK for the identifiers 7"}, {"one is there twice", twice("p20", pubackT, 7, ""), "one more"}},
	"A1-03": {{"two are exchanged", swap("p20", pubackT), "before PUBACK(1)"}},
	"A1-04": {{"taken for a copy", drop("w", publishT, 0, "B"), "did not get B"}},
	"A1-05": {{"not delivered", dropAll("w", publishT, "A"), "did not get A"}},
	"A1-06": {{"one is lost", drop("w", publishT, 0, "m1500"), "did not get m1500"}, {"two are exchanged", swap("w", publishT), "order"}, {"one not acknowledged", drop("p", pubackT, 900, ""), "no PUBACK"}},
	"A1-07": {{"DUP goes on", edit("w", publishT, 0, "A", xor(0, 8)), "DUP"}},
	"A1-10": {{"the old topic", func(h *history.History) bool {
		return find(h, "w", publishT, func(i int, p *history.Packet) bool {
			if BodyOf(p) != Body(40) {
				return false
			}
			b := h.Events[i].Raw
			b[idAt(b)-1] = 't'
			return true
		})
	}, "message 40"}},

	"Q2I-01": {
		{"no PUBREC", drop("p", pubrecT, 1, ""), "no PUBREC"},
		{"no PUBCOMP", drop("p", pubcompT, 1, ""), "no PUBCOMP"},
		{"twice delivered", twice("w", publishT, 0, "A"), "2 times"},
		{"lost", drop("w", publishT, 0, "A"), "did not get A"},
		{"refused", reason("p", pubrecT, 1, 0x80), "0x80"},
	},
	"Q2I-02": {{"one is missing", drop("p20", pubrecT, 3, ""), "no PUBREC"}, {"two are exchanged", swap("p20", pubrecT), "before PUBREC(1)"}},
	"Q2I-03": {{"one is missing", drop("p20", pubcompT, 3, ""), "no PUBCOMP"}, {"two are exchanged", swap("p20", pubcompT), "before PUBCOMP(1)"}},
	"Q2I-04": {{"one comes early", func(h *history.History) bool {
		at := -1
		findKind(h, history.Sent, "p", pubrelT, func(i int, p *history.Packet) bool { at = i; return p.ID == 2 })
		return at >= 0 && find(h, "w", publishT, func(i int, p *history.Packet) bool {
			if BodyOf(p) != Body(2) {
				return false
			}
			e := h.Events[i]
			copy(h.Events[at+1:i+1], h.Events[at:i])
			h.Events[at] = e
			return true
		})
	}, "method B"}},
	"Q2I-05": {{"lost", drop("w20", publishT, 0, "m4"), "did not get m4"}, {"twice", twice("w20", publishT, 0, "m4"), "2 times"}, {"exchanged", swap("w20", publishT), "order"}},
	"Q2I-06": {{"twice", twice("w", publishT, 0, "A"), "2 times"}, {"refused", reason("p", pubrecT, 7, 0x91), "0x91"}, {"no second PUBREC", drop("p", pubrecT, 7, ""), "no PUBREC"}},
	"Q2I-07": {{"twice", twice("w", publishT, 0, "m7"), "2 times"}, {"one PUBREC less", drop("p", pubrecT, 8, ""), "no PUBREC"}},
	"Q2I-08": {{"twice", twice("w", publishT, 0, "m8"), "2 times"}},
	"Q2I-09": {{"two of them", deliver("w", "t", "B"), "2 of the copies"}, {"none", drop("w", publishT, 0, ""), "0 of the copies"}},
	"Q2I-10": {{"no PUBREC for the copy", drop("p", pubrecT, 3, ""), "no PUBREC"}, {"twice", twice("w", publishT, 0, "m3"), "2 times"}},
	"Q2I-11": {{"two PUBCOMPs", drop("p", pubcompT, 3, ""), "no PUBCOMP"}, {"twice", twice("w", publishT, 0, "A"), "2 times"}},
	"Q2I-12": {{"ignored", stuck("p: no PUBCOMP(4242)"), "4242"}},
	"Q2I-13": {{"one is lost", drop("w", publishT, 0, "m33"), "did not get m33"}},
	"Q2I-14": {{"one is lost", drop("w", publishT, 0, "m333"), "did not get m333"}, {"one comes twice", twice("w", publishT, 0, "m333"), "2 times"}},
	"Q2I-15": {{"acknowledged and lost", drop("w", publishT, 0, "B"), "not delivered"}, {"twice", twice("w", publishT, 0, "A"), "2 times"}},
	"Q2I-16": {{"twice", twice("w", publishT, 0, "A"), "2 times"}, {"lost", drop("w", publishT, 0, "A"), "0 times"}},
	"Q2I-17": {{"one is lost", drop("w", publishT, 0, "m333"), "did not get m333"}, {"exchanged", swap("p", pubrecT), "before PUBREC"}},
	"Q2I-18": {
		{"acknowledged and lost", drop("w20", publishT, 0, "m17"), "not delivered"},
		{"twice", twice("w20", publishT, 0, "m17"), "twice"},
		{"never answered", drop("p20", pubrecT, 20, ""), "no PUBREC"},
	},
	"Q2I-19": {{"accepted", func(h *history.History) bool {
		return drop("p", history.DISCONNECT, 0, "")(h) && stayOpen("p")(h) && func() bool { h.Stuck = ""; return true }()
	}, "were accepted"}, {"delivered", deliver("w", "t", "m65"), `"m65"`}},
	"Q2I-20": {{"no PINGRESP", stuck("p: no PINGRESP"), "PINGRESP"}, {"one is lost", drop("w", publishT, 0, "m9"), "did not get m9"}},
	"Q2I-21": {{"one PUBREC more", twice("p", pubrecT, 5, ""), "one more"}, {"lost", drop("w", publishT, 0, "m9"), "did not get m9"}},
	"Q2I-22": {{"exchanged", swap("p", pubcompT), "before PUBCOMP"}, {"lost", drop("w", publishT, 0, "m500"), "did not get m500"}},
	"Q2I-23": {{"PUBACKs exchanged", swap("p", pubackT), "before PUBACK"}, {"PUBRECs exchanged", swap("p", pubrecT), "before PUBREC"}},
	"Q2I-24": {{"no PUBCOMP", stuck("p: no PUBCOMP(1)"), "PUBCOMP"}, {"lost", drop("w", publishT, 0, "m2"), "did not get m2"}},
	"Q2I-25": {{"harmed", drop("w", publishT, 0, "A"), "did not get A"}},
	"Q2I-26": {{"one table for both", stuck("p: no PUBREL(1)"), "PUBREL"}, {"the release fails", reason("p", pubrelT, 1, 0x92), "0x92"}, {"lost", drop("w", publishT, 0, "A"), "did not get A"}},
	"Q2I-27": {{"never completes", stuck("p: no PUBCOMP(1)"), "PUBCOMP"}},
	"Q2I-29": {{"cut", edit("w", publishT, 0, "", func(b []byte) []byte { return append(b, 'x') }), "is not message"}},

	"RES-01": {{"forgotten", present(2, 0), "Session Present of connection 2"}, {"twice", twice("w0", publishT, 0, "A"), "2 times"}, {"lost", drop("w2", publishT, 0, "A"), "did not get A"}},
	"RES-02": {{"twice", twice("w", publishT, 0, "A"), "2 times"}},
	"RES-03": {
		{"lost", drop("w", publishT, 0, "A"), "did not get A"},
		{"not retained", drop("x", publishT, 0, "A"), "RETAIN"},
		{"retained without the flag", edit("x", publishT, 0, "A", xor(0, 1)), "RETAIN false"},
	},
	"RES-04": {{"twice at QoS 0", twice("w0", publishT, 0, "A"), "2 times"}, {"a copy without DUP at QoS 1", twice("w1", publishT, 0, "A"), "without DUP"}},
	"RES-05": {{"taken for a copy", drop("w", publishT, 0, "A"), "did not get A"}},
	"RES-06": {{"lost", drop("w2", publishT, 0, "A"), "did not get A"}, {"twice", twice("w2", publishT, 0, "A"), "2 times"}},
	"RES-07": {{"the old one is released", deliver("w", "t", "OLD"), `"OLD"`}},
	"RES-08": {{"the old one in place of the new", drop("w", publishT, 0, "NEW1"), "did not get NEW1"}, {"the old one too", deliver("w", "t", "OLD0"), `"OLD0"`}},
	"RES-09": {{"released", deliver("w", "t", "m3"), `"m3"`}},
	"RES-10": {{"released", deliver("w", "t", "OLD"), `"OLD"`}},
	"RES-11": {{"again by a timer", twiceAsIs("w", publishT, "A"), "sent again"}},
	"RES-12": {{"a PUBREC by a timer", insert("p", 1, 0x50, 2, 0, 3), "unasked"}, {"after the resumption", insert("p", 2, 0x50, 2, 0, 3), "unasked"}},
	"RES-14": {{"twice", twice("w0", publishT, 0, "m7"), "2 times"}, {"lost", drop("w2", publishT, 0, "m7"), "did not get m7"}},
	"RES-15": {{"never accepted", stuck("p: no CONNACK within 10s"), "CONNACK"}},
	"RES-16": {{"wedged", stuck("p: no PINGRESP within 10s"), "PINGRESP"}},
}

// handmade are rules whose row needs what the recorded broker has not, or waits too long to be recorded quickly.
var handmade = map[string][2]func() *history.History{
	"H-10": {
		func() *history.History { return shake([]byte{0x20, 3, 0, 0x9B, 0}) },
		func() *history.History { return shake([]byte{0x20, 3, 0, 0, 0}) },
	},
	"BAD-12":  {func() *history.History { return grown(10 << 20) }, func() *history.History { return grown(5 << 30) }},
	"MISC-09": {func() *history.History { return grown(10 << 20) }, func() *history.History { return grown(5 << 30) }},
}

// grown is a history in which the broker's memory grew.
func grown(n int) *history.History {
	h := shake([]byte{0x20, 3, 0, 0, 0})
	h.Facts["before"], h.Facts["after"] = "1000", strconv.Itoa(1000+n)
	return h
}

// shake is a CONNECT and what answers it.
func shake(answer []byte) *history.History {
	return &history.History{
		Version: history.Level5, Facts: map[string]string{}, Conns: []history.Conn{{Name: "p", Nth: 1, Client: "p", Version: history.Level5}},
		Events: []history.Event{
			{Kind: history.Sent, Raw: []byte{0x10, 14, 0, 4, 'M', 'Q', 'T', 'T', 5, 2, 0, 0, 0, 0, 1, 'p'}},
			{Kind: history.Received, Raw: answer},
		},
	}
}

func TestHandmade(t *testing.T) {
	for id, h := range handmade {
		if v := Judge(ByID(id), h[0]()); v.Outcome != OK {
			t.Errorf("%s: %s %v, want it ok", id, v.Outcome, v.Findings)
		}
		if v := Judge(ByID(id), h[1]()); v.Outcome != Violated {
			t.Errorf("%s: %s, want it violated", id, v.Outcome)
		}
	}
}
