package broker

import (
	"fmt"
	"slices"
	"testing"

	"inflight/broker/packet"
)

// keep is a PUBLISH with RETAIN.
func keep(id uint16, qos byte, topic, payload string) []byte {
	return packet.AppendPublish(nil, &packet.Publish{Topic: []byte(topic), Payload: []byte(payload), ID: id, QoS: qos, Retain: true})
}

// retains publishes a message with RETAIN and completes it.
func (p *peer) retains(qos byte, topic, payload string) {
	p.t.Helper()
	switch qos {
	case 0:
		p.send(keep(0, 0, topic, payload), packet.AppendEmpty(nil, packet.PINGREQ))
		p.want("PINGRESP")
	case 1:
		p.send(keep(1, 1, topic, payload))
		p.want("PUBACK 1")
	case 2:
		p.send(keep(1, 2, topic, payload), ack(packet.PUBREL, 1))
		p.want("PUBREC 1", "PUBCOMP 1")
	}
}

// A new subscription gets the retained message with RETAIN set and at the lower QoS [MQTT-3.3.1-8] [MQTT-3.8.4-6], the
// last one only [MQTT-3.3.1-5]; an existing one gets what is published without RETAIN [MQTT-3.3.1-9].
func TestRetained(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		p := connect(t, s, "p")
		for qos := range byte(3) {
			topic := fmt.Sprintf("t/%d", qos)
			live := connect(t, s, "live")
			live.subscribe(topic, 0)
			p.retains(qos, topic, "old")
			p.retains(qos, topic, "new")
			live.want(fmt.Sprintf(`PUBLISH q0 %s "old"`, topic), fmt.Sprintf(`PUBLISH q0 %s "new"`, topic))
			for sub := range byte(3) {
				w := connect(t, s, "w")
				w.subscribe(topic, sub)
				w.want(fmt.Sprintf(`PUBLISH q%d %s "new" retain`, min(qos, sub), topic))
				w.wantQuiet()
				w.send(packet.AppendEmpty(nil, packet.DISCONNECT))
			}
			live.wantQuiet()
			live.send(packet.AppendEmpty(nil, packet.DISCONNECT))
		}
	})
}

// SUB-05: a retained QoS 2 message is retained at its PUBREL.
func TestRetainedAtPubrel(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		p := connect(t, s, "p")
		p.send(keep(7, 2, "a", "A"))
		p.want("PUBREC 7")
		early := connect(t, s, "early")
		early.subscribe("a", 2)
		early.wantQuiet()
		p.send(ack(packet.PUBREL, 7))
		p.want("PUBCOMP 7")
		early.take(`PUBLISH q2 a "A"`)
		late := connect(t, s, "late")
		late.subscribe("a", 2)
		late.take(`PUBLISH q2 a "A" retain`)
		late.wantQuiet()
		early.wantQuiet()
	})
}

// SUB-06: an empty one clears it once, also with a duplicate and over a resume [MQTT-3.3.1-10] [MQTT-3.3.1-11].
func TestRetainedClear(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		p := connect(t, s, "p", "keep")
		p.retains(1, "a", "A")
		w := connect(t, s, "w")
		w.subscribe("a", 2)
		w.send(ack(packet.PUBACK, w.want(`PUBLISH q1 a "A" retain`)))
		p.send(keep(7, 2, "a", ""), keep(7, 2, "a", ""))
		p.want("PUBREC 7", "PUBREC 7")
		p.cut()
		p = connect(t, s, "p", "keep", "present")
		p.send(ack(packet.PUBREL, 7), ack(packet.PUBREL, 7))
		p.want("PUBCOMP 7", "PUBCOMP 7")
		w.take(`PUBLISH q2 a ""`)
		w.wantQuiet()
		late := connect(t, s, "late")
		late.subscribe("a", 2)
		late.subscribe("#", 2)
		late.wantQuiet()
	})
}

// SUB-07: the flag and the QoS are as published when the PUBREL comes on another connection, or another node; and what
// is retained is found on every node and after a restart.
func TestRetainedReleasedElsewhere(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, first *Server, move func() *Server) {
		p := connect(t, first, "pub", "keep")
		p.retains(2, "r/one", "one")
		p.send(keep(3, 2, "r/two", "two"))
		p.want("PUBREC 3")
		p.cut()
		second := move()
		p = connect(t, second, "pub", "keep", "present")
		w := connect(t, second, "w")
		w.subscribe("r/#", 2)
		w.take(`PUBLISH q2 r/one "one" retain`)
		p.send(ack(packet.PUBREL, 3))
		p.want("PUBCOMP 3")
		w.take(`PUBLISH q2 r/two "two"`)
		late := connect(t, second, "late")
		late.subscribe("r/two", 1)
		late.send(ack(packet.PUBACK, late.want(`PUBLISH q1 r/two "two" retain`)))
		late.wantQuiet()
		p.retains(1, "r/one", "")
		p.retains(1, "r/two", "")
		connect(t, second, "pub") // nothing of the session stays for the next place
	})
}

// A wildcard subscription gets each matching topic's message, the same SUBSCRIBE again gets them again [MQTT-3.8.4-3],
// more of them than the window has room for.
func TestRetainedWildcards(t *testing.T) {
	t.Parallel()
	for _, name := range []string{StoreMemory, StoreStaged, StoreJournal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, name, func(c *Config) { c.Outbound = 5 })
			p := connect(t, s, "p")
			const n = 40
			p.send(numbered(n, func(id uint16) []byte { return keep(id, 1, fmt.Sprintf("r/%02d", id), fmt.Sprint(id)) }))
			p.want(sentences(n, "PUBACK #")...)
			p.retains(1, "$r/x", "x")
			var want []string
			for i := range n {
				want = append(want, fmt.Sprintf(`PUBLISH q1 r/%02d "%d" retain`, i+1, i+1))
			}
			w := connect(t, s, "w")
			for _, filter := range []string{"r/+", "#", "r/+", "r/#"} {
				w.subscribe(filter, 2)
				var got []string
				for range n {
					m := w.takes(1)[0]
					w.send(ack(packet.PUBACK, m.id))
					got = append(got, m.text)
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Fatalf("%s: got %q", filter, got)
				}
			}
			w.wantQuiet()
			w.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 3, Subscriptions: []packet.Subscription{{Filter: "r/07", QoS: 1}, {Filter: "none/#"}, {Filter: "r/08"}}}))
			w.want("SUBACK 3 [1 0 0]", `PUBLISH q1 r/07 "7" retain`, `PUBLISH q0 r/08 "8" retain`)
			w.wantQuiet()
		})
	}
}

// A subscriber that does not read its retained messages holds up nobody, and a shutdown neither.
func TestRetainedUnread(t *testing.T) { t.Parallel(); eachDurable(t, testRetainedUnread) }

func testRetainedUnread(t *testing.T, on string) {
	s := open(t, on, func(c *Config) { c.Outbound = 1 })
	p := connect(t, s, "p")
	p.send(numbered(20, func(id uint16) []byte { return keep(id, 1, fmt.Sprintf("r/%d", id), "x") }))
	p.want(sentences(20, "PUBACK #")...)
	w := connect(t, s, "w", "keep")
	for range 100 {
		w.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: "r/+", QoS: 1}}}))
	}
	if id := w.want("SUBACK 1 [1]"); id != 0 {
		t.Fatal(id)
	}
	cl := s.client("w")
	cl.mu.Lock()
	waiting := len(cl.fresh)
	cl.mu.Unlock()
	if waiting > 2 {
		t.Errorf("%d turns wait for one subscription", waiting)
	}
	other := connect(t, s, "other")
	other.subscribe("r/1", 0)
	other.want(`PUBLISH q0 r/1 "x" retain`)
	s.Shutdown()
}

// What was sent because it was retained is sent again as it was: the flag, the identifier, even if the topic has another
// message by then.
func TestRetainedResend(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, first *Server, move func() *Server) {
		p := connect(t, first, "p")
		p.retains(1, "s", "A")
		w := connect(t, first, "resent", "keep")
		w.subscribe("s", 1)
		id := w.want(`PUBLISH q1 s "A" retain`)
		p.retains(1, "s", "")
		w.send(ack(packet.PUBACK, w.want(`PUBLISH q1 s ""`)))
		settleDown(w)
		w.cut()
		second := move()
		w = connect(t, second, "resent", "keep", "present")
		if again := w.want(`PUBLISH q1 s "A" dup retain`); again != id {
			t.Errorf("comes as %d, it was %d", again, id)
		}
		w.wantQuiet()
		connect(t, second, "resent")
	})
}

// A Will Message is published once, at its QoS, however the connection ends without a DISCONNECT [MQTT-3.1.2-8], and
// retained if it says so [MQTT-3.1.2-17].
func TestWillRetained(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		w := connect(t, s, "w")
		w.subscribe("will/+", 2)
		for _, c := range []struct {
			name string
			keep uint16 // Keep Alive
			end  func(p *peer)
			sent bool
		}{
			{"cut", 0, (*peer).cut, true},
			{"takeover", 0, func(p *peer) { connect(p.t, s, "dying").send(packet.AppendEmpty(nil, packet.DISCONNECT)) }, true},
			{"keep-alive", 1, func(p *peer) { p.wantClosed() }, true},
			{"protocol-error", 0, func(p *peer) { p.send(ack(packet.PUBREL, 1), []byte{0x62, 1, 0}) }, true},
			{"end of file", 0, func(p *peer) { _ = p.nc.Close() }, true},
			{"disconnect", 0, func(p *peer) { p.send(packet.AppendEmpty(nil, packet.DISCONNECT)) }, false},
		} {
			for qos := range byte(3) {
				if c.keep > 0 && qos < 2 {
					continue // takes a while
				}
				topic := fmt.Sprintf("will/%s %d", c.name, qos)
				p := dial(t, s)
				p.send(packet.AppendConnect(nil, &packet.Connect{
					ClientID: "dying", CleanSession: true, KeepAlive: c.keep, Will: &packet.Will{Topic: topic, Payload: []byte("gone"), QoS: qos, Retain: true},
				}))
				p.want("CONNACK present=false code=0")
				c.end(p)
				late := connect(t, s, "late")
				if !c.sent {
					w.wantQuiet()
					late.subscribe(topic, 2)
					late.wantQuiet()
					continue
				}
				want := fmt.Sprintf("PUBLISH q%d %s %q", qos, topic, "gone")
				if qos == 2 {
					w.take(want)
				} else if id := w.want(want); qos == 1 {
					w.send(ack(packet.PUBACK, id))
				}
				late.subscribe(topic, 2)
				late.want(want + " retain")
			}
		}
		w.wantQuiet()
	})
}
