package check

import (
	"fmt"

	"inflight/broker/packet"
	"inflight/runner/history"
)

// bursts are the sizes of a window that is written at once, within the broker's Receive Maximum.
func bursts(s *Script, sizes ...int) []int {
	var some []int
	for _, n := range sizes {
		if n <= s.Caps.Receive {
			some = append(some, n)
		}
	}
	switch {
	case len(some) == 0:
		some = []int{s.Caps.Receive}
	case s.Quick && len(some) > 2:
		some = []int{some[0], some[len(some)-1]}
	}
	return some
}

// burst is the name of the connection and the topic of a burst of n.
func burst(n int) (conn, topic string) { return fmt.Sprintf("p%d", n), fmt.Sprintf("t%d", n) }

// publishesOn are Publishes on another topic.
func publishesOn(topic string, qos byte, first, n int) []Msg {
	all := Publishes(qos, first, n)
	for i := range all {
		all[i].Topic = topic
	}
	return all
}

// burstSizes are the windows that every burst row goes through.
var burstSizes = []int{2, 10, 20, 100, 1024}

var groupA1 = []*Rule{
	{
		ID: "A1-01", Title: "a PUBLISH at QoS 1 is answered by one PUBACK with its identifier", In: Both, Level: Must,
		Statements: "4.3.2-2 2.3.1-6 | 4.3.2-4 2.2.1-5", Needs: []Need{QoS1, Deliver}, Faults: []string{"puback-drop", "puback-wrong-id", "puback-twice", "puback-error"},
		Script: func(s *Script) {
			s.Watch("w", 1, "t")
			s.Connect("p")
			s.Exchange("p", P1(1, "A"))
			s.Fence("p", 1, "t", "w")
		},
		Judge: All(Answered("p", history.PUBLISH, history.PUBACK, 1), Codes(Must, "p", history.PUBACK, 0, 0x10), AtLeastOnce("w", "A")),
	},
	{
		ID: "A1-02", Title: "a window of PUBLISH packets in one write gets exactly one PUBACK each", In: Both, Level: Must,
		Statements: "4.3.2-2 | 4.3.2-4", Needs: []Need{QoS1}, Faults: []string{"puback-drop", "puback-twice"},
		Script: func(s *Script) {
			for _, n := range bursts(s, burstSizes...) {
				conn, topic := burst(n)
				s.Connect(conn)
				s.Send(conn, publishesOn(topic, 1, 1, n)...)
				s.Expect(conn, Acks(history.PUBACK, 1, uint16(n))...)
				s.Fence(conn, 1, topic)
			}
		},
		Judge: each(func(conn string) Test { return Answered(conn, history.PUBLISH, history.PUBACK, 1) }),
	},
	{
		ID: "A1-03", Title: "PUBACKs come in the order of the PUBLISH packets", In: Both, Level: Contract,
		Why: "[MQTT-4.6.0-2] binds the Client; a broker may declare it", Needs: []Need{QoS1}, Faults: []string{"puback-swap"},
		Script: func(s *Script) {
			for _, n := range bursts(s, burstSizes...) {
				conn, topic := burst(n)
				s.Connect(conn)
				s.Send(conn, publishesOn(topic, 1, 1, n)...)
				s.Expect(conn, Acks(history.PUBACK, 1, uint16(n))...)
			}
		},
		Judge: each(func(conn string) Test { return InOrder(Ordered, conn, history.PUBLISH, history.PUBACK, 1) }),
	},
	{
		ID: "A1-04", Title: "an identifier that was acknowledged carries a new message, whatever DUP says", In: Both, Level: Must,
		Statements: "4.3.2-2 | 4.3.2-5", Needs: []Need{QoS1, Deliver}, Faults: []string{"dup-drop"},
		Script: func(s *Script) {
			s.Watch("w", 1, "t")
			s.Connect("p")
			s.Exchange("p", P1(5, "A"))
			s.Exchange("p", D1(5, "B"))
			s.Fence("p", 1, "t", "w")
		},
		Judge: All(AtLeastOnce("w", "A", "B"), Answered("p", history.PUBLISH, history.PUBACK, 1)),
	},
	{
		ID: "A1-05", Title: "a repetition before the PUBACK is acknowledged, and the message delivered", In: Both, Level: Info,
		Why: "a broker may merge both", Needs: []Need{QoS1, Deliver},
		Script: func(s *Script) {
			s.Watch("w", 1, "t")
			s.Connect("p")
			s.Send("p", P1(5, "A"), D1(5, "A"))
			s.Expect("p", Ack(history.PUBACK, 5))
			s.Maybe("p", holdWait, Ack(history.PUBACK, 5))
			s.Fence("p", 1, "t", "w")
		},
		Judge: All(AtLeastOnce("w", "A"), func(j *J) { j.Note("%d PUBACKs for a PUBLISH and its repetition", len(j.Got("p", history.PUBACK))-1) }),
	},
	{
		ID: "A1-06", Title: "all identifiers are used up and used again: counts are exact and the order is kept", In: Both, Level: Must,
		Statements: "2.3.1-2 2.3.1-3 4.6.0-6 | 2.2.1-3 4.6.0-5", Needs: []Need{QoS1, Deliver}, Heavy: true, Faults: []string{"lose", "deliver-swap"},
		Script: func(s *Script) {
			s.Watch("w", 1, "t")
			s.Connect("p")
			n := s.Pick(66_000, 2_000)
			s.Fact("n", n)
			s.Flow("p", Flow{QoS: 1, N: n, Window: min(64, s.Caps.Receive), IDs: s.Pick(65_535, 1_000)})
			s.Fence("p", 1, "t", "w")
		},
		Judge: func(j *J) {
			Answered("p", history.PUBLISH, history.PUBACK, 1)(j)
			AtLeastOnce("w", numbered("m", j.Number("n"))...)(j)
		},
	},
	{
		ID: "A1-07", Title: "a message that came with DUP goes to subscribers without", In: Both, Level: Must, Statements: "3.3.1-3",
		Needs: []Need{QoS1, Deliver}, Faults: []string{"dup-out"},
		Script: func(s *Script) {
			s.Watch("w", 1, "t")
			s.Connect("p")
			s.Exchange("p", D1(5, "A"))
			s.Fence("p", 1, "t", "w")
		},
		Judge: All(AtLeastOnce("w", "A"), firstCopyWithoutDup("w")),
	},
	{
		ID: "A1-10", Title: "Topic Aliases apply in packet order inside a window", In: V5, Level: Must, Statements: "3.3.2-12",
		Needs: []Need{QoS1, Aliases, Deliver}, Faults: []string{"alias-stale"},
		Script: func(s *Script) {
			s.Watch("w", 1, "t", "u")
			s.Connect("p")
			n := min(100, s.Caps.Receive)
			s.Fact("n", n)
			var msgs []Msg
			for k := 1; k <= n; k++ {
				m := P1(k, Body(k)).On("").With(packet.Properties{TopicAlias: packet.Some[uint16](1)})
				switch k {
				case 1:
					m.Topic = "t"
				case n/2 + 1:
					m.Topic = "u"
				}
				msgs = append(msgs, m)
			}
			s.Send("p", msgs...)
			s.Expect("p", Acks(history.PUBACK, 1, uint16(n))...)
			s.Fence("p", 1, "t", "w")
			s.Fence("p", 1, "u", "w")
		},
		Judge: func(j *J) {
			n := j.Number("n")
			got := map[string]string{}
			for _, d := range j.deliveries("w") {
				got[d.Body] = d.P.Topic
			}
			for k := 1; k <= n; k++ {
				want := "t"
				if k > n/2 {
					want = "u"
				}
				if got[Body(k)] != want {
					j.Fail(nil, "message %d was delivered on %q, want %q", k, got[Body(k)], want)
					return
				}
			}
		},
	},
}

// each makes a judgement of one for every burst that was there.
func each(test func(conn string) Test) func(*J) {
	return func(j *J) {
		for _, c := range j.h.Conns {
			if c.Nth == 1 && len(c.Name) > 1 && c.Name[0] == 'p' {
				test(c.Name)(j)
			}
		}
	}
}

// numbered are the bodies of a flow of n messages.
func numbered(prefix string, n int) []string {
	all := make([]string, n)
	for k := range all {
		all[k] = fmt.Sprintf("%s%d", prefix, k)
	}
	return all
}

// firstCopyWithoutDup wants DUP 0 on the first delivery of every message.
func firstCopyWithoutDup(name string) Test {
	return func(j *J) {
		seen := map[string]bool{}
		for _, d := range j.deliveries(name) {
			if !seen[d.Body] && d.P.Dup {
				j.Fail([]Item{d.Item}, "the first delivery of %q has DUP set", d.Body)
			}
			seen[d.Body] = true
		}
	}
}
