package check

import (
	"strings"
	"time"

	"inflight/runner/history"
)

// deniedEvery is which messages of a burst go to the topic that is denied: every third.
const deniedEvery = 3

// Sizes of the flows over a slow store, and the rate at window 1 above which it is none.
const (
	slowWindow  = 256
	slowSingles = 20
	slowTurns   = 2  // a broker that answers one after the other takes half a minute
	slowMost    = 50 // a second: 20 ms
	slowShare   = 4  // a flow at the window is faster by at least this part of it
)

// fenceIDs are the identifiers from which on a script's fences take theirs.
const fenceIDs = 60_000

// hookWait is how long a client waits for what a broker need not do.
const hookWait = 5 * time.Second

// groupHooks are the rules of the groups A1, Q2I, RES and E2E that need more of a broker than its listener: that it refuses
// something, that its process ends, that its store fails, that it has several nodes.
var groupHooks = []*Rule{
	{
		ID: "A1-08", Title: "publications that are not authorised, among others in one window: refused with 0x87 (5.0), acknowledged or the connection closed (3.1.1); none delivered",
		In: Both, Level: Must, Statements: "3.3.5-2 | 3.4.2-1 4.3.2-4", Needs: []Need{QoS1, Deliver, NeedsACL}, Faults: []string{"acl-ignored", "refusal-drop"},
		Script: func(s *Script) {
			s.Watch("w", 1, "t")
			s.Watch("d", 1, deniedTopic)
			s.Connect("p")
			n := min(20, s.Caps.Receive)
			s.Fact("n", n)
			msgs := Publishes(1, 1, n)
			var allowed []string
			for k := range msgs {
				if isDenied(k + 1) {
					msgs[k].Topic = deniedTopic
				} else {
					allowed = append(allowed, Body(k+1))
				}
			}
			s.Send("p", msgs...)
			s.Maybe("p", hookWait, Acks(history.PUBACK, 1, uint16(n))...)
			s.Maybe("w", detectWait, Dels(allowed...)...)
			s.Connect("q")
			s.Fence("q", 1, "t", "w")
		},
		Judge: judgeRefusals,
	},
	{
		ID: "A1-09", Title: "the store fails in the middle of a burst: no PUBACK for what is not stored, and the connection is closed, not silent", In: Both, Level: Must,
		Statements: "4.3.2-2 | 4.3.2-4", Why: "PUBACK takes the ownership of a message over; section 4.8 ; 4.13", Control: ControlQoS1,
		Slow: true, Needs: []Need{QoS1, Deliver, Durable, NeedsStore}, Faults: []string{"puback-early"},
		Script: func(s *Script) {
			s.Connect("w", Kept)
			s.Sub("w", 1, "t")
			s.Disconnect("w")
			s.Connect("p")
			n := s.Pick(20_000, 1_000)
			s.Fact("n", n)
			s.Storm(Blow{Hook: HookStopStore, After: n / 4}, nil,
				Stream{"p", Flow{QoS: 1, N: n, Window: min(64, s.Caps.Receive), Brittle: true}})
			s.Resume("w")
			s.Connect("q")
			s.Fence("q", 1, "t", "w")
		},
		Judge: func(j *J) {
			got := map[string]bool{}
			for _, d := range j.deliveries("w") {
				got[d.Body] = true
			}
			acked := j.acknowledgedBodies("p")
			var lost []string
			for _, b := range acked {
				if !got[b] {
					lost = append(lost, b)
				}
			}
			if len(lost) > 0 && j.h.Stuck == "" {
				j.Fail(nil, "PUBACK was sent for %s, and they were not in the store", shortList(lost))
			}
			if n := j.Number("n"); len(acked) < n && !j.closedBy("p") {
				j.Fail(nil, "%d of %d messages were acknowledged, and the connection was left open without a word", len(acked), n)
			}
			j.Note("%d of %d messages were acknowledged; the connection was closed: %v", len(acked), j.Number("n"), j.closedBy("p"))
		},
	},
	{
		ID: "Q2I-28", Title: "the identifier of a message that was refused with PUBREC carries the next message; no PUBREL is owed", In: V5, Level: Must,
		Statements: "4.3.3-9 3.5.2-1", Needs: []Need{QoS2, Deliver, NeedsACL}, Faults: []string{"refused-kept"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Watch("d", 2, deniedTopic)
			s.Connect("p")
			s.Send("p", P2(5, "X").On(deniedTopic))
			s.Expect("p", Ack(history.PUBREC, 5))
			s.Exchange("p", P2(5, "A"))
			s.Send("p", P2(6, "Y").On(deniedTopic), P2(7, "B"), P2(8, "Z").On(deniedTopic))
			s.Expect("p", Acks(history.PUBREC, 6, 8)...)
			s.Send("p", P2(6, "C"), P2(8, "D"))
			s.Expect("p", Ack(history.PUBREC, 6), Ack(history.PUBREC, 8))
			for _, id := range []uint16{7, 6, 8} {
				s.Release("p", id)
			}
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			Never("d")(j)
			if j.closedBy("p") {
				j.StuckIsFine()
				j.Find(Info, nil, "the broker closed the connection at what it refused: there is no identifier to use again")
				return
			}
			first := map[uint16]bool{}
			for _, i := range j.Got("p", history.PUBREC) {
				fresh := !first[i.P.ID]
				first[i.P.ID] = true
				switch refuse := i.P.ID != 7 && fresh && i.P.ID < fenceIDs; {
				case refuse && i.P.Reason < 0x80:
					j.Unsure("PUBREC(%d) does not refuse what is denied (0x%02X): there is no refused exchange to look at", i.P.ID, i.P.Reason)
					return
				case !refuse && i.P.Reason >= 0x80:
					j.Fail([]Item{i}, "PUBREC(%d) refuses with 0x%02X what may be published", i.P.ID, i.P.Reason)
				}
			}
			OnceAnyOrder("w", "A", "B", "C", "D")(j)
		},
	},
	{
		ID: "RES-13", Title: "a restart and a crash of the broker in the middle of exchanges: each is completed, and delivered once", In: Both, Level: Contract,
		Statements: "4.1.0-1", Why: "binds a broker that declares its store durable", Control: ControlResume,
		Needs: []Need{QoS2, Deliver, Durable, NeedsRestart}, Faults: []string{"pubrec-early", "restart-twice", "moved-forgets"},
		Script: func(s *Script) {
			s.Connect("w", Kept)
			s.Sub("w", 2, "t")
			for _, way := range restartWays(s.Caps) {
				a, b, c := "a"+way, "b"+way, "c"+way
				for _, conn := range []string{a, b, c} {
					s.Connect(conn, Kept)
					s.Send(conn, P2(3, conn))
					s.Expect(conn, Ack(history.PUBREC, 3))
				}
				s.Send(c, Rel(3))
				s.Wait(sweep(s))
				s.Hook(way)
				s.Resume("w")
				s.Resume(a)
				s.Send(a, D2(3, a))
				s.Expect(a, Ack(history.PUBREC, 3))
				s.Release(a, 3)
				for _, conn := range []string{b, c} {
					s.Resume(conn)
					s.Release(conn, 3)
				}
				s.AwaitAll("w", a, b, c)
				s.Fence(a, 2, "t", "w")
			}
		},
		Judge: func(j *J) {
			var bodies []string
			for k, way := range restartWays(j.Caps) {
				Present("w", k+2, true)(j)
				for _, conn := range []string{"a" + way, "b" + way, "c" + way} {
					Present(conn, 2, true)(j)
					noErrors(conn, history.PUBREC)(j)
					bodies = append(bodies, conn)
				}
			}
			OnceAnyOrder("w", bodies...)(j)
		},
	},
	{
		ID: "E2E-05", Title: "the broker is killed and started again while a window is published: nothing lost, nothing twice at QoS 2", In: Both, Level: Contract,
		Statements: "4.1.0-1", Why: "binds a broker that declares its store durable: PUBREC says that the message is in it", Control: ControlResume,
		Needs: []Need{QoS2, Deliver, Durable, NeedsKill}, Faults: []string{"restart-twice", "moved-forgets"},
		Script: func(s *Script) {
			s.Connect("w", Kept)
			s.Sub("w", 2, "t")
			s.Connect("p", Kept)
			n, times := s.Pick(6_000, 1_500), s.Pick(3, 1)
			s.Fact("n", n)
			s.Fact("times", times)
			for k := range times {
				s.Storm(Blow{Hook: HookKill, After: n / stormPart}, []string{"w"},
					Stream{"p", Flow{QoS: 2, N: n, Window: min(64, s.Caps.Receive), Prefix: stormPrefix(k), Resume: true, Patient: true}})
			}
			s.AwaitAll("w", stormBodies(n, times)...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: onceInStorms,
	},
	{
		ID: "E2E-06", Title: "a slow store: throughput rises with the window, and acknowledgements stay in order", In: Both, Level: Info,
		Why: "a broker that waits for its store inside the read loop is as slow at every window", Needs: []Need{QoS1, NeedsSlow}, Control: ControlQoS1,
		Script: func(s *Script) {
			s.Connect("p")
			window := min(slowWindow, s.Caps.Receive)
			s.Fact("window", window)
			s.Hook(HookSlowStore)
			s.Flow("p", Flow{QoS: 1, N: slowSingles, Window: 1, Prefix: "one"})
			s.Flow("p", Flow{QoS: 1, N: slowTurns * window, Window: window, Prefix: "many"})
			s.Hook(HookFastStore)
		},
		Judge: func(j *J) {
			InOrder(Ordered, "p", history.PUBLISH, history.PUBACK, 1)(j)
			single, many := j.rate("p", "one"), j.rate("p", "many")
			window := float64(j.Number("window"))
			switch {
			case single == 0 || many == 0:
				j.Unsure("too few acknowledgements to say how fast it was")
			case single > slowMost:
				j.Unsure("%.0f acknowledgements a second at window 1: the store is not slow", single)
			case many < single*window/slowShare:
				j.Find(Info, nil, "%.0f acknowledgements a second at window %.0f, %.0f at window 1: want at least a quarter of the window times as many", many, window, single)
			}
			j.Note("acknowledgements a second: %.0f at window 1, %.0f at window %.0f", single, many, window)
		},
	},
	{
		ID: "E2E-07", Title: "a publisher resumes at another node of the cluster again and again: nothing lost, nothing twice at QoS 2 or 0", In: Both, Level: Must,
		Statements: "4.3.3-1 4.3.3-2 | 4.3.3-8 4.3.3-10 4.3.3-11 4.3.3-12", Why: "the nodes of a cluster are one Server", Needs: []Need{QoS2, Deliver, Cluster},
		Racy: true, Control: ControlResume, Faults: []string{"moved-forgets"},
		Script: func(s *Script) {
			for q, conn := range []string{"w0", "", "w2"} {
				if conn != "" {
					s.Connect(conn, At(s.Caps.Nodes-1))
					s.Sub(conn, byte(q), "t")
				}
			}
			for k, conn := range []string{"a", "b", "c"} {
				s.Connect(conn, Kept, At(k))
				s.Send(conn, P2(3, conn))
				s.Expect(conn, Ack(history.PUBREC, 3))
				if conn == "c" {
					s.Send(conn, Rel(3))
					s.Wait(sweep(s))
				}
				s.Reset(conn)
				s.Resume(conn, At(k+1))
				if conn == "a" {
					s.Send(conn, D2(3, conn))
					s.Expect(conn, Ack(history.PUBREC, 3))
				}
				s.Release(conn, 3)
			}
			s.Connect("p", Kept)
			f := churn(s, windowOf(s))
			f.Hop = true
			s.Churn("p", f)
			s.AwaitAll("w2", append(numbered("m", f.N), "a", "b", "c")...)
			s.Fence("p", 2, "t", "w0", "w2")
		},
		Judge: func(j *J) {
			OnceAnyOrder("w2", append(numbered("m", j.Number("n")), "a", "b", "c")...)(j)
			atMostOnce("w0")(j)
			for _, conn := range []string{"a", "b", "c", "p"} {
				resumed(conn)(j)
			}
		},
	},
	{
		ID: "E2E-09", Title: "a node of the cluster is killed while a window is published: nothing lost, nothing twice at QoS 2", In: Both, Level: Contract,
		Statements: "4.1.0-1", Why: "binds a cluster that declares its store durable", Needs: []Need{QoS2, Deliver, Durable, Cluster, NeedsKillNode},
		Control: ControlResume, Faults: []string{"moved-forgets"},
		Script: func(s *Script) {
			s.Connect("w", Kept, At(s.Caps.Nodes-1))
			s.Sub("w", 2, "t")
			s.Connect("p", Kept)
			n, times := s.Pick(3_000, 1_500), s.Pick(2, 1)
			s.Fact("n", n)
			s.Fact("times", times)
			for k := range times {
				s.Storm(Blow{Hook: HookKillNode, Node: k, After: n / stormPart}, []string{"w"},
					Stream{"p", Flow{QoS: 2, N: n, Window: min(64, s.Caps.Receive), Prefix: stormPrefix(k), Resume: true, Patient: true, Hop: true}})
			}
			s.AwaitAll("w", stormBodies(n, times)...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: onceInStorms,
	},
}

// stormPart is which part of a flow is acknowledged when the broker is struck: early, for it takes a while.
const stormPart = 10

// stormPrefix begins the bodies of a storm.
func stormPrefix(k int) string { return string(rune('a' + k)) }

// stormBodies are the messages of several storms.
func stormBodies(n, times int) []string {
	var all []string
	for k := range times {
		all = append(all, numbered(stormPrefix(k), n)...)
	}
	return all
}

// onceInStorms wants every message of the storms once, and every resumption to find its session.
func onceInStorms(j *J) {
	n, times := j.Number("n"), j.Number("times")
	OnceAnyOrder("w", stormBodies(n, times)...)(j)
	resumed("p")(j)
	resumed("w")(j)
	if struck := j.struck("p"); struck < times && j.h.Stuck == "" {
		j.Unsure("the broker was struck in the middle of %d of %d flows only: it was too fast", struck, times)
	}
}

// struck is how many hooks that kill fell while exchanges of the client were going on: one was completed afterwards.
func (j *J) struck(name string) int {
	var marks []int
	for i, e := range j.h.Events {
		if e.Kind == history.Mark && strings.HasPrefix(e.Text, "hook kill") && !strings.HasSuffix(e.Text, "done") {
			marks = append(marks, i)
		}
	}
	n := 0
	for k, from := range marks {
		for _, i := range j.Got(name, history.PUBCOMP) {
			if i.Event > from && (k+1 == len(marks) || i.Event < marks[k+1]) && i.P.ID < fenceIDs {
				n++
				break
			}
		}
	}
	return n
}

// resumed wants Session Present on every accepted connection of a client but its first.
func resumed(name string) Test {
	return func(j *J) {
		for _, i := range j.Got(name, history.CONNACK) {
			if nth := j.h.Conns[i.Conn].Nth; nth > 1 && i.P.Reason == 0 && !i.P.Present {
				j.Fail([]Item{i}, "Session Present of connection %d of %s is false: its session is gone", nth, name)
			}
		}
	}
}

// isDenied reports whether message k, from 1, of a burst goes to the topic that is denied.
func isDenied(k int) bool { return k%deniedEvery == 0 }

// judgeRefusals is the judgement of a burst some of whose messages are not authorised.
func judgeRefusals(j *J) {
	Never("d")(j)
	closed := j.closedBy("p")
	if !closed {
		Answered("p", history.PUBLISH, history.PUBACK, 1)(j)
	}
	InOrder(Ordered, "p", history.PUBLISH, history.PUBACK, 1)(j)
	got := map[string]bool{}
	for _, d := range j.deliveries("w") {
		got[d.Body] = true
	}
	for _, i := range j.Got("p", history.PUBACK) {
		switch k, code := int(i.P.ID), i.P.Reason; {
		case isDenied(k) && !j.Is5(): // 3.1.1 has no way to say no
		case isDenied(k) && code < 0x80:
			j.Fail([]Item{i}, "message %d is not authorised and was acknowledged with 0x%02X, want 0x87", k, code)
		case isDenied(k) && code != 0x87:
			j.Find(Info, []Item{i}, "message %d is not authorised and was refused with 0x%02X, want 0x87", k, code)
		case !isDenied(k) && code >= 0x80:
			j.Fail([]Item{i}, "message %d, which may be published, was refused with 0x%02X", k, code)
		case !isDenied(k) && !got[Body(k)] && j.h.Stuck == "":
			j.Fail([]Item{i}, "message %d, which may be published, was acknowledged and not delivered", k)
		}
	}
	if closed && j.Is5() {
		j.Find(Info, nil, "the broker closed the connection at what is not authorised, where 5.0 has a Reason Code to go on with")
	}
	j.Note("closed at what is not authorised: %v", closed)
}

// restartWays are the hooks after which a durable broker must be as before.
func restartWays(c Caps) []string {
	var ways []string
	for _, way := range []string{HookRestart, HookKill} {
		if c.Hook(way) {
			ways = append(ways, way)
		}
	}
	return ways
}

// acknowledgedBodies are the messages at QoS 1 of a client that got a PUBACK which takes them.
func (j *J) acknowledgedBodies(name string) []string {
	sent := map[uint16]string{}
	var all []string
	for _, i := range j.items {
		switch {
		case j.name(i) != name || i.Err != nil:
		case i.Kind == history.Sent && i.P.Type == history.PUBLISH && i.P.QoS == 1:
			sent[i.P.ID] = body(&i.P)
		case i.Kind == history.Received && i.P.Type == history.PUBACK && i.P.Reason < 0x80 && sent[i.P.ID] != "":
			all = append(all, sent[i.P.ID])
			delete(sent, i.P.ID)
		}
	}
	return all
}

// rate is how many messages of a flow at QoS 1 were acknowledged a second, from its first PUBLISH to its last PUBACK; 0 when
// there were too few.
func (j *J) rate(name, prefix string) float64 {
	sent := map[uint16]bool{}
	var from, to time.Duration
	n := 0
	for _, i := range j.items {
		switch at := j.h.Events[i.Event].At; {
		case j.name(i) != name || i.Err != nil:
		case i.Kind == history.Sent && i.P.Type == history.PUBLISH:
			sent[i.P.ID] = strings.HasPrefix(body(&i.P), prefix)
			if sent[i.P.ID] && from == 0 {
				from = at
			}
		case i.Kind == history.Received && i.P.Type == history.PUBACK && sent[i.P.ID]:
			to = at
			n++
		}
	}
	if n < slowSingles || to <= from {
		return 0
	}
	return float64(n) / (to - from).Seconds()
}

// atMostOnce wants no message delivered twice.
func atMostOnce(name string) Test {
	return func(j *J) {
		seen := map[string]bool{}
		for _, d := range j.deliveries(name) {
			if seen[d.Body] {
				j.Fail([]Item{d.Item}, "%s got %q twice", name, d.Body)
			}
			seen[d.Body] = true
		}
	}
}
