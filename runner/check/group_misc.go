package check

import (
	"fmt"
	"time"

	"inflight/broker/packet"
	"inflight/runner/history"
)

// willOf is a Will at QoS 2 on the watched topic.
func willOf(body string) Will { return Will{Topic: "t", Body: body, QoS: 2} }

// How much later than one and a half times the Keep Alive a broker may notice, since it looks now and then: beyond the
// first it is late, beyond the second it does not keep the statement.
const (
	keepAliveLate = 2 * time.Second
	keepAliveNot  = 5 * time.Second
)

var groupMISC = []*Rule{
	{
		ID: "MISC-01", Title: "a client that is silent for one and a half times its Keep Alive is disconnected, not earlier", In: Both, Level: Must, Statements: "3.1.2-24 | 3.1.2-22",
		Control: ControlConnect,
		Script: func(s *Script) {
			for _, k := range []uint16{1, 2, 3} {
				s.Connect(fmt.Sprintf("k%d", k), KeepAlive(k))
			}
			for _, k := range []uint16{1, 2, 3} {
				conn := fmt.Sprintf("k%d", k)
				s.MaybeClose(conn, 15*time.Second)
			}
		},
		Judge: func(j *J) {
			for _, k := range []int{1, 2, 3} {
				conn := fmt.Sprintf("k%d", k)
				closed := j.packets(conn, history.Closed)
				up := j.Got(conn, history.CONNACK)
				if len(up) == 0 {
					continue
				}
				if n := up[0].P.Number(19, uint32(k)); int(n) != k {
					j.Note("the broker uses a Keep Alive of %d s for %d s", n, k)
					continue
				}
				if len(closed) == 0 {
					j.Fail(up, "Keep Alive %d s: the connection is still open", k)
					continue
				}
				limit := time.Duration(k) * 1500 * time.Millisecond
				// Not later than the CONNACK was seen, not before the CONNECT was written, the broker began to count.
				silent := j.h.Events[closed[0].Event].At - j.h.Events[up[0].Event].At
				longest := silent
				if first := j.Put(conn, history.CONNECT); len(first) > 0 {
					longest = j.h.Events[closed[0].Event].At - j.h.Events[first[0].Event].At
				}
				switch {
				case silent > limit+keepAliveNot:
					j.Fail(closed, "Keep Alive %d s: closed after %v, due after %v", k, silent.Round(10*time.Millisecond), limit)
				case silent > limit+keepAliveLate:
					j.Find(Info, closed, "Keep Alive %d s: closed after %v, due after %v", k, silent.Round(10*time.Millisecond), limit)
				case longest < limit-20*time.Millisecond:
					j.Find(Info, closed, "Keep Alive %d s: closed after %v, not due before %v", k, longest.Round(10*time.Millisecond), limit)
				}
			}
		},
	},
	{
		ID: "MISC-02", Title: "any packet keeps the connection alive, an acknowledgement too", In: Both, Level: Must, Statements: "3.1.2-23 3.1.2-24 | 3.1.2-20 3.1.2-22", Needs: []Need{QoS1, Deliver},
		Control: ControlConnect,
		Script: func(s *Script) {
			s.Connect("w", KeepAlive(2))
			s.Sub("w", 1, "t")
			s.Connect("p")
			for k := 1; k <= 4; k++ {
				s.Wait(1800 * time.Millisecond)
				s.Exchange("p", P1(k, Body(k)))
				s.Expect("w", Del(Body(k)))
			}
			s.Ping("w")
		},
		Judge: All(AtLeastOnce("w", Bodies(1, 4)...), func(j *J) {
			last := time.Duration(0)
			for _, i := range append(j.Put("w"), j.packets("w", history.Closed)...) {
				at := j.h.Events[i.Event].At
				if last > 0 && at-last >= 3*time.Second {
					j.Void("the client was silent for %v, longer than it may be", (at - last).Round(10*time.Millisecond))
				}
				last = at
			}
		}),
	},
	{
		ID: "MISC-03", Title: "a PINGREQ behind a full window is answered", In: Both, Level: Must, Statements: "3.12.4-1", Needs: []Need{QoS2}, Faults: []string{"window-blocks"},
		Script: func(s *Script) {
			s.Connect("p")
			n := min(s.Caps.Receive, 200)
			s.Send("p", append(Publishes(2, 1, n), Msg{Type: packet.PINGREQ})...)
			s.Expect("p", Want{Type: history.PINGRESP})
			s.Expect("p", Acks(history.PUBREC, 1, uint16(n))...)
		},
		Judge: None,
	},
	{
		ID: "MISC-04", Title: "a second client of the same identifier ends the first connection; 3.1.1 has no DISCONNECT for it", In: Both, Level: Must, Statements: "3.1.4-2 | 3.1.4-3",
		Control: ControlConnect,
		Script: func(s *Script) {
			s.Connect("q", Kept, ClientID("inflighttakeover"+fmt.Sprint(s.Rand.Uint32()%1e6)))
			same := s.Steps[len(s.Steps)-1].Msgs[0].Connect.Client
			s.Connect("r", ClientID(*same))
			s.ExpectClose("q")
			s.Ping("r")
		},
		Judge: func(j *J) {
			for _, i := range j.Got("q", history.DISCONNECT) {
				switch {
				case !j.Is5():
					j.Fail([]Item{i}, "a client of 3.1.1 got a DISCONNECT")
				case i.P.Reason != 0x8E:
					j.Note("DISCONNECT with 0x%02X, want 0x8E", i.P.Reason)
				}
			}
		},
	},
	{
		ID: "MISC-05", Title: "a Will is published when the connection ends without DISCONNECT: cut, takeover, Keep Alive, Protocol Error", In: Both, Level: Must, Statements: "3.1.2-8", Needs: inWindow,
		Faults: []string{"deliver-twice"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("a", WithWill(willOf("cut")))
			s.Cut("a")
			s.Expect("w", Del("cut"))
			s.Connect("b", WithWill(willOf("takeover")))
			s.Reconnect("b")
			s.Expect("w", Del("takeover"))
			s.Connect("c", WithWill(willOf("silence")), KeepAlive(1))
			s.Expect("w", Del("silence"))
			s.Connect("d", WithWill(willOf("error")))
			s.Send("d", Raw("type 0", 0, 0))
			s.Expect("w", Del("error"))
			s.Quiet(2 * Settle)
		},
		Judge: func(j *J) {
			OnceAnyOrder("w", "cut", "takeover", "silence", "error")(j)
			for _, d := range j.deliveries("w") {
				if d.P.QoS != 2 {
					j.Fail([]Item{d.Item}, "the Will %q came at QoS %d, want 2", d.Body, d.P.QoS)
				}
			}
		},
	},
	{
		ID: "MISC-06", Title: "after DISCONNECT there is no Will, and a kept session keeps its unreleased exchanges", In: Both, Level: Must, Statements: "3.14.4-3 3.1.2-10 | 3.14.4-3 3.1.2-10",
		Needs: inWindow, Control: ControlResume, Faults: []string{"lose"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept, WithWill(willOf("WILL")))
			s.Send("p", Publishes(2, 1, 3)...)
			s.Expect("p", Acks(history.PUBREC, 1, 3)...)
			s.Disconnect("p")
			s.Quiet(2 * Settle)
			s.Resume("p")
			s.Send("p", Rels(1, 3)...)
			s.Expect("p", Acks(history.PUBCOMP, 1, 3)...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(Once("w", Bodies(1, 3)...), Present("p", 2, true)),
	},
	{
		ID: "MISC-07", Title: "a resumption within the Will Delay cancels the Will, and exchanges go on", In: V5, Level: Must, Statements: "3.1.2-8 3.1.3-9", Needs: inWindow, Control: ControlResume,
		Faults: []string{"resume-forgets"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			will := willOf("WILL")
			will.Delay = 2
			s.Connect("p", Kept, WithWill(will))
			s.Send("p", P2(1, "A"))
			s.Expect("p", Ack(history.PUBREC, 1))
			s.Cut("p")
			s.Wait(time.Second)
			s.Resume("p")
			s.Release("p", 1)
			s.Wait(2 * time.Second)
			s.Fence("p", 2, "t", "w")
		},
		Judge: All(Once("w", "A"), func(j *J) {
			cut, back := j.packets("p", history.Cut), j.nth(j.Got("p", history.CONNACK), 2)
			if len(cut) == 0 || len(back) == 0 {
				return
			}
			if took := j.h.Events[back[0].Event].At - j.h.Events[cut[0].Event].At; took >= 2*time.Second {
				j.Void("the resumption took %v, longer than the Will Delay", took.Round(10*time.Millisecond))
			}
		}),
	},
	{
		ID: "MISC-08", Title: "a DISCONNECT that sets the Session Expiry Interval to 0 ends the session", In: V5, Level: Must, Statements: "4.1.0-2", Why: "section 3.14.2.2.2", Needs: inWindow,
		Control: ControlResume, Faults: []string{"clean-keeps"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept)
			s.Send("p", P2(1, "OLD"))
			s.Expect("p", Ack(history.PUBREC, 1))
			s.Send("p", Msg{Type: packet.DISCONNECT, Props: &packet.Properties{SessionExpiry: packet.Some[uint32](0)}})
			s.ExpectClose("p")
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
		ID: "MISC-09", Title: "a subscriber that reads nothing costs bounded memory, and does not stop the others", In: Both, Level: Info, Statements: "4.8.0-2 | -", Why: "what is dropped then is the broker's policy",
		Needs: []Need{QoS2, Deliver, Memory}, Alone: true, Heavy: true,
		Script: func(s *Script) {
			s.Connect("slow")
			s.Sub("slow", 2, "t")
			s.Mode("slow", Mode{Deaf: true})
			s.Watch("w", 2, "t")
			s.Connect("p")
			n := s.Pick(10_000, 1_000)
			s.Fact("n", n)
			s.Memory("before")
			s.Flow("p", Flow{QoS: 2, N: n, Window: min(64, s.Caps.Receive), Size: 256})
			s.Fence("p", 2, "t", "w")
			s.Memory("after")
		},
		Judge: func(j *J) {
			Once("w", numbered("m", j.Number("n"))...)(j)
			grown := j.Number("after") - j.Number("before")
			j.Note("%d MB more for %d messages that one subscriber does not read", grown>>20, j.Number("n"))
			if grown > 256<<20 {
				j.Fail(nil, "memory grew by %d MB", grown>>20)
			}
		},
	},
	{
		ID: "MISC-10", Title: "a long backlog of a client that is away is delivered whole when it comes", In: Both, Level: Info, Statements: "3.1.2-5 | 4.5.0-1", Why: "how long it may be is the broker's limit",
		Needs: inWindow, Heavy: true, Control: ControlResume, Faults: []string{"queue-lost"},
		Script: func(s *Script) {
			subscriber(s)
			s.Cut("w")
			n := s.Pick(50_000, 2_000)
			s.Fact("n", n)
			s.Flow("p", Flow{QoS: 1, N: n, Window: min(256, s.Caps.Receive), Size: 100})
			s.Resume("w")
			s.Fence("p", 1, "t", "w")
		},
		Judge: func(j *J) {
			AtLeastOnce("w", numbered("m", j.Number("n"))...)(j)
			noteDrain(j, "w")
		},
	},
	{
		ID: "MISC-11", Title: "a publisher that floods far beyond a window loses no PUBREC", In: V4, Level: Info, Why: "3.1.1 has no Receive Maximum: backpressure is TCP's", Needs: []Need{QoS2},
		Heavy: true, Faults: []string{"pubrec-drop"},
		Script: func(s *Script) {
			s.Connect("p")
			n := s.Pick(20_000, 3_000)
			s.Send("p", Publishes(2, 1, n)...)
			s.Expect("p", Acks(history.PUBREC, 1, uint16(n))...)
			s.Send("p", Rels(1, n)...)
			s.Expect("p", Acks(history.PUBCOMP, 1, uint16(n))...)
		},
		Judge: All(Answered("p", history.PUBLISH, history.PUBREC, 2), Answered("p", history.PUBREL, history.PUBCOMP, 2)),
	},
	{
		ID: "MISC-12", Title: "many clients that are cut at once all resume, and their exchanges complete", In: Both, Level: Info, Statements: "4.4.0-1 | 4.4.0-1", Why: "a network that comes back",
		Needs: []Need{QoS2}, Heavy: true, Control: ControlResume, Faults: []string{"pubcomp-drop"},
		Script: func(s *Script) {
			n, window := s.Pick(500, 40), uint16(min(16, s.Caps.Receive))
			names := make([]string, n)
			for k := range names {
				names[k] = fmt.Sprintf("p%d", k)
				s.Connect(names[k], Kept)
				s.Send(names[k], Publishes(2, 1, int(window))...)
			}
			for _, p := range names {
				s.Expect(p, Acks(history.PUBREC, 1, window)...)
			}
			for _, p := range names {
				s.Reset(p)
			}
			for _, p := range names {
				s.Resume(p)
				s.Send(p, Rels(1, int(window))...)
			}
			for _, p := range names {
				s.Expect(p, Acks(history.PUBCOMP, 1, window)...)
			}
		},
		Judge: func(j *J) {
			for _, c := range j.h.Conns {
				if c.Nth == 2 {
					Present(c.Name, 2, true)(j)
				}
			}
		},
	},
}

// noteDrain notes how fast what had waited for a client was delivered once it was back.
func noteDrain(j *J, name string) {
	acks, got := j.Got(name, history.CONNACK), j.deliveries(name)
	if len(acks) < 2 || len(got) == 0 {
		return
	}
	took := j.h.Events[got[len(got)-1].Event].At - j.h.Events[acks[len(acks)-1].Event].At
	if took > 0 {
		j.Note("%d messages were delivered in %.1f s after the resumption: %.0f a second", len(got), took.Seconds(), float64(len(got))/took.Seconds())
	}
}
