package check

import (
	"fmt"
	"time"

	"inflight/runner/history"
)

// sweep is a random time up to 20 ms, to hit a broker in the middle of something.
func sweep(s *Script) time.Duration { return time.Duration(s.Rand.IntN(20_000)) * time.Microsecond }

// watchAll watches the topic at each QoS on connections that stay: w0, w1, w2.
func watchAll(s *Script) {
	for q := range byte(3) {
		s.Watch(fmt.Sprintf("w%d", q), q, "t")
	}
}

// fenceAll is a fence for those of watchAll, at QoS 2.
func fenceAll(s *Script, conn string) { s.Fence(conn, 2, "t", "w0", "w1", "w2") }

// onceEverywhere wants the bodies once at the watchers of watchAll; a copy at QoS 1 with DUP is covered by [MQTT-4.3.2-1].
func onceEverywhere(bodies ...string) Test {
	return func(j *J) {
		Once("w2", bodies...)(j)
		Once("w0", bodies...)(j)
		AtLeastOnce("w1", bodies...)(j)
		noBareCopies("w1")(j)
	}
}

// noBareCopies wants that whatever is delivered a second time has DUP.
func noBareCopies(name string) Test {
	return func(j *J) {
		seen := map[string]bool{}
		for _, d := range j.deliveries(name) {
			if seen[d.Body] && !d.P.Dup {
				j.Fail([]Item{d.Item}, "%s got another copy of %q without DUP", name, d.Body)
			}
			seen[d.Body] = true
		}
	}
}

var groupRES = []*Rule{
	{
		ID: "RES-01", Title: "cut after PUBREC, resumed, PUBLISH repeated: PUBREC, PUBCOMP, delivered once", In: Both, Level: Must,
		Statements: "4.3.3-2 4.4.0-1 | 4.3.3-10", Needs: inWindow, Faults: []string{"dup-as-new"},
		Script: func(s *Script) {
			watchAll(s)
			s.Connect("p", Kept)
			s.Send("p", P2(3, "A"))
			s.Expect("p", Ack(history.PUBREC, 3))
			s.Cut("p")
			s.Resume("p")
			s.Send("p", D2(3, "A"))
			s.Expect("p", Ack(history.PUBREC, 3))
			s.Release("p", 3)
			fenceAll(s, "p")
		},
		Judge: All(onceEverywhere("A"), Present("p", 2, true), noErrors("p", history.PUBREC)),
	},
	{
		ID: "RES-02", Title: "the same with DUP 0 on the repetition: delivered once", In: Both, Level: Info, Statements: "4.3.3-2 | 4.3.3-10",
		Why: "the client breaks [MQTT-3.3.1-1]", Needs: inWindow,
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept)
			s.Send("p", P2(3, "A"))
			s.Expect("p", Ack(history.PUBREC, 3))
			s.Cut("p")
			s.Resume("p")
			s.Send("p", P2(3, "A"))
			s.Expect("p", Ack(history.PUBREC, 3))
			s.Release("p", 3)
			s.Fence("p", 2, "t", "w")
		},
		Judge: Once("w", "A"),
	},
	{
		ID: "RES-03", Title: "cut after PUBREC, resumed, another message, then PUBREL: delivered once, as it was published", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-11", Needs: []Need{QoS2, Deliver, Retain}, Faults: []string{"resume-forgets", "lose"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t", "u")
			s.Connect("p", Kept)
			s.Retained = append(s.Retained, "t")
			s.Send("p", P2(3, "A").Retained())
			s.Expect("p", Ack(history.PUBREC, 3))
			s.Cut("p")
			s.Resume("p")
			// State of the message before must not colour the one that is released.
			s.Send("p", P0("other").On("u"))
			s.Release("p", 3)
			s.Fence("p", 2, "u", "w")
			s.Watch("x", 2, "t")
			s.Maybe("x", detectWait, Del("A"))
		},
		Judge: func(j *J) {
			OnceAnyOrder("w", "A", "other")(j)
			for _, d := range j.deliveries("w") {
				if d.Body == "A" && (d.P.QoS != 2 || d.P.Topic != "t") {
					j.Fail([]Item{d.Item}, "A was delivered on %q at QoS %d, published on \"t\" at QoS 2", d.P.Topic, d.P.QoS)
				}
			}
			kept := j.deliveries("x")
			switch {
			case j.h.Stuck != "":
			case len(kept) == 0:
				j.Fail(nil, "the message was published with RETAIN, and a later subscriber did not get it")
			case !kept[0].P.Retain || kept[0].P.QoS != 2:
				j.Fail([]Item{kept[0].Item}, "a later subscriber got it with RETAIN %v at QoS %d, want true and 2", kept[0].P.Retain, kept[0].P.QoS)
			}
		},
	},
	{
		ID: "RES-04", Title: "cut after PUBREL before its PUBCOMP is read, resumed, PUBREL repeated: PUBCOMP, delivered once at every QoS", In: Both, Level: Must,
		Statements: "4.3.3-2 3.8.4-6 | 4.3.3-11 4.3.3-12", Why: "[MQTT-3.8.4-6] ; [MQTT-3.8.4-8] allow copies on a QoS 0 subscription only for messages published at QoS 1",
		Needs: inWindow, Racy: true, Faults: []string{"pubrel-dup-delivers", "pubrel-unknown-close"},
		Script: func(s *Script) {
			watchAll(s)
			s.Connect("p", Kept)
			s.Send("p", P2(3, "A"))
			s.Expect("p", Ack(history.PUBREC, 3))
			s.Send("p", Rel(3))
			s.Wait(sweep(s))
			s.Reset("p")
			s.Resume("p")
			s.Release("p", 3)
			fenceAll(s, "p")
		},
		Judge: onceEverywhere("A"),
	},
	{
		ID: "RES-05", Title: "a PUBLISH with DUP that the broker has never seen, on a resumed connection, is delivered once", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-8", Needs: inWindow, Faults: []string{"dup-drop"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept)
			s.Cut("p")
			s.Resume("p")
			s.Exchange("p", D2(5, "A"))
			s.Fence("p", 2, "t", "w")
		},
		Judge: Once("w", "A"),
	},
	{
		ID: "RES-06", Title: "reset around the PUBREC, resumed, PUBLISH repeated: delivered once, never not, never twice", In: Both, Level: Must,
		Statements: "4.3.3-2 | 4.3.3-10", Needs: inWindow, Racy: true, Faults: []string{"dup-drop"},
		Script: func(s *Script) {
			watchAll(s)
			s.Connect("p", Kept)
			s.Send("p", P2(6, "A"))
			s.Wait(sweep(s))
			s.Reset("p")
			s.Resume("p")
			s.Send("p", D2(6, "A"))
			s.Expect("p", Ack(history.PUBREC, 6))
			s.Release("p", 6)
			fenceAll(s, "p")
		},
		Judge: onceEverywhere("A"),
	},
	{
		ID: "RES-07", Title: "a clean session does not release what the one before left unreleased", In: Both, Level: Must, Statements: "3.1.2-6 | 3.1.2-4",
		Needs: []Need{QoS2, Deliver, MethodA}, Faults: []string{"clean-keeps"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			s.Send("p", P2(1, "OLD"))
			s.Expect("p", Ack(history.PUBREC, 1))
			s.Cut("p")
			s.Reconnect("p")
			s.Release("p", 1)
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(Never("w", "OLD"), Codes(Must, "p", history.PUBCOMP, 0, 0x92)),
	},
	{
		ID: "RES-08", Title: "in a clean session an identifier carries the new message, whatever the one before left", In: Both, Level: Must, Statements: "3.1.2-6 | 3.1.2-4",
		Needs: inWindow, Faults: []string{"clean-keeps"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p")
			for k, end := range []func(string){s.Cut, s.Disconnect} {
				s.Send("p", P2(1, fmt.Sprintf("OLD%d", k)))
				s.Expect("p", Ack(history.PUBREC, 1))
				end("p")
				s.Reconnect("p")
				s.Exchange("p", P2(1, fmt.Sprintf("NEW%d", k)))
			}
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			want := []string{"NEW0", "NEW1"}
			if j.Caps.Method != "A" {
				want = []string{"OLD0", "NEW0", "OLD1", "NEW1"}
			}
			Once("w", want...)(j)
		},
	},
	{
		ID: "RES-09", Title: "a clean connection between two kept ones ends everything that was unreleased", In: Both, Level: Must, Statements: "3.1.2-6 | 3.1.2-4",
		Needs: inWindow, Faults: []string{"clean-keeps"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept)
			s.Send("p", Publishes(2, 1, 5)...)
			s.Expect("p", Acks(history.PUBREC, 1, 5)...)
			s.Cut("p")
			s.Reconnect("p")
			s.Disconnect("p")
			s.Resume("p")
			s.Send("p", Rels(1, 5)...)
			s.Expect("p", Acks(history.PUBCOMP, 1, 5)...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			Present("p", 2, false)(j)
			Present("p", 3, false)(j)
			if j.Caps.Method == "A" {
				Never("w")(j)
			}
		},
	},
	{
		ID: "RES-10", Title: "a session that has expired is gone, and what it had not released with it", In: V5, Level: Must, Statements: "4.1.0-2 3.1.2-23",
		Needs: inWindow, Faults: []string{"clean-keeps"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept, Expiry(1))
			s.Send("p", P2(1, "OLD"))
			s.Expect("p", Ack(history.PUBREC, 1))
			s.Cut("p")
			s.Wait(3 * time.Second)
			s.Resume("p")
			s.Release("p", 1)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			Present("p", 2, false)(j)
			if j.Caps.Method == "A" {
				Never("w")(j)
			}
		},
	},
	{
		ID: "RES-11", Title: "what is not acknowledged is not sent again on a live connection (5.0); in 3.1.1 only with DUP", In: Both, Level: Must,
		Statements: "- | 4.4.0-1", Why: "3.1.1 allows timers", Needs: inWindow, Faults: []string{"resend-live"},
		Script: func(s *Script) {
			s.Connect("w", Hold(history.PUBACK, history.PUBREC))
			s.Sub("w", 2, "t")
			s.Connect("p")
			s.Exchange("p", P1(1, "A"))
			s.Exchange("p", P2(2, "B"))
			s.Expect("w", Dels("A", "B")...)
			s.Wait(time.Duration(s.Pick(35_000, 1_000)) * time.Millisecond)
			s.Ping("w")
		},
		Judge: func(j *J) {
			seen := map[uint16]bool{}
			for _, i := range j.Got("w", history.PUBLISH) {
				switch again := seen[i.P.ID]; {
				case again && j.Is5():
					j.Fail([]Item{i}, "PUBLISH(%d) was sent again on a live connection", i.P.ID)
				case again && !i.P.Dup:
					j.Fail([]Item{i}, "PUBLISH(%d) was sent again without DUP", i.P.ID)
				case again:
					j.Note("PUBLISH(%d) was sent again on a live connection, which 3.1.1 allows", i.P.ID)
				}
				seen[i.P.ID] = true
			}
		},
	},
	{
		ID: "RES-12", Title: "the broker sends no PUBREC and no PUBCOMP unasked, neither late nor after a resumption", In: Both, Level: Info,
		Statements: "4.4.0-1", Why: "the statement names PUBLISH and PUBREL only", Needs: []Need{QoS2},
		Script: func(s *Script) {
			s.Connect("p", Kept)
			s.Send("p", Publishes(2, 1, 5)...)
			s.Expect("p", Acks(history.PUBREC, 1, 5)...)
			s.Wait(time.Duration(s.Pick(5000, 500)) * time.Millisecond)
			s.Cut("p")
			s.Resume("p")
			s.Wait(time.Duration(s.Pick(2000, 300)) * time.Millisecond)
			s.Fact("quiet", "until here")
			s.Ping("p")
		},
		Judge: func(j *J) {
			if got := j.Got("p", history.PUBREC, history.PUBCOMP); len(got) > 5 {
				j.Fail(got[5:], "%v came unasked", got[5].P.String())
			}
		},
	},
	{
		ID: "RES-14", Title: "a takeover in the middle of a burst: each message once overall", In: Both, Level: Must, Statements: "3.1.4-2 | 3.1.4-3",
		Why: "what the old connection wrote is processed before the new one, or not at all", Needs: inWindow, Racy: true, Control: ControlResume,
		Faults: []string{"dup-as-new"},
		Script: func(s *Script) {
			watchAll(s)
			s.Connect("p", Kept)
			n := min(50, s.Caps.Receive)
			s.Fact("n", n)
			s.Send("p", Publishes(2, 1, n)...)
			if s.Round%2 == 0 {
				s.Expect("p", Acks(history.PUBREC, 1, uint16(n))...)
				s.Send("p", Rels(1, n)...)
			}
			s.Resume("p")
			if s.Round%2 == 1 {
				var again []Msg
				for _, m := range Publishes(2, 1, n) {
					again = append(again, m.dup())
				}
				s.Send("p", again...)
				s.Expect("p", Acks(history.PUBREC, 1, uint16(n))...)
			}
			s.Send("p", Rels(1, n)...)
			s.Expect("p", Acks(history.PUBCOMP, 1, uint16(n))...)
			fenceAll(s, "p")
		},
		Judge: func(j *J) { onceEverywhere(Bodies(1, j.Number("n"))...)(j) },
	},
	{
		ID: "RES-15", Title: "twenty connections of one client within a second: each is accepted in the end", In: Both, Level: Info, Statements: "3.1.2-4",
		Needs: nil, Control: ControlConnect,
		Script: func(s *Script) {
			s.Connect("p", Kept)
			for range 20 {
				s.Wait(50 * time.Millisecond)
				s.Cut("p")
				s.Resume("p")
			}
			s.Ping("p")
		},
		Judge: func(j *J) {
			if n := len(j.packets("p", history.Opened)) - 21; n > 0 {
				j.Note("%d connections were closed before their CONNACK", n)
			}
		},
	},
	{
		ID: "RES-16", Title: "twice Receive Maximum after a resumption is served or refused, and the broker goes on", In: V5, Level: Info,
		Statements: "3.3.4-7", Why: "the client is over its window", Needs: []Need{QoS2, SmallRM}, Control: ControlResume, Heavy: true,
		Script: func(s *Script) {
			n := s.Caps.Receive
			s.Connect("p", Kept)
			s.Send("p", Publishes(2, 1, n)...)
			s.Expect("p", Acks(history.PUBREC, 1, uint16(n))...)
			s.Cut("p")
			s.Resume("p")
			var again []Msg
			for _, m := range Publishes(2, 1, 2*n) {
				m.Dup = int(m.ID) <= n
				again = append(again, m)
			}
			s.Send("p", again...)
			s.MaybeClose("p", detectWait)
			s.Resume("p")
			s.Ping("p")
		},
		Judge: func(j *J) { j.Note("closed at it: %v", j.closedBy("p")) },
	},
}
