package check

import (
	"fmt"
	"time"

	"inflight/broker/packet"
	"inflight/runner/history"
)

// setByte sets one byte of a packet.
func setByte(at int, v byte) func([]byte) []byte {
	return func(b []byte) []byte { b[at] = v; return b }
}

// zeroID sets the Packet Identifier of a PUBLISH to 0.
func zeroID(b []byte) []byte {
	at := 1
	for b[at] >= 0x80 {
		at++
	}
	at++
	at += 2 + int(b[at])<<8 + int(b[at+1])
	b[at], b[at+1] = 0, 0
	return b
}

// noise is the body of what must never be delivered.
const noise = "BAD"

// badTopic replaces the topic of a PUBLISH, whose packet has less than 128 bytes.
func badTopic(topic string) Msg {
	m := P1(1, noise)
	m.Topic, m.Exact, m.Note = topic, true, fmt.Sprintf("topic %q", topic)
	return m
}

// wrongTopic is a PUBLISH on a topic that is a filter, or nothing.
func wrongTopic(topic string) Msg {
	m := P1(1, noise).On(topic)
	m.Note = "no Topic Name"
	return m
}

// rawAck is an acknowledgement of any bytes.
func rawAck(note string, head byte, body ...byte) Msg {
	return Raw(note, append([]byte{head, byte(len(body))}, body...)...)
}

// refused makes a script in which every packet is sent on a connection of its own, which the broker must close; a message of
// another client then shows that it is alive and that nothing was delivered.
func refused(packets func(s *Script) []Msg) func(*Script) {
	return func(s *Script) { refuse(s, packets(s), true) }
}

func refuse(s *Script, packets []Msg, must bool) {
	s.Watch("w", 2, "t")
	s.Connect("q")
	for k, m := range packets {
		conn := fmt.Sprintf("b%d", k)
		s.Connect(conn)
		s.Send(conn, m)
		if must {
			s.ExpectClose(conn)
		} else {
			s.MaybeClose(conn, holdWait)
		}
	}
	s.Fence("q", 1, "t", "w")
	s.Ping("w")
}

// mayRefuse is the same where to close is not an obligation.
func mayRefuse(packets func(s *Script) []Msg) func(*Script) {
	return func(s *Script) { refuse(s, packets(s), false) }
}

// stays counts for a rule what was not closed.
func stays(j *J) {
	Never("w")(j)
	open, all := 0, 0
	for i, c := range j.h.Conns {
		if c.Name[0] != 'b' {
			continue
		}
		all++
		closed := false
		for _, e := range j.h.Events {
			closed = closed || e.Conn == i && e.Kind == history.Closed
		}
		if !closed {
			open++
		}
	}
	if open > 0 {
		j.Fail(nil, "%d of %d connections stay open", open, all)
	}
}

var groupBAD = []*Rule{
	{
		ID: "BAD-01", Title: "a PUBLISH above QoS 0 with Packet Identifier 0 closes the connection", In: Both, Level: Must, Statements: "2.3.1-1 4.8.0-1 | 2.2.1-3 4.13.1-1", Needs: []Need{QoS1, Deliver},
		Script: refused(func(*Script) []Msg {
			return []Msg{P1(1, noise).Wrong("identifier 0", zeroID), P2(1, noise).Wrong("identifier 0", zeroID)}
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-02", Title: "a PUBLISH with QoS 3 closes the connection", In: Both, Level: Must, Statements: "3.3.1-4", Needs: []Need{QoS1, Deliver},
		Script: refused(func(*Script) []Msg {
			return []Msg{P1(1, noise).Wrong("QoS 3", func(b []byte) []byte { b[0] |= 6; return b })}
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-03", Title: "a PUBLISH at QoS 0 with DUP closes the connection", In: Both, Level: Info, Statements: "3.3.1-2", Why: "the statement binds the sender", Needs: []Need{QoS1, Deliver},
		Script: mayRefuse(func(*Script) []Msg {
			return []Msg{P0(noise).Wrong("DUP at QoS 0", func(b []byte) []byte { b[0] |= 8; return b })}
		}),
		Judge: stays,
	},
	{
		ID: "BAD-04", Title: "a PUBREL with other flags than 2 closes the connection", In: Both, Level: Must, Statements: "3.6.1-1 2.2.2-2 | 3.6.1-1", Needs: []Need{QoS1, Deliver},
		Script: refused(func(*Script) []Msg {
			var all []Msg
			for _, flags := range []byte{0, 3, 6, 15} {
				all = append(all, rawAck(fmt.Sprintf("PUBREL with flags 0x%X", flags), 0x60|flags, 0, 1))
			}
			return all
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-05", Title: "reserved flags that are set close the connection", In: Both, Level: Must, Statements: "2.2.2-1 2.2.2-2 | 2.1.3-1 4.13.1-1", Needs: []Need{QoS1, Deliver},
		Script: refused(func(*Script) []Msg {
			return []Msg{
				rawAck("PUBACK with flags", 0x42, 0, 1), rawAck("PUBREC with flags", 0x51, 0, 1), rawAck("PUBCOMP with flags", 0x78, 0, 1),
				rawAck("PINGREQ with flags", 0xC1), rawAck("DISCONNECT with flags", 0xE4),
			}
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-06", Title: "acknowledgements with Packet Identifier 0 close the connection", In: Both, Level: Info, Statements: "4.8.0-1 | 4.13.1-1", Why: "no statement names them", Needs: []Need{QoS1, Deliver},
		Script: mayRefuse(func(*Script) []Msg {
			return []Msg{
				rawAck("PUBREL with identifier 0", 0x62, 0, 0), rawAck("PUBACK with identifier 0", 0x40, 0, 0), rawAck("PUBREC with identifier 0", 0x50, 0, 0),
				rawAck("PUBCOMP with identifier 0", 0x70, 0, 0),
			}
		}),
		Judge: stays,
	},
	{
		ID: "BAD-07", Title: "a PUBREL without a whole identifier closes the connection; in 3.1.1 one with more, too", In: Both, Level: Must, Statements: "4.8.0-1 | 4.13.1-1",
		Why: "a packet whose fields do not fit its length cannot be parsed", Needs: []Need{QoS1, Deliver},
		Script: refused(func(s *Script) []Msg {
			all := []Msg{rawAck("PUBREL of length 0", 0x62), rawAck("PUBREL of length 1", 0x62, 0)}
			if !s.Is5() {
				all = append(all, rawAck("PUBREL of length 3", 0x62, 0, 1, 0))
			}
			return all
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-08", Title: "an unknown Reason Code closes the connection", In: V5, Level: Info, Statements: "3.4.2-1 3.5.2-1 3.6.2-1 3.7.2-1", Why: "the statements bind the sender", Needs: []Need{QoS1, Deliver},
		Script: mayRefuse(func(*Script) []Msg {
			var all []Msg
			for _, head := range []byte{0x40, 0x50, 0x62, 0x70} {
				for _, code := range []byte{0xFF, 0x01} {
					all = append(all, rawAck(fmt.Sprintf("%v with Reason Code 0x%02X", history.Type(head>>4), code), head, 0, 1, code))
				}
			}
			return all
		}),
		Judge: stays,
	},
	{
		ID: "BAD-09", Title: "properties that are unknown, not allowed, doubled, or longer than the packet close the connection", In: V5, Level: Must, Statements: "4.13.1-1",
		Why: "section 2.2.2.2 calls each a Malformed Packet or a Protocol Error", Needs: []Need{QoS1, Deliver},
		Script: refused(func(*Script) []Msg {
			var all []Msg
			for _, head := range []byte{0x40, 0x50, 0x62, 0x70} {
				name := history.Type(head >> 4)
				all = append(all,
					rawAck(fmt.Sprintf("%v with an unknown property", name), head, 0, 1, 0, 2, 0x7E, 0),
					rawAck(fmt.Sprintf("%v with a property of CONNECT", name), head, 0, 1, 0, 3, 33, 0, 1),
					rawAck(fmt.Sprintf("%v with two Reason Strings", name), head, 0, 1, 0, 8, 31, 0, 1, 'a', 31, 0, 1, 'b'),
					rawAck(fmt.Sprintf("%v with properties past its end", name), head, 0, 1, 0, 9, 31, 0, 1, 'a'),
				)
			}
			return all
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-10", Title: "a Remaining Length of five bytes closes the connection", In: Both, Level: Must, Statements: "4.8.0-1 | 4.13.1-1", Why: "section 2.2.3 ; 1.5.5", Needs: []Need{QoS1, Deliver},
		Script: refused(func(*Script) []Msg {
			return []Msg{Raw("a Remaining Length of five bytes", 0x30, 0x80, 0x80, 0x80, 0x80, 0x01, 0, 1, 't')}
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-11", Title: "a Remaining Length in more bytes than it needs closes the connection", In: Both, Level: Info, Statements: "- | 1.5.5-1", Why: "the statement binds the sender", Needs: []Need{QoS1, Deliver},
		Script: mayRefuse(func(*Script) []Msg { return []Msg{Raw("PINGREQ with a length of two bytes", 0xC0, 0x80, 0x00)} }),
		Judge: func(j *J) {
			if j.Is5() {
				stays(j)
				return
			}
			// 3.1.1 does not ask for the shortest form.
			j.Note("closed at it: %v", j.closedBy("b0"))
		},
	},
	{
		ID: "BAD-12", Title: "a packet that claims 256 MB and never comes costs no memory to speak of", In: Both, Level: Info, Why: "a claim is not an allocation", Needs: []Need{QoS1, Deliver, Memory}, Alone: true,
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("q")
			s.Memory("before")
			for k := range 20 {
				conn := fmt.Sprintf("b%d", k)
				s.Connect(conn)
				s.Send(conn, Raw("a PUBLISH of 268,435,455 bytes begins", 0x30, 0xFF, 0xFF, 0xFF, 0x7F, 0, 1, 't', 'x'))
			}
			s.Wait(time.Second)
			s.Memory("after")
			s.Fence("q", 1, "t", "w")
		},
		Judge: func(j *J) {
			Never("w")(j)
			if grown := j.Number("after") - j.Number("before"); grown > 256<<20 {
				j.Fail(nil, "twenty claims cost %d MB", grown>>20)
			}
		},
	},
	{
		ID: "BAD-13", Title: "a packet beyond the announced Maximum Packet Size closes the connection", In: V5, Level: Info, Statements: "3.2.2-15", Why: "DISCONNECT 0x95; the statement binds the Client",
		Needs: []Need{QoS1, Deliver, SmallSize},
		Script: mayRefuse(func(s *Script) []Msg {
			m := P1(1, noise)
			m.Size = s.Caps.MaxPacket + 1
			return []Msg{m}
		}),
		Judge: func(j *J) {
			stays(j)
			disconnectCode(j, "b0", 0x95)
		},
	},
	{
		ID: "BAD-14", Title: "a PUBLISH whose fields do not fit its length closes the connection", In: Both, Level: Must, Statements: "3.3.2-1 4.8.0-1 | 3.3.2-1 4.13.1-1", Needs: []Need{QoS1, Deliver},
		Script: refused(func(*Script) []Msg {
			return []Msg{
				Raw("a topic past the end", 0x30, 5, 0, 9, 't', 0, 'x'), Raw("no room for the identifier", 0x34, 4, 0, 1, 't', 0), Raw("no room for the topic's length", 0x30, 1, 0),
			}
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-15", Title: "a PUBLISH that ends in the middle is not delivered", In: Both, Level: Must, Statements: "4.8.0-2 | 4.13.1-1", Why: "there is no such packet", Needs: []Need{QoS1, Deliver}, Faults: []string{"partial-delivers"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("q")
			for k, end := range []func(string){s.Cut, s.Reset} {
				conn := fmt.Sprintf("b%d", k)
				s.Connect(conn)
				m := P1(1, noise)
				m.Size = 50
				s.Send(conn, m.Wrong("the last bytes are missing", func(b []byte) []byte { return b[:len(b)-5] }))
				end(conn)
			}
			s.Fence("q", 1, "t", "w")
		},
		Judge: Never("w"),
	},
	{
		ID: "BAD-16", Title: "a topic that is not UTF-8, or holds U+0000 or a surrogate, closes the connection", In: Both, Level: Must, Statements: "1.5.3-1 1.5.3-2 | 1.5.4-1 1.5.4-2", Needs: []Need{QoS1, Deliver},
		Script: refused(func(*Script) []Msg {
			return []Msg{badTopic("a\xC3\x28"), badTopic("a\xED\xA0\x80"), badTopic("a\x00b"), badTopic("a\xC0\xAF")}
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-17", Title: "a topic with a wildcard, or none, closes the connection", In: Both, Level: Must, Statements: "3.3.2-2 4.7.3-1", Needs: []Need{QoS1, Deliver},
		Script: refused(func(*Script) []Msg { return []Msg{wrongTopic("a/+"), wrongTopic("a/#"), wrongTopic("")} }),
		Judge:  Never("w"),
	},
	{
		ID: "BAD-18", Title: "a SUBSCRIBE with wrong flags, no filter, QoS 3 or identifier 0 closes the connection", In: Both, Level: Must,
		Statements: "3.8.1-1 3.8.3-3 3.8.3-4 2.3.1-1 | 3.8.1-1 3.8.3-2 3.8.3-5 2.2.1-3", Needs: []Need{QoS1, Deliver},
		Script: refused(func(s *Script) []Msg {
			sub := Msg{Type: packet.SUBSCRIBE, ID: 1, Subs: []packet.Subscription{{Filter: "t", QoS: 1}}}
			empty := Msg{Type: packet.SUBSCRIBE, ID: 1}
			empty.Note = "no filter"
			return []Msg{
				sub.Wrong("flags 0", setByte(0, 0x80)), sub.Wrong("QoS 3", func(b []byte) []byte { b[len(b)-1] = 3; return b }), sub.Wrong("identifier 0", func(b []byte) []byte { b[3] = 0; return b }), empty,
			}
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-19", Title: "packets that only a Server sends, and reserved types, close the connection", In: Both, Level: Must, Statements: "4.8.0-1 | 4.13.1-1", Why: "a Protocol Error of the client",
		Needs: []Need{QoS1, Deliver},
		Script: refused(func(s *Script) []Msg {
			return []Msg{
				Raw("CONNACK", 0x20, 2, 0, 0), Raw("SUBACK", 0x90, 3, 0, 1, 0), Raw("UNSUBACK", 0xB0, 2, 0, 1), Raw("PINGRESP", 0xD0, 0), Raw("type 0", 0x00, 0), Raw("type 15", 0xF0, 0),
			}
		}),
		Judge: Never("w"),
	},
	{
		ID: "BAD-20", Title: "a bad packet inside a window: what was before it is acknowledged or resumable, what is after it does not happen", In: Both, Level: Must, Statements: "4.8.0-1 | 4.13.1-1",
		Why: "the connection ends there, the session does not", Needs: inWindow, Control: ControlResume, Faults: []string{"lose"},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("p", Kept)
			n := min(20, s.Caps.Receive)
			s.Fact("n", n)
			msgs := append(Publishes(2, 1, n), P1(500, noise).Wrong("QoS 3", func(b []byte) []byte { b[0] |= 6; return b }), P2(501, "LATER"), Rel(501))
			s.Send("p", msgs...)
			s.ExpectClose("p")
			s.Resume("p")
			again := Publishes(2, 1, n)
			for i := range again {
				again[i].Dup = true
			}
			s.Send("p", again...)
			s.Expect("p", Acks(history.PUBREC, 1, uint16(n))...)
			s.Send("p", Rels(1, n)...)
			s.Expect("p", Acks(history.PUBCOMP, 1, uint16(n))...)
			s.Fence("p", 2, "t", "w")
		},
		Judge: func(j *J) { Once("w", Bodies(1, j.Number("n"))...)(j) },
	},
	{
		ID: "BAD-21", Title: "thousands of mutations of a legal trace leave the broker alive", In: Both, Level: Info, Why: "what a network can do to a client", Needs: []Need{QoS1, Deliver},
		Script: func(s *Script) {
			s.Watch("w", 2, "t")
			s.Connect("q")
			for k := range s.Pick(1_000, 60) {
				conn := fmt.Sprintf("b%d", k)
				s.Dial(conn)
				flips := s.Rand.Uint64()
				s.Send(conn, connectMsg(), mutated(P2(7, noise).On("m"), flips), mutated(Rel(7), flips>>16), mutated(P1(8, noise).On("m"), flips>>32), mutated(Msg{Type: packet.PINGREQ}, flips>>48))
				s.Cut(conn)
			}
			s.Fence("q", 1, "t", "w")
		},
		Judge: Never("w"),
	},
}

// mutated flips one bit of the packet, or cuts or repeats a byte, as the number says.
func mutated(m Msg, n uint64) Msg {
	return m.Wrong("mutated", func(b []byte) []byte {
		at := int(n>>4) % len(b)
		switch n & 3 {
		case 0:
			return append(b[:at:at], b[at+1:]...)
		case 1:
			return append(b[:at+1:at+1], b[at:]...)
		}
		b[at] ^= 1 << (n >> 2 & 7)
		return b
	})
}
