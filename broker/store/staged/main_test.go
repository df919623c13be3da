package staged

import (
	"context"
	"strconv"
	"testing"

	"inflight/broker/internal/testnode"
	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const startUp = testnode.StartUp

func starting(t testing.TB) context.Context { return testnode.Starting(t) }

// member is one embedded node of a test.
type member struct{ *testnode.Node }

// single starts a node of its own.
func single(t testing.TB) *member { return &member{testnode.Single(t)} }

// trio starts a cluster of three nodes; the streams have three replicas.
func trio(t *testing.T) (members [3]*member) {
	for i, n := range testnode.Trio(t) {
		members[i] = &member{n}
	}
	return members
}

// open opens a store on the node.
func (m *member) open(t testing.TB) *Store {
	t.Helper()
	s, err := Open(starting(t), Config{Conn: m.Conn(t), Node: m.Config.Name, Replicas: m.Replicas})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// fixture is a store on the node for the contract suite.
func (m *member) fixture(t *testing.T) *storetest.Fixture {
	s := m.open(t)
	return &storetest.Fixture{
		Store:   s,
		Reopen:  func(t *testing.T) store.Store { return m.open(t) },
		Restart: func(t *testing.T) store.Store { return restart(t, m, s) },
		Second:  func(t *testing.T) store.Store { return m.open(t) },
		Garbage: func(t *testing.T, client string, id uint16) {
			t.Helper()
			subject := stagedRoot + hash(client) + "." + strconv.Itoa(int(id)) + ".garbage"
			if _, err := m.Conn(t).Request(subject, []byte("no message"), startUp); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// cluster is a cluster of three with its stores for the contract suite.
func cluster(nodes [3]*member) *storetest.Cluster {
	return &storetest.Cluster{
		Fixture: nodes[0].fixture,
		Open:    func(t *testing.T, node int) store.Store { return nodes[node].open(t) },
		OpenReplicas: func(t *testing.T, node, replicas int) (store.Store, error) {
			return Open(starting(t), Config{Conn: nodes[node].Conn(t), Node: nodes[node].Config.Name, Replicas: replicas})
		},
		Crash: func(s store.Store) { crash(s.(*Store)) },
		Stop:  func(node int) { nodes[node].Stop() },
		Busy:  true, // the stream still works on the first
	}
}
