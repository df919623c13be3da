// Package testnode runs embedded nodes for the tests of what is on them.
package testnode

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/internal/testnats"
	"inflight/broker/node"
)

// StartUp bounds how long a node, or what is opened on it, may take to start. It ends a hang; a busy machine takes seconds.
const StartUp = 2 * time.Minute

// Starting is a context that ends after StartUp.
func Starting(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), StartUp)
	t.Cleanup(cancel)
	return ctx
}

// Node is one embedded node of a test. It can be stopped and started again over the same directory.
type Node struct {
	Config   node.Config
	Replicas int // that its streams should have

	t    testing.TB
	node *node.Node
}

// New returns a node that is not started yet, and that is stopped at the end of the test.
func New(t testing.TB, cfg node.Config, replicas int) *Node {
	n := &Node{Config: cfg, Replicas: replicas, t: t}
	t.Cleanup(n.Stop)
	return n
}

// Single starts a node of its own.
func Single(t testing.TB) *Node {
	t.Helper()
	n := New(t, node.Config{Name: "n1", StoreDir: t.TempDir()}, 1)
	n.Start()
	return n
}

// Trio starts a cluster of three nodes; streams should have three replicas.
func Trio(t testing.TB) (nodes [3]*Node) {
	t.Helper()
	var routes []string
	ports := testnats.Ports(t, len(nodes))
	for i, port := range ports {
		listen := fmt.Sprintf("127.0.0.1:%d", port)
		routes = append(routes, "nats://"+listen)
		nodes[i] = New(t, node.Config{Name: fmt.Sprintf("n%d", i+1), StoreDir: t.TempDir(), Cluster: fmt.Sprint("test-", ports[0]), ClusterListen: listen}, 3)
	}
	started := make(chan error, len(nodes))
	ctx := Starting(t)
	for _, n := range nodes {
		n.Config.Routes = routes
		go func() {
			var err error
			n.node, err = node.Start(ctx, n.Config)
			started <- err
		}()
	}
	for range nodes {
		if err := <-started; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return nodes
}

// Start starts a node that is stopped.
func (n *Node) Start() {
	n.t.Helper()
	var err error
	if n.node, err = node.Start(Starting(n.t), n.Config); err != nil {
		n.t.Fatal(err)
	}
}

// Stop stops the node, if it runs.
func (n *Node) Stop() {
	if n.node != nil {
		n.node.Stop()
		n.node = nil
	}
}

// Conn is a connection to the node, until the end of t.
func (n *Node) Conn(t testing.TB) *nats.Conn {
	t.Helper()
	nc, err := n.node.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
