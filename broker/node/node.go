package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// syncInterval is JetStream's own default for how often written blocks are synced to disk.
const syncInterval = 2 * time.Minute

// firstWait bounds how long a member waits for the first one.
const firstWait = 1500 * time.Millisecond

// maxPayload and maxControlLine leave room for an MQTT message and its topic as a subject.
const (
	maxPayload     = 8 << 20
	maxControlLine = 1 << 17
)

// Config of a node. The zero value of a field means what its comment says.
type Config struct {
	Name          string   // of the server, unique in the cluster
	StoreDir      string   // where JetStream keeps its files; required
	Cluster       string   // name of the cluster; "": a node of its own
	ClusterListen string   // host:port for the other members; required in a cluster
	Advertise     string   // host:port where they reach it, if that is another one, as behind a NAT; else ""
	Routes        []string // nats://host:port of the members, itself included, two at least; their number is the expected size
	SyncAlways    bool     // sync to disk before a write is acknowledged
	Log           *slog.Logger
}

// Validate reports every problem of the configuration at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := ValidName(c.Name); err != nil {
		errs = append(errs, err)
	}
	if c.StoreDir == "" {
		bad("no store directory: give one with --store-dir")
	}
	if c.Cluster == "" {
		if c.ClusterListen != "" || c.Advertise != "" || len(c.Routes) > 0 {
			bad("a cluster listener or routes without a cluster name: give one with --cluster")
		}
		return errors.Join(errs...)
	}
	if _, _, err := splitHostPort(c.ClusterListen); err != nil {
		bad("cluster listener %q: %w (want host:port)", c.ClusterListen, err)
	}
	if host, port, err := splitHostPort(c.Advertise); c.Advertise != "" && (err != nil || host == "" || port <= 0) {
		bad("address for the other members %q: want host:port (--cluster-advertise)", c.Advertise)
	}
	switch len(c.Routes) {
	case 0:
		bad("cluster %q without routes: name every member with --routes", c.Cluster)
	case 1:
		bad("cluster %q with one route: a member alone never finds a majority; name every member with --routes, or leave --cluster out", c.Cluster)
	}
	for _, r := range c.Routes {
		if u, err := url.Parse(r); err != nil || u.Scheme != "nats" || u.Port() == "" {
			bad("route %q: want nats://host:port", r)
		}
	}
	return errors.Join(errs...)
}

// ValidName checks the name of a node: it becomes a token of subjects.
func ValidName(name string) error {
	if name == "" || strings.ContainsAny(name, " .*>\t\r\n") {
		return fmt.Errorf("node name %q: it must be a word without spaces, dots and wildcards", name)
	}
	return nil
}

func splitHostPort(s string) (string, int, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65_535 {
		return "", 0, fmt.Errorf("port %q is not a number up to 65,535", port)
	}
	return host, n, nil
}

// Node is a running server.
type Node struct {
	srv   *server.Server
	log   *slog.Logger
	login nats.Option
	lock  *os.File    // of the store directory
	fatal chan string // the first thing that the server cannot live with, at most one

	opts    *server.Options
	broken  atomic.Bool // JetStream could not write something
	once    sync.Once   // closes stop
	stop    chan struct{}
	revived chan struct{} // closed when nothing starts JetStream again any more
}

// Start starts the server and returns when JetStream is healthy: in a cluster that takes a quorum of the members. When
// ctx ends first the server is stopped again.
func Start(ctx context.Context, c Config) (*Node, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.StoreDir, 0o755); err != nil {
		return nil, fmt.Errorf("store directory: %w", err)
	}
	lock, err := lockDir(c.StoreDir, c.Log)
	if err != nil {
		return nil, err
	}
	n, err := startServer(ctx, &c)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	n.lock = lock
	return n, nil
}

// startServer is Start once the directory is this node's.
func startServer(ctx context.Context, c *Config) (*Node, error) {
	opts := &server.Options{
		ServerName:         c.Name,
		DontListen:         true,
		NoSigs:             true,
		JetStream:          true,
		StoreDir:           c.StoreDir,
		JetStreamMaxMemory: 1 << 30,
		SyncInterval:       syncInterval,
		SyncAlways:         c.SyncAlways,
		MaxPayload:         maxPayload,
		MaxControlLine:     maxControlLine,
		MaxPending:         256 << 20,
		JetStreamLimits:    server.JSLimitOpts{DefaultMaxConsumers: -1}, // a subscription is a consumer; the server's own limit is 1,000
		Username:           "broker",
		Password:           rand.Text(),
	}
	if c.Cluster != "" {
		host, port, _ := splitHostPort(c.ClusterListen)
		// A server that does not listen for clients does not start its routes either. It listens on a loopback port of its
		// own, and only this process knows the password.
		opts.DontListen, opts.Host, opts.Port = false, "127.0.0.1", server.RANDOM_PORT
		opts.Cluster = server.ClusterOpts{Name: c.Cluster, Host: host, Port: port, Advertise: c.Advertise, NoAdvertise: true}
		for _, r := range c.Routes {
			u, _ := url.Parse(r)
			opts.Routes = append(opts.Routes, u)
		}
	}
	awaitFirst(ctx, c)
	if c.Cluster != "" {
		// Asking for the port gives a plain error before anything is made.
		if l, err := net.Listen("tcp", c.ClusterListen); err != nil {
			return nil, fmt.Errorf("cluster listener: %w (choose another address with --cluster-listen, and in every member's --routes)", err)
		} else if err := l.Close(); err != nil {
			return nil, fmt.Errorf("cluster listener: %w", err)
		}
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded node: %w", err)
	}
	n := &Node{
		srv: srv, log: c.Log, login: nats.UserInfo(opts.Username, opts.Password), fatal: make(chan string, 1),
		opts: opts.Clone(), stop: make(chan struct{}), revived: make(chan struct{}),
	}
	srv.SetLoggerV2(natsLog{c.Log, n.fatal, &n.broken}, false, false, false)
	found := readBlocks(c.StoreDir)
	srv.Start()
	go n.revive(c.StoreDir)
	if err := n.awaitHealthy(ctx); err != nil {
		n.Stop()
		return nil, err
	}
	found.reportCut(c.Log)
	return n, nil
}

// awaitFirst waits a moment until the member that is listed first accepts connections. Members that start at the same
// time do not find each other, try again a second later all at once, ask each other for their votes at the same moment,
// get none, and wait out an election time-out of up to nine seconds.
func awaitFirst(ctx context.Context, c *Config) {
	if c.Cluster == "" {
		return
	}
	first, _ := url.Parse(c.Routes[0])
	if first.Host == c.ClusterListen || first.Host == c.Advertise {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	var d net.Dialer
	for ctx.Err() == nil {
		if conn, err := d.DialContext(ctx, "tcp", first.Host); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// awaitHealthy polls the server's own health check, which in a cluster includes contact with the meta leader.
func (n *Node) awaitHealthy(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		status := n.srv.Healthz(&server.HealthzOptions{})
		if status.StatusCode == 200 {
			return nil
		}
		select {
		case what := <-n.fatal:
			return fmt.Errorf("embedded node: %s", what)
		case <-ctx.Done():
			return fmt.Errorf("embedded node is not healthy: %s (in a cluster, a majority of the members must be up): %w", status.Error, ctx.Err())
		case <-tick.C:
		}
	}
}

// connectTimeout bounds how long the node, in the same process, may take to greet a connection. The client's 2 s are for
// networks; while much starts at once, on few cores, they were too short.
const connectTimeout = 10 * time.Second

// Connect returns a connection inside the process. The caller closes it.
func (n *Node) Connect(name string) (*nats.Conn, error) {
	nc, err := nats.Connect("", nats.InProcessServer(n.srv), n.login, nats.Name(name), nats.MaxReconnects(-1),
		nats.Timeout(connectTimeout), nats.ErrorHandler(logErrors(n.log, name)))
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded node: %w", err)
	}
	return nc, nil
}

// Storage is how many bytes of files JetStream allows itself: at its start it took three quarters of what was free.
func (n *Node) Storage() int64 {
	if c := n.srv.JetStreamConfig(); c != nil {
		return c.MaxStore
	}
	return 0
}

// MaxPayload is how many bytes of a message the node takes, headers included.
func (n *Node) MaxPayload() int64 { return maxPayload }

// Clustered reports whether the node is a member of a cluster.
func (n *Node) Clustered() bool { return n.srv.ClusterName() != "" && n.srv.JetStreamIsClustered() }

// Stop ends the server and waits until its files are closed.
func (n *Node) Stop() {
	n.once.Do(func() { close(n.stop) })
	<-n.revived
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
	unlockFile(n.lock)
	_ = n.lock.Close()
}

// natsLog passes the server's log on. The server expects that a fatal error ends the process: one that cannot listen for
// its cluster would go on alone.
type natsLog struct {
	log    *slog.Logger
	fatal  chan<- string
	broken *atomic.Bool
}

func (l natsLog) Noticef(f string, v ...any) { l.log.Debug("node: " + fmt.Sprintf(f, v...)) }
func (l natsLog) Warnf(f string, v ...any) {
	// The password is random, of this process, and never on disk: the server's advice is not for the reader of this log.
	if !strings.HasPrefix(f, "Plaintext passwords") {
		l.log.Warn("node: " + fmt.Sprintf(f, v...))
	}
}

func (l natsLog) Fatalf(f string, v ...any) {
	l.Errorf(f, v...)
	select {
	case l.fatal <- fmt.Sprintf(f, v...):
	default:
	}
}

func (l natsLog) Errorf(f string, v ...any) {
	l.log.Error("node: " + fmt.Sprintf(f, v...))
	if strings.Contains(strings.ToLower(f), "critical write error") {
		l.broken.Store(true)
	}
}
func (l natsLog) Debugf(f string, v ...any) {}
func (l natsLog) Tracef(f string, v ...any) {}
