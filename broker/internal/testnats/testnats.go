// Package testnats runs NATS servers for tests that need some which are not the broker's own.
package testnats

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startWait bounds how long a server may take to start.
const startWait = 2 * time.Minute

// Server is a NATS server in this process. It can be stopped and started again on the same port and directory.
type Server struct {
	Options server.Options
	t       testing.TB
	srv     *server.Server
}

// Ports are given out below those that outgoing connections have, so that they are still free some time later. The processes of
// packages that are tested side by side choose from different ones, most of them, and none gives one out twice in givenFor: a
// server that starts late must find its port, and not another test's server on it.
const (
	lowPort, highPort = 10_240, 32_767
	strides           = 16
	givenFor          = 5 * time.Minute
)

var (
	givenMu sync.Mutex
	given   = map[int]time.Time{} // when, by port
)

// Port finds a free port.
func Port(t testing.TB) int {
	t.Helper()
	givenMu.Lock()
	defer givenMu.Unlock()
	for range 10_000 {
		port := lowPort + rand.IntN((highPort-lowPort)/strides)*strides + os.Getpid()%strides
		if at, before := given[port]; before && time.Since(at) < givenFor {
			continue
		}
		if l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			given[port] = time.Now()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// Ports finds n different free ports.
func Ports(t testing.TB, n int) (ports []int) {
	t.Helper()
	for len(ports) < n {
		if port := Port(t); !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// Start starts a server with JetStream, with its options changed by edit. It is stopped at the end of the test.
func Start(t testing.TB, edit ...func(*server.Options)) *Server {
	t.Helper()
	s := &Server{t: t, Options: server.Options{
		ServerName: "nats", Host: "127.0.0.1", Port: Port(t), JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	}}
	for _, e := range edit {
		e(&s.Options)
	}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

// Trio starts a cluster of three.
func Trio(t testing.TB) []*Server {
	t.Helper()
	ports := Ports(t, 3)
	var routes []*url.URL
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	all := make([]*Server, len(ports))
	for i, port := range ports {
		all[i] = Start(t, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("s%d", i+1)
			o.Cluster = server.ClusterOpts{Name: fmt.Sprint("outside-", ports[0]), Host: "127.0.0.1", Port: port}
			o.Routes = routes
		})
	}
	return all
}

// Start starts the server again.
func (s *Server) Start() {
	s.t.Helper()
	srv, err := server.NewServer(s.Options.Clone())
	if err != nil {
		s.t.Fatal(err)
	}
	srv.Start()
	s.srv = srv
	if !srv.ReadyForConnections(startWait) {
		s.t.Fatal("the NATS server does not start")
	}
}

// Stop stops the server and waits until its files are closed.
func (s *Server) Stop() {
	if s.srv != nil {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
		s.srv = nil
	}
}

// Addr is where the server is.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.Options.Port) }

// URL is where the server is, for a user.
func (s *Server) URL(user *url.Userinfo) string {
	u := url.URL{Scheme: "nats", User: user, Host: s.Addr()}
	return u.String()
}

// URLs are where servers are.
func URLs(servers []*Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.URL(nil))
	}
	return all
}
