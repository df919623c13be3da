package journal

import (
	"slices"
	"sort"
)

// group is what the subscriptions $share/{ShareName}/{filter} of one ShareName and filter have in common. Which member gets
// a message is part of the state: every node comes to the same answer.
//
// Invariants:
//   - a message of the group is in the pool or in the queue of one member, never in two places, and group.queued and bytes
//     count both;
//   - while a connected member has room the pool is empty;
//   - a member's entries up to subscription.taken are its own: it has them from a take record on, which is in the journal
//     before its session sends anything of them. The ones behind go back to the pool when it is not connected any more;
//   - a number in the queue of a member is never used twice and grows: it is above the position of the record that handed
//     the message out, or above the last one, because a message can come to a member after younger ones.
type group struct {
	filter  string // of the subscriptions
	inner   string // Topic Filter in it
	members int    // connected or kept
	ring    []*subscription
	next    int    // of ring, the connected members in the order in which they came: whose turn it is
	pool    []*msg // what no member has room for, oldest first
	queued  int    // messages in the pool and in the members' queues
	bytes   int    // and their bytes
	full    bool   // the last message found no room

	quick int // of this node alone: whose turn it is for a QoS 0 publication
}

// sharing is what a subscription has more when it is shared: it makes its session a member of a group.
type sharing struct {
	group     *group
	transient bool   // gone with its connection, or of QoS 0
	qos       byte   // of the subscription
	seat      pos    // of the record that connected it last; 0: it is not connected
	author    uint64 // of that record
	last      pos    // number of its last entry
	taken     pos    // the entries up to here are its own
	waiting   int    // entries in its queue
}

// membership makes a subscription a member of its group.
func (s *state) membership(sub *subscription, inner string) {
	g := s.groups[sub.filter]
	if g == nil {
		g = &group{filter: sub.filter, inner: inner}
		s.groups[sub.filter] = g
		s.groupTree.Add(inner, sub.filter, g)
	}
	g.members++
	sub.group = g
}

// connect makes a member connected: it gets messages from now on.
func (s *state) connect(sub *subscription, author uint64) {
	sub.seat, sub.author = s.at, author
	s.seats[sub.seat] = sub
	sub.group.ring = append(sub.group.ring, sub)
	s.dispatch(sub.group)
}

// part ends that, and the membership too where it is not kept.
func (s *state) part(sub *subscription) {
	switch {
	case sub.seat == 0:
	case sub.transient:
		s.resign(sub)
	default:
		s.unseat(sub)
		s.dispatch(sub.group)
	}
}

// unseat makes a member not connected. What it has not taken is for the others, before what they wait for already.
func (s *state) unseat(sub *subscription) {
	if sub.seat == 0 {
		return
	}
	g := sub.group
	s.end(sub)
	delete(s.seats, sub.seat)
	sub.seat, sub.author = 0, 0
	i := slices.Index(g.ring, sub)
	if g.ring = slices.Delete(g.ring, i, i+1); g.next > i {
		g.next--
	}
	g.pool = append(s.withdraw(sub), g.pool...)
}

// withdraw takes what a member has not taken out of its queue, in order. The messages stay in use.
func (s *state) withdraw(sub *subscription) (out []*msg) {
	for e := range sub.queue.behind(sub.taken) {
		s.uncache(sub, e)
		out = append(out, e.msg())
	}
	sub.queue.cut(sub.taken)
	sub.waiting -= len(out)
	return out
}

// resign ends a membership for good. Of what the member has taken, another one may have QoS 1, and must not have QoS 2
// [MQTT-4.8.2-5].
func (s *state) resign(sub *subscription) {
	s.unseat(sub)
	g := sub.group
	var again []*msg
	for e := range sub.queue.all() {
		if e.msg().qos == 2 {
			s.unqueue(sub, e)
			continue
		}
		s.uncache(sub, e)
		again = append(again, e.msg())
		sub.queue.settle(e)
	}
	g.pool = append(again, g.pool...)
	delete(sub.sess.subs, sub.filter)
	delete(s.subs, sub.number)
	if g.members--; g.members > 0 {
		s.dispatch(g)
		return
	}
	for _, m := range g.pool {
		s.drop(m)
	}
	delete(s.groups, g.filter)
	s.groupTree.Remove(g.inner, g.filter)
}

// pooled takes a message for one of the members.
func (s *state) pooled(g *group, m *msg) {
	if g.queued >= s.limits.queued || g.bytes+int(m.size) > s.limits.bytes {
		if s.audience != nil {
			s.audience.overflowed(g, m.qos)
		}
		g.full = true
		return
	}
	g.full = false
	g.queued++
	g.bytes += int(m.size)
	s.use(m)
	g.pool = append(g.pool, m)
	s.dispatch(g)
}

// dispatch hands out what the connected members have room for, in turn.
func (s *state) dispatch(g *group) {
	for len(g.pool) > 0 {
		sub := g.turn(s.limits.credit)
		if sub == nil {
			return
		}
		m := g.pool[0]
		g.pool[0] = nil
		if g.pool = g.pool[1:]; len(g.pool) == 0 {
			g.pool = nil
		}
		sub.last = max(sub.last+1, s.at)
		sub.waiting++
		if e := sub.queue.push(sub.last, m); sub.feed != nil {
			s.audience.queued(sub, e)
		}
	}
}

// turn returns the next connected member that has less than so many entries, or nil.
func (g *group) turn(credit int) *subscription {
	n := len(g.ring)
	for i := range n {
		at := (g.next + i) % n
		if g.ring[at].waiting < credit {
			g.next = (at + 1) % n
			return g.ring[at]
		}
	}
	return nil
}

// taken notes that a member has its entries up to a number. A QoS 0 subscription keeps nothing of them.
func (s *state) taken(sub *subscription, upto pos) {
	sub.taken = max(sub.taken, min(upto, sub.last))
	if sub.qos > 0 {
		return
	}
	for e := range sub.queue.all() {
		if e.pos() > sub.taken {
			break
		}
		s.unqueue(sub, e)
	}
	sub.queue.trim()
	s.dispatch(sub.group)
}

// giveBack takes entries that a member took and did not send back into the pool, in their order.
func (s *state) giveBack(sub *subscription, list []byte) {
	var back []*msg
	eachSettled(list, func(p pos) {
		if e, ok := sub.queue.find(p); ok && p <= sub.taken {
			s.uncache(sub, e)
			back = append(back, e.msg())
			sub.queue.settle(e)
			sub.waiting--
		}
	})
	sub.queue.trim()
	sub.group.pool = append(back, sub.group.pool...)
	s.dispatch(sub.group)
}

// authorGone disconnects the members of a node that is gone, in the order in which they came.
func (s *state) authorGone(author uint64) {
	var seats []pos
	for p, sub := range s.seats {
		if sub.author == author {
			seats = append(seats, p)
		}
	}
	slices.Sort(seats)
	for _, p := range seats {
		sub := s.seats[p]
		if sub.feed != nil {
			s.audience.parted(sub)
		}
		s.part(sub)
		s.tidy(sub.sess)
	}
}

// strangers lists the authors that have connected members, in order.
func (s *state) strangers(known map[uint64]bool) (out []uint64) {
	for _, sub := range s.seats {
		if !known[sub.author] && !slices.Contains(out, sub.author) {
			out = append(out, sub.author)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}
