package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/internal/testnats"
	"inflight/broker/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const startUp = 2 * time.Minute

func starting(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), startUp)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, c Config) *Node {
	t.Helper()
	n, err := Start(starting(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	return n
}

func connect(t *testing.T, n *Node) *nats.Conn {
	t.Helper()
	nc, err := n.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func freePort(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", testnats.Port(t)) }

func TestValidate(t *testing.T) {
	good := Config{Name: "n1", StoreDir: "d"}
	clustered := Config{
		Name: "n1", StoreDir: "d", Cluster: "c", ClusterListen: "127.0.0.1:6222",
		Routes: []string{"nats://127.0.0.1:6222", "nats://127.0.0.1:6223"},
	}
	with := func(c Config, change func(*Config)) Config {
		change(&c)
		return c
	}
	for _, tc := range []struct {
		reason string
		c      Config
		want   []string // parts of the error; none: valid
	}{
		{"a node of its own", good, nil},
		{"a member", clustered, nil},
		{"a port that the system chooses", with(clustered, func(c *Config) { c.ClusterListen = "127.0.0.1:0" }), nil},
		{"nothing at all: every problem at once", Config{}, []string{`node name ""`, "--store-dir"}},
		{"a name with a dot would be two tokens of a subject", with(good, func(c *Config) { c.Name = "n.1" }), []string{`node name "n.1"`}},
		{"a name with a space", with(good, func(c *Config) { c.Name = "n 1" }), []string{`node name "n 1"`}},
		{"a name with a wildcard", with(good, func(c *Config) { c.Name = "n*" }), []string{`node name "n*"`}},
		{"routes without a cluster", with(good, func(c *Config) { c.Routes = clustered.Routes }), []string{"without a cluster name", "--cluster"}},
		{"a listener without a cluster", with(good, func(c *Config) { c.ClusterListen = "127.0.0.1:1" }), []string{"without a cluster name"}},
		{"no listener", with(clustered, func(c *Config) { c.ClusterListen = "" }), []string{`cluster listener ""`, "host:port"}},
		{"no port", with(clustered, func(c *Config) { c.ClusterListen = "127.0.0.1" }), []string{`cluster listener "127.0.0.1"`}},
		{"a port that is none", with(clustered, func(c *Config) { c.ClusterListen = "127.0.0.1:70000" }), []string{"65,535"}},
		{"reached at another address", with(clustered, func(c *Config) { c.Advertise = "nat.example:6222" }), nil},
		{"reached at no port", with(clustered, func(c *Config) { c.Advertise = "nat.example" }), []string{`address for the other members "nat.example"`}},
		{"reached nowhere in particular", with(clustered, func(c *Config) { c.Advertise = ":0" }), []string{"--cluster-advertise"}},
		{"an address without a cluster", with(good, func(c *Config) { c.Advertise = "127.0.0.1:1" }), []string{"without a cluster name"}},
		{"a port with a name", with(clustered, func(c *Config) { c.ClusterListen = "127.0.0.1:mqtt" }), []string{`port "mqtt"`}},
		{"no routes", with(clustered, func(c *Config) { c.Routes = nil }), []string{"--routes"}},
		{"the only member", with(clustered, func(c *Config) { c.Routes = c.Routes[:1] }), []string{"with one route", "majority", "--cluster"}},
		{"routes that are none", with(clustered, func(c *Config) {
			c.Routes = []string{"127.0.0.1:6222", "http://127.0.0.1:6222", "nats://127.0.0.1", "nats://127.0.0.1:6222"}
		}), []string{`route "127.0.0.1:6222"`, `route "http://127.0.0.1:6222"`, `route "nats://127.0.0.1"`}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			err := tc.c.Validate()
			if (err == nil) != (len(tc.want) == 0) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if err != nil {
				if _, startErr := Start(starting(t), tc.c); startErr == nil || startErr.Error() != err.Error() {
					t.Errorf("Start says %v", startErr)
				}
			}
		})
	}
}

func TestAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "demand")
	c := Config{Name: "n1", StoreDir: dir}
	n := start(t, c)
	if n.Clustered() {
		t.Error("a node of its own says that it is clustered")
	}
	if addr := n.srv.Addr(); addr != nil {
		t.Errorf("it listens on %v", addr)
	}
	nc := connect(t, n)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx := starting(t)
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s", make([]byte, maxPayload-1024)); err != nil {
		t.Errorf("a message of nearly 8 MiB: %v", err)
	}
	nc.Close()
	n.Stop()
	n.Stop() // again

	// The files are closed and the data is there.
	n = start(t, c)
	if js, err = jetstream.New(connect(t, n)); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, "S")
	if err != nil {
		t.Fatal(err)
	}
	if s.CachedInfo().State.Msgs != 1 {
		t.Errorf("%d messages after a restart, want 1", s.CachedInfo().State.Msgs)
	}
}

// A subscription of a client is a consumer, and a broker has more of them than the thousand that a server allows by itself.
func TestManyConsumers(t *testing.T) {
	js, err := jetstream.New(connect(t, start(t, Config{Name: "n1", StoreDir: t.TempDir()})))
	if err != nil {
		t.Fatal(err)
	}
	ctx := starting(t)
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	for i := range 1100 {
		if _, err := js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: fmt.Sprintf("c%d", i)}); err != nil {
			t.Fatalf("consumer %d: %v", i+1, err)
		}
	}
}

func TestStartFails(t *testing.T) {
	t.Run("the directory is a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Start(starting(t), Config{Name: "n1", StoreDir: filepath.Join(file, "dir")})
		var pathErr *fs.PathError
		if !errors.As(err, &pathErr) || !strings.HasPrefix(err.Error(), "store directory: ") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the cluster port is in use", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		addr := l.Addr().String()
		routes := []string{"nats://" + addr, "nats://" + freePort(t)}
		_, err = Start(starting(t), Config{Name: "n1", StoreDir: t.TempDir(), Cluster: "c", ClusterListen: addr, Routes: routes})
		if err == nil || !strings.Contains(err.Error(), "cluster listener") || !strings.Contains(err.Error(), addr) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no majority until the time is over", func(t *testing.T) {
		addr := freePort(t)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		routes := []string{"nats://" + addr, "nats://" + freePort(t), "nats://" + freePort(t)}
		_, err := Start(ctx, Config{Name: "n1", StoreDir: t.TempDir(), Cluster: "c", ClusterListen: addr, Routes: routes})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "majority") {
			t.Errorf("error %v", err)
		}
		// It was stopped again: the port is free.
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("the port is still in use: %v", err)
		}
		_ = l.Close()
	})
}

// onLine is a log that does something when a line begins so.
type onLine struct {
	slog.Handler
	begins string
	do     func()
}

func (h onLine) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, h.begins) {
		h.do()
	}
	return h.Handler.Handle(ctx, r)
}

// What the server cannot live with ends the start with its reason; the server itself expects the process to end.
func TestStartEndsWithTheServersReason(t *testing.T) {
	var buf syncBuffer
	text := slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug})
	t.Run("the port is taken after it was looked at", func(t *testing.T) {
		addr := freePort(t)
		var taken net.Listener
		log := slog.New(onLine{text, "node: Starting nats-server", func() {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Error(err)
			}
			taken = l
		}})
		_, err := Start(starting(t), Config{
			Name: "n1", StoreDir: t.TempDir(), Cluster: "c", ClusterListen: addr, Routes: []string{"nats://" + addr, "nats://" + freePort(t)}, Log: log,
		})
		if taken == nil {
			t.Fatal("the server does not say that it starts")
		}
		defer func() { _ = taken.Close() }()
		if err == nil || !strings.HasPrefix(err.Error(), "embedded node: ") || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the files cannot be written", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Start(starting(t), Config{Name: "n1", StoreDir: dir})
		if err == nil || !strings.HasPrefix(err.Error(), "embedded node: ") || !strings.Contains(err.Error(), "JetStream") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a name that it does not take", func(t *testing.T) {
		addr := freePort(t)
		_, err := Start(starting(t), Config{
			Name: "n1", StoreDir: t.TempDir(), Cluster: "a b", ClusterListen: addr, Routes: []string{"nats://" + addr, "nats://" + freePort(t)},
		})
		if err == nil || !strings.HasPrefix(err.Error(), "embedded node: ") || !strings.Contains(err.Error(), "cluster name") {
			t.Errorf("error %v", err)
		}
	})
}

func TestHealthy(t *testing.T) {
	n := start(t, Config{Name: "n1", StoreDir: t.TempDir()})
	if err := n.Healthy(); err != nil {
		t.Errorf("a node that has started is not healthy: %v", err)
	}
	if n.MaxPayload() != maxPayload {
		t.Errorf("it takes %d bytes", n.MaxPayload())
	}
	n.Stop()
	if err := n.Healthy(); err == nil || !strings.HasPrefix(err.Error(), "embedded node: ") {
		t.Errorf("a node that was stopped says %v", err)
	}
	if _, err := n.Connect("late"); err == nil || !strings.Contains(err.Error(), "connect to the embedded node") {
		t.Errorf("connecting to a node that was stopped gives %v", err)
	}
}

// What goes wrong on a connection beside an operation is in the log.
func TestConnectionErrorsAreLogged(t *testing.T) {
	var buf syncBuffer
	n := start(t, Config{Name: "n1", StoreDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&buf, nil))})
	nc := connect(t, n)
	block := make(chan struct{})
	sub, err := nc.Subscribe("slow", func(*nats.Msg) { <-block })
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.SetPendingLimits(1, -1); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := nc.Publish("slow", nil); err != nil {
			t.Fatal(err)
		}
	}
	defer close(block)
	for end := time.Now().Add(startUp); !strings.Contains(buf.String(), "slow consumer"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log says %q", buf.String())
		}
	}
	if !strings.Contains(buf.String(), "name=test subject=slow") {
		t.Errorf("the log says %q", buf.String())
	}
}

// strangers tries the client listener of a member, which only its own process may use: not without the password, not
// with a guess.
func strangers(t *testing.T, n *Node) {
	listener := n.srv.Addr().(*net.TCPAddr)
	if !listener.IP.IsLoopback() {
		t.Errorf("it listens on %v, not on loopback only", listener)
	}
	url := fmt.Sprintf("nats://%v", listener)
	for i, opts := range [][]nats.Option{nil, {nats.UserInfo("broker", "")}, {nats.UserInfo("broker", "broker")}} {
		if nc, err := nats.Connect(url, opts...); err == nil {
			nc.Close()
			t.Errorf("try %d: connected", i)
		} else if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("try %d: error %v, want ErrAuthorization", i, err)
		}
	}
}

func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster of three; run without -short")
	}
	var cfgs [3]Config
	var routes []string
	for i := range cfgs {
		addr := freePort(t)
		cfgs[i] = Config{Name: fmt.Sprintf("n%d", i+1), StoreDir: t.TempDir(), Cluster: "c", ClusterListen: addr}
		routes = append(routes, "nats://"+addr)
	}
	ctx := starting(t)
	var nodes [3]*Node
	var wg sync.WaitGroup
	for i := range cfgs {
		cfgs[i].Routes = routes
		wg.Go(func() {
			n, err := Start(ctx, cfgs[i])
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(n.Stop)
			nodes[i] = n
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, n := range nodes {
		if !n.Clustered() {
			t.Error("a member of a cluster says that it is alone")
		}
	}
	strangers(t, nodes[0])
	// A subject goes from node to node, and a stream with three replicas can be made at once: ready means ready.
	sub, err := connect(t, nodes[2]).SubscribeSync("x")
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(connect(t, nodes[0]))
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	if cl := s.CachedInfo().Cluster; cl == nil || len(cl.Replicas) != 2 {
		t.Errorf("stream's cluster %+v, want two further replicas", cl)
	}
	other := connect(t, nodes[1])
	for end := time.Now().Add(startUp); ; {
		if err := other.Publish("x", []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.NextMsg(100 * time.Millisecond); err == nil {
			if string(m.Data) != "hello" {
				t.Errorf("got %q", m.Data)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("the subject did not reach the other node")
		}
	}

	// One of three may fail, and not two.
	wantHealth := func(n *Node, part string) {
		t.Helper()
		var err error
		for end := time.Now().Add(startUp); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if err = n.Healthy(); err == nil && part == "" || err != nil && part != "" && strings.Contains(err.Error(), part) {
				return
			}
		}
		t.Errorf("it says %v, want %q", err, part)
	}
	wantHealth(nodes[0], "")
	nodes[1].Stop()
	wantHealth(nodes[0], "")
	nodes[2].Stop()
	wantHealth(nodes[0], "leader") // of the cluster, or of the stream, whichever is missed first
}

func TestLogIsPassedOn(t *testing.T) {
	var buf syncBuffer
	n := start(t, Config{Name: "n1", StoreDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	n.Stop()
	if !strings.Contains(buf.String(), "node: ") || !strings.Contains(buf.String(), "level=DEBUG") {
		t.Errorf("the server's notices are not in the log: %.200q", buf.String())
	}
	fatal := make(chan string, 1)
	l := natsLog{slog.New(slog.NewTextHandler(&buf, nil)), fatal, new(atomic.Bool)}
	l.Warnf("w %d", 1)
	l.Errorf("e %d", 2)
	l.Fatalf("f %d", 3)
	l.Fatalf("another") // nobody waits for a second one
	if got := <-fatal; got != "f 3" {
		t.Errorf("fatal %q", got)
	}
	l.Debugf("d")
	l.Tracef("t")
	for _, want := range []string{"level=WARN msg=\"node: w 1\"", "level=ERROR msg=\"node: e 2\"", "level=ERROR msg=\"node: f 3\""} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("the log does not have %s", want)
		}
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestStorage(t *testing.T) {
	n := start(t, Config{Name: "n1", StoreDir: t.TempDir()})
	if n.Storage() <= 0 {
		t.Errorf("%d bytes", n.Storage())
	}
	n.Stop()
	if n.Storage() != 0 {
		t.Errorf("%d bytes of a node that was stopped", n.Storage())
	}
}
