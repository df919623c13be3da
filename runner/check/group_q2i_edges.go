package check

import (
	"bytes"
	"time"

	"inflight/broker/packet"
	"inflight/runner/history"
)

var groupQ2IEdges = []*Rule{
	{
		ID: "Q2I-15", Title: "a PUBLISH behind the PUBREL of its identifier is not acknowledged and lost", In: Both, Level: Info,
		Why: "the client breaks [MQTT-2.3.1-3]", Needs: inWindow, Control: ControlQoS2,
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("q")
			s.Connect("p")
			s.Send("p", P2(9, "A"))
			s.Expect("p", Ack(history.PUBREC, 9))
			s.Send("p", Rel(9), P2(9, "B"))
			s.Maybe("p", detectWait, Ack(history.PUBCOMP, 9), Ack(history.PUBREC, 9))
			s.ReleaseSeen("p")
			s.Maybe("p", detectWait, Ack(history.PUBCOMP, 9))
			s.Quiet(Settle)
			s.Fence("q", 2, "t", "w")
		},
		Judge: func(j *J) {
			count := map[string]int{}
			for _, d := range j.deliveries("w") {
				count[d.Body]++
			}
			comps := 0
			for _, i := range j.Got("p", history.PUBCOMP) {
				if i.P.Reason == 0 {
					comps++
				}
			}
			if count["A"] > 1 || count["B"] > 1 {
				j.Fail(nil, "A was delivered %d times, B %d times", count["A"], count["B"])
			}
			if count["B"] == 0 && comps > 1 && !j.closedBy("p") {
				j.Fail(j.Got("p", history.PUBREC, history.PUBCOMP), "B was acknowledged to its end and not delivered")
			}
			j.Note("A delivered %d times, B %d times, %d PUBCOMPs, closed: %v", count["A"], count["B"], comps, j.closedBy("p"))
		},
	},
	{
		ID: "Q2I-16", Title: "a PUBREL that does not wait for its PUBREC completes the exchange, or closes the connection", In: Both, Level: Info,
		Why: "the client breaks [MQTT-4.3.3-1] ; [MQTT-4.3.3-4]", Needs: inWindow, Control: ControlQoS2,
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept)
			s.Send("p", P2(3, "A"), Rel(3))
			s.Maybe("p", detectWait, Ack(history.PUBREC, 3), Ack(history.PUBCOMP, 3))
			s.Resume("p")
			s.Release("p", 3)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			if n := len(j.deliveries("w")); n > 1 || n == 0 && len(j.nth(j.Got("p", history.PUBREC), 1)) > 0 {
				j.Fail(nil, "A was delivered %d times", n)
			}
			j.Note("closed at it: %v", j.closedBy("p"))
		},
	},
	{
		ID: "Q2I-17", Title: "every identifier from 1 to 65,535 carries a message: acknowledged in order, delivered once", In: Both, Level: Must,
		Statements: "2.3.1-1 | 2.2.1-3", Why: "the order of acknowledgements as in Q2I-02 and Q2I-03", Needs: inWindow, Heavy: true, Faults: []string{"lose", "pubrec-swap"},
		Script: func(s *Script) {
			flowRule(s, Flow{QoS: 2, N: s.Pick(65_535, 1_000), Window: min(256, s.Caps.Receive), IDs: s.Pick(65_535, 1_000)})
		},
		Judge: All(flowOnce, InOrder(RecOrder, "p", history.PUBLISH, history.PUBREC, 2), InOrder(Ordered, "p", history.PUBREL, history.PUBCOMP, 2)),
	},
	{
		ID: "Q2I-18", Title: "around the edges of a window every message that is acknowledged is delivered", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-8", Why: "an acknowledgement takes ownership; to stop reading or to close is legal, to drop is not",
		Needs: inWindow, Control: ControlQoS2, Faults: []string{"lose", "overflow-drop"},
		Script: func(s *Script) {
			for _, w := range []int{1, 10, 20, s.Pick(256, 20), s.Pick(1000, 20)} {
				for n := max(1, w-1); n <= w+1; n++ {
					if s.Is5() && n > s.Caps.Receive {
						continue
					}
					edge(s, n)
				}
			}
		},
		Judge: each(func(conn string) Test { return ownership(conn) }),
	},
	{
		ID: "Q2I-19", Title: "more than Receive Maximum is answered by DISCONNECT 0x93, and what is too much is not delivered", In: V5, Level: Info,
		Statements: "3.3.4-7", Why: "section 3.3.4, without a number for the Server; PUBREC 0x97 is tolerated", Needs: []Need{QoS2, Deliver, SmallRM}, Control: ControlQoS2,
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("q")
			s.Connect("p")
			n := s.Caps.Receive + 1
			s.Fact("n", n)
			s.Send("p", Publishes(2, 1, n)...)
			s.MaybeClose("p", detectWait)
			s.Fence("q", 2, "t", "w")
		},
		Judge: func(j *J) {
			n := j.Number("n")
			refused := false
			for _, i := range j.Got("p", history.PUBREC, history.DISCONNECT) {
				refused = refused || i.P.Type == history.DISCONNECT || i.P.Reason >= 0x80
				if i.P.Type == history.DISCONNECT && i.P.Reason != 0x93 {
					j.Note("DISCONNECT with 0x%02X, want 0x93", i.P.Reason)
				}
			}
			if !refused && !j.closedBy("p") {
				j.Fail(nil, "%d unreleased messages were accepted, Receive Maximum is %d", n, n-1)
			}
			if refused {
				Never("w", Body(n))(j)
			}
		},
	},
	{
		ID: "Q2I-20", Title: "while the window is full everything else is served", In: V5, Level: Must, Statements: "3.3.4-8 4.9.0-3", Needs: inWindow,
		Control: ControlQoS2, Faults: []string{"window-blocks"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			n := min(s.Caps.Receive, s.Pick(2000, 200))
			s.Fact("n", n)
			s.Send("p", Publishes(2, 1, n)...)
			s.Expect("p", Acks(history.PUBREC, 1, uint16(n))...)
			s.Ping("p")
			id := s.ID("p")
			s.Send("p", Msg{Type: packet.SUBSCRIBE, ID: id, Subs: []packet.Subscription{{Filter: "u", QoS: 1}}})
			s.Expect("p", Want{Type: history.SUBACK, ID: id})
			s.Send("p", P0("zero"))
			s.Expect("w", Del("zero"))
			s.Send("p", Rels(1, n)...)
			s.Expect("p", Acks(history.PUBCOMP, 1, uint16(n))...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) { OnceAnyOrder("w", append(Bodies(1, j.Number("n")), "zero")...)(j) },
	},
	{
		ID: "Q2I-21", Title: "a window whose PUBRELs come ten seconds late completes", In: Both, Level: Must, Statements: "4.3.3-2 | 4.3.3-8",
		Needs: inWindow, Control: ControlQoS2, Faults: []string{"lose", "pubrec-twice"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			n := min(s.Caps.Receive, 100)
			s.Fact("n", n)
			s.Send("p", Publishes(2, 1, n)...)
			s.Expect("p", Acks(history.PUBREC, 1, uint16(n))...)
			s.Wait(time.Duration(s.Pick(10_000, 1_000)) * time.Millisecond)
			s.Send("p", Rels(1, n)...)
			s.Expect("p", Acks(history.PUBCOMP, 1, uint16(n))...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			Once("w", Bodies(1, j.Number("n"))...)(j)
			Answered("p", history.PUBLISH, history.PUBREC, 2)(j)
		},
	},
	{
		ID: "Q2I-22", Title: "PUBRELs between new PUBLISH packets: order per packet type, exactly once", In: Both, Level: Must,
		Statements: "4.3.3-2 4.6.0-6 | 4.3.3-12 4.6.0-5", Needs: inWindow, Heavy: true, Faults: []string{"pubrec-swap", "pubcomp-swap", "deliver-swap"},
		Script: func(s *Script) {
			flowRule(s, Flow{QoS: 2, N: s.Pick(20_000, 1_000), Window: min(20, s.Caps.Receive)})
		},
		Judge: All(flowOnce, InOrder(RecOrder, "p", history.PUBLISH, history.PUBREC, 2), InOrder(Ordered, "p", history.PUBREL, history.PUBCOMP, 2)),
	},
	{
		ID: "Q2I-23", Title: "QoS 1 and QoS 2 in one window: each type of acknowledgement is ordered", In: Both, Level: Contract,
		Why: "what lies between the types is free", Needs: inWindow, Control: ControlQoS2, Faults: []string{"puback-swap", "pubrec-swap"},
		Script: func(s *Script) {
			s.Connect("p")
			n := min(40, s.Caps.Receive)
			var msgs []Msg
			var wants []Want
			for k := 1; k <= n; k++ {
				msgs = append(msgs, P(byte(1+k%2), k, Body(k)))
				wants = append(wants, Ack([]history.Type{history.PUBACK, history.PUBREC}[k%2], uint16(k)))
			}
			s.Send("p", msgs...)
			s.Expect("p", wants...)
			s.ReleaseSeen("p")
			s.Ping("p")
		},
		Judge: All(InOrder(Ordered, "p", history.PUBLISH, history.PUBACK, 1), InOrder(Ordered, "p", history.PUBLISH, history.PUBREC, 2)),
	},
	{
		ID: "Q2I-24", Title: "PUBRELs in reverse all get their PUBCOMP", In: Both, Level: Info, Why: "the client breaks [MQTT-4.6.0-4]",
		Needs: inWindow, Control: ControlQoS2,
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			s.Send("p", Publishes(2, 1, 4)...)
			s.Expect("p", Acks(history.PUBREC, 1, 4)...)
			s.Send("p", Rel(4), Rel(3), Rel(2), Rel(1))
			s.Expect("p", Acks(history.PUBCOMP, 1, 4)...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			OnceAnyOrder("w", Bodies(1, 4)...)(j)
			order := ""
			for _, d := range j.deliveries("w") {
				order += " " + d.Body
			}
			j.Note("delivered in the order%s", order)
		},
	},
	{
		ID: "Q2I-25", Title: "a PUBACK and a PUBCOMP for an inbound identifier do no harm", In: Both, Level: Info, Why: "a Protocol Error of the client: ignored, or closed",
		Needs: inWindow, Control: ControlQoS2,
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept)
			s.Send("p", P2(1, "A"))
			s.Expect("p", Ack(history.PUBREC, 1))
			s.Send("p", Answer(packet.PUBACK, 1), Answer(packet.PUBCOMP, 1))
			s.MaybeClose("p", holdWait)
			s.Resume("p")
			s.Send("p", D2(1, "A"))
			s.Expect("p", Ack(history.PUBREC, 1))
			s.Release("p", 1)
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(Once("w", "A"), func(j *J) { j.Note("closed at it: %v", j.closedBy("p")) }),
	},
	{
		ID: "Q2I-26", Title: "an identifier may be in use in both directions at once", In: Both, Level: Must, Statements: "2.3.1-1 | 2.2.1-3",
		Why: "sections 2.3.1 and 2.2.1: the two sides assign identifiers independently", Needs: inWindow, Control: ControlOutbound, Faults: []string{"one-id-space"},
		Script: func(s *Script) {
			s.Connect("p", Hold(history.PUBREC))
			s.Sub("p", 2, "in")
			s.Watch("w", 2, "t")
			s.Connect("q")
			s.Exchange("q", P2(1, "X").On("in"))
			s.Expect("p", Del("X"))
			out := P2(0, "A")
			out.Echo = 1
			s.Send("p", out)
			s.Expect("p", Echo(history.PUBREC, 1))
			s.Send("p", Reply(packet.PUBREC, 1))
			s.Expect("p", Echo(history.PUBREL, 1))
			s.Send("p", Reply(packet.PUBREL, 1))
			s.Expect("p", Echo(history.PUBCOMP, 1))
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(Once("w", "A"), Once("p", "X"), Codes(Must, "p", history.PUBREL, 0)),
	},
	{
		ID: "Q2I-27", Title: "an exchange whose message expires before its PUBREL completes", In: V5, Level: Must, Statements: "4.3.3-13", Needs: []Need{QoS2},
		Control: ControlQoS2, Faults: []string{"pubcomp-drop"},
		Script: func(s *Script) {
			s.Connect("p")
			s.Send("p", P2(1, "A").With(packet.Properties{MessageExpiry: packet.Some[uint32](1)}))
			s.Expect("p", Ack(history.PUBREC, 1))
			s.Wait(2 * time.Second)
			s.Release("p", 1)
		},
		Judge: Codes(Must, "p", history.PUBCOMP, 0, 0x92),
	},
	{
		ID: "Q2I-29", Title: "payloads of no, one, 64 Ki and many bytes in one window arrive in order and unchanged", In: Both, Level: Must,
		Statements: "4.3.3-2 4.6.0-6 | 4.3.3-8 4.6.0-5", Needs: inWindow, Faults: []string{"payload-cut"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			largest := 256 << 10
			if s.Caps.MaxPacket > 0 {
				largest = min(largest, s.Caps.MaxPacket-200)
			}
			sizes := []int{0, 1, 64 << 10, largest, 1000, 0, 127, 128, 16_383, 16_384}
			sizes = sizes[:min(len(sizes), s.Caps.Receive)]
			s.Fact("n", len(sizes))
			var msgs []Msg
			for k, size := range sizes {
				m := P2(k+1, Body(k+1))
				if m.Size = size; size == 0 {
					m.Body = ""
				}
				msgs = append(msgs, m)
			}
			s.Send("p", msgs...)
			s.Expect("p", Acks(history.PUBREC, 1, uint16(len(sizes)))...)
			s.Send("p", Rels(1, len(sizes))...)
			s.Expect("p", Acks(history.PUBCOMP, 1, uint16(len(sizes)))...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			var sent [][]byte
			for _, i := range j.Put("p", history.PUBLISH) {
				if !isFence(&i.P) {
					sent = append(sent, i.P.Payload)
				}
			}
			got := j.deliveries("w")
			for k, d := range got {
				if k >= len(sent) || !bytes.Equal(sent[k], d.P.Payload) {
					j.Fail([]Item{d.Item}, "delivery %d of %d bytes is not message %d", k+1, len(d.P.Payload), k+1)
					return
				}
			}
			if len(got) < len(sent) && j.h.Stuck == "" {
				j.Fail(nil, "%d of %d messages were delivered", len(got), len(sent))
			}
		},
	},
}
