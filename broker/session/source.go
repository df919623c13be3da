package session

import "inflight/broker/store"

// Source is one subscription as far as its messages were sent. It tells, for a session that was found on another node or
// after a restart, what the store delivers again: a message that is still outstanding under its identifier, or one whose
// settling did not reach the store, or a new one.
//
// One number tells, because a feed delivers in order and leaves nothing out: what is up to it and neither outstanding nor
// settled was never delivered to the session.
type Source struct {
	ID uint32 // Subscription Identifier of the subscription; 0: none

	filter  string
	high    uint64               // everything up to here was sent; what is not outstanding of it is settled
	floor   uint64               // high when the session was found
	waiting map[uint64]*outgoing // outstanding messages that the store has not delivered again
}

// Source returns the source of a Topic Filter.
func (s *Sender) Source(filter string) *Source {
	src := s.sources[filter]
	if src == nil {
		src = &Source{filter: filter}
		s.sources[filter] = src
	}
	return src
}

// Drop ends a source: its subscription is gone. What was sent of it is completed all the same [MQTT-3.10.4-3]; its
// settlings are returned, for who wants the store to let go of it once the record has it.
func (s *Sender) Drop(src *Source) (started []func()) {
	if s.sources[src.filter] == src {
		delete(s.sources, src.filter)
	}
	s.byID.Each(func(_ uint16, out *outgoing) {
		if out.src == src {
			out.src = nil
			s.version++ // the store lets the message go: its body must be in the record
			if out.state != awaitPubcomp {
				started = append(started, out.delivery.Settle)
			}
		}
	})
	src.waiting = nil
	return started
}

// Reopen prepares a source for a feed that is closed and opened again while its session goes on: like for a session that
// was found, what is still outstanding comes again, and is not to be sent.
func (s *Sender) Reopen(src *Source) {
	src.floor, src.waiting = src.high, make(map[uint64]*outgoing)
	s.byID.Each(func(_ uint16, out *outgoing) {
		if out.src == src && out.delivery.Seq > 0 {
			src.waiting[out.delivery.Seq], out.awaited = out, true
		}
	})
}

func (src *Source) sent(d store.Delivery) {
	if src == nil || d.Seq == 0 {
		return
	}
	src.high = max(src.high, d.Seq)
}

// Sent reports whether the session has sent a delivery, on this connection or on one before. What it has sent the store
// must not give to anybody else.
func (src *Source) Sent(d store.Delivery) bool { return d.Seq > 0 && d.Seq <= src.high }

// Before reports whether a delivery was sent before the session was found, and takes care of it: it is not to be sent.
func (src *Source) Before(d store.Delivery) bool {
	if d.Seq == 0 {
		return false
	}
	if out := src.waiting[d.Seq]; out != nil {
		delete(src.waiting, d.Seq)
		out.awaited = false
		if out.src == src && out.delivery.Seq == d.Seq {
			out.delivery.Settle = d.Settle
			return true
		}
		d.Settle() // acknowledged meanwhile
		return true
	}
	if d.Seq <= src.floor {
		d.Settle()
		return true
	}
	return false
}
