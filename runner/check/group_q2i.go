package check

import (
	"fmt"

	"inflight/runner/history"
)

// qos2Bursts are the windows of the QoS 2 burst rows.
var qos2Bursts = []int{2, 10, 20, 100, 256, 1024}

// inWindow is the needs of nearly every row of the group.
var inWindow = []Need{QoS2, Deliver}

// watcherOf is the name of the watcher of a burst.
func watcherOf(conn string) string { return "w" + conn[1:] }

// groupQ2I begins with the exchanges as the specification has them; groupQ2IEdges goes on with what a client does wrong,
// and with what is large or late.
var groupQ2I = []*Rule{
	{
		ID: "Q2I-01", Title: "one exchange: PUBREC, PUBCOMP, one delivery", In: Both, Level: Must, Statements: "4.3.3-2 | 4.3.3-8 4.3.3-11",
		Needs: inWindow, Faults: []string{"pubrec-drop", "pubcomp-drop", "pubrec-wrong-id", "pubcomp-wrong-id", "lose", "deliver-twice", "pubrec-twice"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			s.Exchange("p", P2(1, "A"))
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(
			Once("w", "A"), Answered("p", history.PUBLISH, history.PUBREC, 2), Answered("p", history.PUBREL, history.PUBCOMP, 2),
			Codes(Must, "p", history.PUBREC, 0, 0x10), Codes(Must, "p", history.PUBCOMP, 0),
		),
	},
	{
		ID: "Q2I-02", Title: "a window of PUBLISH packets in one write gets exactly one PUBREC each, in their order", In: Both, Level: Must,
		Statements: "4.3.3-2 4.6.0-6 | 4.3.3-8 4.6.0-5", Why: "the order of PUBRECs is a must for a broker that delivers at PUBREL, otherwise a contract",
		Needs: []Need{QoS2}, Faults: []string{"pubrec-drop", "pubrec-swap"},
		Script: func(s *Script) { burstQoS2(s, false) },
		Judge: each(func(conn string) Test {
			return func(j *J) {
				Answered(conn, history.PUBLISH, history.PUBREC, 2)(j)
				InOrder(RecOrder, conn, history.PUBLISH, history.PUBREC, 2)(j)
			}
		}),
	},
	{
		ID: "Q2I-03", Title: "a window of PUBRELs in one write gets exactly one PUBCOMP each, in their order", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-11", Why: "the order of PUBCOMPs is a contract", Needs: []Need{QoS2}, Faults: []string{"pubcomp-drop", "pubcomp-swap"},
		Script: func(s *Script) { burstQoS2(s, false) },
		Judge: each(func(conn string) Test {
			return func(j *J) {
				Answered(conn, history.PUBREL, history.PUBCOMP, 2)(j)
				InOrder(Ordered, conn, history.PUBREL, history.PUBCOMP, 2)(j)
			}
		}),
	},
	{
		ID: "Q2I-04", Title: "the broker delivers at PUBREL (method A) or at PUBLISH (method B), and always at the same", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-8", Why: "figure 4.3 allows both; a mixture is neither", Needs: inWindow, Faults: []string{"early-delivery"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			for k := 1; k <= 3; k++ {
				s.Send("p", P2(k, Body(k)))
				s.Expect("p", Ack(history.PUBREC, uint16(k)))
				s.Wait(holdWait)
				s.Release("p", uint16(k))
			}
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			released := map[string]int{}
			for _, i := range j.Put("p", history.PUBREL) {
				released[Body(int(i.P.ID))] = i.Event
			}
			methods := map[string]int{}
			for _, d := range j.deliveries("w") {
				m := "B"
				if d.Event > released[d.Body] {
					m = "A"
				}
				methods[m]++
				if j.Caps.Method != "" && m != j.Caps.Method {
					j.Fail([]Item{d.Item}, "%q was delivered by method %s, earlier messages by method %s", d.Body, m, j.Caps.Method)
				}
			}
			j.Note("delivered by method A: %d, B: %d", methods["A"], methods["B"])
		},
	},
	{
		ID: "Q2I-05", Title: "a window of exchanges is delivered once and in the order of publication", In: Both, Level: Must,
		Statements: "4.6.0-6 | 4.6.0-5", Needs: inWindow, Faults: []string{"deliver-swap", "lose", "deliver-twice"},
		Script: func(s *Script) { burstQoS2(s, true) },
		Judge: each(func(conn string) Test {
			return func(j *J) {
				n := 0
				fmt.Sscanf(conn[1:], "%d", &n)
				Once(watcherOf(conn), Bodies(1, n)...)(j)
			}
		}),
	},
	{
		ID: "Q2I-06", Title: "each repetition after the PUBREC gets a PUBREC, and the message is delivered once", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-10", Needs: inWindow, Control: ControlQoS2, Faults: []string{"dup-drop", "dup-as-new", "dup-pubrec-error"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			s.Send("p", P2(7, "A"))
			s.Expect("p", Ack(history.PUBREC, 7))
			for range 2 {
				s.Send("p", D2(7, "A"))
				s.Expect("p", Ack(history.PUBREC, 7))
			}
			s.Release("p", 7)
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(Once("w", "A"), Answered("p", history.PUBLISH, history.PUBREC, 2), noErrors("p", history.PUBREC)),
	},
	{
		ID: "Q2I-07", Title: "repetitions in one write each get a PUBREC, and the message is delivered once", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-10", Needs: inWindow, Control: ControlQoS2, Faults: []string{"dup-drop", "dup-as-new"},
		Script: func(s *Script) { copies(s, true) },
		Judge:  All(copiesOnce, noErrors("p", history.PUBREC)),
	},
	{
		ID: "Q2I-08", Title: "the same with DUP 0 on the copies: the identifier decides, not the flag", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-10", Needs: inWindow, Control: ControlQoS2, Faults: []string{"dup-as-new"},
		Script: func(s *Script) { copies(s, false) },
		Judge:  All(copiesOnce, noErrors("p", history.PUBREC)),
	},
	{
		ID: "Q2I-09", Title: "of copies with different payloads exactly one is delivered", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-10", Why: "an identifier in use is the same message, whatever it carries", Needs: inWindow, Control: ControlQoS2, Faults: []string{"dup-as-new"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			s.Send("p", P2(7, "A"), D2(7, "B"), P2(7, "C"))
			s.Expect("p", Ack(history.PUBREC, 7), Ack(history.PUBREC, 7), Ack(history.PUBREC, 7))
			s.Release("p", 7)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			got := j.deliveries("w")
			var at []Item
			for _, d := range got {
				at = append(at, d.Item)
			}
			if len(got) != 1 && (len(got) > 1 || j.h.Stuck == "") {
				j.Fail(at, "%d of the copies were delivered, want one", len(got))
			} else if len(got) == 1 {
				j.Note("the copy %q was delivered", got[0].Body)
			}
		},
	},
	{
		ID: "Q2I-10", Title: "a repetition inside a window gets its PUBREC at its place", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-10", Why: "its place is a contract", Needs: inWindow, Control: ControlQoS2, Faults: []string{"dup-drop"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			n := min(20, s.Caps.Receive)
			s.Fact("n", n)
			msgs := append(Publishes(2, 1, n/2), D2(3, Body(3)))
			msgs = append(msgs, Publishes(2, n/2+1, n-n/2)...)
			s.Send("p", msgs...)
			s.Expect("p", append(Acks(history.PUBREC, 1, uint16(n)), Ack(history.PUBREC, 3))...)
			s.Send("p", Rels(1, n)...)
			s.Expect("p", Acks(history.PUBCOMP, 1, uint16(n))...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			Once("w", Bodies(1, j.Number("n"))...)(j)
			Answered("p", history.PUBLISH, history.PUBREC, 2)(j)
			InOrder(Ordered, "p", history.PUBLISH, history.PUBREC, 2)(j)
		},
	},
	{
		ID: "Q2I-11", Title: "each PUBREL gets a PUBCOMP, three in one write three of them, and the message is delivered once", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-11 3.7.2-1", Needs: inWindow, Control: ControlQoS2, Faults: []string{"pubrel-dup-drop", "pubrel-dup-delivers"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			s.Send("p", P2(3, "A"))
			s.Expect("p", Ack(history.PUBREC, 3))
			s.Send("p", Rel(3), Rel(3), Rel(3))
			s.Expect("p", Ack(history.PUBCOMP, 3), Ack(history.PUBCOMP, 3), Ack(history.PUBCOMP, 3))
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(Once("w", "A"), Answered("p", history.PUBREL, history.PUBCOMP, 2), Codes(Must, "p", history.PUBCOMP, 0, 0x92)),
	},
	{
		ID: "Q2I-12", Title: "a PUBREL for an identifier that was never used gets its PUBCOMP, and the connection stays", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-11 3.7.2-1", Needs: []Need{QoS2}, Control: ControlQoS2, Faults: []string{"pubrel-unknown-drop", "pubrel-unknown-close"},
		Script: func(s *Script) {
			s.Connect("p")
			s.Send("p", Rel(4242))
			s.Expect("p", Ack(history.PUBCOMP, 4242))
			s.Ping("p")
		},
		Judge: func(j *J) {
			for _, i := range j.Got("p", history.PUBCOMP) {
				if j.Is5() && i.P.ID == 4242 && i.P.Reason != 0x92 {
					j.Note("the Reason Code is 0x%02X, section 3.7.2.1 suggests 0x92", i.P.Reason)
				}
			}
		},
	},
	{
		ID: "Q2I-13", Title: "one identifier carries 200 messages after each other, all delivered once and in order", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-12", Needs: inWindow, Faults: []string{"reuse-as-dup", "lose"},
		Script: func(s *Script) { flowRule(s, Flow{QoS: 2, N: s.Pick(200, 50), Window: 1, IDs: 1}) },
		Judge:  flowOnce,
	},
	{
		ID: "Q2I-14", Title: "identifiers that are used again the instant their PUBCOMP was read carry new messages", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-12", Needs: inWindow, Heavy: true, Faults: []string{"reuse-as-dup", "lose", "deliver-twice"},
		Script: func(s *Script) {
			w := min(64, s.Caps.Receive)
			flowRule(s, Flow{QoS: 2, N: s.Pick(10_000, 1_000), Window: w, IDs: 2 * w})
		},
		Judge: flowOnce,
	},
}

// burstQoS2 publishes windows of several sizes, each in one write, and releases each in one write; with watchers if they
// are wanted.
func burstQoS2(s *Script, watch bool) {
	for _, n := range bursts(s, qos2Bursts...) {
		conn, topic := burst(n)
		var watchers []string
		if watch {
			s.Watch(watcherOf(conn), 2, topic)
			watchers = append(watchers, watcherOf(conn))
		}
		s.Connect(conn)
		s.Send(conn, publishesOn(topic, 2, 1, n)...)
		s.Expect(conn, Acks(history.PUBREC, 1, uint16(n))...)
		s.Send(conn, Rels(1, n)...)
		s.Expect(conn, Acks(history.PUBCOMP, 1, uint16(n))...)
		s.Fence(conn, 2, topic, watchers...)
	}
}

// copies writes a message and two copies at once, and another with four.
func copies(s *Script, dup bool) {
	s.Watch("w", 2, "t")
	s.Connect("p")
	for _, c := range []struct{ id, n int }{{7, 3}, {8, 5}} {
		id, n := c.id, c.n
		var msgs []Msg
		var wants []Want
		for k := range n {
			m := P2(id, Body(id))
			m.Dup = dup && k > 0
			msgs, wants = append(msgs, m), append(wants, Ack(history.PUBREC, uint16(id)))
		}
		s.Send("p", msgs...)
		s.Expect("p", wants...)
		s.Release("p", uint16(id))
	}
	s.Fence("p", 2, "t", "w")
}

func copiesOnce(j *J) {
	OnceAnyOrder("w", Body(7), Body(8))(j)
	Answered("p", history.PUBLISH, history.PUBREC, 2)(j)
}

// noErrors wants no acknowledgement that refuses.
func noErrors(conn string, t history.Type) Test {
	return func(j *J) {
		for _, i := range j.Got(conn, t) {
			if i.P.Reason >= 0x80 {
				j.Fail([]Item{i}, "%v(%d) refuses with 0x%02X", t, i.P.ID, i.P.Reason)
			}
		}
	}
}

// flowRule watches a flow.
func flowRule(s *Script, f Flow) {
	s.Watch("w", max(f.QoS, 1), "t")
	s.Connect("p")
	s.Fact("n", f.N)
	s.Flow("p", f)
	s.Fence("p", f.QoS, "t", "w")
}

func flowOnce(j *J) { Once("w", numbered("m", j.Number("n"))...)(j) }

// edge writes n messages at once and releases what is acknowledged; a broker may hold the rest back until then.
func edge(s *Script, n int) {
	conn, topic := burst(n)
	for _, step := range s.Steps {
		if step.Conn == conn {
			return // it was there already
		}
	}
	s.Watch(watcherOf(conn), 2, topic)
	s.Connect(conn)
	s.Send(conn, publishesOn(topic, 2, 1, n)...)
	s.Maybe(conn, detectWait, Acks(history.PUBREC, 1, uint16(n))...)
	s.Mode(conn, Mode{Release: true})
	s.ReleaseSeen(conn)
	s.Maybe(conn, detectWait, Acks(history.PUBCOMP, 1, uint16(n))...)
	s.Maybe(watcherOf(conn), detectWait, Dels(Bodies(1, n)...)...)
	s.Quiet(Settle)
}

// ownership wants every message whose PUBREC accepted it delivered once, and an answer to each unless the connection was
// closed.
func ownership(conn string) Test {
	return func(j *J) {
		accepted, answered := map[uint16]bool{}, map[uint16]bool{}
		for _, i := range j.Got(conn, history.PUBREC) {
			answered[i.P.ID] = true
			accepted[i.P.ID] = i.P.Reason < 0x80
		}
		count := map[string]int{}
		for _, d := range j.deliveries(watcherOf(conn)) {
			if count[d.Body]++; count[d.Body] == 2 {
				j.Fail([]Item{d.Item}, "%s: %q was delivered twice", conn, d.Body)
			}
		}
		for _, i := range j.Put(conn, history.PUBLISH) {
			switch id := i.P.ID; {
			case accepted[id] && count[body(&i.P)] == 0:
				j.Fail([]Item{i}, "%s: message %d was acknowledged and not delivered", conn, id)
				return
			case !answered[id] && !j.closedBy(conn):
				j.Fail([]Item{i}, "%s: message %d got no PUBREC, and the connection stays open", conn, id)
				return
			}
		}
	}
}
