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
	return &storetest.Fixture{
		Store:  m.open(t),
		Reopen: func(t *testing.T) store.Store { return m.open(t) },
		Second: func(t *testing.T) store.Store { return m.open(t) },
		Garbage: func(t *testing.T, client string, id uint16) {
			t.Helper()
			subject := stagedRoot + hash(client) + "." + strconv.Itoa(int(id)) + ".garbage"
			if _, err := m.Conn(t).Request(subject, []byte("no message"), startUp); err != nil {
				t.Fatal(err)
			}
		},
	}
}
