package broker

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"inflight/broker/internal/testnats"
	"inflight/broker/packet"
)

// path is the network between a broker and a NATS server, which can be cut.
type path struct {
	t    testing.TB
	to   string
	addr string

	mu    sync.Mutex
	ln    net.Listener
	conns []net.Conn
	wg    sync.WaitGroup
}

func newPath(t testing.TB, to string) *path {
	t.Helper()
	p := &path{t: t, to: to, addr: fmt.Sprintf("127.0.0.1:%d", testnats.Port(t))}
	p.heal()
	t.Cleanup(func() {
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *path) url() string { return "nats://" + p.addr }

func (p *path) heal() {
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.ln = ln
	p.mu.Unlock()
	p.wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			if p.ln != ln {
				_, _ = in.Close(), out.Close()
			}
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			p.wg.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			p.wg.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
		}
	})
}

func (p *path) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil {
		_ = p.ln.Close()
	}
	for _, nc := range p.conns {
		_ = nc.Close()
	}
	p.ln, p.conns = nil, nil
}

// wantReady polls /readyz until it says what it should.
func wantReady(t testing.TB, s *Server, ready bool) {
	t.Helper()
	code, body := 0, ""
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		if code, body = get(t, s, "/readyz"); (code == http.StatusOK) == ready {
			return
		}
	}
	t.Fatalf("/readyz says %d %q, want ready %v", code, body, ready)
}

func (p *peer) ping() {
	p.t.Helper()
	p.send(packet.AppendEmpty(nil, packet.PINGREQ))
	p.want("PINGRESP")
}

// A NATS server that restarts costs the connections whose work it took with it, and nothing else.
func TestRemoteServerRestarts(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			if servers > 1 && testing.Short() {
				t.Skip("starts a cluster of three; run without -short")
			}
			t.Parallel()
			all := []*testnats.Server{}
			if servers == 1 {
				all = append(all, testnats.Start(t))
			} else {
				all = testnats.Trio(t)
			}
			cfg := remoteConfig(t, "a", testnats.URLs(all)...)
			cfg.Replicas = servers
			cfg.StoreTimeout = 5 * time.Second
			withOps(&cfg)
			s := start(t, cfg)
			wantReady(t, s, true)

			watchers := make([]*peer, 3)
			for qos := range watchers {
				watchers[qos] = connect(t, s, fmt.Sprintf("w%d", qos))
				watchers[qos].subscribe("t", byte(qos))
			}
			idle := connect(t, s, "idle", "keep")
			p := connect(t, s, "p", "keep")
			p.send(pub(1, 2, "t", "begun before"))
			p.want("PUBREC 1")

			// All of them, so that nobody can take it.
			for _, o := range all {
				o.Stop()
			}
			wantReady(t, s, false)
			if code, _ := get(t, s, "/healthz"); code != http.StatusOK {
				t.Errorf("/healthz says %d: a process that waits for NATS must not be restarted for it", code)
			}
			if code, body := get(t, s, "/metrics"); code != http.StatusOK || !strings.Contains(body, "inflight_broker_connections") {
				t.Errorf("/metrics says %d", code)
			}
			p.send(pub(2, 1, "t", "while it is away"))
			p.wantClosed()
			idle.ping()

			for _, o := range all {
				o.Start()
			}
			wantReady(t, s, true)
			p = connect(t, s, "p", "keep", "present")
			p.send(ack(packet.PUBREL, 1))
			p.want("PUBCOMP 1")
			p.send(dup(2, 1, "t", "while it is away"))
			p.want("PUBACK 2")
			idle.ping()
			for qos, w := range watchers {
				w.want(fmt.Sprintf(`PUBLISH q%d t "begun before"`, qos), fmt.Sprintf(`PUBLISH q%d t "while it is away"`, min(1, qos)))
				w.wantQuiet()
			}
		})
	}
}

// While a broker has no way to NATS another one takes its sessions over: it must not serve them any more afterwards.
func TestRemoteIsCutOff(t *testing.T) {
	t.Parallel()
	o := testnats.Start(t)
	way := newPath(t, o.Addr())
	cfg := remoteConfig(t, "a", way.url())
	withOps(&cfg)
	a, b := start(t, cfg), start(t, remoteConfig(t, "b", o.URL(nil)))
	stays := connect(t, a, "stays")
	stays.subscribe("t", 1)
	moves := connect(t, a, "moves", "keep")
	moves.subscribe("t", 1)
	way.cut()
	wantReady(t, a, false)
	moved := connect(t, b, "moves", "keep", "present")
	p := connect(t, b, "p")
	p.send(pub(1, 1, "t", "x"))
	p.want("PUBACK 1")
	moved.want(`PUBLISH q1 t "x"`)
	moves.ping() // it does not know yet
	way.heal()
	moves.wantClosed()
	stays.want(`PUBLISH q1 t "x"`)
	wantReady(t, a, true)
	moved.ping()
}

// A broker that has been without NATS for too long gives every session up, and serves them again afterwards.
func TestRemoteIsAwayForLong(t *testing.T) {
	t.Parallel()
	o := testnats.Start(t)
	way := newPath(t, o.Addr())
	cfg := remoteConfig(t, "a", way.url())
	cfg.away = 500 * time.Millisecond
	withOps(&cfg)
	s := start(t, cfg)
	clean := clean5(t, s, "clean")
	clean.subscribe(0, packet.Subscription{Filter: "t", QoS: 1})
	kept := connect(t, s, "kept", "keep")
	kept.subscribe("t", 0)
	kept.subscribe("wills", 1)
	dies := dial(t, s)
	dies.send(packet.AppendConnect(nil, &packet.Connect{
		ClientID: "dies", CleanSession: true, Will: &packet.Will{Topic: "wills", Payload: []byte("died"), QoS: 1},
	}))
	dies.want("CONNACK present=false code=0")
	way.cut()
	clean.wantEnd(packet.UnspecifiedError)
	kept.wantClosed()
	refused := dial(t, s)
	refused.send(packet.AppendConnect(nil, &packet.Connect{ClientID: "other", CleanSession: true}))
	way.heal()
	wantReady(t, s, true)
	kept = connect(t, s, "kept", "keep", "present")
	kept.want(`PUBLISH q1 wills "died"`) // by whoever looks after a session without a connection, once the store is there
	p := connect(t, s, "p")
	p.send(pub(1, 1, "t", "x"))
	p.want("PUBACK 1")
	kept.want(`PUBLISH q0 t "x"`)
}
