package journal

import (
	"fmt"
	"testing"

	"inflight/broker/store"
)

// BenchmarkApply is what a node does for each message of clients that are on another node: 100 of them with 20 exchanges in
// flight each, and what came of them in one batch. Nobody subscribes.
func BenchmarkApply(b *testing.B) {
	const clients, window = 100, 20
	for _, qos := range []byte{1, 2} {
		b.Run(fmt.Sprintf("qos=%d", qos), func(b *testing.B) {
			s := newState()
			a := newAuthor(s)
			var epochs [clients]pos
			a.batch(func(r func(*record)) {
				for i := range epochs {
					r(&record{kind: kindClaim, client: fmt.Appendf(nil, "client-%d", i)})
				}
			})
			for i := range epochs {
				epochs[i] = at(s.applied, i)
			}
			var messages [clients][]byte
			for i := range messages {
				messages[i] = store.Encode(nil, &store.Message{Topic: fmt.Sprintf("bench/%d", i), Payload: make([]byte, 256), QoS: qos})
			}
			var holds uint64 // the batch of the holds
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += clients * window {
				a.batch(func(r func(*record)) {
					for i := range clients * window {
						rec := record{kind: kindPublish, data: messages[i/window]}
						if qos == 2 {
							rec.kind, rec.epoch, rec.id = kindHold, epochs[i/window], uint16(n/clients+i%window)|1<<15
						}
						r(&rec)
					}
				})
				if holds = s.applied; qos == 2 {
					a.batch(func(r func(*record)) {
						for i := range clients * window {
							r(&record{kind: kindRelease, epoch: epochs[i/window], ref: at(holds, i)})
						}
					})
				}
				s.journal.trim(s.applied)
			}
		})
	}
}

// bencher makes batches.
type bencher struct {
	s      *state
	number uint64
	data   []byte
}

func newAuthor(s *state) *bencher { return &bencher{s: s} }

func (a *bencher) batch(fill func(r func(*record))) {
	a.number++
	a.data = append(a.data[:0], make([]byte, headerSize)...)
	fill(func(r *record) { a.data = r.append(a.data) })
	a.data = seal(a.data, 1, a.number)
	if !a.s.applyBytes(a.s.applied+1, a.data, nil) || len(a.s.refused) > 0 {
		panic("the batch has no effect")
	}
}
