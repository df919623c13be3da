package check

import (
	"time"

	"inflight/broker/packet"
	"inflight/runner/history"
)

// holding is a subscriber that answers nothing by itself.
var holding = Hold(history.PUBACK, history.PUBREC, history.PUBCOMP)

// replies are acknowledgements of the deliveries from first to last.
func replies(t packet.Type, first, last int) []Msg {
	var all []Msg
	for k := first; k <= last; k++ {
		all = append(all, Reply(t, k))
	}
	return all
}

// echoes are the wants of packets with the identifiers of the deliveries from first to last.
func echoes(t history.Type, first, last int) []Want {
	var all []Want
	for k := first; k <= last; k++ {
		all = append(all, Echo(t, k))
	}
	return all
}

// subscriber connects w with a kept session that subscribes, and the publisher.
func subscriber(s *Script, options ...ConnectOption) {
	s.Connect("w", append([]ConnectOption{Kept}, options...)...)
	s.Sub("w", 2, "t")
	s.Connect("p")
}

// publish completes n messages of the publisher, numbered from first.
func publish(s *Script, qos byte, first, n int) {
	for k := first; k < first+n; k++ {
		s.Exchange("p", P(qos, k, Body(k)))
	}
}

// groupQ2O begins with exchanges, resumptions and the quota; groupQ2OEdges goes on with what is long, wrong or expired.
var groupQ2O = []*Rule{
	{
		ID: "Q2O-01", Title: "a new delivery has DUP 0 and an identifier that is not 0 and not in use", In: Both, Level: Must,
		Statements: "4.3.2-1 4.3.3-1 2.3.1-1 2.3.1-4 | 4.3.2-1 4.3.2-2 4.3.3-1 4.3.3-2 2.2.1-4", Needs: inWindow, Faults: []string{"id-reused", "dup-out"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			n := s.Pick(2_000, 200)
			s.Fact("n", n)
			s.Flow("p", Flow{QoSes: []byte{1, 2}, N: n, Window: min(20, s.Caps.Receive)})
			s.Fence("p", 1, "t", "w")
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			OnceAnyOrder("w", numbered("m", j.Number("n"))...)(j)
			firstCopyWithoutDup("w")(j)
			idsFree(j)
		},
	},
	{
		ID: "Q2O-02", Title: "a PUBREC is answered by the PUBREL of its identifier", In: Both, Level: Must, Statements: "4.3.3-1 3.6.1-1 | 4.3.3-4 3.6.1-1",
		Needs: inWindow, Control: ControlQoS1, Faults: []string{"pubrel-out-drop"},
		Script: func(s *Script) {
			subscriber(s, holding)
			publish(s, 2, 1, 1)
			s.Expect("w", Del(Body(1)))
			s.Send("w", Reply(packet.PUBREC, 1))
			s.Expect("w", Echo(history.PUBREL, 1))
			s.Send("w", Reply(packet.PUBCOMP, 1))
			s.Ping("w")
		},
		Judge: All(Once("w", Body(1)), Answered("w", history.PUBREC, history.PUBREL, 2)),
	},
	{
		ID: "Q2O-03", Title: "PUBRELs come in the order of the PUBRECs, whatever order that is", In: Both, Level: Must, Statements: "4.6.0-4 4.6.0-6 | -",
		Why: "5.0 binds the Client alone", Needs: inWindow, Control: ControlOutbound, Faults: []string{"pubrel-out-swap"},
		Script: func(s *Script) {
			subscriber(s, holding)
			publish(s, 2, 1, 10)
			s.Expect("w", Dels(Bodies(1, 10)...)...)
			var msgs []Msg
			for _, k := range s.Rand.Perm(10) {
				msgs = append(msgs, Reply(packet.PUBREC, k+1))
			}
			s.Send("w", msgs...)
			s.Expect("w", echoes(history.PUBREL, 1, 10)...)
			s.Send("w", replies(packet.PUBCOMP, 1, 10)...)
			s.Ping("w")
		},
		Judge: InOrder(only311, "w", history.PUBREC, history.PUBREL, 2),
	},
	{
		ID: "Q2O-04", Title: "a repeated PUBREC gets its PUBREL again, and never the PUBLISH", In: Both, Level: Must, Statements: "4.3.3-1 | 4.3.3-4 4.3.3-6",
		Needs: inWindow, Control: ControlOutbound, Faults: []string{"pubrel-out-once"},
		Script: func(s *Script) {
			subscriber(s, holding)
			publish(s, 2, 1, 1)
			s.Expect("w", Del(Body(1)))
			for range 2 {
				s.Send("w", Reply(packet.PUBREC, 1))
				s.Expect("w", Echo(history.PUBREL, 1))
			}
			s.Send("w", Reply(packet.PUBCOMP, 1))
			s.Mode("w", Mode{})
			publish(s, 2, 2, 3)
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(Once("w", Bodies(1, 4)...), idsFree),
	},
	{
		ID: "Q2O-05", Title: "an identifier without its PUBCOMP is not used again", In: Both, Level: Must, Statements: "4.3.3-1 2.3.1-4 | 4.3.3-5 2.2.1-4",
		Needs: inWindow, Control: ControlOutbound, Faults: []string{"id-reused"},
		Script: func(s *Script) {
			subscriber(s, holding)
			publish(s, 2, 1, 1)
			s.Expect("w", Del(Body(1)))
			s.Send("w", Reply(packet.PUBREC, 1))
			s.Expect("w", Echo(history.PUBREL, 1))
			s.Mode("w", Mode{HoldComp: true})
			n := s.Pick(300, 50)
			s.Fact("n", n)
			s.Flow("p", Flow{QoS: 1, N: n, Window: min(10, s.Caps.Receive), Prefix: "x"})
			s.Fence("p", 1, "t", "w")
		},
		Judge: All(idsFree, func(j *J) { OnceAnyOrder("w", append(numbered("x", j.Number("n")), Body(1))...)(j) }),
	},
	{
		ID: "Q2O-06", Title: "what is not acknowledged is sent again after a resumption: with DUP, under its identifier", In: Both, Level: Must,
		Statements: "4.4.0-1 3.3.1-1 2.3.1-3 | 4.4.0-1 3.3.1-1", Needs: inWindow, Control: ControlResume, Faults: []string{"resend-drop", "resend-no-dup", "resend-new-id"},
		Script: func(s *Script) { resend(s, 10) },
		Judge:  All(resent(true), AtLeastOnceAny("w", Bodies(1, 10)...)),
	},
	{
		ID: "Q2O-07", Title: "it is sent again in the order of the first time", In: Both, Level: Must, Statements: "4.6.0-1 4.6.0-6 | -", Why: "5.0 binds the Client alone",
		Needs: inWindow, Control: ControlResume, Faults: []string{"resend-swap"},
		Script: func(s *Script) { resend(s, s.Pick(300, 20)) },
		Judge: func(j *J) {
			last := -1
			first := map[uint16]int{}
			for i, d := range j.nth(j.Got("w", history.PUBLISH), 1) {
				first[d.P.ID] = i
			}
			for _, d := range j.nth(j.Got("w", history.PUBLISH), 2) {
				at, known := first[d.P.ID]
				if !known || !d.P.Dup {
					continue
				}
				if at < last {
					j.Find(only311(j), []Item{d}, "PUBLISH(%d) %q was sent again after a later one", d.P.ID, body(&d.P))
					return
				}
				last = at
			}
		},
	},
	{
		ID: "Q2O-08", Title: "after the PUBREL a resumption brings the PUBREL again, never the PUBLISH", In: Both, Level: Must, Statements: "4.4.0-1 4.3.3-1 | 4.4.0-1 4.3.3-6",
		Needs: inWindow, Control: ControlResume, Faults: []string{"resend-drop", "pubrel-as-publish"},
		Script: func(s *Script) {
			subscriber(s, holding)
			publish(s, 2, 1, 3)
			s.Expect("w", Dels(Bodies(1, 3)...)...)
			s.Send("w", replies(packet.PUBREC, 1, 3)...)
			s.Expect("w", echoes(history.PUBREL, 1, 3)...)
			s.Cut("w")
			s.Resume("w")
			s.ExpectResent("w", Want{Type: history.PUBREL}, Want{Type: history.PUBREL}, Want{Type: history.PUBREL})
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			Once("w", Bodies(1, 3)...)(j)
			for _, i := range j.nth(j.Got("w", history.PUBLISH), 2) {
				if !isFence(&i.P) {
					j.Fail([]Item{i}, "PUBLISH(%d) %q was sent again after its PUBREL", i.P.ID, body(&i.P))
				}
			}
		},
	},
	{
		ID: "Q2O-09", Title: "a resumption brings exactly what is owed: PUBLISH, PUBREL, or nothing; and new messages go on behind a full window", In: Both, Level: Must,
		Statements: "4.4.0-1 | 4.4.0-1 4.3.3-6", Needs: inWindow, Control: ControlResume, Faults: []string{"resend-drop", "resend-acked"},
		Script: func(s *Script) {
			subscriber(s, holding, Receive(9))
			publish(s, 2, 1, 9)
			s.Expect("w", Dels(Bodies(1, 9)...)...)
			s.Send("w", replies(packet.PUBREC, 1, 6)...)
			s.Expect("w", echoes(history.PUBREL, 1, 6)...)
			s.Send("w", replies(packet.PUBCOMP, 1, 3)...)
			s.Ping("w")
			s.Wait(Settle)
			s.Cut("w")
			s.Resume("w", Receive(9))
			s.ExpectResent("w", Dels(Bodies(7, 9)...)...)
			s.ExpectResent("w", Want{Type: history.PUBREL}, Want{Type: history.PUBREL}, Want{Type: history.PUBREL})
			publish(s, 2, 10, 1)
			s.Expect("w", Del(Body(10)))
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			OnceAnyOrder("w", Bodies(1, 10)...)(j)
			owed := map[string]bool{Body(7): true, Body(8): true, Body(9): true, Body(10): true}
			for _, i := range j.nth(j.Got("w", history.PUBLISH), 2) {
				if !isFence(&i.P) && !owed[body(&i.P)] {
					j.Fail([]Item{i}, "PUBLISH(%d) %q was sent again and is not owed", i.P.ID, body(&i.P))
				}
			}
		},
	},
	{
		ID: "Q2O-10", Title: "identifiers of owed PUBRELs are not used for new messages after a resumption", In: Both, Level: Must, Statements: "2.3.1-4 | 2.2.1-4",
		Needs: inWindow, Control: ControlResume, Faults: []string{"id-reused"},
		Script: func(s *Script) {
			subscriber(s, Hold(history.PUBCOMP))
			n := s.Pick(50, 20)
			publish(s, 2, 1, n)
			s.Expect("w", Dels(Bodies(1, n)...)...)
			s.Expect("w", echoes(history.PUBREL, 1, n)...)
			s.Cut("w")
			// Messages that come while the client is away get their identifiers later.
			publish(s, 2, n+1, n)
			s.Resume("w", Hold(history.PUBCOMP))
			s.Flow("p", Flow{QoS: 1, N: 4 * n, Window: min(10, s.Caps.Receive), Prefix: "x"})
			s.Fact("n", n)
			s.Fence("p", 1, "t", "w")
		},
		Judge: func(j *J) {
			n := j.Number("n")
			AtLeastOnceAny("w", append(Bodies(1, 2*n), numbered("x", 4*n)...)...)(j)
			idsFree(j)
		},
	},
	{
		ID: "Q2O-11", Title: "a PUBREC that refuses ends the exchange: no PUBREL, its place is free, nothing is sent again", In: V5, Level: Must, Statements: "4.3.3-4 4.4.0-2",
		Needs: inWindow, Control: ControlOutbound, Faults: []string{"refused-pubrel"},
		Script: func(s *Script) {
			subscriber(s, holding, Receive(1))
			s.Send("p", Publishes(2, 1, 4)...)
			s.Expect("p", Acks(history.PUBREC, 1, 4)...)
			s.Send("p", Rels(1, 4)...)
			s.Expect("p", Acks(history.PUBCOMP, 1, 4)...)
			for k, code := range []byte{0x80, 0x83, 0x97} {
				s.Expect("w", Del(Body(k+1)))
				m := Reply(packet.PUBREC, k+1)
				m.Code = code
				s.Send("w", m)
			}
			s.Expect("w", Del(Body(4)))
			s.Quiet(Settle)
			s.Cut("w")
			s.Resume("w")
			s.ExpectResent("w", Del(Body(4)))
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			Once("w", Bodies(1, 4)...)(j)
			for _, i := range j.nth(j.Got("w", history.PUBREL), 1) {
				j.Fail([]Item{i}, "PUBREL(%d) answers a PUBREC that refused", i.P.ID)
			}
			for _, i := range j.nth(j.Got("w", history.PUBLISH), 2) {
				if !isFence(&i.P) && body(&i.P) != Body(4) {
					j.Fail([]Item{i}, "%q was refused and is sent again", body(&i.P))
				}
			}
		},
	},
	{
		ID: "Q2O-12", Title: "never more than Receive Maximum outstanding: a PUBREC frees no place, a PUBCOMP frees one", In: V5, Level: Must, Statements: "3.3.4-9 4.9.0-1 4.9.0-2",
		Needs: inWindow, Control: ControlOutbound, Faults: []string{"receive-maximum-ignored"},
		Script: func(s *Script) {
			for _, r := range []int{1, 2, 10, 20} {
				conn, topic := burst(r)
				w := watcherOf(conn)
				s.Connect(w, holding, Receive(uint16(r)))
				s.Sub(w, 2, topic)
				s.Connect(conn, Releasing)
				n := min(5*r, s.Caps.Receive)
				s.Send(conn, publishesOn(topic, 2, 1, n)...)
				s.Expect(conn, Acks(history.PUBCOMP, 1, uint16(n))...)
				s.Expect(w, Dels(Bodies(1, r)...)...)
				s.Send(w, Reply(packet.PUBREC, 1))
				s.Expect(w, Echo(history.PUBREL, 1))
				s.Quiet(2 * Settle)
				s.Send(w, Reply(packet.PUBCOMP, 1))
				s.Expect(w, Del(Body(r+1)))
				s.Quiet(2 * Settle)
				s.Mode(w, Mode{})
				s.Send(w, replies(packet.PUBREC, 2, r+1)...)
				s.Expect(w, Dels(Bodies(r+2, n)...)...)
				s.Quiet(Settle)
			}
		},
		Judge: All(windowKept, each(func(conn string) Test {
			return func(j *J) {
				n := len(j.Put(conn, history.PUBLISH))
				Once(watcherOf(conn), Bodies(1, n)...)(j)
			}
		})),
	},
	{
		ID: "Q2O-13", Title: "the send quota is fresh on every connection, and what is sent again counts", In: V5, Level: Must, Statements: "4.9.0-1 3.3.4-9",
		Needs: inWindow, Control: ControlResume, Faults: []string{"receive-maximum-ignored"},
		Script: func(s *Script) {
			subscriber(s, holding, Receive(1))
			publish(s, 2, 1, 6)
			s.Expect("w", Del(Body(1)))
			s.Cut("w")
			s.Resume("w", holding, Receive(4))
			s.ExpectResent("w", Dels(Bodies(1, 4)...)...)
			s.Quiet(2 * Settle)
			s.Mode("w", Mode{})
			s.Send("w", replies(packet.PUBREC, 1, 4)...)
			s.Expect("w", Dels(Bodies(5, 6)...)...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(windowKept, Once("w", Bodies(1, 6)...)),
	},
	{
		ID: "Q2O-14", Title: "with no quota left everything else is served, QoS 0 deliveries too", In: V5, Level: Must, Statements: "3.3.4-10 4.9.0-3", Needs: inWindow,
		Control: ControlOutbound, Faults: []string{"window-blocks"},
		Script: func(s *Script) {
			subscriber(s, holding, Receive(1))
			s.Watch("x", 2, "u")
			publish(s, 2, 1, 2)
			s.Expect("w", Del(Body(1)))
			s.Ping("w")
			s.Sub("w", 1, "v")
			s.Exchange("w", P2(1, "own").On("u"))
			s.Expect("x", Del("own"))
			s.Send("p", P0("zero"))
			s.Expect("w", Del("zero"))
		},
		Judge: All(windowKept, Once("x", "own")),
	},
}

// only311 is the level of an order that 3.1.1 asks of a Server that delivers, and 5.0 does not.
func only311(j *J) Level {
	if j.Is5() {
		return Info
	}
	return Must
}

// resend lets k messages of QoS 1 and 2 arrive and be cut off unacknowledged.
func resend(s *Script, k int) {
	subscriber(s, holding)
	for id := 1; id <= k; id++ {
		s.Exchange("p", P(byte(1+id%2), id, Body(id)))
	}
	// A broker may have a smaller window than that.
	s.Maybe("w", detectWait, Dels(Bodies(1, k)...)...)
	s.Cut("w")
	s.Resume("w")
	if k <= 20 {
		s.ExpectResent("w", Dels(Bodies(1, k)...)...)
	}
	s.Fence("p", 1, "t", "w")
	s.Fence("p", 2, "t", "w")
}

// late is when what a resumption owes is late: it should come at once.
const late = 3 * time.Second

// resent wants every delivery of the first connection on the second: the same message under the same identifier, with DUP.
func resent(dup bool) Test {
	return func(j *J) {
		second := map[string]Item{}
		for _, i := range j.nth(j.Got("w", history.PUBLISH), 2) {
			if b := body(&i.P); second[b].Event == 0 {
				second[b] = i
			}
		}
		for _, i := range j.nth(j.Got("w", history.PUBLISH), 1) {
			again, ok := second[body(&i.P)]
			switch {
			case !ok && j.h.Stuck != "":
			case !ok:
				j.Fail([]Item{i}, "PUBLISH(%d) %q was not sent again", i.P.ID, body(&i.P))
			case again.P.ID != i.P.ID:
				j.Fail([]Item{i, again}, "%q was sent again as %d, the first time as %d", body(&i.P), again.P.ID, i.P.ID)
			case dup && !again.P.Dup:
				j.Fail([]Item{again}, "PUBLISH(%d) %q was sent again without DUP", again.P.ID, body(&i.P))
			}
		}
		for _, up := range j.nth(j.Got("w", history.CONNACK), 2) {
			for _, again := range j.nth(j.Got("w", history.PUBLISH), 2) {
				if wait := j.h.Events[again.Event].At - j.h.Events[up.Event].At; again.P.Dup && wait > late {
					j.Find(Info, []Item{up, again}, "the first message that is sent again comes %v after the CONNACK", wait.Round(100*time.Millisecond))
					return
				}
			}
		}
	}
}

// AtLeastOnceAny wants each delivered to the client, in any order, and nothing else.
func AtLeastOnceAny(name string, bodies ...string) Test {
	return func(j *J) {
		want, seen := map[string]bool{}, map[string]bool{}
		for _, b := range bodies {
			want[b] = true
		}
		for _, d := range j.deliveries(name) {
			if !want[d.Body] {
				j.Fail([]Item{d.Item}, "%s got %q, which it must not get", name, d.Body)
			}
			seen[d.Body] = true
		}
		var missing []string
		for _, b := range bodies {
			if !seen[b] {
				missing = append(missing, b)
			}
		}
		if len(missing) > 0 && j.h.Stuck == "" {
			j.Fail(nil, "%s did not get %s", name, shortList(missing))
		}
	}
}
