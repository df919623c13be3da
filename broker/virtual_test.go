package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"inflight/broker/packet"
)

// virtual runs a test on a broker without listeners, on the memory store, in a bubble of its own: its clock stands still
// while anybody is at work, and jumps when everybody waits. So what is due after an hour is tested to the nanosecond.
func virtual(t *testing.T, run func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		run(t, start(t, Config{
			Store: StoreMemory, Pipeline: true, Log: testLog(t),
			Access: Access{NoListener: true, AllowAnonymous: true},
		}))
	})
}

// bothVersions runs a virtual test for each version.
func bothVersions(t *testing.T, run func(t *testing.T, s *Server, v packet.Version)) {
	t.Helper()
	for _, v := range []packet.Version{packet.V311, packet.V5} {
		t.Run(fmt.Sprint(v), func(t *testing.T) { virtual(t, func(t *testing.T, s *Server) { run(t, s, v) }) })
	}
}

// pipe is a peer on one end of a pipe; the broker serves the other.
func pipe(t *testing.T, s *Server, v packet.Version) *peer5 {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _ = here.Close() })
	go s.ServeConn(there)
	p := &peer5{
		peer:  &peer{t: t, nc: here, rd: packet.NewReader(here, 4096, 0)},
		codec: packet.Codec{Version: v, From: packet.FromServer},
	}
	p.rd.SetVersion(v)
	return p
}

// enter connects through a pipe.
func enter(t *testing.T, s *Server, v packet.Version, c packet.Connect, present bool) *peer5 {
	t.Helper()
	p := pipe(t, s, v)
	p.send(v.AppendConnect(nil, &c))
	p.want(fmt.Sprintf("CONNACK present=%v 0x00", present))
	return p
}

// wait lets time pass, in which nothing may arrive and the connection must stay open.
func (p *peer5) wait(d time.Duration) {
	p.t.Helper()
	_ = p.nc.SetReadDeadline(time.Now().Add(d))
	f, err := p.rd.Next()
	if err == nil {
		p.t.Fatalf("want nothing within %v, got %s", d, p.describe(f))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("want an open connection for %v, got %v", d, err)
	}
	synctest.Wait()
}

// wantNow wants packets without a moment passing.
func (p *peer5) wantNow(sentences ...string) (id uint16) {
	p.t.Helper()
	began := time.Now()
	id = p.want(sentences...)
	if took := time.Since(began); took != 0 {
		p.t.Fatalf("%v after %v, want at once", sentences, took)
	}
	return id
}

// wantClosedAfter wants the broker to close the connection d from now, to a client of 5.0 with a DISCONNECT.
func (p *peer5) wantClosedAfter(d time.Duration, code packet.ReasonCode) {
	p.t.Helper()
	began := time.Now()
	if p.codec.Version == packet.V5 && code != 0 {
		_ = p.nc.SetReadDeadline(began.Add(2*d + patience))
		f, err := p.rd.Next()
		if err != nil {
			p.t.Fatalf("want a DISCONNECT, got %v after %v", err, time.Since(began))
		}
		if got, want := p.describe(f), fmt.Sprintf("DISCONNECT %#02x", byte(code)); got != want {
			p.t.Fatalf("want %s, got %s", want, got)
		}
	}
	_ = p.nc.SetReadDeadline(began.Add(2*d + patience))
	if f, err := p.rd.Next(); err != io.EOF {
		p.t.Fatalf("want a closed connection, got %v %v", f.Type(), err)
	}
	if took := time.Since(began); took != d {
		p.t.Fatalf("closed after %v, want %v", took, d)
	}
}

// part ends the network connection without a DISCONNECT.
func (p *peer5) part() {
	_ = p.nc.Close()
	synctest.Wait()
}

const second, instant = time.Second, time.Nanosecond

// MISC-01: silence is borne for one and a half times the Keep Alive and no moment longer [MQTT-3.1.2-24] (5.0:
// [MQTT-3.1.2-22]); what counts is a control packet, not bytes.
func TestKeepAliveToTheNanosecond(t *testing.T) {
	t.Parallel()
	for _, keepAlive := range []uint16{1, 2, 60, 65535} {
		limit := time.Duration(keepAlive) * second * 3 / 2
		t.Run(fmt.Sprint(keepAlive), func(t *testing.T) {
			bothVersions(t, func(t *testing.T, s *Server, v packet.Version) {
				p := enter(t, s, v, packet.Connect{ClientID: "k", CleanSession: true, KeepAlive: keepAlive}, false)
				p.wait(limit - instant)
				p.wantClosedAfter(instant, packet.KeepAliveTimeout)
			})
		})
	}
	const limit = 15 * second
	connect := packet.Connect{ClientID: "k", CleanSession: true, KeepAlive: 10}
	for _, c := range []struct {
		why     string
		send    []byte
		answer  string // "": none
		version packet.Version
	}{
		{"PINGREQ", []byte{0xC0, 0}, "PINGRESP", packet.V311},
		{"PINGREQ", []byte{0xC0, 0}, "PINGRESP", packet.V5},
		{"a PUBLISH", pub(0, 0, "nobody", "x"), "", packet.V311},
		{"a PUBREL of nothing", ack(packet.PUBREL, 7), "PUBCOMP 7", packet.V311},
	} {
		t.Run(fmt.Sprint(c.why, " ", c.version), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *Server) {
				p := enter(t, s, c.version, connect, false)
				for range 5 {
					p.wait(limit - instant)
					p.send(c.send)
					if c.answer != "" {
						p.wantNow(c.answer)
					}
				}
				p.wait(limit - instant)
				p.wantClosedAfter(instant, packet.KeepAliveTimeout)
			})
		})
	}
	t.Run("what the broker sends does not count", func(t *testing.T) {
		bothVersions(t, func(t *testing.T, s *Server, v packet.Version) {
			p := enter(t, s, v, connect, false)
			p.send(v.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: "a"}}}))
			p.want("SUBACK 1 0x00")
			other := enter(t, s, packet.V311, packet.Connect{ClientID: "o", CleanSession: true}, false)
			p.wait(10 * second)
			other.send(pub(0, 0, "a", "x"))
			p.wantNow(`PUBLISH q0 a "x"`)
			p.wantClosedAfter(5*second, packet.KeepAliveTimeout)
		})
	})
	t.Run("bytes that never become a packet do not count", func(t *testing.T) {
		bothVersions(t, func(t *testing.T, s *Server, v packet.Version) {
			p := enter(t, s, v, connect, false)
			p.send([]byte{0x30, 0xFF, 0x7F}) // 16 KiB are to come
			for range 14 {
				p.wait(second)
				p.send([]byte{0})
			}
			p.wantClosedAfter(second, packet.KeepAliveTimeout)
		})
	})
	t.Run("0 is for ever", func(t *testing.T) {
		bothVersions(t, func(t *testing.T, s *Server, v packet.Version) {
			p := enter(t, s, v, packet.Connect{ClientID: "k", CleanSession: true}, false)
			p.wait(365 * 24 * time.Hour)
			p.send([]byte{0xC0, 0})
			p.wantNow("PINGRESP")
		})
	})
}

// Whoever sends no CONNECT, or not all of it, is not waited for.
func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	whole := packet.AppendConnect(nil, &packet.Connect{ClientID: "c", CleanSession: true})
	for _, c := range []struct {
		why   string
		bytes []byte
	}{
		{"nothing", nil},
		{"one byte", whole[:1]},
		{"all but one byte", whole[:len(whole)-1]},
	} {
		t.Run(c.why, func(t *testing.T) {
			virtual(t, func(t *testing.T, s *Server) {
				p := pipe(t, s, packet.V311)
				for i := range c.bytes { // a trickle gets no more time
					p.wait(10 * time.Millisecond)
					p.send(c.bytes[i : i+1])
				}
				spent := time.Duration(len(c.bytes)) * 10 * time.Millisecond
				p.wait(s.cfg.ConnectTimeout - spent - instant)
				p.wantClosedAfter(instant, 0)
			})
		})
	}
	t.Run("just in time", func(t *testing.T) {
		virtual(t, func(t *testing.T, s *Server) {
			p := pipe(t, s, packet.V311)
			p.wait(s.cfg.ConnectTimeout - instant)
			p.send(whole)
			p.want("CONNACK present=false 0x00")
			p.wait(time.Hour)
		})
	})
}

// ServeConn serves what others accepted, until the broker ends.
func TestServeConn(t *testing.T) {
	t.Run("beside the listeners", func(t *testing.T) {
		s := open(t, StoreMemory)
		w := connect(t, s, "w")
		w.subscribe("a", 1)
		here, there := net.Pipe()
		defer here.Close()
		served := make(chan struct{})
		go func() {
			defer close(served)
			s.ServeConn(there)
		}()
		p := &peer{t: t, nc: here, rd: packet.NewReader(here, 4096, 0)}
		p.send(packet.AppendConnect(nil, &packet.Connect{ClientID: "p", CleanSession: true}))
		p.want("CONNACK present=false code=0")
		p.send(pub(1, 1, "a", "x"))
		p.want("PUBACK 1")
		w.want(`PUBLISH q1 a "x"`)
		s.Shutdown()
		p.wantClosed()
		<-served
	})
	t.Run("a broker that drains takes none", func(t *testing.T) {
		virtual(t, func(t *testing.T, s *Server) {
			if s.Addr() != nil {
				t.Errorf("an address without a listener: %v", s.Addr())
			}
			old, p := enter(t, s, packet.V311, packet.Connect{ClientID: "o", CleanSession: true}, false), pipe(t, s, packet.V5)
			synctest.Wait()
			s.Drain(t.Context())
			old.wantClosedAfter(0, 0)
			p.wantClosedAfter(0, 0)
			pipe(t, s, packet.V5).wantClosedAfter(0, 0)
		})
	})
	t.Run("Serve without a listener", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				ended <- Serve(ctx, Config{Store: StoreMemory, Access: Access{NoListener: true, AllowAnonymous: true}})
			}()
			synctest.Wait()
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	})
}
