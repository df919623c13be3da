package session

import (
	"strings"
	"testing"

	"inflight/broker/packet"
	"inflight/broker/store"
)

// steadyWindow is how many exchanges are under way in what follows.
const steadyWindow = 256

// exchanges are the exchanges of a busy connection whose window is full, each run to its end at every call. The store is one
// that answers later, in order. None of them may allocate.
func exchanges() map[string]func() {
	all := make(map[string]func())
	for _, n := range []int{1, 2} {
		qos := byte(n)
		name := []string{1: "QoS1", 2: "QoS2"}[n]
		all["Receiver/"+name] = receiving(qos)
		all["Sender/311/"+name] = sending(qos, packet.V311)
		all["Sender/5/"+name] = sending(qos, packet.V5)
	}
	all["Receiver/QoS2/copies"] = copies()
	return all
}

// receiving answers the oldest publication of the window and takes a new one.
func receiving(qos byte) func() {
	p := &Pipeline{}
	r := NewReceiver(p, Limits{Copies: 2 * steadyWindow, Bytes: 1 << 30}, nil)
	m := &store.Message{Topic: "t", Payload: make([]byte, 256), QoS: qos}
	var open [steadyWindow]Op // the oldest at id
	next := make([]Op, 0, 8)
	var buf []byte
	id := uint16(0)
	publish := func() {
		id = id%(2*steadyWindow) + 1
		open[id%steadyWindow] = r.Publish(id, qos, m)
	}
	for range steadyWindow {
		publish()
	}
	return func() {
		op := open[(id+1)%steadyWindow]
		next = r.Done(op, store.Ref(op.ID), nil, next[:0])
		if qos == 2 {
			next = r.Done(r.Pubrel(op.ID), 0, nil, next[:0])
		}
		buf = p.Append(buf[:0])
		publish()
	}
}

// copies is an exchange with further copies of its PUBLISH, an early PUBREL that comes twice, and a body that is fetched.
func copies() func() {
	p := &Pipeline{}
	r := NewReceiver(p, Limits{}, nil)
	m := &store.Message{Topic: "t", Payload: make([]byte, 256), QoS: 2}
	next := make([]Op, 0, 8)
	var buf []byte
	id := uint16(0)
	return func() {
		id = id%(2*steadyWindow) + 1
		early := r.Publish(id, 2, m)
		r.Publish(id, 2, nil)
		r.Publish(id, 2, nil)
		late := r.Publish(id+1, 2, m)
		next = r.Done(late, 7, nil, next[:0])
		r.Pubrel(id)
		r.Pubrel(id)
		r.Pubrel(id + 1)
		next = r.Done(early, 6, nil, next[:0])
		release, fetch := next[0], next[1]
		next = r.Done(release, 0, nil, next[:0])
		next = r.Done(fetch, 0, m, next[:0])
		next = r.Done(next[0], 0, nil, next[:0])
		buf = p.Append(buf[:0])
		if p.Pending() != 0 || r.Open() != 0 {
			panic("the exchange is not complete")
		}
	}
}

// sending answers the oldest message of the window and sends a new one.
func sending(qos byte, version packet.Version) func() {
	s := NewSender(steadyWindow)
	s.Connect(Link{Version: version})
	src := s.Source("#")
	topic := strings.Repeat("level/", 20)
	d := store.Delivery{
		Message: &store.Message{Topic: topic, Payload: make([]byte, 256), QoS: qos, Passed: []byte{byte(packet.PropPayloadFormat), 1}},
		QoS:     qos, Settle: func() {},
	}
	var buf []byte
	send := func() {
		d.Seq++
		buf = s.Send(buf[:0], src, d)
	}
	for !s.Full() {
		send()
	}
	id := uint16(0)
	return func() {
		id++
		if id == 0 {
			id = 1
		}
		if qos == 1 {
			must(s.Puback(id))
		} else {
			var err error
			buf, err = s.Pubrec(buf[:0], id)
			must(err)
			must(s.Pubcomp(id))
		}
		send()
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; run without -race, as .ci/run does as well")
	}
	for name, f := range exchanges() {
		t.Run(name, func(t *testing.T) {
			for range 10 * steadyWindow {
				f()
			}
			if n := testing.AllocsPerRun(5000, f); n != 0 {
				t.Errorf("%v allocations for each exchange, want 0", n)
			}
		})
	}
}

func BenchmarkSession(b *testing.B) {
	for name, f := range exchanges() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
