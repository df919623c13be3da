package staged

import (
	"strings"
	"testing"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

func TestContract(t *testing.T) {
	m := single(t)
	storetest.Run(t, m.fixture)
}

func TestContractCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster of three nodes")
	}
	nodes := trio(t)
	storetest.Run(t, nodes[0].fixture)
}

// The longest topic that is taken is delivered both ways, and still there when the node starts again.
func TestLongestTopic(t *testing.T) {
	m := single(t)
	e := storetest.NewEnv(t, m.open(t))
	name := e.Root + "/" + strings.Repeat("n", maxSubject-len(e.Root)-1-len("t."))
	in := e.Subscribe(e.Root+"/#", 2, true)
	e.Transient(name, "transient")
	in.Want("QoS 0", "transient")
	for _, payload := range []string{"A", "B", "C"} {
		e.Publish(&store.Message{Topic: name, Payload: []byte(payload), QoS: 1})
	}
	in.Want("QoS 1", "A")
	in.Close()
	e.S.Close()
	m.stop()
	m.start()
	e = e.View(m.open(t))
	in = e.Subscribe(e.Root+"/#", 2, true)
	in.Want("after a restart", "B", "C")
	in.Quiet("once each", e.Root+"/x")
	in.Close()
	if err := e.S.Transient(&store.Message{Topic: name + "n"}); err == nil {
		t.Error("a topic one byte longer was taken")
	}
}
