package broker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"inflight/broker/packet"
)

// lasting is a CONNECT that resumes what there is; its session lives expiry seconds longer than its connection.
func lasting(id string, expiry uint32) packet.Connect {
	return packet.Connect{ClientID: id, Properties: &props{SessionExpiry: packet.Some(expiry)}}
}

// mourner subscribes to the wills of a test.
func mourner(t *testing.T, s *Server) *peer5 {
	t.Helper()
	w := enter(t, s, packet.V5, packet.Connect{ClientID: "mourner", CleanSession: true}, false)
	w.subscribe(0, packet.Subscription{Filter: "will"})
	return w
}

// A will is published once its delay has passed or its session has ended, whatever comes first [MQTT-3.1.3-9], and not at
// all if the session is resumed before that.
func TestWillDelay(t *testing.T) {
	t.Parallel()
	const will = `PUBLISH q0 will "w"`
	abrupt := func(p *peer5) { p.part() }
	disconnect := func(d packet.Disconnect) func(p *peer5) {
		return func(p *peer5) {
			p.send(packet.V5.AppendDisconnect(nil, &d))
			p.wantClosedAfter(0, 0)
			synctest.Wait()
		}
	}
	for _, c := range []struct {
		why           string
		delay, expiry uint32
		end           func(p *peer5)
		after         time.Duration // from the end of the connection to the will; -1: never
	}{
		{"no delay", 0, 100, abrupt, 0},
		{"after the delay", 30, 100, abrupt, 30 * second},
		{"a session that ends with its connection", 30, 0, abrupt, 0},
		{"a session that ends before the delay", 30, 20, abrupt, 20 * second},
		{"both at once", 30, 30, abrupt, 30 * second},
		{"a session that never ends", 30, neverExpires, abrupt, 30 * second},
		{"the longest delay", 4_294_967_295, 4_294_967_294, abrupt, 4_294_967_294 * second},
		{"a DISCONNECT", 30, 100, disconnect(packet.Disconnect{}), -1},
		{"a DISCONNECT with the will", 30, 100, disconnect(packet.Disconnect{Code: packet.DisconnectWithWill}), 30 * second},
		{
			"a DISCONNECT that shortens the session", 30, 100,
			disconnect(packet.Disconnect{Code: packet.DisconnectWithWill, Properties: &props{SessionExpiry: packet.Some[uint32](5)}}), 5 * second,
		},
		{
			"a DISCONNECT that ends the session", 30, 100,
			disconnect(packet.Disconnect{Code: packet.DisconnectWithWill, Properties: &props{SessionExpiry: packet.Some[uint32](0)}}), 0,
		},
		{"a protocol error", 30, 100, func(p *peer5) {
			p.send([]byte{0x30, 1, 0})
			p.wantClosedAfter(0, packet.MalformedPacket)
			synctest.Wait()
		}, 30 * second},
		{"silence", 30, 100, func(p *peer5) {
			p.wantClosedAfter(15*second, packet.KeepAliveTimeout)
			synctest.Wait()
		}, 30 * second},
	} {
		t.Run(c.why, func(t *testing.T) {
			virtual(t, func(t *testing.T, s *Server) {
				w := mourner(t, s)
				connect := lasting("c", c.expiry)
				connect.KeepAlive = 10
				connect.Will = &packet.Will{Topic: "will", Payload: []byte("w"), Properties: &props{WillDelay: packet.Some(c.delay)}}
				c.end(enter(t, s, packet.V5, connect, false))
				if c.after < 0 {
					w.wait(24 * time.Hour)
					return
				}
				w.wantAfter(c.after, will)
				w.wait(24 * time.Hour)
			})
		})
	}
	const delay = 30 * second
	resumes := func(why string, after time.Duration, again packet.Connect, present bool, willAfter time.Duration) {
		t.Run(why, func(t *testing.T) {
			virtual(t, func(t *testing.T, s *Server) {
				w := mourner(t, s)
				connect := lasting("c", 100)
				connect.Will = &packet.Will{Topic: "will", Payload: []byte("w"), Properties: &props{WillDelay: packet.Some[uint32](30)}}
				enter(t, s, packet.V5, connect, false).part()
				time.Sleep(after)
				p := enter(t, s, packet.V5, again, present)
				if willAfter >= 0 {
					w.wantAfter(willAfter, will)
				}
				w.wait(24 * time.Hour)
				p.send([]byte{0xC0, 0})
				p.wantNow("PINGRESP")
			})
		})
	}
	resumes("resumed just before", delay-instant, lasting("c", 100), true, -1)
	resumes("resumed just after", delay+instant, lasting("c", 100), true, 0)
	resumes("a new session", 10*second, packet.Connect{ClientID: "c", CleanSession: true}, false, 0)

	t.Run("a will of the next connection", func(t *testing.T) {
		virtual(t, func(t *testing.T, s *Server) {
			w := mourner(t, s)
			for _, payload := range []string{"first", "second"} {
				connect := lasting("c", 100)
				connect.Will = &packet.Will{Topic: "will", Payload: []byte(payload), Properties: &props{WillDelay: packet.Some[uint32](30)}}
				enter(t, s, packet.V5, connect, payload == "second").part()
				w.wait(20 * second)
			}
			w.wantAfter(10*second, `PUBLISH q0 will "second"`)
			w.wait(time.Hour)
		})
	})
	t.Run("a takeover cancels it", func(t *testing.T) {
		virtual(t, func(t *testing.T, s *Server) {
			w := mourner(t, s)
			connect := lasting("c", 100)
			connect.Will = &packet.Will{Topic: "will", Payload: []byte("w"), Properties: &props{WillDelay: packet.Some[uint32](30)}}
			old := enter(t, s, packet.V5, connect, false)
			next := pipe(t, s, packet.V5)
			again := lasting("c", 100)
			next.send(packet.V5.AppendConnect(nil, &again))
			old.wantClosedAfter(0, packet.SessionTakenOver)
			next.wantNow("CONNACK present=true 0x00")
			w.wait(time.Hour)
		})
	})
	// The will's own Message Expiry Interval begins with its publication, section 3.1.3.2.4.
	t.Run("it expires after it was published", func(t *testing.T) {
		virtual(t, func(t *testing.T, s *Server) {
			w := mourner(t, s)
			connect := lasting("c", 100)
			connect.Will = &packet.Will{Topic: "will", Payload: []byte("w"), Properties: &props{
				WillDelay: packet.Some[uint32](30), MessageExpiry: packet.Some[uint32](10),
			}}
			enter(t, s, packet.V5, connect, false).part()
			w.wait(30*second - instant)
			if left := w.wantExpiry(will); left != 10 {
				t.Errorf("it lives %d s, want 10", left)
			}
		})
	})
}

// wantAfter wants a packet d from now and nothing before.
func (p *peer5) wantAfter(d time.Duration, sentence string) {
	p.t.Helper()
	if d == 0 {
		p.wantNow(sentence)
		return
	}
	p.wait(d - instant)
	began := time.Now()
	p.want(sentence)
	if took := time.Since(began); took != instant {
		p.t.Fatalf("%s after %v, want %v", sentence, d-instant+took, d)
	}
}

// wantExpiry wants a PUBLISH and returns its Message Expiry Interval, -1 for none. The Packet Identifier is the next
// one's to use.
func (p *peer5) wantExpiry(sentence string) (left int64) {
	p.t.Helper()
	f, err := p.next()
	if err != nil {
		p.t.Fatalf("want %s, got %v", sentence, err)
	}
	if got := p.describe(f); got != sentence {
		p.t.Fatalf("want %s, got %s", sentence, got)
	}
	m, err := p.codec.ParsePublish(f)
	if err != nil {
		p.t.Fatal(err)
	}
	if m.QoS == 1 {
		p.send(ack5(packet.PUBACK, m.ID, 0))
	}
	if m.Properties == nil || !m.Properties.MessageExpiry.Set {
		return -1
	}
	return int64(m.Properties.MessageExpiry.Value)
}

// A session is there until its Session Expiry Interval has passed since its connection ended, and then it is not
// [MQTT-3.1.2-23] [MQTT-4.1.0-2].
func TestSessionExpiry(t *testing.T) {
	t.Parallel()
	leave := func(d packet.Disconnect) func(p *peer5) {
		return func(p *peer5) {
			p.send(packet.V5.AppendDisconnect(nil, &d))
			p.wantClosedAfter(0, 0)
		}
	}
	for _, c := range []struct {
		why     string
		expiry  uint32
		end     func(p *peer5)
		after   time.Duration
		present bool
	}{
		{"none, at once", 0, leave(packet.Disconnect{}), 0, false},
		{"just before", 60, (*peer5).part, 60*second - instant, true},
		{"just after", 60, (*peer5).part, 60 * second, false},
		{"long after", 60, (*peer5).part, time.Hour, false},
		{"never", neverExpires, (*peer5).part, 100 * 365 * 24 * time.Hour, true},
		{"almost never, before", neverExpires - 1, (*peer5).part, (neverExpires-1)*second - instant, true},
		{"almost never, after", neverExpires - 1, (*peer5).part, (neverExpires - 1) * second, false},
		{"a DISCONNECT makes it shorter", 60, leave(packet.Disconnect{Properties: &props{SessionExpiry: packet.Some[uint32](10)}}), 10 * second, false},
		{"and not shorter than that", 60, leave(packet.Disconnect{Properties: &props{SessionExpiry: packet.Some[uint32](10)}}), 10*second - instant, true},
		{"a DISCONNECT makes it longer", 60, leave(packet.Disconnect{Properties: &props{SessionExpiry: packet.Some[uint32](600)}}), 600*second - instant, true},
		{"a DISCONNECT ends it", 60, leave(packet.Disconnect{Properties: &props{SessionExpiry: packet.Some[uint32](0)}}), 0, false},
		{"a DISCONNECT makes it last for ever", 60, leave(packet.Disconnect{Properties: &props{SessionExpiry: packet.Some[uint32](neverExpires)}}), 1e6 * second, true},
		{"a DISCONNECT that leaves it", 60, leave(packet.Disconnect{}), 60*second - instant, true},
	} {
		t.Run(c.why, func(t *testing.T) {
			virtual(t, func(t *testing.T, s *Server) {
				p := enter(t, s, packet.V5, lasting("c", c.expiry), false)
				p.subscribe(0, packet.Subscription{Filter: "a", QoS: 1})
				p.send(pub5(1, 2, "held", "x", nil)) // and never released
				p.want("PUBREC 1")
				p.wait(time.Hour) // the time of the connection does not count
				c.end(p)
				synctest.Wait()
				o := enter(t, s, packet.V311, packet.Connect{ClientID: "o", CleanSession: true}, false)
				o.send(pub(1, 1, "a", "queued"))
				o.want("PUBACK 1")
				if c.after > 0 {
					o.wait(c.after)
				}
				p = enter(t, s, packet.V5, lasting("c", 0), c.present)
				if !c.present {
					p.send(ack5(packet.PUBREL, 1, 0))
					p.want("PUBCOMP 1 0x92") // it is no exchange of the new session
					o.send(pub(2, 1, "a", "not subscribed"))
					o.want("PUBACK 2")
					p.wait(time.Hour)
					return
				}
				p.want(`PUBLISH q1 a "queued"`)
				p.send(ack5(packet.PUBREL, 1, 0))
				p.want("PUBCOMP 1")
			})
		})
	}
	t.Run("an expired session leaves nothing", func(t *testing.T) {
		virtual(t, func(t *testing.T, s *Server) {
			p := enter(t, s, packet.V5, lasting("c", 60), false)
			p.subscribe(0, packet.Subscription{Filter: "a", QoS: 1})
			p.send(pub5(1, 2, "held", "x", nil))
			p.want("PUBREC 1")
			p.part()
			time.Sleep(60*second - instant)
			if s.client("c") == nil {
				t.Error("gone too early")
			}
			time.Sleep(instant)
			synctest.Wait()
			held, err := s.store.Held(t.Context(), "c")
			if _, errRec := s.store.Session(t.Context(), "c"); s.client("c") != nil || len(held) > 0 || err != nil || errRec == nil {
				t.Errorf("session %v, held %v, %v, record %v", s.client("c"), held, err, errRec)
			}
		})
	})
	t.Run("each connection begins it anew", func(t *testing.T) {
		virtual(t, func(t *testing.T, s *Server) {
			enter(t, s, packet.V5, lasting("c", 60), false).part()
			for range 5 {
				time.Sleep(60*second - instant)
				enter(t, s, packet.V5, lasting("c", 60), true).part()
			}
			time.Sleep(60 * second)
			enter(t, s, packet.V5, lasting("c", 60), false)
		})
	})
	t.Run("3.1.1 keeps or does not", func(t *testing.T) {
		virtual(t, func(t *testing.T, s *Server) {
			enter(t, s, packet.V311, packet.Connect{ClientID: "kept"}, false).part()
			enter(t, s, packet.V311, packet.Connect{ClientID: "clean", CleanSession: true}, false).part()
			time.Sleep(100 * 365 * 24 * time.Hour)
			enter(t, s, packet.V311, packet.Connect{ClientID: "kept"}, true)
			enter(t, s, packet.V311, packet.Connect{ClientID: "clean"}, false)
		})
	})
}

// A message is delivered as long as its Message Expiry Interval has not passed [MQTT-3.3.2-5], and says what is left of it
// [MQTT-3.3.2-6].
func TestMessageExpiry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why    string
		expiry uint32
		after  time.Duration
		left   int64 // 0: it is not delivered
	}{
		{"at once", 10, 0, 10},
		{"a while in the queue", 10, 4 * second, 6},
		{"a part of a second counts for the message", 10, 4*second + time.Millisecond, 6},
		{"just before", 10, 10*second - instant, 1},
		{"just after", 10, 10 * second, 0},
		{"long after", 10, time.Hour, 0},
		{"a life of nothing", 0, 0, 0},
		{"the longest", 4_294_967_295, 1000 * second, 4_294_966_295},
	} {
		message := func(id uint16) []byte {
			return pub5(id, 1, "a", "x", &props{MessageExpiry: packet.Some(c.expiry)})
		}
		setting := func(s *Server, t *testing.T, window uint16) (w, p *peer5, connect packet.Connect) {
			connect = lasting("w", neverExpires)
			connect.Properties.ReceiveMaximum = packet.Some(window)
			w = enter(t, s, packet.V5, connect, false)
			w.subscribe(0, packet.Subscription{Filter: "a", QoS: 1})
			return w, enter(t, s, packet.V5, packet.Connect{ClientID: "p", CleanSession: true}, false), connect
		}
		end := func(w, p *peer5) {
			w.t.Helper()
			p.send(pub5(9, 1, "a", "sentinel", nil))
			p.want("PUBACK 9")
			if c.left > 0 {
				if left := w.wantExpiry(`PUBLISH q1 a "x"`); left != c.left {
					w.t.Errorf("%d s are left, want %d", left, c.left)
				}
			}
			if left := w.wantExpiry(`PUBLISH q1 a "sentinel"`); left != -1 {
				w.t.Errorf("the sentinel has %d s", left)
			}
		}
		t.Run(fmt.Sprint("nobody is connected: ", c.why), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *Server) {
				w, p, connect := setting(s, t, 10)
				w.part()
				p.send(message(1))
				p.want("PUBACK 1")
				if c.after > 0 {
					p.wait(c.after)
				}
				end(enter(t, s, packet.V5, connect, true), p)
			})
		})
		t.Run(fmt.Sprint("the window is full: ", c.why), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *Server) {
				w, p, _ := setting(s, t, 1)
				p.send(pub5(2, 1, "a", "first", nil))
				p.want("PUBACK 2")
				id := w.want(`PUBLISH q1 a "first"`)
				p.send(message(1))
				p.want("PUBACK 1")
				if c.after > 0 {
					w.wait(c.after)
				}
				w.send(ack5(packet.PUBACK, id, 0))
				end(w, p)
			})
		})
	}
	t.Run("what was sent is sent again although it has expired", func(t *testing.T) { // [MQTT-4.3.3-7], Q2O-22
		virtual(t, func(t *testing.T, s *Server) {
			connect := lasting("w", neverExpires)
			w := enter(t, s, packet.V5, connect, false)
			w.subscribe(0, packet.Subscription{Filter: "a", QoS: 2})
			p := enter(t, s, packet.V5, packet.Connect{ClientID: "p", CleanSession: true}, false)
			p.send(pub5(1, 1, "a", "x", &props{MessageExpiry: packet.Some[uint32](10)}))
			p.want("PUBACK 1")
			w.want(`PUBLISH q1 a "x"`)
			w.part()
			p.wait(time.Hour)
			w = enter(t, s, packet.V5, connect, true)
			w.want(`PUBLISH q1 a "x" dup`)
		})
	})
	t.Run("a retained message", func(t *testing.T) {
		for _, after := range []time.Duration{10*second - instant, 10 * second} {
			virtual(t, func(t *testing.T, s *Server) {
				p := enter(t, s, packet.V5, packet.Connect{ClientID: "p", CleanSession: true}, false)
				p.send(packet.V5.AppendPublish(nil, &packet.Publish{
					Topic: []byte("a"), Payload: []byte("x"), ID: 1, QoS: 1, Retain: true, Properties: &props{MessageExpiry: packet.Some[uint32](10)},
				}))
				p.want("PUBACK 1")
				p.wait(after)
				p.subscribe(0, packet.Subscription{Filter: "a"})
				if after < 10*second {
					if left := p.wantExpiry(`PUBLISH q0 a "x" retain`); left != 1 {
						t.Errorf("%d s are left, want 1", left)
					}
				}
				p.wait(time.Hour)
			})
		}
	})
	t.Run("an exchange that outlives its message", func(t *testing.T) { // [MQTT-4.3.3-13], Q2I-27
		virtual(t, func(t *testing.T, s *Server) {
			p := enter(t, s, packet.V5, packet.Connect{ClientID: "p", CleanSession: true}, false)
			p.subscribe(0, packet.Subscription{Filter: "a", QoS: 2})
			p.send(pub5(1, 2, "a", "x", &props{MessageExpiry: packet.Some[uint32](1)}))
			p.want("PUBREC 1")
			p.wait(2 * second)
			p.send(ack5(packet.PUBREL, 1, 0))
			p.want("PUBCOMP 1")
			p.wait(time.Hour)
		})
	})
}
