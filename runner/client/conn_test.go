package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"inflight/broker/packet"
)

func TestDialFails(t *testing.T) {
	closed := listen(t)
	_ = closed.Close()
	for _, c := range []struct {
		why    string
		script func(p *peer)
		want   string
	}{
		{"refused", func(p *peer) { p.next("", packet.CONNECT); p.send(packet.AppendConnack(nil, false, 5)) }, "refused by the broker: not authorized (return code 5)"},
		{"refused for the name", func(p *peer) { p.next("", packet.CONNECT); p.send(packet.AppendConnack(nil, false, 4)) }, "bad user name or password (return code 4)"},
		{"a reserved code", func(p *peer) { p.next("", packet.CONNECT); p.send(packet.AppendConnack(nil, false, 6)) }, "reserved return code (return code 6)"},
		{"another packet", func(p *peer) { p.next("", packet.CONNECT); p.ack(packet.PUBACK, 1) }, "PUBACK instead of CONNACK"},
		{"not MQTT", func(p *peer) { p.next("", packet.CONNECT); p.send([]byte("SSH-2.0-x" + strings.Repeat("y", 80))) }, "instead of CONNACK"},
		{"closed at once", func(*peer) {}, "the broker closed the connection"},
		{"silence", func(p *peer) { p.gone() }, "no answer within 500ms: waiting for the CONNACK"},
		{"nobody listens", nil, "connection refused"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			addr := closed.Addr().String()
			if c.script != nil {
				addr = broker(t, c.script)
			}
			o := Options{Addr: addr, ClientID: "c", CleanSession: true, Timeout: patience}
			if c.why == "silence" {
				o.Timeout = 500 * time.Millisecond
			}
			_, err := Dial(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), addr) {
				t.Errorf("error %v, want one with %q and the address", err, c.want)
			}
			if err != nil && strings.Count(err.Error(), addr) > 1 {
				t.Errorf("the address more than once: %v", err)
			}
		})
	}
}

func TestDialIsCancelled(t *testing.T) {
	addr := broker(t, func(p *peer) { p.gone() })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := Dial(ctx, Options{Addr: addr, ClientID: "c"}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestConnectIsWhatWasAskedFor(t *testing.T) {
	got := make(chan packet.Connect, 1)
	addr := broker(t, func(p *peer) {
		f, ok := p.next("first", packet.CONNECT)
		if !ok {
			return
		}
		c, err := packet.ParseConnect(f)
		if err != nil {
			p.Error(err)
		}
		got <- c
		p.send(packet.AppendConnack(nil, true, 0))
		p.next("at the end", packet.DISCONNECT)
	})
	c, err := Dial(t.Context(), Options{
		Addr: addr, ClientID: "me", KeepAlive: 1500 * time.Millisecond, Username: "u", Password: []byte("p"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !c.SessionPresent() || c.Addr() != addr {
		t.Errorf("session present %v, address %s", c.SessionPresent(), c.Addr())
	}
	if err := c.Disconnect(); err != nil {
		t.Error(err)
	}
	p := <-got
	if s := fmt.Sprint(p.ClientID, p.CleanSession, p.KeepAlive, p.Username, string(p.Password)); s != "mefalse 2up" {
		t.Errorf("CONNECT with %q", s)
	}
}

func TestConnSendsAndReceives(t *testing.T) {
	addr := broker(t, func(p *peer) {
		if !p.accept() {
			return
		}
		if _, ok := p.next("as it was sent", packet.PINGREQ); ok {
			p.send(packet.AppendEmpty(nil, packet.PINGRESP))
		}
		f, ok := p.next("then", packet.SUBSCRIBE)
		if !ok {
			return
		}
		s, err := packet.ParseSubscribe(f)
		if err != nil || len(s.Subscriptions) != 1 {
			p.Errorf("%+v, %v", s, err)
			return
		}
		b := packet.AppendPublish(nil, &packet.Publish{Topic: []byte("t")}) // may come before the SUBACK
		p.send(packet.AppendSuback(b, s.ID, []byte{1}))
	})
	c, err := Dial(t.Context(), Options{Addr: addr, ClientID: "c", CleanSession: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(packet.AppendEmpty(nil, packet.PINGREQ)); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if f, err := c.Next(); err != nil || f.Type() != packet.PINGRESP {
		t.Fatalf("%v, %v", f.Type(), err)
	}
	if granted, err := c.Subscribe(t.Context(), "#", 2); err != nil || granted != 1 {
		t.Fatalf("granted %d, %v", granted, err)
	}
	if _, err := c.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("error %v, want the end", err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func TestSubscribeFails(t *testing.T) {
	for _, c := range []struct {
		why  string
		send func(id uint16) []byte
		want string
	}{
		{"refused", func(id uint16) []byte { return packet.AppendSuback(nil, id, []byte{0x80}) }, "refused by the broker"},
		{"another identifier", func(id uint16) []byte { return packet.AppendSuback(nil, id+1, []byte{0}) }, "SUBACK for Packet Identifier 2 with 1 return codes, expected 1"},
		{"too many codes", func(id uint16) []byte { return packet.AppendSuback(nil, id, []byte{0, 0}) }, "with 2 return codes"},
		{"another packet", func(id uint16) []byte { return packet.AppendAck(nil, packet.PUBACK, id) }, "PUBACK instead of the SUBACK"},
		{"less than asked for", func(id uint16) []byte { return packet.AppendSuback(nil, id, []byte{1}) }, "grants QoS 1, asked for 2"},
		{"silence", func(uint16) []byte { return nil }, "no answer within 500ms: waiting for the SUBACK"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			addr := broker(t, func(p *peer) {
				if !p.accept() {
					return
				}
				if f, ok := p.next("then", packet.SUBSCRIBE); ok {
					s, _ := packet.ParseSubscribe(f)
					p.send(c.send(s.ID))
					p.gone()
				}
			})
			o := Options{Addr: addr, ClientID: "c", CleanSession: true, Timeout: patience}
			if c.why == "silence" {
				o.Timeout = 500 * time.Millisecond
			}
			_, err := Subscribe(t.Context(), o, "a/#", 2, func(*packet.Publish) {})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"a/#" at `+addr) {
				t.Errorf("error %v, want %q, the filter and the address", err, c.want)
			}
		})
	}
}
