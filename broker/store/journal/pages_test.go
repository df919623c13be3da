package journal

import (
	"testing"

	"inflight/broker/store"
)

func TestPages(t *testing.T) {
	m := store.Encode(nil, &store.Message{Topic: "a", Payload: make([]byte, 64<<10), QoS: 1})
	var records []record
	for range 3 {
		records = append(records, record{kind: kindPublish, data: m})
	}
	data := pack(1, 1, records...)
	pg := func() *page {
		got, err := newPage(7, data)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	p := &pages{}
	_, first := p.look(7)
	p.keep(first, 7, pg())
	kept, _ := p.look(7)
	if kept == nil {
		t.Fatal("a batch that was read is not kept")
	}
	p.keep(first, 7, pg())
	if again, _ := p.look(7); again != kept || p.bytes != len(data) || len(p.order) != 1 {
		t.Errorf("a batch is kept twice: %d bytes, %d in order", p.bytes, len(p.order))
	}
	a, err := kept.message(1)
	b, _ := kept.message(1)
	if err != nil || a != b {
		t.Errorf("a message is decoded once for each reader: %p %p, %v", a, b, err)
	}
	if _, err := kept.message(3); err != store.ErrCorrupt {
		t.Errorf("a record that is not there: %v", err)
	}
	for seq := uint64(8); p.bytes+len(data) <= pageBytes+len(data)/2; seq++ {
		p.keep(first, seq, pg())
	}
	p.keep(first, 1_000_000, pg())
	if old, _ := p.look(7); old != nil || p.bytes > pageBytes || len(p.kept) != len(p.order) {
		t.Errorf("the oldest batch is still there, or too many: %d bytes of %d, %d and %d", p.bytes, pageBytes, len(p.kept), len(p.order))
	}
	p.forget()
	p.keep(first, 9, pg()) // it was read before the journal was replaced
	if old, now := p.look(9); old != nil || now == first {
		t.Error("a batch of another journal is kept")
	}
	if _, err := newPage(7, data[:len(data)-1]); err == nil {
		t.Error("a batch with a wrong checksum is a page")
	}
}
