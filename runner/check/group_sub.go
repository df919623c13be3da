package check

import (
	"fmt"

	"inflight/broker/packet"
	"inflight/runner/history"
)

var groupSUB = []*Rule{
	{
		ID: "SUB-01", Title: "a message is delivered at the lower of its own QoS and the subscription's", In: Both, Level: Must, Statements: "3.3.5-1 3.8.4-6 | 3.3.4-2 3.8.4-8",
		Needs: inWindow,
		Script: func(s *Script) {
			for q := range byte(3) {
				s.Watch(fmt.Sprintf("w%d", q), q, "t")
			}
			s.Connect("p")
			for q := range byte(3) {
				s.Exchange("p", P(q, int(q)+1, fmt.Sprintf("at%d", q)))
				s.Ping("p")
			}
			s.Fence("p", 2, "t", "w0", "w1", "w2")
		},
		Judge: func(j *J) {
			for q := range byte(3) {
				name := fmt.Sprintf("w%d", q)
				AtLeastOnceAny(name, "at0", "at1", "at2")(j)
				for _, d := range j.deliveries(name) {
					if want := min(q, d.Body[2]-'0'); d.P.QoS != want {
						j.Fail([]Item{d.Item}, "%s (QoS %d) got %q at QoS %d, want %d", name, q, d.Body, d.P.QoS, want)
					}
				}
			}
		},
	},
	{
		ID: "SUB-02", Title: "overlapping subscriptions get a message once at the highest QoS, or once for each; a repeated PUBREL adds none", In: Both, Level: Must,
		Statements: "3.3.5-1 | 3.3.4-2 3.3.4-3 3.3.4-4 3.3.4-5", Needs: []Need{QoS2, Deliver, Wildcards}, Faults: []string{"deliver-twice"},
		Script: func(s *Script) {
			s.Connect("w")
			for q, f := range []string{"a/+", "a/#", "a/b"} {
				s.Subscribe("w", nil, packet.Subscription{Filter: f, QoS: byte(q)})
			}
			s.Connect("p")
			s.Exchange("p", P2(1, "A").On("a/b"))
			s.Release("p", 1)
			s.Fence("p", 2, "a/b", "w")
		},
		Judge: func(j *J) {
			got := j.deliveries("w")
			var at []Item
			count := map[byte]int{}
			for _, d := range got {
				at = append(at, d.Item)
				count[d.P.QoS]++
			}
			switch {
			case j.h.Stuck != "":
			case len(got) != 1 && len(got) != 3:
				j.Fail(at, "%d copies, want one, or one for each of three subscriptions", len(got))
			case count[2] != 1:
				j.Fail(at, "%d copies at QoS 2, want one", count[2])
			}
			j.Note("%d copies for three overlapping subscriptions", len(got))
		},
	},
	{
		ID: "SUB-03", Title: "wildcards match what they must, once: + one level, # the parent too, and neither $ topics", In: Both, Level: Must, Statements: "4.7.1-2 4.7.1-3 4.7.3-4",
		Needs: []Need{QoS2, Deliver, Wildcards}, Faults: []string{"lose"},
		Script: func(s *Script) {
			s.Watch("plus", 2, "a/+")
			s.Watch("hash", 2, "a/#")
			s.Watch("deep", 2, "a/+/c")
			s.Watch("only", 2, "a")
			s.Connect("p")
			for k, topic := range wildTopics {
				s.Exchange("p", P2(k+1, topic).On(topic))
			}
			s.Fence("p", 2, "a", "only", "hash")
			s.Fence("p", 2, "a/x", "plus")
			s.Fence("p", 2, "a/x/c", "deep")
		},
		Judge: All(
			OnceAnyOrder("plus", "a/b", "a/"), OnceAnyOrder("hash", "a", "a/b", "a/", "a/b/c", "a//c", "a/b/c/d"), OnceAnyOrder("deep", "a/b/c", "a//c"), OnceAnyOrder("only", "a"),
		),
	},
	{
		ID: "SUB-04", Title: "a second SUBSCRIBE of a filter at a lower QoS does not disturb what is in flight", In: Both, Level: Must, Statements: "3.8.4-3 | 3.8.4-3 3.8.4-4",
		Needs: inWindow, Control: ControlOutbound, Faults: []string{"pubrel-out-drop", "lose"},
		Script: func(s *Script) {
			subscriber(s, holding)
			publish(s, 2, 1, 5)
			s.Expect("w", Dels(Bodies(1, 5)...)...)
			s.Sub("w", 1, "t")
			s.Mode("w", Mode{})
			s.Send("w", replies(packet.PUBREC, 1, 5)...)
			s.Expect("w", echoes(history.PUBREL, 1, 5)...)
			publish(s, 2, 6, 5)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			Once("w", Bodies(1, 10)...)(j)
			for _, d := range j.deliveries("w")[min(5, len(j.deliveries("w"))):] {
				if d.P.QoS > 1 {
					j.Fail([]Item{d.Item}, "%q was delivered at QoS %d after the subscription was replaced by one at QoS 1", d.Body, d.P.QoS)
				}
			}
		},
	},
	{
		ID: "SUB-05", Title: "a retained message at QoS 2: live without RETAIN, later subscribers get it with RETAIN and its QoS", In: Both, Level: Must,
		Statements: "3.3.1-5 3.3.1-8 3.3.1-9 | 3.3.1-5 3.3.1-8 3.3.1-9 3.3.1-12", Needs: []Need{QoS2, Deliver, Retain},
		Script: func(s *Script) {
			s.Retained = append(s.Retained, "t")
			s.Connect("p")
			s.Send("p", P2(1, "A").Retained())
			s.Expect("p", Ack(history.PUBREC, 1))
			s.Watch("early", 2, "t")
			s.Quiet(Settle)
			s.Release("p", 1)
			s.Fence("p", 2, "t", "early")
			s.Watch("later", 2, "t")
			s.Expect("later", Del("A"))
			s.Exchange("p", P2(2, "B").Retained())
			s.Watch("last", 2, "t")
			s.Expect("last", Del("B"))
			s.Quiet(Settle)
		},
		Judge: func(j *J) {
			Once("later", "A", "B")(j)
			Once("last", "B")(j)
			if j.Caps.Method == "A" {
				Once("early", "A", "B")(j)
			}
			for name, kept := range map[string]int{"later": 1, "last": 1, "early": 0} {
				for k, d := range j.deliveries(name) {
					if want := k < kept; d.P.Retain != want && j.Caps.Method == "A" {
						j.Fail([]Item{d.Item}, "%s got %q with RETAIN %v, want %v", name, d.Body, d.P.Retain, want)
					}
					if d.P.QoS != 2 {
						j.Fail([]Item{d.Item}, "%s got %q at QoS %d, want 2", name, d.Body, d.P.QoS)
					}
				}
			}
		},
	},
	{
		ID: "SUB-06", Title: "an empty retained message removes the one that is kept, and is delivered live once", In: Both, Level: Must, Statements: "3.3.1-10 3.3.1-11 | 3.3.1-6 3.3.1-7",
		Needs: []Need{QoS2, Deliver, Retain},
		Script: func(s *Script) {
			s.Retained = append(s.Retained, "t")
			s.Connect("p", Kept)
			s.Exchange("p", P2(1, "A").Retained())
			s.Watch("w", 2, "t")
			s.Expect("w", Del("A"))
			s.Send("p", P2(2, "").Retained())
			s.Expect("p", Ack(history.PUBREC, 2))
			s.Send("p", D2(2, "").Retained())
			s.Expect("p", Ack(history.PUBREC, 2))
			s.Cut("p")
			s.Resume("p")
			s.Release("p", 2)
			s.Fence("p", 2, "t", "w")
			s.Watch("later", 2, "t")
			s.Fence("p", 2, "t", "later")
		},
		Judge: func(j *J) {
			Once("w", "A", "")(j)
			Never("later")(j)
		},
	},
	{
		ID: "SUB-07", Title: "a retained message that is released on a resumed connection keeps its RETAIN and QoS", In: Both, Level: Must, Statements: "3.3.1-5",
		Needs: []Need{QoS2, Deliver, Retain}, Control: ControlResume, Faults: []string{"resume-forgets"},
		Script: func(s *Script) {
			s.Retained = append(s.Retained, "t")
			s.Connect("p", Kept)
			s.Send("p", P2(3, "A").Retained())
			s.Expect("p", Ack(history.PUBREC, 3))
			s.Cut("p")
			s.Resume("p")
			s.Exchange("p", P(0, 0, "other").On("u"))
			s.Release("p", 3)
			s.Fence("p", 2, "u")
			s.Watch("w", 2, "t")
			s.Expect("w", Del("A"))
			s.Quiet(Settle)
		},
		Judge: func(j *J) {
			Once("w", "A")(j)
			for _, d := range j.deliveries("w") {
				if !d.P.Retain || d.P.QoS != 2 {
					j.Fail([]Item{d.Item}, "A came with RETAIN %v at QoS %d, want true and 2", d.P.Retain, d.P.QoS)
				}
			}
		},
	},
	{
		ID: "SUB-08", Title: "a shared message at QoS 2 in flight to a member is completed to that member, or to nobody", In: V5, Level: Must, Statements: "4.8.2-3 4.8.2-4 4.8.2-5",
		Needs: []Need{QoS2, Deliver, Shared}, Control: ControlResume,
		Script: func(s *Script) {
			s.Connect("w", Kept, holding)
			s.Sub("w", 2, "$share/g/t")
			s.Connect("p")
			publish(s, 2, 1, 2)
			s.Expect("w", Dels(Bodies(1, 2)...)...)
			s.Send("w", Reply(packet.PUBREC, 1))
			s.Expect("w", Echo(history.PUBREL, 1))
			s.Connect("x")
			s.Sub("x", 2, "$share/g/t")
			s.Cut("w")
			s.Quiet(2 * Settle)
			s.Resume("w")
			s.ExpectResent("w", Want{Type: history.PUBREL}, Del(Body(2)))
			s.Quiet(2 * Settle)
		},
		Judge: func(j *J) {
			OnceAnyOrder("w", Bodies(1, 2)...)(j)
			Never("x", Bodies(1, 2)...)(j)
		},
	},
	{
		ID: "SUB-09", Title: "a shared message that a member refuses is discarded, not given to another", In: V5, Level: Must, Statements: "4.8.2-6",
		Needs: []Need{QoS2, Deliver, Shared}, Control: ControlOutbound,
		Script: func(s *Script) {
			s.Connect("w", holding)
			s.Sub("w", 2, "$share/g/t")
			s.Connect("p")
			publish(s, 2, 1, 1)
			s.Expect("w", Del(Body(1)))
			s.Connect("x")
			s.Sub("x", 2, "$share/g/t")
			m := Reply(packet.PUBREC, 1)
			m.Code = 0x80
			s.Send("w", m)
			s.Quiet(3 * Settle)
		},
		Judge: Never("x"),
	},
	{
		ID: "SUB-10", Title: "a shared group gets each message at QoS 2 once, while members come and go", In: Both, Level: Must, Statements: "- | 4.8.2-4 4.8.2-5",
		Why: "exactly once is of the group; 3.1.1 has shared subscriptions as an extension", Needs: []Need{QoS2, Deliver, Shared}, Heavy: true, Control: ControlResume,
		Script: func(s *Script) {
			for k := range 4 {
				w := fmt.Sprintf("w%d", k)
				s.Connect(w, Kept)
				s.Sub(w, 2, "$share/g/t")
			}
			s.Connect("p")
			n := s.Pick(10_000, 400)
			s.Fact("n", n)
			s.Flows(&Cutter{Conn: "w0", Every: 50e6, Times: s.Pick(20, 5)}, Stream{"p", Flow{QoS: 2, N: n, Window: min(64, s.Caps.Receive)}})
			s.Quiet(10 * Settle)
		},
		Judge: func(j *J) {
			seen := map[string]Item{}
			for k := range 4 {
				for _, d := range j.deliveries(fmt.Sprintf("w%d", k)) {
					if first, again := seen[d.Body]; again {
						j.Fail([]Item{first, d.Item}, "%q was delivered twice to the group", d.Body)
						return
					}
					seen[d.Body] = d.Item
				}
			}
			if n := j.Number("n"); len(seen) < n && j.h.Stuck == "" {
				j.Fail(nil, "%d of %d messages were delivered, and no session of the group has ended", len(seen), n)
			}
		},
	},
	{
		ID: "SUB-11", Title: "No Local: a client does not get its own message", In: V5, Level: Must, Statements: "3.8.3-3", Needs: inWindow,
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			s.Subscribe("p", nil, packet.Subscription{Filter: "t", QoS: 2, NoLocal: true})
			s.Exchange("p", P2(1, "A"))
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(Never("p"), Once("w", "A")),
	},
	{
		ID: "SUB-12", Title: "a SUBSCRIBE inside a window gets its SUBACK, and what is published after it is delivered", In: Both, Level: Must, Statements: "3.9.3-1 3.8.4-1 3.8.4-2 | 3.8.4-1 3.8.4-2",
		Needs: inWindow, Faults: []string{"lose"},
		Script: func(s *Script) {
			s.Connect("p")
			n := min(100, s.Caps.Receive)
			s.Fact("n", n)
			sub := Msg{Type: packet.SUBSCRIBE, ID: 50_000, Subs: []packet.Subscription{{Filter: "t", QoS: 1}}}
			s.Send("p", append(append(Publishes(2, 1, n/2), sub), Publishes(2, n/2+1, n-n/2)...)...)
			s.Expect("p", append(Acks(history.PUBREC, 1, uint16(n)), Want{Type: history.SUBACK, ID: 50_000})...)
			s.Send("p", Rels(1, n)...)
			s.Expect("p", Acks(history.PUBCOMP, 1, uint16(n))...)
			s.Exchange("p", P2(n+1, "after"))
			s.Fence("p", 2, "t", "p")
		},
		Judge: func(j *J) {
			found := false
			for _, d := range j.deliveries("p") {
				found = found || d.Body == "after"
			}
			if !found && j.h.Stuck == "" {
				j.Fail(nil, "what was published after the SUBACK was not delivered")
			}
		},
	},
	{
		ID: "SUB-13", Title: "a message that nobody subscribes does not surface when its identifier is used again", In: Both, Level: Must, Statements: "4.3.3-2 | 4.3.3-12", Needs: inWindow,
		Faults: []string{"reuse-as-dup"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			s.Exchange("p", P2(1, "nobody").On("x"))
			s.Exchange("p", P2(1, "A"))
			s.Fence("p", 2, "t", "w")
		},
		Judge: Once("w", "A"),
	},
}

// wildTopics are published on, each with itself as the body.
var wildTopics = []string{"a", "a/b", "a/", "a/b/c", "a//c", "a/b/c/d", "b/a", "ab/c"}
