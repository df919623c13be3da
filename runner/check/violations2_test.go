package check

import "inflight/runner/history"

// again repeats what a connection got first, at its end: as if it were sent again there.
func again(conn string, nth int, t history.Type, b string) mutation {
	return func(h *history.History) bool {
		var raw []byte
		find(h, conn, t, func(i int, p *history.Packet) bool {
			raw = h.Events[i].Raw
			return is(p, 0, b)
		})
		return raw != nil && insert(conn, nth, raw...)(h)
	}
}

// change changes the bytes of a packet of the nth connection.
func change(conn string, nth int, t history.Type, b string, f func([]byte) []byte) mutation {
	return func(h *history.History) bool {
		return find(h, conn, t, func(i int, p *history.Packet) bool {
			if h.Conns[h.Events[i].Conn].Nth != nth || !is(p, 0, b) {
				return false
			}
			h.Events[i].Raw = f(append([]byte(nil), h.Events[i].Raw...))
			return true
		})
	}
}

// newID gives a PUBLISH another identifier.
func newID(b []byte) []byte { b[idAt(b)], b[idAt(b)+1] = 0xEA, 0x60; return b }

// reuse gives a delivery the identifier of another one that is not finished.
func reuse(conn, b, of string) mutation {
	return func(h *history.History) bool {
		id := []byte{}
		find(h, conn, history.PUBLISH, func(i int, p *history.Packet) bool {
			id = []byte{byte(p.ID >> 8), byte(p.ID)}
			return BodyOf(p) == of
		})
		return find(h, conn, history.PUBLISH, func(i int, p *history.Packet) bool {
			if BodyOf(p) != b {
				return false
			}
			raw := append([]byte(nil), h.Events[i].Raw...)
			copy(raw[idAt(raw):], id)
			h.Events[i].Raw = raw
			return true
		})
	}
}

// swapResent exchanges two packets of the second connection.
func swapResent(h *history.History) bool {
	first := -1
	return find(h, "w", history.PUBLISH, func(i int, p *history.Packet) bool {
		switch {
		case h.Conns[h.Events[i].Conn].Nth != 2 || !p.Dup:
			return false
		case first < 0:
			first = i
			return false
		}
		h.Events[first].Raw, h.Events[i].Raw = h.Events[i].Raw, h.Events[first].Raw
		return true
	})
}

// later changes when the broker ended a connection.
func later(conn string, f func(h *history.History, i int)) mutation {
	return func(h *history.History) bool {
		for i, e := range h.Events {
			if e.Kind == history.Closed && h.Conns[e.Conn].Name == conn {
				f(h, i)
				return true
			}
		}
		return false
	}
}

// stayQuiet is stayOpen where nothing waits for the end.
func stayQuiet(conn string) mutation {
	return func(h *history.History) bool {
		ok := stayOpen(conn)(h)
		h.Stuck = ""
		return ok
	}
}

func init() {
	for id, v := range violationsOut {
		violations[id] = v
	}
}

// violationsOut are those of the groups about what a broker sends.
var violationsOut = map[string][]violation{
	"Q2O-01": {{"DUP at once", edit("w", publishT, 0, "m7", xor(0, 8)), "DUP"}, {"lost", drop("w", publishT, 0, "m7"), "did not get m7"}},
	"Q2O-02": {{"no PUBREL", drop("w", pubrelT, 1, ""), "no PUBREL"}},
	"Q2O-03": {{"exchanged, which 5.0 allows", swap("w", pubrelT), "before PUBREL"}},
	"Q2O-04": {{"the PUBLISH again", again("w", 1, publishT, "m1"), "2 times"}, {"no second PUBREL", stuck("w: no PUBREL"), "PUBREL"}},
	"Q2O-05": {{"used again", reuse("w", "x5", "m1"), "in use"}},
	"Q2O-06": {
		{"not sent again", func(h *history.History) bool {
			n := 0
			return find(h, "w", publishT, func(i int, p *history.Packet) bool {
				if BodyOf(p) != "m3" {
					return false
				}
				if n++; n < 2 {
					return false
				}
				h.Events = append(h.Events[:i:i], h.Events[i+1:]...)
				return true
			})
		}, `"m3" was not sent again`},
		{"without DUP", change("w", 2, publishT, "m3", xor(0, 8)), "without DUP"},
		{"under another identifier", change("w", 2, publishT, "m3", newID), "sent again as 60000"},
	},
	"Q2O-07": {{"exchanged, which 5.0 allows", swapResent, "after a later one"}},
	"Q2O-08": {{"the PUBLISH", again("w", 2, publishT, "m2"), "2 times"}, {"no PUBREL", stuck("w: no PUBREL within 40s"), "PUBREL"}},
	"Q2O-09": {{"one that was completed", again("w", 2, publishT, "m1"), "2 times"}, {"one is missing", drop("w", publishT, 0, "m10"), "did not get m10"}},
	"Q2O-10": {{"used again", reuse("w", "x5", "m3"), "in use"}},
	"Q2O-11": {{"released", insert("w", 1, 0x62, 2, 0, 1), "refused"}, {"sent again", again("w", 2, publishT, "m1"), "is sent again"}},
	"Q2O-12": {{"one too many", func(h *history.History) bool {
		at := -1
		findKind(h, history.Sent, "w1", pubcompT, func(i int, _ *history.Packet) bool { at = i; return true })
		return at > 0 && find(h, "w1", publishT, func(i int, p *history.Packet) bool {
			if BodyOf(p) != "m2" || i < at {
				return false
			}
			e := h.Events[i]
			copy(h.Events[at+1:i+1], h.Events[at:i])
			h.Events[at] = e
			return true
		})
	}, "Receive Maximum is 1"}},
	"Q2O-13": {{"one too many", func(h *history.History) bool {
		at := -1
		findKind(h, history.Sent, "w", pubcompT, func(i int, _ *history.Packet) bool { at = i; return true })
		return at > 0 && find(h, "w", publishT, func(i int, p *history.Packet) bool {
			if BodyOf(p) != "m5" || i < at {
				return false
			}
			e := h.Events[i]
			copy(h.Events[at+1:i+1], h.Events[at:i])
			h.Events[at] = e
			return true
		})
	}, "Receive Maximum is 4"}},
	"Q2O-14": {{"more than the window", twice("w", publishT, 0, "m1"), "Receive Maximum is 1"}, {"its own is lost", drop("x", publishT, 0, "own"), "did not get own"}},
	"Q2O-15": {{"used again", reuse("w", "m500", "held"), "in use"}, {"lost", drop("w", publishT, 0, "m500"), "did not get m500"}},
	"Q2O-16": {{"nothing comes", func(h *history.History) bool {
		for drop("w", publishT, 0, "")(h) {
		}
		return insert("w", 1, 0x30, 6, 0, 1, 't', 0, 'm', '1')(h)
	}, "nothing came"}},
	"Q2O-17": {{"not completed", stuck("w: no PUBREL"), "PUBREL"}, {"one more", deliver("w", "t", "m3"), `"m3"`}},
	"Q2O-18": {{"not usable any more", stuck("w: no CONNACK"), "CONNACK"}},
	"Q2O-19": {{"wedged", stuck("w: no PINGRESP"), "PINGRESP"}},
	"Q2O-20": {{"two again", func(h *history.History) bool {
		return again("w", 2, publishT, "m1")(h) && again("w", 2, publishT, "m2")(h)
	}, "2 messages"}},
	"Q2O-21": {{"too large", deliver("w", "t", "big"), `"big"`}, {"the others are lost", drop("w", publishT, 0, "m3"), "did not get m3"}},
	"Q2O-22": {{"forgotten", stuck("w: no PUBLISH"), "PUBLISH"}},
	"Q2O-23": {{"DUP goes on", edit("w", publishT, 0, "A", xor(0, 8)), "DUP"}},

	"ORD-01": {{"exchanged at QoS 0", swap("w0", publishT), "after message"}, {"exchanged at QoS 2", swap("w2", publishT), "after message"}},
	"ORD-02": {{"exchanged", func(h *history.History) bool {
		first := -1
		return find(h, "w", publishT, func(i int, p *history.Packet) bool {
			switch b := BodyOf(p); {
			case b == "a1":
				first = i
			case b == "a13" && first >= 0:
				h.Events[first].Raw, h.Events[i].Raw = h.Events[i].Raw, h.Events[first].Raw
				return true
			}
			return false
		})
	}, "after message"}},
	"ORD-03": {{"exchanged at QoS 1", swap("w1", publishT), "after message"}},
	"ORD-04": {{"lost", drop("w19", publishT, 0, "m5"), "did not get m5"}, {"exchanged", swap("w50", publishT), "order"}},
	"ORD-05": {{"lost", dropAll("w", publishT, "m50"), "did not get m50"}, {"an inversion", func(h *history.History) bool { return again("w", 1, publishT, "m2")(h) }, "is no copy"}},
	"ORD-06": {{"lost", dropAll("w", publishT, "m5"), "did not get m5"}},
	"ORD-07": {{"exchanged", swap("w", publishT), "order"}, {"twice", twice("w", publishT, 0, "m5"), "2 times"}},
	"ORD-08": {{"another order for one", swap("w3", publishT), "w3"}, {"one is missing", drop("w3", publishT, 0, "m9"), "w3"}},

	"E2E-01": {{"lost", drop("w", publishT, 0, "m9"), "did not get m9"}, {"twice", twice("w", publishT, 0, "m9"), "2 times"}},
	"E2E-02": {{"twice at QoS 0", twice("w0", publishT, 0, "m9"), "twice"}, {"a bare copy at QoS 1", twice("w1", publishT, 0, "m9"), "without DUP"}},
	"E2E-03": {{"lost", dropAll("w", publishT, "m9"), "did not get m9"}},
	"E2E-04": {{"lost", dropAll("w", publishT, "m9"), "did not get m9"}},
	"E2E-08": {{"the part is delivered", deliver("w", "t", "PART"), `"PART"`}, {"lost", drop("w", publishT, 0, "byte7"), "did not get byte7"}},

	"SUB-01": {{"raised", edit("w0", publishT, 0, "at2", func(b []byte) []byte {
		b[0] |= 2
		at := idAt(b)
		return append(b[:at:at], append([]byte{0, 9}, b[at:]...)...)
	}), ""}},
	"SUB-02": {{"two copies", func(h *history.History) bool {
		return twice("w", publishT, 0, "A")(h)
	}, "copies"}},
	"SUB-03": {{"one is missing", drop("hash", publishT, 0, "a"), "did not get a"}, {"one too many", deliver("only", "a", "a/b"), `"a/b"`}},
	"SUB-04": {{"not lowered", edit("w", publishT, 0, "m8", func(b []byte) []byte { b[0] = b[0]&^6 | 4; return b }), "at QoS 2"}, {"lost", drop("w", publishT, 0, "m8"), "did not get m8"}},
	"SUB-05": {{"live with RETAIN", edit("early", publishT, 0, "A", xor(0, 1)), "RETAIN true"}, {"kept without", edit("later", publishT, 0, "A", xor(0, 1)), "RETAIN false"}, {"two are kept", deliver("last", "t", "A"), `"A"`}},
	"SUB-06": {{"it stays", deliver("later", "t", "A"), `"A"`}},
	"SUB-07": {{"RETAIN is lost", edit("w", publishT, 0, "A", xor(0, 1)), "RETAIN false"}},
	"SUB-08": {{"given to another", deliver("x", "t", "m2"), `"m2"`}, {"not completed", stuck("w: no PUBREL"), "PUBREL"}},
	"SUB-09": {{"given to another", deliver("x", "t", "m1"), `"m1"`}},
	"SUB-10": {{"twice", deliver("w0", "t", "m7"), "twice to the group"}, {"lost", dropAll("w1", publishT, ""), "messages were delivered"}},
	"SUB-11": {{"its own", deliver("p", "t", "A"), `"A"`}},
	"SUB-12": {{"lost", drop("p", publishT, 0, "after"), "not delivered"}},
	"SUB-13": {{"it surfaces", deliver("w", "t", "nobody"), `"nobody"`}},

	"BAD-01": {{"delivered", deliver("w", "t", noise), noise}, {"not closed", stayOpen("b0"), "did not close"}},
	"BAD-02": {{"delivered", deliver("w", "t", noise), noise}, {"not closed", stayOpen("b0"), "did not close"}},
	"BAD-03": {{"not closed", stayQuiet("b0"), "stay open"}},
	"BAD-04": {{"not closed", stayOpen("b2"), "did not close"}, {"delivered", deliver("w", "t", noise), noise}},
	"BAD-05": {{"not closed", stayOpen("b2"), "did not close"}, {"delivered", deliver("w", "t", noise), noise}},
	"BAD-06": {{"not closed", stayQuiet("b2"), "stay open"}},
	"BAD-07": {{"not closed", stayOpen("b1"), "did not close"}, {"delivered", deliver("w", "t", noise), noise}},
	"BAD-08": {{"not closed", stayQuiet("b5"), "stay open"}},
	"BAD-09": {{"not closed", stayOpen("b5"), "did not close"}, {"delivered", deliver("w", "t", noise), noise}},
	"BAD-10": {{"not closed", stayOpen("b0"), "did not close"}, {"delivered", deliver("w", "t", noise), noise}},
	"BAD-11": {{"not closed", stayQuiet("b0"), "stay open"}},
	"BAD-13": {{"not closed", stayQuiet("b0"), "stay open"}},
	"BAD-14": {{"not closed", stayOpen("b1"), "did not close"}, {"delivered", deliver("w", "t", noise), noise}},
	"BAD-15": {{"delivered", deliver("w", "t", noise), noise}},
	"BAD-16": {{"not closed", stayOpen("b3"), "did not close"}, {"delivered", deliver("w", "t", noise), noise}},
	"BAD-17": {{"not closed", stayOpen("b1"), "did not close"}, {"delivered", deliver("w", "t", noise), noise}},
	"BAD-18": {{"not closed", stayOpen("b1"), "did not close"}, {"delivered", deliver("w", "t", noise), noise}},
	"BAD-19": {{"not closed", stayOpen("b4"), "did not close"}, {"delivered", deliver("w", "t", noise), noise}},
	"BAD-20": {{"what is behind it happens", deliver("w", "t", "LATER"), `"LATER"`}, {"lost", drop("w", publishT, 0, "m9"), "did not get m9"}},
	"BAD-21": {{"the broker is gone", stuck("w: no PINGRESP"), "PINGRESP"}, {"delivered", deliver("w", "t", noise), noise}},

	"MISC-01": {
		{"it never notices", func(h *history.History) bool { return stayOpen("k2")(h) && func() bool { h.Stuck = ""; return true }() }, "still open"},
		{"far too late", later("k2", func(h *history.History, i int) { h.Events[i].At += keepAliveNot }), "due after 3s"},
		{"too early", later("k2", func(h *history.History, i int) { h.Events[i].At -= 1e9 }), "not due before 3s"},
	},
	"MISC-02": {{"closed", stuck("w: the connection was closed (FIN)"), "closed"}},
	"MISC-03": {{"no answer", stuck("p: no PINGRESP"), "PINGRESP"}},
	"MISC-04": {{"both stay", stayOpen("q"), "did not close"}},
	"MISC-05": {{"no Will", drop("w", publishT, 0, "takeover"), "did not get takeover"}, {"twice", twice("w", publishT, 0, "cut"), "2 times"}, {"at another QoS", edit("w", publishT, 0, "cut", func(b []byte) []byte { b[0] = b[0]&^6 | 2; return b }), "want 2"}},
	"MISC-06": {{"the Will", deliver("w", "t", "WILL"), `"WILL"`}, {"lost", drop("w", publishT, 0, "m2"), "did not get m2"}},
	"MISC-07": {{"the Will", deliver("w", "t", "WILL"), `"WILL"`}},
	"MISC-08": {{"released", deliver("w", "t", "OLD"), `"OLD"`}, {"present", present(2, 1), "Session Present"}},
	"MISC-10": {{"lost", drop("w", publishT, 0, "m900"), "did not get m900"}},
	"MISC-11": {{"lost", drop("p", pubrecT, 900, ""), "no PUBREC"}},
	"MISC-12": {{"one is forgotten", change("p7", 2, connackT, "", func(b []byte) []byte { b[2] = 0; return b }), "Session Present"}},
}
