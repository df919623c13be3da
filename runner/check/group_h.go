package check

import (
	"inflight/broker/packet"
	"inflight/runner/history"
)

// connectMsg is a CONNECT for a connection that was only dialled.
func connectMsg(options ...ConnectOption) Msg {
	c := &Connect{}
	for _, o := range options {
		o(c)
	}
	return Msg{Type: packet.CONNECT, Connect: c}
}

var connack = Want{Type: history.CONNACK}

// flagsAt is the index of the Connect Flags: they follow the fixed header, the name of six bytes and the level.
func flagsAt(b []byte) int {
	at := 1
	for b[at] >= 0x80 {
		at++
	}
	return at + 1 + 6 + 1
}

var groupH = []*Rule{
	{
		ID: "H-01", Title: "a CONNECT is answered by a CONNACK, first of all", In: Both, Level: Must,
		Statements: "3.2.0-1 3.1.4-4 | 3.2.0-1 3.1.4-5",
		Script: func(s *Script) {
			s.Dial("p")
			s.Send("p", connectMsg())
			s.Expect("p", connack)
		},
		Judge: func(j *J) {
			got := j.Got("p")
			if len(got) > 0 && (got[0].P.Type != history.CONNACK || got[0].P.Reason != 0) {
				j.Fail(got[:1], "the first packet is %v", got[0].P.String())
			}
		},
	},
	{
		ID: "H-02", Title: "a clean session is never present", In: Both, Level: Must, Statements: "3.2.2-1 | 3.2.2-2 3.1.2-4",
		Script: func(s *Script) {
			s.Connect("p", Kept)
			s.Cut("p")
			s.Reconnect("p")
			s.Disconnect("p")
			s.Reconnect("p")
		},
		Judge: All(Present("p", 2, false), Present("p", 3, false)),
	},
	{
		ID: "H-03", Title: "a kept session is present at the second connection, not at the first", In: Both, Level: Must,
		Statements: "3.2.2-2 3.2.2-3 | 3.2.2-3 3.1.2-5", Faults: []string{"session-lost"},
		Script: func(s *Script) {
			s.Connect("p", Kept)
			s.Cut("p")
			s.Resume("p")
		},
		Judge: All(Present("p", 1, false), Present("p", 2, true)),
	},
	{
		ID: "H-04", Title: "a connection whose first packet is no CONNECT is closed, and the packet has no effect", In: Both, Level: Must, Statements: "3.1.0-1",
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("q")
			s.Dial("p")
			s.Send("p", P1(1, "A"))
			s.ExpectClose("p")
			s.Fence("q", 1, "t", "w")
		},
		Needs: []Need{QoS1, Deliver},
		Judge: All(Never("w"), NoneOf("p", history.CONNACK, history.PUBACK)),
	},
	{
		ID: "H-05", Title: "a second CONNECT closes the connection", In: Both, Level: Must, Statements: "3.1.0-2",
		Script: func(s *Script) {
			s.Connect("p")
			s.Send("p", connectMsg())
			s.ExpectClose("p")
		},
		Judge: func(j *J) {
			if len(j.Got("p", history.CONNACK)) > 1 {
				j.Fail(j.Got("p", history.CONNACK), "the second CONNECT was accepted")
			}
			disconnectCode(j, "p", 0x82)
		},
	},
	{
		ID: "H-06", Title: "packets behind the CONNECT in the same segment are served", In: Both, Level: Must, Statements: "3.1.4-4 | 3.1.4-5",
		Why:   "a Client may send before its CONNACK (section 3.1.4), and what is accepted is acknowledged",
		Needs: []Need{QoS1, Deliver},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Dial("p")
			s.Send("p", connectMsg(), P1(1, "m1"), P1(2, "m2"))
			s.Expect("p", connack, Ack(history.PUBACK, 1), Ack(history.PUBACK, 2))
			s.Fence("p", 1, "t", "w")
		},
		Judge: AtLeastOnce("w", "m1", "m2"),
	},
	{
		ID: "H-07", Title: "nothing behind a CONNECT that is refused is processed", In: Both, Level: Must, Statements: "3.1.4-5 | 3.1.4-6",
		Needs: []Need{QoS2, Deliver},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("q")
			s.Dial("p")
			s.Send("p", connectMsg(func(c *Connect) { c.Level = 9 }), P2(1, "A"), Rel(1))
			s.ExpectClose("p")
			s.Fence("q", 2, "t", "w")
		},
		Judge: All(Never("w"), NoneOf("p", history.PUBREC, history.PUBCOMP)),
	},
	{
		ID: "H-08", Title: "an unknown Protocol Level is refused with return code 1, and the connection closed", In: V4, Level: Must, Statements: "3.1.2-2",
		Why: "a broker that also speaks 5.0 may say 0x84",
		Script: func(s *Script) {
			s.Dial("p")
			s.Send("p", connectMsg(func(c *Connect) { c.Level = 9 }))
			s.ExpectClose("p")
		},
		Judge: func(j *J) {
			got := j.Got("p", history.CONNACK)
			switch {
			case len(got) == 0:
				j.Fail(nil, "there is no CONNACK with return code 1")
			case got[0].P.Reason != 1 && got[0].P.Reason != 0x84:
				j.Fail(got, "the return code is %d, want 1", got[0].P.Reason)
			}
		},
	},
	{
		ID: "H-09", Title: "an empty Client Identifier is refused with a kept session (3.1.1), or gets one that is unique (5.0)", In: Both, Level: Must,
		Statements: "3.1.3-8 | 3.1.3-6 3.1.3-7 3.2.2-16",
		Script: func(s *Script) {
			if !s.Is5() {
				s.Dial("p")
				s.Send("p", connectMsg(ClientID(""), Kept))
				s.Expect("p", connack)
				s.ExpectClose("p")
				return
			}
			for _, conn := range []string{"p", "q"} {
				s.Dial(conn)
				s.Send(conn, connectMsg(ClientID("")))
				s.Expect(conn, connack)
			}
		},
		Judge: func(j *J) {
			seen := map[string]bool{}
			for _, i := range append(j.Got("p", history.CONNACK), j.Got("q", history.CONNACK)...) {
				id, ok := i.P.Prop(history.PropAssignedClientID)
				switch {
				case !j.Is5() && i.P.Reason != 2:
					j.Fail([]Item{i}, "the return code is %d, want 2", i.P.Reason)
				case !j.Is5():
				case i.P.Reason != 0:
					j.Note("an empty Client Identifier is refused with 0x%02X", i.P.Reason)
				case !ok || id.Str == "":
					j.Fail([]Item{i}, "the CONNACK has no Assigned Client Identifier")
				case seen[id.Str]:
					j.Fail([]Item{i}, "two clients got the identifier %q", id.Str)
				}
				seen[id.Str] = true
			}
		},
	},
	{
		ID: "H-10", Title: "a Will above the announced Maximum QoS is refused with 0x9B", In: V5, Level: Must, Statements: "3.2.2-12", Needs: []Need{LowQoS},
		Script: func(s *Script) {
			s.Dial("p")
			s.Send("p", connectMsg(WithWill(Will{Topic: "will", Body: "W", QoS: 2})))
			s.Expect("p", connack)
		},
		Judge: Codes(Must, "p", history.CONNACK, 0x9B),
	},
	{
		ID: "H-11", Title: "a Receive Maximum of 0 is a Protocol Error", In: V5, Level: Info, Why: "section 3.1.2.11.3, without a number",
		Script: func(s *Script) {
			s.Dial("p")
			s.Send("p", connectMsg(Receive(0)))
			s.Maybe("p", detectWait, connack)
			s.ExpectClose("p")
		},
		Judge: func(j *J) {
			for _, i := range j.Got("p", history.CONNACK) {
				if i.P.Reason == 0 {
					j.Fail([]Item{i}, "it was accepted")
				} else if i.P.Reason != 0x82 {
					j.Note("refused with 0x%02X, section 4.13 suggests 0x82", i.P.Reason)
				}
			}
		},
	},
	{
		ID: "H-12", Title: "the reserved Connect Flag closes the connection", In: Both, Level: Must, Statements: "3.1.2-3",
		Script: func(s *Script) {
			s.Dial("p")
			s.Send("p", connectMsg().Wrong("reserved flag set", func(b []byte) []byte { b[flagsAt(b)] |= 1; return b }))
			s.ExpectClose("p")
		},
		Judge: accepted("p", "the CONNECT was accepted"),
	},
	{
		ID: "H-13", Title: "a Will QoS of 3 closes the connection", In: Both, Level: Must, Statements: "3.1.2-14 | 3.1.2-12",
		Script: func(s *Script) {
			s.Dial("p")
			will := connectMsg(WithWill(Will{Topic: "will", Body: "W", QoS: 1}))
			s.Send("p", will.Wrong("Will QoS 3", func(b []byte) []byte { b[flagsAt(b)] |= 3 << 3; return b }))
			s.ExpectClose("p")
		},
		Judge: accepted("p", "the CONNECT was accepted"),
	},
}

// accepted fails when a connection got a CONNACK that accepts.
func accepted(conn, text string) func(*J) {
	return func(j *J) {
		for _, i := range j.Got(conn, history.CONNACK) {
			if i.P.Reason == 0 {
				j.Fail([]Item{i}, "%s", text)
			}
		}
	}
}

// disconnectCode notes with what Reason Code the broker ended a connection of 5.0, where the specification names one.
func disconnectCode(j *J, conn string, want byte) {
	if !j.Is5() {
		return
	}
	got := j.Got(conn, history.DISCONNECT)
	switch {
	case len(got) == 0:
		j.Note("closed without a DISCONNECT, which could say 0x%02X", want)
	case got[0].P.Reason != want:
		j.Note("DISCONNECT with 0x%02X, the specification suggests 0x%02X", got[0].P.Reason, want)
	}
}
