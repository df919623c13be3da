package broker

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"inflight/broker/packet"
)

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never happens")
		}
	}
}

func TestConnack5(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory)
	p := dial5(t, s)
	p.send(packet.V5.AppendConnect(nil, &packet.Connect{}))
	f, err := p.next()
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.codec.ParseConnack(f)
	if err != nil || a.Code != 0 || a.SessionPresent {
		t.Fatalf("%+v, %v", a, err)
	}
	q := a.Properties
	if len(q.AssignedClientID) == 0 || q.ReceiveMaximum.Value != 8192 || q.MaximumPacketSize.Value != 4<<20+2 ||
		q.TopicAliasMaximum.Value != 64 || q.SharedSubscriptsAvail.Or(1) != 1 {
		t.Errorf("%+v", q)
	}
	for _, c := range []struct {
		reason string
		bytes  []byte
		code   packet.ReasonCode
	}{
		{"enhanced authentication", packet.V5.AppendConnect(nil, &packet.Connect{ClientID: "x", Properties: &props{AuthMethod: []byte("m")}}), packet.BadAuthenticationMethod},
		{"a property that a CONNECT has not", packet.V5.AppendConnect(nil, &packet.Connect{ClientID: "x", Properties: &props{TopicAlias: packet.Some[uint16](1)}}), packet.MalformedPacket},
		{"Receive Maximum 0", packet.V5.AppendConnect(nil, &packet.Connect{ClientID: "x", Properties: &props{ReceiveMaximum: packet.Some[uint16](0)}}), packet.ProtocolError},
		{"a version to come", []byte{0x10, 14, 0, 4, 'M', 'Q', 'T', 'T', 6, 2, 0, 0, 0, 0, 1, 'x'}, packet.UnsupportedProtocolVersion},
	} {
		t.Run(c.reason, func(t *testing.T) {
			p := dial5(t, s)
			p.send(c.bytes)
			f, err := p.next()
			if err != nil {
				t.Fatal(err)
			}
			if f.Type() != packet.CONNACK || f.Body[1] != byte(c.code) {
				t.Fatalf("want %#02x, got %v % x", byte(c.code), f.Type(), f.Body)
			}
			p.wantClosed()
		})
	}
}

func TestGoodbye5(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory, func(c *Config) { c.MaxPacket = 1000 })
	for i, c := range []struct {
		reason string
		bytes  []byte
		code   packet.ReasonCode
	}{
		{"malformed", []byte{0x30, 1, 0}, packet.MalformedPacket},
		{"a second CONNECT", packet.V5.AppendConnect(nil, &packet.Connect{ClientID: "x"}), packet.ProtocolError},
		{"an AUTH that nobody asked for", packet.V5.AppendAuth(nil, &packet.Auth{Code: packet.ReAuthenticate, Properties: &props{AuthMethod: []byte("m")}}), packet.ProtocolError},
		{"too large", pub5(0, 0, "a", string(make([]byte, 2000)), nil), packet.PacketTooLarge},
		{"Topic Alias above the maximum", pub5(0, 0, "a", "x", &props{TopicAlias: packet.Some[uint16](65)}), packet.TopicAliasInvalid},
		{"Topic Alias that stands for nothing", pub5(0, 0, "", "x", &props{TopicAlias: packet.Some[uint16](1)}), packet.ProtocolError},
		{"a Session Expiry Interval out of nowhere", packet.V5.AppendDisconnect(nil, &packet.Disconnect{Properties: &props{SessionExpiry: packet.Some[uint32](9)}}), packet.ProtocolError},
	} {
		t.Run(c.reason, func(t *testing.T) {
			p := clean5(t, s, fmt.Sprint("c", i))
			p.send(c.bytes)
			p.wantEnd(c.code)
		})
	}
	t.Run("while the client goes on sending", func(t *testing.T) {
		p := clean5(t, s, "busy")
		go func() {
			for range 1000 {
				if _, err := p.nc.Write(pub5(0, 0, "a", string(make([]byte, 2000)), nil)); err != nil {
					return
				}
			}
		}()
		p.wantEnd(packet.PacketTooLarge)
	})
	t.Run("taken over", func(t *testing.T) {
		p := clean5(t, s, "same")
		clean5(t, s, "same")
		p.wantEnd(packet.SessionTakenOver)
	})
	t.Run("keep alive", func(t *testing.T) {
		p := connect5(t, s, &packet.Connect{ClientID: "k", CleanSession: true, KeepAlive: 1}, false)
		p.wantEnd(packet.KeepAliveTimeout)
	})
	t.Run("shutting down, and nothing for 3.1.1", func(t *testing.T) {
		p, old := clean5(t, s, "a"), connect(t, s, "b")
		s.Shutdown()
		p.wantEnd(packet.ServerShuttingDown)
		old.wantClosed()
	})
}

func TestPropertiesPassThrough(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		w := clean5(t, s, "w")
		w.subscribe(0, packet.Subscription{Filter: "a/#", QoS: 2})
		w.subscribe(268_435_455, packet.Subscription{Filter: "#", QoS: 1})
		old := connect(t, s, "old")
		old.subscribe("a/b", 2)
		p := clean5(t, s, "p")
		all := &props{
			PayloadFormat: packet.Some[byte](1), ContentType: []byte("text"), ResponseTopic: []byte("re/x"), CorrelationData: []byte{0, 255},
			User:       []packet.UserProperty{{Key: []byte("b"), Value: []byte("1")}, {Key: []byte("a"), Value: []byte("2")}, {Key: []byte("b"), Value: []byte("1")}},
			TopicAlias: packet.Some[uint16](7), MessageExpiry: packet.Some[uint32](1000),
		}
		const text = " format=1 type=text response=re/x correlation=00ff"
		for qos := range byte(3) {
			name := "a/b"
			if qos > 0 {
				name = "" // the alias of the first
			}
			p.send(pub5(uint16(qos), qos, name, "x", all))
			switch qos {
			case 1:
				p.want("PUBACK 1")
			case 2:
				p.want("PUBREC 2")
				p.send(ack5(packet.PUBREL, 2, 0))
				p.want("PUBCOMP 2")
			}
			seen, rel := map[string]bool{}, uint16(0)
			for range 2 {
				f, err := w.next()
				if err != nil {
					t.Fatal(err)
				}
				m, _ := w.codec.ParsePublish(f)
				if left := m.Properties.MessageExpiry.Value; left == 0 || left > 1000 {
					t.Errorf("message expiry %d", left)
				}
				if m.Properties.TopicAlias.Set {
					t.Error("the publisher's Topic Alias came through")
				}
				seen[w.describe(f)] = true
				if m.QoS == 1 {
					w.send(ack5(packet.PUBACK, m.ID, 0))
				} else if m.QoS == 2 {
					rel = m.ID // its PUBREC waits: the PUBREL could overtake the other PUBLISH
				}
			}
			for _, want := range []string{
				fmt.Sprintf("PUBLISH q%d a/b \"x\"%s b:1 a:2 b:1", qos, text),
				fmt.Sprintf("PUBLISH q%d a/b \"x\"%s subscription=268435455 b:1 a:2 b:1", min(qos, 1), text),
			} {
				if !seen[want] {
					t.Errorf("want %s among %v", want, seen)
				}
			}
			if qos == 2 {
				w.send(ack5(packet.PUBREC, rel, 0))
				w.want(fmt.Sprint("PUBREL ", rel))
				w.send(ack5(packet.PUBCOMP, rel, 0))
			}
			id := old.want(fmt.Sprintf("PUBLISH q%d a/b \"x\"", qos))
			if qos == 1 {
				old.send(ack(packet.PUBACK, id))
			}
		}
	})
}

func TestReasonCodes5(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		p := clean5(t, s, "p")
		p.send(ack5(packet.PUBREL, 5, 0))
		p.want("PUBCOMP 5 0x92")
		p.send(pub5(5, 2, "a", "x", nil))
		p.want("PUBREC 5")
		p.send(ack5(packet.PUBREL, 5, 0))
		p.want("PUBCOMP 5")
		p.send(packet.V5.AppendSubscribe(nil, &packet.Subscribe{ID: 3, Subscriptions: []packet.Subscription{
			{Filter: "a", QoS: 2}, {Filter: "a/#/b"}, {Filter: "$share/g"}, {Filter: "c", QoS: 1},
		}}))
		p.want("SUBACK 3 0x02 0x8f 0x8f 0x01")
		p.send(packet.V5.AppendUnsubscribe(nil, &packet.Unsubscribe{ID: 4, Filters: []string{"a", "a", "c"}}))
		p.want("UNSUBACK 4 0x00 0x11 0x00")
	})
}

func TestReceiveMaximum5(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		// Of the subscriber.
		c := &packet.Connect{ClientID: "w", Properties: &props{ReceiveMaximum: packet.Some[uint16](2), SessionExpiry: packet.Some[uint32](100)}}
		w := connect5(t, s, c, false)
		w.subscribe(0, packet.Subscription{Filter: "a", QoS: 2})
		p := clean5(t, s, "p")
		for i := range 5 {
			p.send(pub5(uint16(i+1), 1, "a", fmt.Sprint(i+1), nil))
		}
		p.want(sentences(5, "PUBACK #")...)
		first := w.want(`PUBLISH q1 a "1"`, `PUBLISH q1 a "2"`) - 1
		w.wantQuiet()
		w.send(ack5(packet.PUBACK, first, 0))
		w.want(`PUBLISH q1 a "3"`)
		w.cut()
		away(t, s, "w")
		c.Properties.ReceiveMaximum = packet.Some[uint16](1)
		w = connect5(t, s, c, true)
		for _, want := range []string{`PUBLISH q1 a "2" dup`, `PUBLISH q1 a "3" dup`, `PUBLISH q1 a "4"`, `PUBLISH q1 a "5"`} {
			id := w.want(want)
			w.wantQuiet()
			w.send(ack5(packet.PUBACK, id, 0))
		}
		w.wantQuiet()
	})
	t.Run("of the broker", func(t *testing.T) {
		s := open(t, StoreMemory, func(c *Config) { c.Window = 2 })
		p := clean5(t, s, "p")
		for round := range 3 { // an exchange that is over counts no more
			p.send(pub5(1, 2, "a", "x", nil), pub5(2, 2, "a", "x", nil))
			p.want("PUBREC 1", "PUBREC 2")
			if round == 2 {
				break
			}
			p.send(ack5(packet.PUBREL, 1, 0), ack5(packet.PUBREL, 2, 0))
			p.want("PUBCOMP 1", "PUBCOMP 2")
		}
		p.send(pub5(1, 2, "a", "x", nil)) // another copy does not count
		p.want("PUBREC 1")
		p.send(pub5(3, 2, "a", "x", nil))
		p.wantEnd(packet.ReceiveMaximumExceeded)
	})
}

func TestRefusingPubrec5(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		c := &packet.Connect{ClientID: "w", Properties: &props{ReceiveMaximum: packet.Some[uint16](1), SessionExpiry: packet.Some[uint32](100)}}
		w := connect5(t, s, c, false)
		w.subscribe(0, packet.Subscription{Filter: "a", QoS: 2})
		p := clean5(t, s, "p")
		for i := range 2 {
			id := uint16(i + 1)
			p.send(pub5(id, 2, "a", fmt.Sprint(id), nil))
			p.want(fmt.Sprint("PUBREC ", id))
			p.send(ack5(packet.PUBREL, id, 0))
			p.want(fmt.Sprint("PUBCOMP ", id))
		}
		w.send(ack5(packet.PUBREC, w.want(`PUBLISH q2 a "1"`), packet.QuotaExceeded))
		id := w.want(`PUBLISH q2 a "2"`)
		w.cut()
		away(t, s, "w")
		w = connect5(t, s, c, true)
		w.want(`PUBLISH q2 a "2" dup`)
		w.send(ack5(packet.PUBREC, id, 0))
		w.want(fmt.Sprint("PUBREL ", id))
		w.send(ack5(packet.PUBCOMP, id, 0))
		w.wantQuiet()
	})
}

func TestMaximumPacketSize5(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory)
	w := connect5(t, s, &packet.Connect{ClientID: "w", CleanSession: true, Properties: &props{MaximumPacketSize: packet.Some[uint32](30)}}, false)
	w.subscribe(0, packet.Subscription{Filter: "a", QoS: 1})
	p := clean5(t, s, "p")
	for i, size := range []int{22, 23, 1} { // 1+1, 2+1, 2, 1 and the payload
		p.send(pub5(uint16(i+1), 1, "a", string(bytes.Repeat([]byte("x"), size)), nil))
	}
	p.want(sentences(3, "PUBACK #")...)
	w.want(fmt.Sprintf("PUBLISH q1 a %q", bytes.Repeat([]byte("x"), 22)), `PUBLISH q1 a "x"`)
}

func TestSubscriptionOptions5(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		p := clean5(t, s, "p")
		p.send(packet.V5.AppendPublish(nil, &packet.Publish{Topic: []byte("r"), Payload: []byte("old"), ID: 1, QoS: 1, Retain: true}))
		p.want("PUBACK 1")
		w := clean5(t, s, "w")
		w.subscribe(0, packet.Subscription{Filter: "r", QoS: 1, RetainHandling: 2})
		w.wantQuiet()
		w.subscribe(0, packet.Subscription{Filter: "r", QoS: 1, RetainHandling: 1})
		w.wantQuiet()
		w.subscribe(0, packet.Subscription{Filter: "r", QoS: 1, RetainAsPublished: true})
		w.send(ack5(packet.PUBACK, w.want(`PUBLISH q1 r "old" retain`), 0))
		p.send(packet.V5.AppendPublish(nil, &packet.Publish{Topic: []byte("r"), Payload: []byte("new"), ID: 1, QoS: 1, Retain: true}))
		p.want("PUBACK 1")
		w.send(ack5(packet.PUBACK, w.want(`PUBLISH q1 r "new" retain`), 0))
		w.subscribe(0, packet.Subscription{Filter: "n", QoS: 1, NoLocal: true})
		w.send(pub5(1, 1, "n", "mine", nil))
		w.want("PUBACK 1")
		p.send(pub5(1, 1, "n", "yours", nil))
		p.want("PUBACK 1")
		w.want(`PUBLISH q1 n "yours"`)
	})
}

func TestSessionExpiry5(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		expiry := func(n uint32) *packet.Connect {
			return &packet.Connect{ClientID: "w", Properties: &props{SessionExpiry: packet.Some(n)}}
		}
		w := connect5(t, s, expiry(0), false)
		w.leave(packet.Disconnect{})
		w = connect5(t, s, expiry(100), false)
		w.subscribe(0, packet.Subscription{Filter: "a", QoS: 1})
		w.leave(packet.Disconnect{})
		away(t, s, "w")
		p := clean5(t, s, "p")
		p.send(pub5(1, 1, "a", "x", nil))
		p.want("PUBACK 1")
		w = connect5(t, s, expiry(0xFFFF_FFFF), true)
		w.send(ack5(packet.PUBACK, w.want(`PUBLISH q1 a "x"`), 0))
		w.leave(packet.Disconnect{Properties: &props{SessionExpiry: packet.Some[uint32](1)}})
		eventually(t, func() bool { return s.client("w") == nil })
		w = connect5(t, s, expiry(100), false)
		w.leave(packet.Disconnect{Properties: &props{SessionExpiry: packet.Some[uint32](0)}})
		eventually(t, func() bool { return s.client("w") == nil })
		connect5(t, s, expiry(100), false)
		w = connect5(t, s, expiry(0), true) // takes over, and will be the last
		w.leave(packet.Disconnect{})
		eventually(t, func() bool { return s.client("w") == nil })
		connect5(t, s, expiry(100), false)
	})
}

func TestMessageExpiryWhileQueued5(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		c := &packet.Connect{ClientID: "w", Properties: &props{SessionExpiry: packet.Some[uint32](100)}}
		w := connect5(t, s, c, false)
		w.subscribe(0, packet.Subscription{Filter: "a", QoS: 1})
		w.leave(packet.Disconnect{})
		away(t, s, "w")
		p := clean5(t, s, "p")
		p.send(pub5(1, 1, "a", "short", &props{MessageExpiry: packet.Some[uint32](1)}), pub5(2, 1, "a", "long", &props{MessageExpiry: packet.Some[uint32](100)}))
		p.want("PUBACK 1", "PUBACK 2")
		time.Sleep(1100 * time.Millisecond)
		w = connect5(t, s, c, true)
		w.want(`PUBLISH q1 a "long"`)
	})
}

func TestWill5(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		w := clean5(t, s, "w")
		w.subscribe(0, packet.Subscription{Filter: "will", QoS: 1})
		will := func(delay, expiry uint32) *packet.Connect {
			return &packet.Connect{
				ClientID: "p", Properties: &props{SessionExpiry: packet.Some(expiry)},
				Will: &packet.Will{Topic: "will", Payload: []byte("gone"), QoS: 1, Properties: &props{
					WillDelay: packet.Some(delay), ContentType: []byte("text"),
				}},
			}
		}
		got := func() { w.t.Helper(); w.send(ack5(packet.PUBACK, w.want(`PUBLISH q1 will "gone" type=text`), 0)) }
		connect5(t, s, will(0, 0), false).cut()
		got()
		connect5(t, s, will(100, 0), false).cut() // the session ends with the connection
		got()
		p := connect5(t, s, will(100, 100), false)
		p.cut()
		away(t, s, "p")
		p = connect5(t, s, will(100, 100), true)
		w.wantQuiet() // it came back in time
		p.leave(packet.Disconnect{Code: packet.DisconnectWithWill})
		away(t, s, "p")
		w.wantQuiet()
		c := will(0, 0)
		c.CleanSession = true // the session ends before the delay does
		p = connect5(t, s, c, false)
		got()
		p.leave(packet.Disconnect{})
		w.wantQuiet()
		connect5(t, s, will(1, 100), false).cut()
		got()
	})
}

func TestNotAllowed5(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory, files(t, rules, "dev-1", "boss"))
	login := func(user, password string) *packet.Connect {
		return &packet.Connect{ClientID: user, CleanSession: true, HasUsername: true, Username: user, HasPassword: true, Password: []byte(password)}
	}
	for _, c := range []struct {
		reason string
		edit   func(c *packet.Connect)
		code   packet.ReasonCode
	}{
		{"wrong password", func(c *packet.Connect) { c.Password = []byte("x") }, packet.BadUserNameOrPassword},
		{"nobody", func(c *packet.Connect) { c.HasUsername, c.HasPassword = false, false }, packet.NotAuthorized},
		{"a will that it must not publish", func(c *packet.Connect) { c.Will = &packet.Will{Topic: "d/boss/t"} }, packet.NotAuthorized},
	} {
		t.Run(c.reason, func(t *testing.T) {
			p, con := dial5(t, s), login("dev-1", "pw-dev-1")
			c.edit(con)
			p.send(packet.V5.AppendConnect(nil, con))
			p.want(fmt.Sprintf("CONNACK present=false %#02x", byte(c.code)))
			p.wantClosed()
		})
	}
	boss := connect5(t, s, login("boss", "pw-boss"), false)
	boss.subscribe(0, packet.Subscription{Filter: "d/dev-1/#"}, packet.Subscription{Filter: "d/x"})
	p := connect5(t, s, login("dev-1", "pw-dev-1"), false)
	p.send(packet.V5.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: "d/#"}, {Filter: "c/dev-1/x"}}}))
	p.want("SUBACK 1 0x87 0x00")
	p.send(pub5(0, 0, "d/x", "no", nil), pub5(1, 1, "d/x", "no", nil), pub5(2, 2, "d/x", "no", nil), pub5(2, 2, "d/dev-1/t", "yes", nil))
	p.want("PUBACK 1 0x87", "PUBREC 2 0x87", "PUBREC 2") // the identifier of what was refused is free
	p.send(ack5(packet.PUBREL, 2, 0))
	p.want("PUBCOMP 2")
	boss.want(`PUBLISH q0 d/dev-1/t "yes"`)
	boss.wantQuiet()
}

// A session of 5.0 and its options survive the broker, and what expires does so while it is away.
func TestRestart5(t *testing.T) { t.Parallel(); eachDurable(t, testRestart5) }

func testRestart5(t *testing.T, on string) {
	dir := t.TempDir()
	cfg := Config{Listen: "127.0.0.1:0", Store: on, StoreDir: dir, Pipeline: true, Log: testLog(t)}
	s := start(t, cfg)
	c := func(id string, expiry uint32) *packet.Connect {
		return &packet.Connect{ClientID: id, Properties: &props{SessionExpiry: packet.Some(expiry)}}
	}
	w := connect5(t, s, c("w", 100), false)
	w.subscribe(77, packet.Subscription{Filter: "a", QoS: 1, NoLocal: true, RetainAsPublished: true})
	short := connect5(t, s, c("short", 1), false)
	short.subscribe(0, packet.Subscription{Filter: "a", QoS: 1})
	short.leave(packet.Disconnect{})
	p := clean5(t, s, "p")
	w.send(pub5(1, 1, "a", "mine", nil))
	w.want("PUBACK 1")
	retained := packet.Publish{
		Topic: []byte("a"), Payload: []byte("x"), ID: 1, QoS: 1, Retain: true,
		Properties: &props{User: []packet.UserProperty{{Key: []byte("k"), Value: []byte("v")}}, MessageExpiry: packet.Some[uint32](1000)},
	}
	p.send(packet.V5.AppendPublish(nil, &retained))
	p.want("PUBACK 1")
	const sentence = `PUBLISH q1 a "x" retain subscription=77 k:v`
	w.want(sentence)
	s.Shutdown()
	time.Sleep(time.Second)
	s = start(t, cfg)
	w = connect5(t, s, c("w", 100), true)
	w.send(ack5(packet.PUBACK, w.want(`PUBLISH q1 a "x" dup retain subscription=77 k:v`), 0))
	w.send(pub5(1, 1, "a", "mine again", nil))
	w.want("PUBACK 1")
	w.wantQuiet()
	connect5(t, s, c("short", 1), false)
}
