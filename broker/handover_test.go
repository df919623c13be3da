package broker

import (
	"testing"

	"inflight/broker/packet"
)

// Q2O-20: what a client has acknowledged before it connects again is not sent again, though nobody has read it yet.
func TestAcknowledgedBeforeTheCut(t *testing.T) {
	t.Parallel()
	s := open(t, StoreMemory)
	const total = 1000
	keep := &packet.Connect{ClientID: "w", CleanSession: true, Properties: &props{SessionExpiry: packet.Some[uint32](100)}}
	w := connect5(t, s, keep, false)
	w.subscribe(0, packet.Subscription{Filter: "t", QoS: 1})
	p := connect(t, s, "p")
	again := 0
	const rounds = 5
	for range rounds {
		p.send(numbered(total, func(id uint16) []byte { return pub(id, 1, "t", "x") }))
		p.want(sentences(total, "PUBACK #")...)
		var acks []byte
		for range total {
			f, err := w.next()
			if err != nil {
				t.Fatal(err)
			}
			m, err := w.codec.ParsePublish(f)
			if err != nil {
				t.Fatal(err)
			}
			acks = packet.AppendAck(acks, packet.PUBACK, m.ID)
		}
		w.send(acks)
		keep.CleanSession = false
		w = connect5(t, s, keep, true)
		p.send(pub(1, 1, "t", "fence"))
		p.want("PUBACK 1")
		for {
			f, err := w.next()
			if err != nil {
				t.Fatal(err)
			}
			m, err := w.codec.ParsePublish(f)
			if err != nil {
				t.Fatal(err)
			}
			w.send(ack5(packet.PUBACK, m.ID, 0))
			if string(m.Payload) == "fence" {
				break
			}
			again++
		}
	}
	t.Logf("%d of %d came again", again, rounds*total)
	if again > total { // one round may find a reader that was not scheduled in time
		t.Errorf("%d messages came again that were acknowledged", again)
	}
}
