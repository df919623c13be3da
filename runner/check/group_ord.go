package check

import (
	"fmt"
	"strconv"
	"time"

	"inflight/runner/history"
)

var groupORD = []*Rule{
	{
		ID: "ORD-01", Title: "one publisher, one topic: first deliveries are in the order of publication, at every QoS", In: Both, Level: Must,
		Statements: "4.6.0-5 4.6.0-6", Needs: inWindow, Heavy: true, Faults: []string{"deliver-swap"},
		Script: func(s *Script) {
			s.Connect("p")
			for q := range byte(3) {
				topic := fmt.Sprintf("t%d", q)
				s.Watch(fmt.Sprintf("w%d", q), 2, topic)
				s.Flow("p", Flow{QoS: q, N: s.Pick(10_000, 500), Window: min(256, s.Caps.Receive), Topic: topic, Batch: 100})
				if q > 0 {
					s.Fence("p", q, topic, fmt.Sprintf("w%d", q))
				} else {
					s.Ping("p")
					s.Quiet(2 * Settle)
				}
			}
		},
		Judge: All(inSequence("w0", byBody), inSequence("w1", byBody), inSequence("w2", byBody)),
	},
	{
		ID: "ORD-02", Title: "eight publishers, four topics, three QoS: order is kept for each publisher, topic and QoS", In: Both, Level: Must,
		Statements: "4.6.0-5 4.6.0-6", Needs: []Need{QoS2, Deliver, Wildcards}, Heavy: true, Faults: []string{"deliver-swap"},
		Script: func(s *Script) {
			s.Watch("w", 2, "#")
			var streams []Stream
			for k := range 8 {
				conn := fmt.Sprintf("p%d", k)
				s.Connect(conn)
				streams = append(streams, Stream{conn, Flow{
					QoSes: []byte{0, 1, 2}, Topics: 4, Topic: "t", N: s.Pick(1200, 120), Window: min(32, s.Caps.Receive), Prefix: string(rune('a' + k)),
				}})
			}
			s.Flows(nil, streams...)
			for k := range 8 {
				s.Fence(fmt.Sprintf("p%d", k), 2, "t/0", "w")
			}
			s.Quiet(2 * Settle)
		},
		Judge: inSequence("w", byPublisher),
	},
	{
		ID: "ORD-03", Title: "messages at QoS 2 reach subscribers at QoS 1 and 0 in their order", In: Both, Level: Must, Statements: "4.6.0-5 4.6.0-6",
		Needs: inWindow, Faults: []string{"deliver-swap"},
		Script: func(s *Script) {
			watchAll(s)
			s.Connect("p")
			s.Flow("p", Flow{QoS: 2, N: s.Pick(2_000, 300), Window: min(64, s.Caps.Receive)})
			s.Fence("p", 2, "t", "w1", "w2")
			s.Quiet(2 * Settle)
		},
		Judge: All(inSequence("w0", byBody), inSequence("w1", byBody), inSequence("w2", byBody)),
	},
	{
		ID: "ORD-04", Title: "what was queued for a client that was away comes first, in order, while publishing goes on", In: Both, Level: Must,
		Statements: "3.1.2-5 4.6.0-6 | 4.5.0-1 4.6.0-5", Needs: inWindow, Control: ControlResume, Faults: []string{"deliver-swap", "queue-lost"},
		Script: func(s *Script) {
			s.Connect("p")
			for _, b := range []int{s.Pick(19, 19), s.Pick(21, 21), s.Pick(200, 50)} {
				w, topic := fmt.Sprintf("w%d", b), fmt.Sprintf("t%d", b)
				s.Connect(w, Kept)
				s.Sub(w, 2, topic)
				s.Cut(w)
				s.Flow("p", Flow{QoS: 2, N: b, Window: min(20, s.Caps.Receive), Topic: topic})
				s.Resume(w)
				s.Flow("p", Flow{QoS: 2, N: b, Window: min(20, s.Caps.Receive), Topic: topic, Prefix: "n"})
				s.Fence("p", 2, topic, w)
			}
		},
		Judge: func(j *J) {
			for _, b := range []int{19, 21, 200, 50} {
				if w := fmt.Sprintf("w%d", b); len(j.Got(w)) > 0 {
					Once(w, append(numbered("m", b), numbered("n", b)...)...)(j)
				}
			}
		},
	},
	{
		ID: "ORD-05", Title: "a subscriber at QoS 1 that is cut again and again gets new messages in order; only copies go back", In: Both, Level: Must,
		Statements: "4.6.0-6 | 4.6.0-5", Needs: []Need{QoS1, Deliver}, Control: ControlResume, Racy: true, Faults: []string{"deliver-swap"},
		Script: func(s *Script) {
			s.Connect("w", Kept)
			s.Sub("w", 1, "t")
			s.Connect("p")
			n := s.Pick(2_000, 300)
			s.Fact("n", n)
			s.Flows(&Cutter{Conn: "w", Every: 50 * time.Millisecond, Times: 20}, Stream{"p", Flow{QoS: 1, N: n, Window: min(16, s.Caps.Receive)}})
			s.AwaitAll("w", numbered("m", n)...)
			s.Fence("p", 1, "t", "w")
		},
		Judge: func(j *J) {
			AtLeastOnceAny("w", numbered("m", j.Number("n"))...)(j)
			cutOrder(j, "w")
		},
	},
	{
		ID: "ORD-06", Title: "with Receive Maximum 1 there is never an inversion, cuts or not", In: V5, Level: Must, Statements: "4.6.0-5 3.3.4-9",
		Needs: []Need{QoS1, Deliver}, Control: ControlResume, Racy: true, Faults: []string{"receive-maximum-ignored"},
		Script: func(s *Script) {
			s.Connect("w", Kept, Receive(1))
			s.Sub("w", 2, "t")
			s.Connect("p")
			n := s.Pick(400, 100)
			s.Fact("n", n)
			s.Flows(&Cutter{Conn: "w", Every: 50 * time.Millisecond, Times: 10, Receive: 1}, Stream{"p", Flow{QoS: 2, N: n, Window: min(16, s.Caps.Receive)}})
			s.AwaitAll("w", numbered("m", n)...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) {
			Once("w", numbered("m", j.Number("n"))...)(j)
			windowKept(j)
		},
	},
	{
		ID: "ORD-07", Title: "a publisher that is cut and sends again in order is delivered in order", In: Both, Level: Must, Statements: "4.6.0-6 | 4.6.0-5",
		Needs: inWindow, Control: ControlResume, Racy: true, Faults: []string{"deliver-swap"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept)
			n := s.Pick(1_000, 200)
			s.Fact("n", n)
			s.Churn("p", Flow{QoS: 2, N: n, Window: min(16, s.Caps.Receive), Every: 30 * time.Millisecond, Cuts: 10})
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) { Once("w", numbered("m", j.Number("n"))...)(j) },
	},
	{
		ID: "ORD-08", Title: "a thousand subscribers get a burst in the same order", In: Both, Level: Must, Statements: "4.6.0-6 | 4.6.0-5", Needs: []Need{QoS1, Deliver},
		Heavy: true, Faults: []string{"deliver-swap"},
		Script: func(s *Script) {
			n := s.Pick(1_000, 20)
			var watchers []string
			for k := range n {
				w := fmt.Sprintf("w%d", k)
				watchers = append(watchers, w)
				s.Watch(w, 1, "t")
			}
			s.Fact("subscribers", n)
			burst := min(s.Pick(100, 50), s.Caps.Receive)
			s.Fact("n", burst)
			s.Connect("p")
			s.Send("p", Publishes(1, 1, burst)...)
			s.Expect("p", Acks(history.PUBACK, 1, uint16(burst))...)
			s.Fence("p", 1, "t", watchers...)
		},
		Judge: func(j *J) {
			want := Bodies(1, j.Number("n"))
			got := map[string][]string{}
			for _, i := range j.items {
				if i.Kind == history.Received && i.P.Type == history.PUBLISH && !isFence(&i.P) && !i.P.Dup {
					got[j.name(i)] = append(got[j.name(i)], body(&i.P))
				}
			}
			for k := range j.Number("subscribers") {
				name := fmt.Sprintf("w%d", k)
				for n, b := range want {
					if n >= len(got[name]) && j.h.Stuck == "" || n < len(got[name]) && got[name][n] != b {
						j.Fail(nil, "%s did not get message %d at its place", name, n+1)
						return
					}
				}
			}
		},
	},
}

// byBody orders all messages of a client as one sequence.
func byBody(d *Delivery) string { return d.Body[:1] }

// byPublisher orders those of one publisher, topic and QoS; the body begins with the publisher's letter.
func byPublisher(d *Delivery) string { return fmt.Sprintf("%s %s %d", d.Body[:1], d.P.Topic, d.P.QoS) }

// inSequence wants the numbers in the bodies of first deliveries to rise, for each key. Nothing is said of what is missing.
func inSequence(name string, key func(*Delivery) string) Test {
	return func(j *J) {
		last, seen := map[string]int{}, map[string]bool{}
		for _, d := range j.deliveries(name) {
			if seen[d.Body] || d.Body == "" {
				continue
			}
			seen[d.Body] = true
			n, err := strconv.Atoi(d.Body[1:])
			if err != nil {
				j.Fail([]Item{d.Item}, "%s got %q, which it must not get", name, d.Body)
				return
			}
			k := key(&d)
			if before, ok := last[k]; ok && n < before {
				j.Fail([]Item{d.Item}, "%s got message %d after message %d", name, n, before)
				return
			}
			last[k] = n
		}
	}
}

// cutOrder wants what comes without DUP in order, over all connections; copies may go back. In 3.1.1 they must be in order
// among themselves on each connection.
func cutOrder(j *J, name string) {
	fresh, conn, within := -1, -1, -1
	for _, i := range j.Got(name, history.PUBLISH) {
		if isFence(&i.P) || len(i.P.Payload) < 2 {
			continue
		}
		n, _ := strconv.Atoi(body(&i.P)[1:])
		if i.Conn != conn {
			conn, within = i.Conn, -1
		}
		if !i.P.Dup {
			if n < fresh {
				j.Fail([]Item{i}, "message %d came after message %d, and is no copy", n, fresh)
				return
			}
			fresh = n
		}
		if n < within {
			j.Find(only311(j), []Item{i}, "message %d came after message %d on one connection", n, within)
			return
		}
		within = n
	}
}
