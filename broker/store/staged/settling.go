package staged

import (
	"encoding/json"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"

	"inflight/broker/store"
)

// settling is what the members of shared subscriptions have settled and the stream must not let go of yet.
//
// A message that was handed out and is gone from the stream leaves nothing behind that tells so. If its node then dies
// before the group's consumer has noted for good that the message was taken from it, it would be handed out again. So what
// was handed out stays until the message that it came from is below the ack floor of the group's consumer, and was so a
// round (shareTick) before: a server of its own writes what it was told within a tenth of a second, and in a cluster the
// others have it by then.
type settling struct {
	mu     sync.Mutex
	groups map[string]map[settled]*settlement // by the name of the group
}

type settled struct {
	member string // token
	seq    uint64 // in the stream, of what was handed out
}

type settlement struct {
	from uint64 // sequence of the message that it came from
	ack  string // where it is acknowledged
	seen bool   // below the floor in the round before
	sent bool   // the acknowledgement is on its way
}

// add notes what a member has settled.
func (h *settling) add(group, member string, seq, from uint64, ack string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.groups[group] == nil {
		h.groups[group] = make(map[settled]*settlement)
	}
	if key := (settled{member, seq}); h.groups[group][key] == nil {
		h.groups[group][key] = &settlement{from: from, ack: ack}
	}
}

// has reports whether a member has settled it.
func (h *settling) has(group, member string, seq uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.groups[group][settled{member, seq}] != nil
}

// drop forgets what a member has settled: its consumer is gone.
func (h *settling) drop(group, member string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.groups[group] {
		if key.member == member {
			delete(h.groups[group], key)
		}
	}
	if len(h.groups[group]) == 0 {
		delete(h.groups, group)
	}
}

// below returns what can go, given the group's floor; at once without waiting for another round. It stays here until gone.
func (h *settling) below(group string, floor uint64, atOnce bool) map[settled]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	acks := make(map[settled]string)
	for key, e := range h.groups[group] {
		switch {
		case e.from > floor || e.sent:
		case e.seen || atOnce:
			acks[key] = e.ack
			e.sent = true
		default:
			e.seen = true
		}
	}
	return acks
}

// gone notes that the stream has let go of something; or that it may not have, and is to be told again.
func (h *settling) gone(group string, key settled, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	entries := h.groups[group]
	if e := entries[key]; e != nil && err != nil {
		e.sent = false
		return
	}
	delete(entries, key)
	if len(entries) == 0 {
		delete(h.groups, group)
	}
}

func (h *settling) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]string, 0, len(h.groups))
	for name := range h.groups {
		names = append(names, name)
	}
	return names
}

// letGo lets the stream have what was settled long enough ago. Until it says that it has, it may deliver it again.
func (s *Store) letGo(atOnce bool) {
	var wg sync.WaitGroup
	for _, name := range s.settling.names() {
		floor, err := s.ackFloor(name)
		if err != nil {
			continue // next time
		}
		for key, ack := range s.settling.below(name, floor, atOnce) {
			wg.Add(1)
			s.calls.send(&nats.Msg{Subject: ack}, func(_ []byte, err error) {
				s.settling.gone(name, key, err)
				wg.Done()
			})
		}
	}
	if atOnce {
		wg.Wait()
	}
}

// ackFloor is the sequence up to which a group's consumer has let go of everything; that of one that is gone is at the end.
func (s *Store) ackFloor(name string) (uint64, error) {
	type answer struct {
		data []byte
		err  error
	}
	ch := make(chan answer, 1)
	s.calls.send(&nats.Msg{Subject: "$JS.API.CONSUMER.INFO." + msgsStream + "." + name}, func(data []byte, err error) {
		ch <- answer{data, err}
	})
	a := <-ch
	if a.err != nil {
		return 0, a.err
	}
	var info struct {
		Error *apiError `json:"error"`
		Floor struct {
			Stream uint64 `json:"stream_seq"`
		} `json:"ack_floor"`
	}
	switch err := json.Unmarshal(a.data, &info); {
	case err != nil:
		return 0, err
	case info.Error != nil && info.Error.ErrCode == codeNoConsumer:
		return ^uint64(0), nil
	case info.Error != nil:
		return 0, info.Error
	}
	return info.Floor.Stream, nil
}

// foundMessage reads the answer to a MSG.GET as whether there is one.
func foundMessage(data []byte, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	_, err = parseStored(data)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
