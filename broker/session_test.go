package broker

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"inflight/broker/packet"
)

func TestQoS1WindowInOneWrite(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		const n = 1024
		w := connect(t, s, "watcher")
		w.subscribe("a", 1)
		p := connect(t, s, "publisher")
		p.send(numbered(n, func(id uint16) []byte { return pub(id, 1, "a", fmt.Sprint(id)) }))
		p.want(sentences(n, "PUBACK #")...)
		for i := range n {
			id := w.want(fmt.Sprintf("PUBLISH q1 a %q", fmt.Sprint(i+1)))
			w.send(ack(packet.PUBACK, id))
		}
		w.wantQuiet()
	})
}

// The granted QoS of a delivery is the lower of the publication's and the subscription's [MQTT-3.8.4-6].
func TestDeliveredQoS(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		p := connect(t, s, "publisher")
		for sub := range byte(3) {
			w := connect(t, s, fmt.Sprintf("w%d", sub))
			topic := fmt.Sprintf("t/%d", sub)
			w.subscribe(topic, sub)
			for qos := range byte(3) {
				id := uint16(0)
				if qos > 0 {
					id = uint16(qos)
				}
				p.send(pub(id, qos, topic, "m"))
				switch qos {
				case 1:
					p.want("PUBACK 1")
				case 2:
					p.want("PUBREC 2")
					p.send(ack(packet.PUBREL, 2))
					p.want("PUBCOMP 2")
				}
				want := fmt.Sprintf(`PUBLISH q%d %s "m"`, min(qos, sub), topic)
				if min(qos, sub) == 2 {
					w.take(want)
					continue
				}
				if got := w.want(want); min(qos, sub) == 1 {
					w.send(ack(packet.PUBACK, got))
				}
			}
		}
	})
}

func TestTopicFilters(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		for _, c := range []struct {
			filter, topic string
			matches       bool
			why           string
		}{
			{"sport/#", "sport", true, "# includes the parent level"},
			{"sport/#", "sport/tennis/p1", true, "and every level below"},
			{"sport/+", "sport", false, "+ stands for one level"},
			{"sport/+", "sport/", true, "which may be empty"},
			{"+/+", "/finance", true, "an empty first level"},
			{"/+", "/finance", true, ""},
			{"+", "/finance", false, ""},
			{"a b/.*>", "a b/.*>", true, "characters with a meaning elsewhere are plain here"},
			{"#", "$data/x", false, "4.7.2-1"},
			{"$data/#", "$data/x", true, ""},
		} {
			w := connect(t, s, "w")
			w.subscribe(c.filter, 1)
			p := connect(t, s, "p")
			p.send(pub(1, 1, c.topic, "m"))
			p.want("PUBACK 1")
			if c.matches {
				w.send(ack(packet.PUBACK, w.want(fmt.Sprintf("PUBLISH q1 %s %q", c.topic, "m"))))
			} else {
				w.wantQuiet()
			}
		}
	})
}

func TestKeptSessionQueuesWhileAway(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		w := connect(t, s, "w", "keep")
		w.subscribe("a/+", 2)
		w.cut()
		away(t, s, "w")
		p := connect(t, s, "p")
		p.send(numbered(30, func(id uint16) []byte { return pub(id, 1, "a/b", fmt.Sprint(id)) }))
		p.want(sentences(30, "PUBACK #")...)
		w = connect(t, s, "w", "keep", "present")
		for i := range 30 {
			w.send(ack(packet.PUBACK, w.want(fmt.Sprintf("PUBLISH q1 a/b %q", fmt.Sprint(i+1)))))
		}
		w.wantQuiet()
	})
}

// A resumed session gets what it had not acknowledged, in order, with DUP and the same identifiers [MQTT-4.4.0-1], and
// only the PUBREL of what it had received.
func TestResend(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		w := connect(t, s, "w", "keep")
		w.subscribe("a", 2)
		p := connect(t, s, "p")
		send := func(id uint16, payload string) {
			p.send(pub(id, 2, "a", payload), ack(packet.PUBREL, id))
			p.want(fmt.Sprintf("PUBREC %d", id), fmt.Sprintf("PUBCOMP %d", id))
		}
		send(1, "one")
		send(2, "two")
		send(3, "three")
		w.want(`PUBLISH q2 a "one"`, `PUBLISH q2 a "two"`, `PUBLISH q2 a "three"`)
		w.send(ack(packet.PUBREC, 1))
		w.want("PUBREL 1")
		w.cut()
		w = connect(t, s, "w", "keep", "present")
		if id := w.want("PUBREL 1", `PUBLISH q2 a "two" dup`); id != 2 {
			t.Fatalf("two comes as %d, it was 2", id)
		}
		if id := w.want(`PUBLISH q2 a "three" dup`); id != 3 {
			t.Fatalf("three comes as %d, it was 3", id)
		}
		w.send(ack(packet.PUBCOMP, 1), ack(packet.PUBREC, 2), ack(packet.PUBREC, 3))
		w.want("PUBREL 2", "PUBREL 3")
		w.send(ack(packet.PUBCOMP, 2), ack(packet.PUBCOMP, 3))
		send(4, "four")
		w.take(`PUBLISH q2 a "four"`)
		w.wantQuiet()
	})
}

func TestTakeover(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		old := connect(t, s, "same", "keep")
		old.send(numbered(50, func(id uint16) []byte { return pub(id, 2, "a", fmt.Sprint(id)) }))
		fresh := connect(t, s, "same", "keep", "present")
		w := connect(t, s, "w")
		w.subscribe("a", 2)
		for {
			if _, err := old.next(); err != nil {
				break // the PUBRECs that made it, then the end [MQTT-3.1.4-2]
			}
		}
		// Whatever the old connection got through: once in the end.
		fresh.send(numbered(50, func(id uint16) []byte { return dup(id, 2, "a", fmt.Sprint(id)) }))
		fresh.want(sentences(50, "PUBREC #")...)
		fresh.send(numbered(50, func(id uint16) []byte { return ack(packet.PUBREL, id) }))
		fresh.want(sentences(50, "PUBCOMP #")...)
		w.take(sentences(50, `PUBLISH q2 a "#"`)...)
		w.wantQuiet()
	})
}

func TestTakeoverFromAnotherNode(t *testing.T) {
	t.Parallel()
	eachDurable(t, testTakeoverFromAnotherNode)
}

func testTakeoverFromAnotherNode(t *testing.T, on string) {
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	nodes := cluster(t, with(on))
	a := connect(t, nodes[0], "same", "keep")
	a.subscribe("x", 1)
	b := connect(t, nodes[1], "same", "keep", "present")
	a.wantClosed()
	p := connect(t, nodes[2], "p")
	p.send(pub(1, 1, "x", "m"))
	p.want("PUBACK 1")
	b.send(ack(packet.PUBACK, b.want(`PUBLISH q1 x "m"`)))
	b.wantQuiet()
	c := connect(t, nodes[2], "same") // clean: nothing of it is left
	b.wantClosed()
	p.send(pub(2, 1, "x", "m"))
	p.want("PUBACK 2")
	c.wantQuiet()
}

func TestUnsubscribe(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *Server) {
		w := connect(t, s, "w", "keep")
		w.subscribe("a", 1)
		w.send(packet.AppendUnsubscribe(nil, &packet.Unsubscribe{ID: 9, Filters: []string{"a", "never subscribed"}}))
		w.want("UNSUBACK 9")
		p := connect(t, s, "p")
		p.send(pub(1, 1, "a", "m"))
		p.want("PUBACK 1")
		w.wantQuiet()
	})
}

// A PUBLISH window that nobody acknowledges is bounded, and acknowledging goes on where it stopped.
func TestOutboundWindow(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory, func(c *Config) { c.Outbound = 10 })
	w := connect(t, s, "w")
	w.subscribe("a", 1)
	p := connect(t, s, "p")
	p.send(numbered(30, func(id uint16) []byte { return pub(id, 1, "a", fmt.Sprint(id)) }))
	p.want(sentences(30, "PUBACK #")...)
	w.want(sentences(10, `PUBLISH q1 a "#"`)...)
	w.wantQuiet()
	w.send(ack(packet.PUBACK, 1))
	w.want(`PUBLISH q1 a "11"`)
	w.wantQuiet()
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory)
	p := dial(t, s)
	p.send(packet.AppendConnect(nil, &packet.Connect{ClientID: "p", CleanSession: true, KeepAlive: 1}))
	p.want("CONNACK present=false code=0")
	began := time.Now()
	p.wantClosed()
	if silent := time.Since(began); silent < 1400*time.Millisecond {
		t.Errorf("closed after %v, one and a half times 1 s are allowed [MQTT-3.1.2-24]", silent)
	}
}

func TestWill(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory)
	w := connect(t, s, "w")
	w.subscribe("will", 2)
	for _, c := range []struct {
		name string
		end  func(p *peer)
		sent bool
	}{
		{"cut", (*peer).cut, true},
		{"protocol error", func(p *peer) { p.send([]byte{0xF0, 0}) }, true},
		{"DISCONNECT", func(p *peer) { p.send(packet.AppendEmpty(nil, packet.DISCONNECT)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := dial(t, s)
			p.send(packet.AppendConnect(nil, &packet.Connect{
				ClientID: "p", CleanSession: true, Will: &packet.Will{Topic: "will", Payload: []byte("gone"), QoS: 2},
			}))
			p.want("CONNACK present=false code=0")
			c.end(p)
			if c.sent {
				w.take(`PUBLISH q2 will "gone"`)
			}
			w.wantQuiet()
		})
	}
}

// Malformed and illegal packets close the connection, process nothing more, and harm nobody else.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory)
	w := connect(t, s, "w")
	w.subscribe("#", 2)
	for _, c := range []struct {
		name  string
		bytes []byte
	}{
		{"PUBLISH with identifier 0", []byte{0x32, 5, 0, 1, 'a', 0, 0}},
		{"QoS 3", []byte{0x36, 5, 0, 1, 'a', 0, 1}},
		{"wildcard in a Topic Name", pub(1, 1, "a/#", "x")},
		{"empty Topic Name", []byte{0x32, 4, 0, 0, 0, 1}},
		{"Topic Name past the end", []byte{0x32, 5, 0, 9, 'a', 0, 1}},
		{"PUBREL with wrong flags", []byte{0x60, 2, 0, 1}},
		{"PUBACK with three bytes", []byte{0x40, 3, 0, 1, 0}},
		{"second CONNECT", packet.AppendConnect(nil, &packet.Connect{ClientID: "p", CleanSession: true})},
		{"CONNACK from a client", []byte{0x20, 2, 0, 0}},
		{"type 0", []byte{0, 0}},
		{"type 15", []byte{0xF0, 0}},
		{"SUBSCRIBE without filters", []byte{0x82, 2, 0, 1}},
		{"SUBSCRIBE with a bad filter", []byte{0x82, 8, 0, 1, 0, 3, 'a', '#', 'b', 1}},
		{"Remaining Length of five bytes", []byte{0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1}},
		{"packet over the limit", []byte{0x30, 0xFF, 0xFF, 0xFF, 0x7F}},
		{"PUBREC for a QoS 1 identifier that is not in use, then type 0", []byte{0x50, 2, 0, 9, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := connect(t, s, "p")
			p.send(c.bytes, pub(2, 1, "after", "x"))
			for {
				f, err := p.next()
				if err != nil {
					break
				}
				if got := describe(f); got == "PUBACK 2" {
					t.Fatal("the packet behind the bad one was processed")
				}
			}
			w.wantQuiet()
		})
	}
}

func TestRefusedConnects(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory)
	p := dial(t, s)
	p.send([]byte{0x10, 13, 0, 4, 'M', 'Q', 'T', 'T', 9, 2, 0, 0, 0, 1, 'x'})
	p.rd.SetVersion(packet.V5)
	if f, err := p.next(); err != nil || !bytes.Equal(f.Body, []byte{0, 0x84, 0}) {
		t.Fatalf("want CONNACK 0x84, got % x, %v", f.Body, err)
	}
	p.wantClosed()
	p = dial(t, s)
	p.send([]byte{0x10, 13, 0, 4, 'M', 'Q', 'T', 'T', 3, 2, 0, 0, 0, 1, 'x'})
	p.want("CONNACK present=false code=1")
	p.wantClosed()
	p = dial(t, s)
	p.send(packet.AppendConnect(nil, &packet.Connect{}))
	p.want("CONNACK present=false code=2") // [MQTT-3.1.3-8]
	p.wantClosed()
	p = dial(t, s)
	p.send(packet.AppendConnect(nil, &packet.Connect{CleanSession: true}))
	p.want("CONNACK present=false code=0") // [MQTT-3.1.3-6]
	p = dial(t, s)
	p.send(pub(1, 1, "a", "x"))
	p.wantClosed() // [MQTT-3.1.0-1]
	p = dial(t, s)
	p.send(packet.AppendConnect(nil, &packet.Connect{ClientID: "early", CleanSession: true}), pub(1, 1, "a", "x"), pub(2, 1, "a", "x"))
	p.want("CONNACK present=false code=0", "PUBACK 1", "PUBACK 2") // a client may send before its CONNACK
}

// With pipelining off the broker answers each packet before it reads the next one; the answers are the same.
func TestStopAndWait(t *testing.T) { t.Parallel(); eachDurable(t, testStopAndWait) }

func testStopAndWait(t *testing.T, on string) {
	s := open(t, on, func(c *Config) { c.Pipeline = false })
	w := connect(t, s, "w")
	w.subscribe("a", 2)
	p := connect(t, s, "p")
	p.send(numbered(50, func(id uint16) []byte { return pub(id, 2, "a", fmt.Sprint(id)) }))
	p.want(sentences(50, "PUBREC #")...)
	p.send(numbered(50, func(id uint16) []byte { return ack(packet.PUBREL, id) }))
	p.want(sentences(50, "PUBCOMP #")...)
	w.take(sentences(50, `PUBLISH q2 a "#"`)...)
}

// What a kept session held and what it subscribed to survives the broker.
func TestRestart(t *testing.T) { t.Parallel(); eachDurable(t, testRestart) }

func testRestart(t *testing.T, on string) {
	dir := t.TempDir()
	cfg := Config{Listen: "127.0.0.1:0", Store: on, StoreDir: dir, Pipeline: true, Log: testLog(t)}
	s := start(t, cfg)
	w := connect(t, s, "w", "keep")
	w.subscribe("a", 1)
	p := connect(t, s, "p", "keep")
	p.send(pub(1, 2, "a", "held"), pub(2, 2, "a", "done"))
	p.want("PUBREC 1", "PUBREC 2")
	p.send(ack(packet.PUBREL, 2))
	p.want("PUBCOMP 2")
	w.send(ack(packet.PUBACK, w.want(`PUBLISH q1 a "done"`)))
	w.send(packet.AppendEmpty(nil, packet.PINGREQ))
	w.want("PINGRESP")
	s.Shutdown()
	s = start(t, cfg)
	p = connect(t, s, "p", "keep", "present")
	p.send(ack(packet.PUBREL, 1))
	p.want("PUBCOMP 1")
	w = connect(t, s, "w", "keep", "present")
	w.send(ack(packet.PUBACK, w.want(`PUBLISH q1 a "held"`)))
	w.wantQuiet()
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg Config
		ok  bool
	}{
		{Config{Store: StoreMemory}, true},
		{Config{Store: StoreMemory, Replicas: 3}, false},
		{Config{Store: "bogus"}, false},
		{Config{}, false}, // no directory
		{Config{StoreDir: "d", Replicas: 3}, false},
		{Config{StoreDir: "d", Node: "a b"}, false},
		{Config{StoreDir: "d", Cluster: "c", ClusterListen: "127.0.0.1:1", Routes: []string{"nats://127.0.0.1:1", "nats://127.0.0.1:2"}}, true},
		{Config{StoreDir: "d", Cluster: "c", ClusterListen: "x", Routes: []string{"http://127.0.0.1:1"}}, false},
		{Config{Store: StoreMemory, Listen: "nowhere"}, false},
	} {
		if err := Check(c.cfg); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}
