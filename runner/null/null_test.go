package null

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inflight/broker/packet"
)

// start serves until the test ends and fails it if Serve does not return nil and promptly.
func start(t *testing.T, c Config) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, c) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-served:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("serve does not return after its context has ended")
		}
	})
	return l.Addr().String()
}

type client struct {
	*testing.T
	nc net.Conn
	r  *packet.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
	return &client{T: t, nc: nc, r: packet.NewReader(nc, 1024, 0)}
}

func (c *client) send(b []byte) {
	c.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.Fatal(err)
	}
}

// want reads as many bytes as the packets have and compares.
func (c *client) want(why string, packets []byte) {
	c.Helper()
	got := make([]byte, len(packets))
	if _, err := io.ReadFull(c.nc, got); err != nil {
		c.Fatalf("%s: %v", why, err)
	}
	if diff := cmp.Diff(packets, got); diff != "" {
		c.Fatalf("%s (-want +got):\n%s", why, diff)
	}
}

func (c *client) wantClosed(why string) {
	c.Helper()
	n, err := c.nc.Read(make([]byte, 16))
	if n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.Fatalf("%s: read %d bytes, %v; want a closed connection", why, n, err)
	}
}

var connect = packet.AppendConnect(nil, &packet.Connect{ClientID: "c", CleanSession: true})

func publish(b []byte, qos byte, id uint16) []byte {
	return packet.AppendPublish(b, &packet.Publish{Topic: []byte("t"), Payload: []byte("p"), QoS: qos, ID: id})
}

func TestAnswers(t *testing.T) {
	for name, c := range map[string]Config{"at once": {}, "delayed": {Delay: 3 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, start(t, c))
			p.send(connect)
			p.want("CONNACK, no session", packet.AppendConnack(nil, false, packet.Accepted))
			b := publish(nil, 0, 0)
			b = publish(b, 1, 7)
			b = publish(b, 2, 8)
			b = packet.AppendAck(b, packet.PUBREL, 8)
			b = packet.AppendAck(b, packet.PUBREL, 9)
			b = packet.AppendEmpty(b, packet.PINGREQ)
			b = packet.AppendSubscribe(b, &packet.Subscribe{ID: 3, Subscriptions: []packet.Subscription{{Filter: "a", QoS: 2}, {Filter: "#"}}})
			b = packet.AppendUnsubscribe(b, &packet.Unsubscribe{ID: 4, Filters: []string{"a"}})
			p.send(b)
			w := packet.AppendAck(nil, packet.PUBACK, 7)
			w = packet.AppendAck(w, packet.PUBREC, 8)
			w = packet.AppendAck(w, packet.PUBCOMP, 8)
			w = packet.AppendAck(w, packet.PUBCOMP, 9) // an unknown one is completed too
			w = packet.AppendEmpty(w, packet.PINGRESP)
			w = packet.AppendSuback(w, 3, []byte{2, 0})
			w = packet.AppendAck(w, packet.UNSUBACK, 4)
			p.want("one answer to each packet, in order", w)
			p.send(packet.AppendEmpty(publish(nil, 1, 10), packet.DISCONNECT))
			p.want("the PUBACK of what came before the DISCONNECT", packet.AppendAck(nil, packet.PUBACK, 10))
			p.wantClosed("after the DISCONNECT")
		})
	}
}

func TestClosesOnViolation(t *testing.T) {
	addr := start(t, Config{})
	for _, c := range []struct {
		why     string
		connect bool
		send    []byte
	}{
		{"a PUBLISH before CONNECT [MQTT-3.1.0-1]", false, publish(nil, 1, 1)},
		{"not MQTT", false, []byte("GET / HTTP/1.1\r\nHost: a-name-that-is-long-enough-for-the-length-that-this-looks-like\r\n\r\n")},
		{"a second CONNECT [MQTT-3.1.0-2]", true, connect},
		{"Packet Identifier 0 [MQTT-2.3.1-1]", true, publish(nil, 1, 0)},
		{"PUBACK for a message that was never delivered", true, packet.AppendAck(nil, packet.PUBACK, 1)},
		{"a CONNACK from a client", true, packet.AppendConnack(nil, false, 0)},
		{"a length of five bytes", true, []byte{0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01}},
		{"a packet beyond the limit", true, []byte{0x30, 0xFF, 0xFF, 0xFF, 0x7F}},
	} {
		t.Run(c.why, func(t *testing.T) {
			p := dial(t, addr)
			if c.connect {
				p.send(connect)
				p.want("CONNACK", packet.AppendConnack(nil, false, packet.Accepted))
			}
			p.send(c.send)
			p.wantClosed(c.why)
		})
	}
}

func TestAnswers5(t *testing.T) {
	p := dial(t, start(t, Config{}))
	v := packet.V5
	p.send(v.AppendConnect(nil, &packet.Connect{CleanSession: true}))
	p.want("CONNACK with a name [MQTT-3.1.3-6]", v.AppendConnack(nil, &packet.Connack{
		Properties: &packet.Properties{AssignedClientID: []byte("null")},
	}))
	message := packet.Publish{Topic: []byte("t"), Payload: []byte("p"), QoS: 1, ID: 7, Properties: &packet.Properties{ContentType: []byte("x")}}
	b := v.AppendPublish(nil, &message)
	message.QoS, message.ID, message.Properties = 2, 8, nil
	b = v.AppendPublish(b, &message)
	b = v.AppendAck(b, packet.PUBREL, packet.Ack{ID: 8})
	b = v.AppendSubscribe(b, &packet.Subscribe{ID: 3, Subscriptions: []packet.Subscription{{Filter: "a", QoS: 2}}})
	b = v.AppendUnsubscribe(b, &packet.Unsubscribe{ID: 4, Filters: []string{"a"}})
	p.send(b)
	w := packet.AppendAck(nil, packet.PUBACK, 7)
	w = packet.AppendAck(w, packet.PUBREC, 8)
	w = packet.AppendAck(w, packet.PUBCOMP, 8)
	w = v.AppendSuback(w, &packet.Suback{ID: 3, Codes: []packet.ReasonCode{2}})
	w = v.AppendUnsuback(w, &packet.Suback{ID: 4, Codes: []packet.ReasonCode{0}})
	p.want("one answer to each packet, in order", w)
	p.send(v.AppendDisconnect(nil, &packet.Disconnect{}))
	p.wantClosed("after the DISCONNECT")
}

func TestRefusals(t *testing.T) {
	for name, config := range map[string]Config{"at once": {}, "delayed": {Delay: time.Millisecond}} {
		addr := start(t, config)
		for _, c := range []struct {
			why  string
			p    packet.Connect
			code byte
		}{
			{"a version that is none [MQTT-3.1.2-2]", packet.Connect{ClientID: "c", Level: 6}, packet.RefusedLevel},
			{"no Client Identifier and a session [MQTT-3.1.3-8]", packet.Connect{}, packet.RefusedIdentifier},
		} {
			t.Run(name+"/"+c.why, func(t *testing.T) {
				p := dial(t, addr)
				p.send(packet.AppendConnect(nil, &c.p))
				p.want("the return code", packet.AppendConnack(nil, false, c.code))
				p.wantClosed("after the refusal [MQTT-3.2.2-5]")
			})
		}
	}
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	p := dial(t, start(t, Config{}))
	began := time.Now()
	p.send(packet.AppendConnect(nil, &packet.Connect{ClientID: "c", CleanSession: true, KeepAlive: 1}))
	p.want("CONNACK", packet.AppendConnack(nil, false, packet.Accepted))
	p.wantClosed("silence [MQTT-3.1.2-24]")
	if after := time.Since(began); after < 1500*time.Millisecond {
		t.Errorf("closed after %v, within one and a half times the Keep Alive of 1 s", after)
	}
}

// Each answer leaves no earlier than the delay after its packet, and the delays of many packets do not add up.
func TestDelay(t *testing.T) {
	const delay, n = 300 * time.Millisecond, 100
	p := dial(t, start(t, Config{Delay: delay}))
	p.send(connect)
	p.want("CONNACK", packet.AppendConnack(nil, false, packet.Accepted))
	go func() {
		for id := uint16(1); id <= n; id++ {
			_, _ = p.nc.Write(publish(nil, 1, id))
			time.Sleep(delay / n)
		}
	}()
	began := time.Now()
	for id := uint16(1); id <= n; id++ {
		p.want("PUBACKs in order", packet.AppendAck(nil, packet.PUBACK, id))
		if after := time.Since(began) - time.Duration(id-1)*delay/n; after < delay {
			// The sender sleeps at least delay/n between two packets, so none can be due before.
			t.Errorf("PUBACK %d came %v after it can have been sent, delay %v", id, after, delay)
		}
	}
	// One after the other they would take n delays, 30 s. A pass is far below even on a busy machine.
	if all := time.Since(began); all > n*delay/2 {
		t.Errorf("%d acknowledgements took %v: the delays of %v add up", n, all, delay)
	}
}

// A long delay must not hold up the end.
func TestDelayEndsWithServe(t *testing.T) {
	p := dial(t, start(t, Config{Delay: time.Minute}))
	p.send(append(append([]byte(nil), connect...), publish(nil, 1, 1)...))
	q := dial(t, p.nc.RemoteAddr().String())
	q.send(packet.AppendConnect(nil, &packet.Connect{ClientID: "c", Level: 5})) // waits for the refusal to be written
	time.Sleep(20 * time.Millisecond)
}

func TestBadConfig(t *testing.T) {
	for _, delay := range []time.Duration{-1, MaxDelay + 1} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := Serve(t.Context(), l, Config{Delay: delay}); err == nil || !strings.Contains(err.Error(), "delay") {
			t.Errorf("delay %v: error %v", delay, err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is still open: %v", err)
		}
	}
}

func TestListenerFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := Serve(t.Context(), l, Config{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("error %v, want that of the closed listener", err)
	}
}
