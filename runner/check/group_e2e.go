package check

import (
	"time"

	"inflight/runner/history"
)

// churn publishes while the publisher's connection is reset again and again.
func churn(s *Script, window int) Flow {
	n := s.Pick(1_500, 300)
	s.Fact("n", n)
	return Flow{QoS: 2, N: n, Window: min(window, s.Caps.Receive), Every: 30 * time.Millisecond, Cuts: s.Pick(20, 6), Resume: true}
}

// windowOf goes through the windows with the rounds.
func windowOf(s *Script) int { return []int{16, 64, 256}[(s.Round-1)%3] }

var groupE2E = []*Rule{
	{
		ID: "E2E-01", Title: "a publisher whose connection is reset again and again: nothing lost, nothing twice at QoS 2", In: Both, Level: Must,
		Statements: "4.3.3-1 4.3.3-2 | 4.3.3-8 4.3.3-10 4.3.3-11 4.3.3-12", Needs: inWindow, Racy: true, Faults: []string{"dup-as-new", "lose"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept)
			s.Churn("p", churn(s, windowOf(s)))
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) { OnceAnyOrder("w", numbered("m", j.Number("n"))...)(j) },
	},
	{
		ID: "E2E-02", Title: "the same seen at QoS 0 and 1: no copy at QoS 0, none without DUP at QoS 1", In: Both, Level: Must,
		Statements: "4.3.3-2 3.8.4-6 | 4.3.3-10 3.8.4-8", Why: "copies on a QoS 0 subscription are allowed for messages published at QoS 1 only", Needs: inWindow, Racy: true,
		Faults: []string{"pubrel-dup-delivers"},
		Script: func(s *Script) {
			s.Watch("w0", 0, "t")
			s.Watch("w1", 1, "t")
			s.Connect("p", Kept)
			s.Churn("p", churn(s, windowOf(s)))
			s.Fence("p", 2, "t", "w1")
			s.Quiet(2 * Settle)
		},
		Judge: func(j *J) {
			seen := map[string]bool{}
			for _, d := range j.deliveries("w0") {
				if seen[d.Body] {
					j.Fail([]Item{d.Item}, "w0 got %q twice", d.Body)
				}
				seen[d.Body] = true
			}
			AtLeastOnceAny("w1", numbered("m", j.Number("n"))...)(j)
			noBareCopies("w1")(j)
		},
	},
	{
		ID: "E2E-03", Title: "a subscriber whose connection is reset again and again: nothing lost, nothing twice at QoS 2", In: Both, Level: Must,
		Statements: "4.4.0-1 4.3.3-1 | 4.4.0-1 4.3.3-6", Needs: inWindow, Racy: true, Control: ControlResume, Faults: []string{"resend-drop"},
		Script: func(s *Script) {
			s.Connect("w", Kept)
			s.Sub("w", 2, "t")
			s.Connect("p")
			f := churn(s, windowOf(s))
			f.Resume = false
			s.Flows(&Cutter{Conn: "w", Every: 30 * time.Millisecond, Times: f.Cuts}, Stream{"p", f})
			s.AwaitAll("w", numbered("m", f.N)...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) { OnceAnyOrder("w", numbered("m", j.Number("n"))...)(j) },
	},
	{
		ID: "E2E-04", Title: "both ends reset again and again, the subscriber away for a while: nothing lost, nothing twice at QoS 2", In: Both, Level: Must,
		Statements: "4.3.3-1 4.3.3-2 4.4.0-1 | 4.3.3-8 4.3.3-10 4.4.0-1", Needs: inWindow, Racy: true, Control: ControlResume, Faults: []string{"dup-as-new", "lose"},
		Script: func(s *Script) {
			s.Connect("w", Kept)
			s.Sub("w", 2, "t")
			s.Connect("p", Kept)
			f := churn(s, windowOf(s))
			s.Flows(&Cutter{Conn: "w", Every: 60 * time.Millisecond, Times: f.Cuts / 2, Stay: 100 * time.Millisecond}, Stream{"p", f})
			s.AwaitAll("w", numbered("m", f.N)...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) { OnceAnyOrder("w", numbered("m", j.Number("n"))...)(j) },
	},
	{
		ID: "E2E-08", Title: "how bytes are cut into segments changes nothing; a packet that never ends is not delivered", In: Both, Level: Must,
		Statements: "4.2.0-1 | 4.2.0-1", Why: "the transport is a stream of bytes, section 4.2", Needs: inWindow, Faults: []string{"partial-delivers"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", PerByte)
			s.Flow("p", Flow{QoS: 2, N: 20, Window: 5, Prefix: "byte"})
			s.Fence("p", 2, "t", "w")
			s.Disconnect("p")
			s.Connect("q")
			n := min(s.Caps.Receive, 1_000)
			s.Fact("n", n)
			large := Publishes(2, 1, n)
			for i := range large {
				large[i].Size = 1_000
			}
			s.Send("q", large...)
			s.Expect("q", Acks(history.PUBREC, 1, uint16(n))...)
			s.Send("q", Rels(1, n)...)
			s.Expect("q", Acks(history.PUBCOMP, 1, uint16(n))...)
			s.Fence("q", 2, "t", "w")
			part := P1(1, "PART")
			part.Size = 100
			s.Connect("r")
			s.Send("r", part.Wrong("the last bytes are missing", func(b []byte) []byte { return b[:len(b)-10] }))
			s.Cut("r")
			s.Fence("q", 2, "t", "w")
		},
		Judge: func(j *J) { Once("w", append(numbered("byte", 20), Bodies(1, j.Number("n"))...)...)(j) },
	},
}
