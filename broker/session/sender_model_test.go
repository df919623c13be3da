package session

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// copyOut is a message that the model's subscriber was sent.
type copyOut struct {
	id      uint16
	qos     byte
	payload string
	seq     uint64
}

// outModel keeps what is outstanding in the plainest way: a slice in order of the first PUBLISH, one in PUBREC order.
type outModel struct {
	*outlet
	window int
	sent   []copyOut // no PUBACK or PUBREC yet
	rels   []uint16  // no PUBCOMP yet
	count  int
}

func (m *outModel) used(id uint16) bool {
	return slices.Contains(m.rels, id) || slices.ContainsFunc(m.sent, func(c copyOut) bool { return c.id == id })
}

func (m *outModel) publish(t *rapid.T) {
	qos := byte(rapid.IntRange(0, 2).Draw(t, "qos"))
	full := len(m.sent)+len(m.rels) >= m.window
	if m.s.Full() != full {
		t.Fatalf("Full is %v with %d outstanding of %d", m.s.Full(), len(m.sent)+len(m.rels), m.window)
	}
	if qos > 0 && full {
		t.Skip("no room")
	}
	if rapid.IntRange(0, 9).Draw(t, "turn") == 0 {
		m.s.last = rapid.SampledFrom([]uint16{0, 65_533, 65_534, 65_535}).Draw(t, "last")
	}
	m.count++
	payload := fmt.Sprint(m.count)
	m.send(qos, payload)
	id := uint16(0)
	if qos > 0 {
		id = m.s.last
		if id == 0 || m.used(id) {
			t.Fatalf("identifier %d is in use or 0", id)
		}
		m.sent = append(m.sent, copyOut{id: id, qos: qos, payload: payload, seq: m.seq})
	}
	m.want("first PUBLISH", fmt.Sprintf("PUBLISH %d q%d t %s", id, qos, payload))
}

// burst sends many messages that are answered at once around those that stay: the records of what is complete outgrow
// what is outstanding, so that they are compacted.
func (m *outModel) burst(t *rapid.T) {
	if m.s.Full() {
		t.Skip("no room")
	}
	for i := range 150 {
		m.send(byte(1+i%2), "burst")
		id := m.s.last
		if id == 0 || m.used(id) {
			t.Fatalf("identifier %d is in use or 0", id)
		}
		if i%2 == 0 {
			m.puback(id)
		} else {
			m.pubrec(id)
			m.pubcomp(id)
		}
	}
	m.out = nil
}

// answered draws an outstanding message of a QoS.
func (m *outModel) answered(t *rapid.T, qos byte) int {
	var which []int
	for i, c := range m.sent {
		if c.qos == qos {
			which = append(which, i)
		}
	}
	if len(which) == 0 {
		t.Skip("nothing to answer")
	}
	return rapid.SampledFrom(which).Draw(t, "message")
}

func (m *outModel) acknowledge(t *rapid.T) {
	i := m.answered(t, 1)
	m.settledBy(t, m.sent[i].payload, func() { m.puback(m.sent[i].id) })
	m.sent = slices.Delete(m.sent, i, i+1)
}

func (m *outModel) receive(t *rapid.T) {
	i := m.answered(t, 2)
	c := m.sent[i]
	m.settledBy(t, c.payload, func() { m.pubrec(c.id) })
	m.sent = slices.Delete(m.sent, i, i+1)
	m.rels = append(m.rels, c.id)
	m.want("PUBREL", fmt.Sprintf("PUBREL %d", c.id))
}

func (m *outModel) complete(t *rapid.T) {
	if len(m.rels) == 0 {
		t.Skip("no PUBREL is out")
	}
	i := rapid.IntRange(0, len(m.rels)-1).Draw(t, "PUBREL")
	if rapid.IntRange(0, 3).Draw(t, "PUBREC again") == 0 {
		m.settledBy(t, "", func() { m.pubrec(m.rels[i]) })
		m.want("PUBREL again", fmt.Sprintf("PUBREL %d", m.rels[i]))
	}
	m.settledBy(t, "", func() { m.pubcomp(m.rels[i]) })
	m.rels = slices.Delete(m.rels, i, i+1)
}

func (m *outModel) settledBy(t *rapid.T, payload string, do func()) {
	n := len(m.settled)
	do()
	got := m.settled[n:]
	if payload == "" && len(got) != 0 || payload != "" && (len(got) != 1 || got[0] != payload) {
		t.Fatalf("settled %v, want %q", got, payload)
	}
}

func (m *outModel) again(t *rapid.T) {
	m.resume()
	var want []string
	for _, id := range m.rels {
		want = append(want, fmt.Sprintf("PUBREL %d", id))
	}
	for _, c := range m.sent {
		want = append(want, fmt.Sprintf("PUBLISH %d q%d t %s dup", c.id, c.qos, c.payload))
	}
	m.want("owed on resume", list(want))
}

// move is what happens when another node goes on with the session: the record, the bodies, and then the store delivers
// again what it takes to be unsettled, some of what was settled included.
func (m *outModel) move(t *rapid.T) {
	record := m.s.Record(nil)
	s, missing, err := Restore(m.window, record)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Record(nil); string(got) != string(record) && len(missing) == 0 {
		t.Fatalf("record %x becomes %x", record, got)
	}
	bySeq := map[uint64]copyOut{}
	for _, c := range m.sent {
		bySeq[c.seq] = c
	}
	for _, miss := range missing {
		c, ok := bySeq[miss.Seq]
		if !ok || c.id != miss.ID || miss.Filter != "t" {
			t.Fatalf("asks for %+v, outstanding are %v", miss, m.sent)
		}
		s.Found(miss.ID, m.delivery(c.qos, c.seq, c.payload).Message)
	}
	if len(missing) != len(m.sent) {
		t.Fatalf("asks for %d bodies of %d outstanding", len(missing), len(m.sent))
	}
	m.s, m.src = s, s.Source("t")
	m.again(t)
	for seq := uint64(1); seq <= m.seq; seq++ {
		c, out := bySeq[seq]
		payload := "settled before"
		if out {
			payload = c.payload
		} else if m.seq > 200 && seq < m.seq-100 {
			continue // enough of them
		}
		n := len(m.settled)
		if !m.src.Before(m.delivery(2, seq, payload)) {
			t.Fatalf("message %d was sent before and is taken for a new one", seq)
		}
		if settled := len(m.settled) > n; settled == out {
			t.Fatalf("message %d, outstanding %v: settled %v", seq, out, settled)
		}
	}
	if m.src.Before(m.delivery(2, m.seq+1, "new")) {
		t.Fatal("a new message is taken for one that was sent")
	}
}

func (m *outModel) check(t *rapid.T) {
	if got, want := m.s.InFlight(), len(m.sent)+len(m.rels); got != want {
		t.Fatalf("%d in flight, want %d", got, want)
	}
}

// Random sends, answers in any order, repeated PUBRECs, wrap-arounds and resumes.
func TestSenderModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.SampledFrom([]int{1, 2, 5, 100}).Draw(t, "window")
		m := &outModel{outlet: newOutlet(t, window), window: window}
		t.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"PUBLISH":  m.publish,
			"PUBLISH+": m.publish,
			"burst":    m.burst,
			"PUBACK":   m.acknowledge,
			"PUBREC":   m.receive,
			"PUBCOMP":  m.complete,
			"resume":   m.again,
			"move":     m.move,
		})
		m.again(t)
	})
}
