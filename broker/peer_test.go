package broker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"inflight/broker/internal/testnats"
	"inflight/broker/packet"
)

// quiet is how long a peer waits to be sure that nothing more comes.
const quiet = 150 * time.Millisecond

// patience bounds every wait of a peer; it is no criterion of speed.
const patience = 2 * time.Minute

// peer speaks the wire: it sends what it is told and wants what it is told, in packets.
type peer struct {
	t  testing.TB
	nc net.Conn
	rd *packet.Reader
	s  *Server
	id string // Client Identifier, of one that connect or login made
}

func dial(t testing.TB, s *Server) *peer {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &peer{t: t, nc: nc, rd: packet.NewReader(nc, 4096, 0), s: s}
}

// connect dials and connects; flags may hold "keep" for a session that is kept, "present" if it must exist.
func connect(t testing.TB, s *Server, id string, flags ...string) *peer {
	t.Helper()
	keep, present := false, false
	for _, f := range flags {
		keep = keep || f == "keep"
		present = present || f == "present"
	}
	return login(t, s, id, keep, present)
}

// login connects as a client does: a broker that cannot reach its store for the moment (a cluster that has just lost a
// node, a machine that is busy) refuses with return code 3, and the client tries again.
func login(t testing.TB, s *Server, id string, keep, present bool) *peer {
	t.Helper()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		p := dial(t, s)
		p.id = id
		p.send(packet.AppendConnect(nil, &packet.Connect{ClientID: id, CleanSession: !keep}))
		f, err := p.next()
		if err != nil {
			t.Fatalf("want a CONNACK, got %v", err)
		}
		got := describe(f)
		if got == fmt.Sprintf("CONNACK present=%v code=0", present) {
			return p
		}
		if got != "CONNACK present=false code=3" || time.Since(began) > patience {
			t.Fatalf("want CONNACK present=%v code=0, got %s", present, got)
		}
		t.Logf("refused for the moment: %s", got)
	}
}

func (p *peer) send(parts ...[]byte) {
	p.t.Helper()
	if _, err := p.nc.Write(bytes.Join(parts, nil)); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

func pub(id uint16, qos byte, topic, payload string) []byte {
	return packet.AppendPublish(nil, &packet.Publish{Topic: []byte(topic), Payload: []byte(payload), ID: id, QoS: qos})
}

func dup(id uint16, qos byte, topic, payload string) []byte {
	return packet.AppendPublish(nil, &packet.Publish{Topic: []byte(topic), Payload: []byte(payload), ID: id, QoS: qos, Dup: true})
}

func ack(t packet.Type, id uint16) []byte { return packet.AppendAck(nil, t, id) }

// describe is the second representation of packets, for tests and logs only.
func describe(f packet.Frame) string {
	switch t := f.Type(); t {
	case packet.CONNACK:
		present, code, err := packet.ParseConnack(f)
		return orError(err, "CONNACK present=%v code=%d", present, code)
	case packet.PUBLISH:
		p, err := packet.ParsePublish(f)
		s := fmt.Sprintf("PUBLISH q%d %s %q", p.QoS, p.Topic, p.Payload)
		if p.Dup {
			s += " dup"
		}
		if p.Retain {
			s += " retain"
		}
		return orError(err, "%s", s)
	case packet.SUBACK:
		id, codes, err := packet.ParseSuback(f)
		return orError(err, "SUBACK %d %v", id, codes)
	case packet.PINGRESP:
		return orError(packet.ParseEmpty(f), "PINGRESP")
	default:
		id, err := packet.ParseAck(f)
		return orError(err, "%v %d", t, id)
	}
}

func orError(err error, format string, args ...any) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf(format, args...)
}

// next reads one packet.
func (p *peer) next() (packet.Frame, error) {
	_ = p.nc.SetReadDeadline(time.Now().Add(patience))
	return p.rd.Next()
}

// want reads one packet for each sentence and compares. A PUBLISH is compared without its identifier, which is returned
// of the last one.
func (p *peer) want(sentences ...string) (id uint16) {
	p.t.Helper()
	for _, want := range sentences {
		f, err := p.next()
		if err != nil {
			p.t.Fatalf("want %s, got %v", want, err)
		}
		if got := describe(f); got != want {
			p.t.Fatalf("want %s, got %s", want, got)
		}
		if f.Type() == packet.PUBLISH {
			pub, _ := packet.ParsePublish(f)
			id = pub.ID
		}
	}
	return id
}

// wantQuiet wants nothing more for a while.
func (p *peer) wantQuiet() {
	p.t.Helper()
	_ = p.nc.SetReadDeadline(time.Now().Add(quiet))
	f, err := p.rd.Next()
	if err == nil {
		p.t.Fatalf("want nothing, got %s", describe(f))
	}
	if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
		p.t.Fatalf("want an open, quiet connection, got %v", err)
	}
}

// wantClosed wants the broker to close the connection without another packet.
func (p *peer) wantClosed() {
	p.t.Helper()
	f, err := p.next()
	if err == nil {
		p.t.Fatalf("want a closed connection, got %s", describe(f))
	}
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		p.t.Fatal("want a closed connection, it stays open")
	}
}

// subscribe wants the subscription. A cluster that cannot reach its store for the moment refuses it, see login, and it is
// asked for again.
func (p *peer) subscribe(filter string, qos byte) {
	p.t.Helper()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		p.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: filter, QoS: qos}}}))
		f, err := p.next()
		if err != nil {
			p.t.Fatalf("want a SUBACK, got %v", err)
		}
		got := describe(f)
		if got == fmt.Sprintf("SUBACK 1 [%d]", qos) {
			return
		}
		if got != "SUBACK 1 [128]" || p.s == nil || p.s.cfg.Cluster == "" || time.Since(began) > patience {
			p.t.Fatalf("want SUBACK 1 [%d], got %s", qos, got)
		}
		p.t.Logf("refused for the moment: %s", got)
	}
}

// take receives QoS 2 messages and completes them; the broker may send several before it answers.
func (p *peer) take(sentences ...string) {
	p.t.Helper()
	released := 0
	for i := 0; i < len(sentences) || released < len(sentences); {
		f, err := p.next()
		if err != nil {
			p.t.Fatalf("want %d messages, got %v after %d", len(sentences), err, i)
		}
		switch f.Type() {
		case packet.PUBLISH:
			if got := describe(f); i == len(sentences) || got != sentences[i] {
				p.t.Fatalf("message %d: want %q, got %s", i+1, sentences, got)
			}
			i++
			pub, _ := packet.ParsePublish(f)
			p.send(ack(packet.PUBREC, pub.ID))
		case packet.PUBREL:
			id, _ := packet.ParseAck(f)
			p.send(ack(packet.PUBCOMP, id))
			released++
		default:
			p.t.Fatalf("want messages, got %s", describe(f))
		}
	}
}

// cut resets the connection.
func (p *peer) cut() {
	_ = p.nc.(*net.TCPConn).SetLinger(0)
	_ = p.nc.Close()
}

// open starts a broker of its own on the given store.
func open(t testing.TB, storeName string, edit ...func(*Config)) *Server {
	t.Helper()
	cfg := Config{Listen: "127.0.0.1:0", Store: storeName, Pipeline: true, Log: testLog(t)}
	if storeName != StoreMemory {
		cfg.StoreDir = t.TempDir()
	}
	for _, e := range edit {
		e(&cfg)
	}
	return start(t, cfg)
}

// start starts a broker. NATS servers that are busy may be without a leader for longer than a broker waits for one: it is
// started again, as whoever looks after it would.
func start(t testing.TB, cfg Config) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, err := Open(ctx, cfg)
	for err != nil && len(cfg.NATS.URLs) > 0 && strings.Contains(err.Error(), "JetStream has no leader") && ctx.Err() == nil {
		t.Logf("started again: %v", err)
		s, err = Open(ctx, cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// cluster starts three members of one cluster.
func cluster(t testing.TB, edit ...func(*Config)) []*Server {
	t.Helper()
	var routes, listen []string
	for len(listen) < 3 {
		addr := fmt.Sprintf("127.0.0.1:%d", testnats.Port(t))
		if !slices.Contains(listen, addr) {
			listen, routes = append(listen, addr), append(routes, "nats://"+addr)
		}
	}
	// A name of its own: a port that another cluster has taken meanwhile would make one cluster of the two.
	name := fmt.Sprintf("test-%d-%s", os.Getpid(), strings.ReplaceAll(listen[0], ":", "-"))
	servers := make([]*Server, 3)
	errs := make(chan error, 3)
	dir := t.TempDir()
	for i := range 3 {
		cfg := Config{
			Listen: "127.0.0.1:0", Store: StoreStaged, Pipeline: true, Log: testLog(t), Node: fmt.Sprintf("n%d", i+1),
			StoreDir: fmt.Sprintf("%s/n%d", dir, i+1), Cluster: name, ClusterListen: listen[i], Routes: routes, Replicas: 3,
		}
		for _, e := range edit {
			e(&cfg)
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			var err error
			servers[i], err = Open(ctx, cfg)
			errs <- err
		}()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, s := range servers {
			s.Shutdown()
		}
	})
	return servers
}

func testLog(t testing.TB) *slog.Logger {
	var w io.Writer = io.Discard
	if os.Getenv("INFLIGHT_TEST_LOG") != "" {
		w = t.Output()
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// eachStore runs a test on every store that a single broker can have, all at a time.
func eachStore(t *testing.T, run func(t *testing.T, s *Server)) {
	for _, name := range []string{StoreMemory, StoreStaged, StoreJournal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t, name))
		})
	}
}

// eachDurable runs a test on every store that outlives its process, all at a time.
func eachDurable(t *testing.T, run func(t *testing.T, on string)) {
	for _, name := range []string{StoreStaged, StoreJournal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, name)
		})
	}
}

// with makes a cluster use a store.
func with(name string) func(*Config) { return func(c *Config) { c.Store = name } }

// numbered makes n packets, one for each identifier from 1.
func numbered(n int, one func(id uint16) []byte) []byte {
	var b []byte
	for id := range n {
		b = append(b, one(uint16(id+1))...)
	}
	return b
}

func sentences(n int, format string) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = strings.ReplaceAll(format, "#", fmt.Sprint(i+1))
	}
	return s
}
