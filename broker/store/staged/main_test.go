package staged

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/internal/testnats"
	"inflight/broker/node"
	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// startUp bounds how long a node or a store may take to start.
const startUp = 2 * time.Minute

func starting(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), startUp)
	t.Cleanup(cancel)
	return ctx
}

// member is one embedded node of a test.
type member struct {
	t        testing.TB
	cfg      node.Config
	node     *node.Node
	replicas int
}

// single starts a node of its own.
func single(t testing.TB) *member {
	m := &member{t: t, cfg: node.Config{Name: "n1", StoreDir: t.TempDir()}, replicas: 1}
	m.start()
	t.Cleanup(m.stop)
	return m
}

func (m *member) start() {
	m.t.Helper()
	var err error
	if m.node, err = node.Start(starting(m.t), m.cfg); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) stop() {
	if m.node != nil {
		m.node.Stop()
		m.node = nil
	}
}

func (m *member) conn() *nats.Conn {
	m.t.Helper()
	nc, err := m.node.Connect("test")
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(nc.Close)
	return nc
}

// open opens a store on the node.
func (m *member) open(t testing.TB) *Store {
	t.Helper()
	s, err := Open(starting(t), Config{Conn: m.conn(), Node: m.cfg.Name, Replicas: m.replicas})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// fixture is a store on the node for the contract suite.
func (m *member) fixture(t *testing.T) *storetest.Fixture {
	return &storetest.Fixture{
		Store:  m.open(t),
		Reopen: func(t *testing.T) store.Store { return m.open(t) },
		Second: func(t *testing.T) store.Store { return m.open(t) },
		Garbage: func(t *testing.T, client string, id uint16) {
			t.Helper()
			subject := stagedRoot + hash(client) + "." + strconv.Itoa(int(id)) + ".garbage"
			if _, err := m.conn().Request(subject, []byte("no message"), startUp); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// trio starts a cluster of three nodes; the streams have three replicas.
func trio(t *testing.T) [3]*member {
	t.Helper()
	var members [3]*member
	var routes []string
	for i, port := range freePorts(t, len(members)) {
		members[i] = &member{t: t, replicas: 3, cfg: node.Config{
			Name: fmt.Sprintf("n%d", i+1), StoreDir: t.TempDir(), Cluster: "test", ClusterListen: fmt.Sprintf("127.0.0.1:%d", port),
		}}
		routes = append(routes, "nats://"+members[i].cfg.ClusterListen)
	}
	started := make(chan error, len(members))
	ctx := starting(t)
	for _, m := range members {
		m.cfg.Routes = routes
		go func() {
			var err error
			m.node, err = node.Start(ctx, m.cfg)
			started <- err
		}()
	}
	for range members {
		if err := <-started; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		for _, m := range members {
			m.stop()
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return members
}

// freePorts finds ports that nobody listens on.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for len(ports) < n {
		if port := testnats.Port(t); !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}
