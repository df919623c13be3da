package session

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inflight/broker/packet"
)

// publication is what the model knows of one QoS 2 message.
type publication struct {
	payload  string
	held     bool // its hold was reported
	pubrel   bool // its PUBREL arrived
	released bool // its release was reported
}

// answer is a response that is owed, and what it waits for.
type answer struct {
	text string
	due  func() bool
}

// model is section 4.3.3 as a client may rely on it: what each packet is owed, and when.
type model struct {
	*link
	current  map[uint16]*publication
	byBody   map[string]*publication
	owed     map[packet.Type][]answer
	releases []string        // payloads in PUBREL order, also of PUBRELs that overtook their PUBREC
	durable  map[string]bool // QoS 1
	count    int
}

func newModel(t *rapid.T) *model {
	limits := Limits{Copies: rapid.IntRange(0, 4).Draw(t, "copies"), Bytes: rapid.SampledFrom([]int{0, 10, 1000}).Draw(t, "bytes")}
	return &model{
		link: newLink(t, limits), current: make(map[uint16]*publication), byBody: make(map[string]*publication),
		owed: make(map[packet.Type][]answer), durable: make(map[string]bool),
	}
}

var modelID = rapid.Uint16Range(1, 4)

func (m *model) owe(kind packet.Type, id uint16, due func() bool) {
	m.owed[kind] = append(m.owed[kind], answer{fmt.Sprintf("%v %d", kind, id), due})
}

func (m *model) publish1(t *rapid.T) {
	id := modelID.Draw(t, "id")
	m.count++
	payload := fmt.Sprintf("one%d", m.count)
	m.owe(packet.PUBACK, id, func() bool { return m.durable[payload] })
	m.p1(id, payload)
}

// publish2 sends a PUBLISH of QoS 2: a new publication, or another copy where one is pending.
func (m *model) publish2(t *rapid.T) {
	id := modelID.Draw(t, "id")
	m.count++
	pub := m.current[id]
	fresh := pub == nil || pub.pubrel
	if fresh {
		pub = &publication{payload: fmt.Sprintf("two%d", m.count)}
		m.current[id], m.byBody[pub.payload] = pub, pub
	}
	m.owe(packet.PUBREC, id, func() bool { return pub.held })
	n := len(m.open)
	m.p2(id, fmt.Sprintf("two%d", m.count)) // a copy may even carry other bytes
	if fresh != (len(m.open) == n+1) {
		t.Fatalf("PUBLISH %d: new is %v, but %d operations were started", id, fresh, len(m.open)-n)
	}
}

func (m *model) pubrels(t *rapid.T) {
	id := modelID.Draw(t, "id")
	pub := m.current[id]
	m.owe(packet.PUBCOMP, id, func() bool { return pub == nil || pub.released })
	if pub != nil && !pub.pubrel {
		pub.pubrel = true
		m.releases = append(m.releases, pub.payload)
	}
	m.pubrel(id)
}

// complete reports an operation that is under way, any of them.
func (m *model) complete(t *rapid.T) {
	if len(m.open) == 0 {
		t.Skip("nothing is under way")
	}
	m.completeAt(rapid.IntRange(0, len(m.open)-1).Draw(t, "operation"))
}

func (m *model) completeAt(i int) {
	switch op := m.open[i]; op.Kind {
	case OpPublish:
		m.durable[string(op.Msg.Payload)] = true
	case OpHold:
		m.byBody[string(op.Msg.Payload)].held = true
	case OpRelease:
		pub := m.byBody[string(op.Msg.Payload)]
		pub.released = true
		if m.current[op.ID] == pub {
			delete(m.current, op.ID)
		}
	}
	m.reportAt(i)
}

// reconnect cuts the connection and resumes. What was under way took effect, but of a hold that was not reported that is
// not certain.
func (m *model) reconnect(t *rapid.T) {
	m.check(t)
	for _, op := range m.open {
		if op.Kind != OpHold || !rapid.Bool().Draw(t, "hold is lost") {
			continue
		}
		if i := slices.Index(m.order, m.refs[op.ex]); i >= 0 {
			m.order = slices.Delete(m.order, i, i+1)
		}
	}
	m.cut()
	clear(m.owed)
	clear(m.current)
	// A PUBREL is lost with the connection unless its release had started. So may be a message whose identifier was used
	// again before its PUBCOMP, which a client must not do [MQTT-2.3.1-3].
	m.releases = slices.DeleteFunc(m.releases, func(payload string) bool { return !slices.Contains(m.delivered, payload) })
	for _, ref := range m.order {
		pub := m.byBody[string(m.bodies[ref].Payload)]
		pub.held, pub.pubrel = true, false
		m.current[m.ids[ref]] = pub
	}
}

// check compares what has left with what may leave: per packet type the longest prefix of what is owed that is due, no
// less and no more; and what was delivered with what was released.
func (m *model) check(t *rapid.T) {
	for kind, owed := range m.owed {
		var want []string
		for _, a := range owed {
			if !a.due() {
				break
			}
			want = append(want, a.text)
		}
		if got := only(m.sent, kind.String()); !slices.Equal(got, want) {
			t.Fatalf("sent %s, want %s (%s)", list(got), list(want), laneText(m.pipe))
		}
	}
	seen := make(map[string]bool)
	var order []string
	for _, payload := range m.delivered {
		pub := m.byBody[payload]
		if pub == nil {
			continue // QoS 1
		}
		if seen[payload] {
			t.Fatalf("%s was delivered twice", payload)
		}
		seen[payload] = true
		if !pub.pubrel {
			t.Fatalf("%s was delivered before its PUBREL", payload)
		}
		order = append(order, payload)
	}
	if len(order) > len(m.releases) || !slices.Equal(order, m.releases[:len(order)]) {
		t.Fatalf("delivered in the order %s, PUBRELs came for %s", list(order), list(m.releases))
	}
	bodies := 0
	m.r.byID.Each(func(_ uint16, ex *exchange) {
		if ex.msg != nil && ex.state == held && !ex.comps.any {
			bodies++
		}
	})
	if bodies > m.limits.Copies {
		t.Fatalf("%d bodies of held messages are kept, limit %d", bodies, m.limits.Copies)
	}
	for _, pub := range m.byBody {
		if pub.released && !seen[pub.payload] {
			t.Fatalf("%s is released and was not delivered", pub.payload)
		}
	}
}

// finish reports everything, releases everything, and looks for leftovers.
func (m *model) finish(t *rapid.T) {
	drain := func() {
		for len(m.open) > 0 {
			m.completeAt(rapid.IntRange(0, len(m.open)-1).Draw(t, "operation"))
		}
	}
	drain()
	for id := uint16(1); id <= 4; id++ {
		pub := m.current[id]
		if pub == nil {
			continue
		}
		m.owe(packet.PUBCOMP, id, func() bool { return pub.released })
		pub.pubrel = true
		m.releases = append(m.releases, pub.payload)
		m.pubrel(id)
	}
	drain()
	m.check(t)
	m.wantIdle()
}

// Random interleavings of PUBLISHes, copies, PUBRELs, reports in any order and reconnects.
func TestReceiverModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"":           m.check,
			"PUBLISH 1":  m.publish1,
			"PUBLISH 2":  m.publish2,
			"PUBLISH 2+": m.publish2,
			"PUBREL":     m.pubrels,
			"PUBREL+":    m.pubrels,
			"done":       m.complete,
			"done+":      m.complete,
			"cut":        m.reconnect,
		})
		m.finish(t)
	})
}
