package session

import (
	"testing"

	"inflight/broker/store"
)

// exchangeOnce runs one QoS 2 exchange with a store that answers at once.
func exchangeOnce(r *Receiver, p *Pipeline, id uint16, m *store.Message, next []Op, buf []byte) ([]Op, []byte) {
	op := r.Publish(id, 2, m)
	next = r.Done(op, store.Ref(id), nil, next[:0])
	op = r.Pubrel(id)
	next = r.Done(op, 0, nil, next[:0])
	return next, p.Append(buf[:0])
}

// An exchange costs its own record and the two lists of slots that wait, whatever the number of exchanges before it.
func TestReceiverAllocations(t *testing.T) {
	p := &Pipeline{}
	r := NewReceiver(p, roomy, nil)
	m := &store.Message{Topic: "t", Payload: make([]byte, 256), QoS: 2}
	var next []Op
	var buf []byte
	id := uint16(0)
	run := func() {
		id = id%1000 + 1
		next, buf = exchangeOnce(r, p, id, m, next, buf)
	}
	for range 2000 {
		run()
	}
	if n := testing.AllocsPerRun(5000, run); n > 3 {
		t.Errorf("%v allocations for each QoS 2 exchange, want at most 3", n)
	}
}

func BenchmarkReceiver(b *testing.B) {
	b.Run("QoS2", func(b *testing.B) {
		b.ReportAllocs()
		p := &Pipeline{}
		r := NewReceiver(p, roomy, nil)
		m := &store.Message{Topic: "t", Payload: make([]byte, 256), QoS: 2}
		var next []Op
		var buf []byte
		id := uint16(0)
		for b.Loop() {
			id = id%1000 + 1
			next, buf = exchangeOnce(r, p, id, m, next, buf)
		}
	})
	b.Run("QoS1", func(b *testing.B) {
		b.ReportAllocs()
		p := &Pipeline{}
		r := NewReceiver(p, roomy, nil)
		m := &store.Message{Topic: "t", Payload: make([]byte, 256), QoS: 1}
		var next []Op
		var buf []byte
		for b.Loop() {
			next = r.Done(r.Publish(1, 1, m), 0, nil, next[:0])
			buf = p.Append(buf[:0])
		}
	})
}
