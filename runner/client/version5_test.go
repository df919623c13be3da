package client

import (
	"strings"
	"testing"

	"inflight/broker/packet"
)

// accept5 takes a CONNECT of 5.0 and answers it.
func (p *peer) accept5(code packet.ReasonCode, props *packet.Properties) bool {
	f, ok := p.next("CONNECT", packet.CONNECT)
	if !ok {
		return false
	}
	var c packet.Codec
	if _, err := c.ParseConnect(f); err != nil || c.Version != packet.V5 {
		p.Errorf("CONNECT of level %d: %v", c.Version, err)
		return false
	}
	p.send(packet.V5.AppendConnack(nil, &packet.Connack{Code: code, Properties: props}))
	return true
}

// publish5 reads a PUBLISH of 5.0 and returns its identifier.
func (p *peer) publish5(want string) (id uint16, ok bool) {
	f, ok := p.next("a message", packet.PUBLISH)
	if !ok {
		return 0, false
	}
	c := packet.Codec{Version: packet.V5}
	m, err := c.ParsePublish(f)
	if err != nil || string(m.Topic) != want || len(m.Payload) != 64 {
		p.Errorf("PUBLISH to %q of %d bytes (%v), want topic %q and 64 bytes", m.Topic, len(m.Payload), err, want)
	}
	return m.ID, err == nil
}

func TestVersion5(t *testing.T) {
	t.Parallel()
	for _, qos := range []int{1, 2} {
		addr := broker(t, func(p *peer) {
			if !p.accept5(packet.Success, &packet.Properties{ReceiveMaximum: packet.Some(uint16(2))}) {
				return
			}
			for i := range 6 {
				id, ok := p.publish5("t/" + string(rune('0'+i%2)))
				if !ok {
					return
				}
				if qos == 1 {
					p.send(packet.V5.AppendAck(nil, packet.PUBACK, packet.Ack{ID: id, Code: packet.NoMatchingSubscribers}))
					continue
				}
				p.ack(packet.PUBREC, id)
				if f, ok := p.next("then", packet.PUBREL); ok {
					p.ack(packet.PUBCOMP, uint16(f.Body[0])<<8|uint16(f.Body[1]))
				}
			}
			p.gone()
		})
		plan := bounded(addr, qos, 1, 6)
		plan.Version, plan.Topics, plan.Topic = packet.V5, 2, func(int) string { return "t" }
		if s := mustRun(t, plan); s.Acknowledged != 6 {
			t.Errorf("QoS %d: %d of 6 acknowledged", qos, s.Acknowledged)
		}
	}
}

// TestAdmits: what a CONNACK says about a load is known from one connection, before the load.
func TestAdmits(t *testing.T) {
	t.Parallel()
	limits := packet.Properties{ReceiveMaximum: packet.Some(uint16(20)), MaximumQoS: packet.Some(byte(1))}
	for _, c := range []struct {
		qos, window int
		want        string
	}{{1, 20, ""}, {1, 21, "takes at most 20 exchanges of a connection (Receive Maximum"}, {2, 1, "takes at most QoS 1"}} {
		addr := broker(t, func(p *peer) { p.accept5(packet.Success, &limits); p.gone() })
		err, trouble := Admits(t.Context(), Options{Addr: addr, ClientID: "a", CleanSession: true, Version: packet.V5}, c.qos, c.window)
		if trouble != nil {
			t.Errorf("QoS %d, window %d: %v", c.qos, c.window, trouble)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("QoS %d, window %d: %v, want %q", c.qos, c.window, err, c.want)
		}
	}
}

func TestVersion5Refuses(t *testing.T) {
	t.Parallel()
	limits := packet.Properties{ReceiveMaximum: packet.Some(uint16(20)), MaximumQoS: packet.Some(byte(1))}
	for _, c := range []struct {
		why    string
		qos    int
		window int
		script func(p *peer)
		want   string
	}{
		{"a window above the Receive Maximum", 1, 21, func(p *peer) { p.accept5(packet.Success, &limits); p.gone() }, "takes at most 20 exchanges of a connection (Receive Maximum"},
		{"a QoS above the maximum", 2, 1, func(p *peer) { p.accept5(packet.Success, &limits); p.gone() }, "takes at most QoS 1"},
		{"a refusal", 1, 1, func(p *peer) { p.accept5(packet.NotAuthorized, nil) }, "refused by the broker: "},
		{"a broker of 3.1.1", 1, 1, func(p *peer) {
			if _, ok := p.next("CONNECT", packet.CONNECT); ok {
				p.send(packet.AppendConnack(nil, false, packet.RefusedLevel))
			}
		}, "it does not speak MQTT 5.0"},
		{"a message that is refused", 1, 1, func(p *peer) {
			if p.accept5(packet.Success, nil) {
				if id, ok := p.publish5("t"); ok {
					p.send(packet.V5.AppendAck(nil, packet.PUBACK, packet.Ack{ID: id, Code: packet.NotAuthorized}))
					p.gone()
				}
			}
		}, "the broker refuses the message of Packet Identifier 1: PUBACK with "},
		{"a DISCONNECT", 1, 1, func(p *peer) {
			if p.accept5(packet.Success, nil) {
				if _, ok := p.publish5("t"); ok {
					p.send(packet.V5.AppendDisconnect(nil, &packet.Disconnect{Code: packet.ServerShuttingDown}))
					p.gone()
				}
			}
		}, "the broker disconnects: "},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			plan := bounded(broker(t, c.script), c.qos, c.window, 4)
			plan.Version, plan.Topic = packet.V5, func(int) string { return "t" }
			p, err := Open(t.Context(), plan)
			if err == nil {
				_, err = p.Run(t.Context())
				_ = p.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}
