package check

import (
	"time"

	"inflight/broker/packet"
	"inflight/runner/history"
)

var groupQ2OEdges = []*Rule{
	{
		ID: "Q2O-15", Title: "an identifier that is held stays in use while all others go round", In: Both, Level: Must, Statements: "2.3.1-4 | 2.2.1-4",
		Needs: inWindow, Heavy: true, Control: ControlOutbound, Faults: []string{"id-reused", "lose"},
		Script: func(s *Script) {
			subscriber(s, holding)
			s.Exchange("p", P1(1, "held"))
			s.Expect("w", Del("held"))
			s.Mode("w", Mode{})
			n := s.Pick(65_600, 1_000)
			s.Fact("n", n)
			s.Flow("p", Flow{QoS: 1, N: n, Window: min(64, s.Caps.Receive)})
			s.Fence("p", 1, "t", "w")
		},
		Judge: func(j *J) {
			AtLeastOnce("w", append([]string{"held"}, numbered("m", j.Number("n"))...)...)(j)
			idsFree(j)
		},
	},
	{
		ID: "Q2O-16", Title: "one withheld acknowledgement does not stop the others", In: Both, Level: Info, Why: "how far they go is the broker's window", Needs: inWindow,
		Control: ControlOutbound,
		Script: func(s *Script) {
			subscriber(s, holding)
			s.Exchange("p", P1(1, "held"))
			s.Expect("w", Del("held"))
			s.Mode("w", Mode{})
			publish(s, 1, 2, 100)
			s.Maybe("w", detectWait, Dels(Bodies(2, 101)...)...)
		},
		Judge: func(j *J) {
			n := len(j.deliveries("w")) - 1
			if n == 0 {
				j.Fail(nil, "nothing came behind the withheld one")
			}
			j.Note("%d of 100 messages came behind one that is withheld", n)
		},
	},
	{
		ID: "Q2O-17", Title: "an UNSUBSCRIBE leaves exchanges that have begun to complete", In: Both, Level: Must, Statements: "3.10.4-3", Needs: inWindow,
		Control: ControlOutbound, Faults: []string{"pubrel-out-drop"},
		Script: func(s *Script) {
			subscriber(s, holding)
			publish(s, 2, 1, 2)
			s.Expect("w", Dels(Bodies(1, 2)...)...)
			s.Send("w", Reply(packet.PUBREC, 2))
			s.Expect("w", Echo(history.PUBREL, 2))
			id := s.ID("w")
			s.Send("w", Msg{Type: packet.UNSUBSCRIBE, ID: id, Filters: []string{"t"}})
			s.Expect("w", Want{Type: history.UNSUBACK, ID: id})
			s.Send("w", Reply(packet.PUBREC, 1))
			s.Expect("w", Echo(history.PUBREL, 1))
			s.Send("w", replies(packet.PUBCOMP, 1, 2)...)
			s.Ping("w")
			publish(s, 2, 3, 1)
			s.Quiet(2 * Settle)
		},
		Judge: Once("w", Bodies(1, 2)...),
	},
	{
		ID: "Q2O-18", Title: "acknowledgements of the wrong type are ignored or close the connection, and the session stays usable", In: Both, Level: Info,
		Why: "a Protocol Error of the client", Needs: inWindow, Control: ControlResume,
		Script: func(s *Script) {
			subscriber(s, holding)
			s.Exchange("p", P1(1, Body(1)))
			s.Exchange("p", P2(2, Body(2)))
			s.Exchange("p", P2(3, Body(3)))
			s.Expect("w", Dels(Bodies(1, 3)...)...)
			s.Send("w", Reply(packet.PUBREC, 1))
			s.MaybeClose("w", holdWait)
			s.Resume("w", holding)
			s.Quiet(Settle)
			s.Send("w", Reply(packet.PUBACK, 2), Reply(packet.PUBCOMP, 3))
			s.MaybeClose("w", holdWait)
			s.Resume("w")
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) { j.Note("closed %d times at it", len(j.packets("w", history.Closed))) },
	},
	{
		ID: "Q2O-19", Title: "PUBRECs of unknown identifiers are answered or ignored, thousands of them, and the broker goes on", In: Both, Level: Info,
		Statements: "4.3.3-1 | 4.3.3-4", Why: "a client that is owed nothing waits for a PUBREL", Needs: inWindow, Control: ControlOutbound,
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			var msgs []Msg
			for id := 1; id <= s.Pick(10_000, 200); id++ {
				msgs = append(msgs, Answer(packet.PUBREC, uint16(id)))
			}
			s.Send("w", msgs...)
			s.Quiet(2 * Settle)
			s.Ping("w")
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			got := j.Got("w", history.PUBREL)
			j.Note("%d PUBRELs for %d PUBRECs of unknown identifiers", max(0, len(got)-1), len(j.Put("w", history.PUBREC))-1)
		},
	},
	{
		ID: "Q2O-20", Title: "what was acknowledged just before a cut is not sent again", In: Both, Level: Info, Statements: "2.3.1-3 | 4.4.0-1",
		Why: "the acknowledgement may be lost with the connection: one is allowed", Needs: []Need{QoS1, Deliver}, Control: ControlResume, Racy: true,
		Script: func(s *Script) {
			subscriber(s)
			publish(s, 1, 1, 20)
			s.Expect("w", Dels(Bodies(1, 20)...)...)
			s.Cut("w")
			s.Resume("w")
			s.Fence("p", 1, "t", "w")
		},
		Judge: func(j *J) {
			var again []Item
			for _, i := range j.nth(j.Got("w", history.PUBLISH), 2) {
				if !isFence(&i.P) {
					again = append(again, i)
				}
			}
			if len(again) > 1 {
				j.Fail(again, "%d messages were sent again that had been acknowledged", len(again))
			}
		},
	},
	{
		ID: "Q2O-21", Title: "a message beyond the client's Maximum Packet Size is left out, and later ones flow", In: V5, Level: Must, Statements: "3.1.2-24 3.1.2-25",
		Needs: inWindow, Control: ControlOutbound, Faults: []string{"max-packet-ignored"},
		Script: func(s *Script) {
			s.Connect("w", MaxPacket(300))
			s.Sub("w", 2, "t")
			s.Connect("p")
			big := P2(1, "big")
			big.Size = 1000
			s.Exchange("p", big)
			publish(s, 2, 2, 3)
			s.Fence("p", 2, "t", "w")
		},
		Judge: Once("w", Bodies(2, 4)...),
	},
	{
		ID: "Q2O-22", Title: "a message that was sent is sent again after a resumption although it has expired", In: V5, Level: Must, Statements: "4.3.3-7",
		Needs: inWindow, Control: ControlResume, Faults: []string{"resend-drop"},
		Script: func(s *Script) {
			subscriber(s, holding)
			s.Exchange("p", P2(1, "A").With(packet.Properties{MessageExpiry: packet.Some[uint32](1)}))
			s.Expect("w", Del("A"))
			s.Wait(2 * time.Second)
			s.Cut("w")
			s.Resume("w")
			s.ExpectResent("w", Del("A"))
			s.Fence("p", 2, "t", "w")
		},
		Judge: Once("w", "A"),
	},
	{
		ID: "Q2O-23", Title: "DUP of the publisher does not reach the subscriber", In: Both, Level: Must, Statements: "3.3.1-3", Needs: inWindow, Control: ControlOutbound,
		Faults: []string{"dup-out"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			s.Exchange("p", D2(5, "A"))
			s.Exchange("p", D1(6, "B"))
			s.Fence("p", 2, "t", "w")
			s.Fence("p", 1, "t", "w")
		},
		Judge: All(OnceAnyOrder("w", "A", "B"), firstCopyWithoutDup("w")),
	},
}
