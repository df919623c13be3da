package journal

import (
	"fmt"
	"slices"
	"strings"

	"inflight/broker/store"
)

// modelCredit is how many messages one member has in a history.
const modelCredit = 3

// checkGroups looks at the invariants of groups, counts what they need, and returns how many members they have.
func checkGroups(t interface{ Errorf(string, ...any) }, s *state, refs map[*msg]int32) (members int) {
	seats := 0
	for filter, g := range s.groups {
		n, queued, size, room := 0, len(g.pool), 0, false
		for _, m := range g.pool {
			refs[m]++
			size += int(m.size)
		}
		for _, sub := range s.subs {
			if sub.filter != filter {
				continue
			}
			n++
			waiting := 0
			for e := range sub.queue.all() {
				waiting++
				size += int(e.msg().size)
				if e.pos() > sub.last {
					t.Errorf("number %d of %q is above the last, %d", e.pos(), filter, sub.last)
				}
			}
			queued += waiting
			connected := slices.Contains(g.ring, sub)
			room = room || connected && waiting < s.limits.credit
			if sub.group != g || sub.waiting != waiting || connected != (sub.seat != 0) || connected != (s.seats[sub.seat] == sub) || sub.transient && !connected {
				t.Errorf("member %q of %q: %+v", sub.sess.client, filter, sub.sharing)
			}
		}
		if n == 0 || n != g.members || queued != g.queued || size != g.bytes || g.next > len(g.ring) || room && len(g.pool) > 0 {
			t.Errorf("group %q: %d members, %d messages of %d bytes, counts %d, %d of %d, next %d of %d", filter, n, queued, size, g.members, g.queued, g.bytes, g.next, len(g.ring))
		}
		members += n
		seats += len(g.ring)
	}
	if seats != len(s.seats) || s.groupTree.Len() != len(s.groups) {
		t.Errorf("%d members are connected, %d seats; %d groups, %d in the tree", seats, len(s.seats), len(s.groups), s.groupTree.Len())
	}
	return members
}

// modelGroup is a group in the plainest way.
type modelGroup struct {
	members []*modelSub
	ring    []*modelSub
	next    int
	pool    []*store.Message
}

type modelMember struct {
	group     *modelGroup
	sess      *modelSession
	filter    string
	transient bool
	qos       byte
	seat      pos
	author    uint64
	last      pos
	taken     pos
	entries   []modelEntry
}

type modelEntry struct {
	p pos
	m *store.Message
}

func (g *modelGroup) dispatch(p pos) {
	for len(g.pool) > 0 {
		free := -1
		for i := range g.ring {
			if at := (g.next + i) % len(g.ring); len(g.ring[at].entries) < modelCredit {
				free = at
				break
			}
		}
		if free < 0 {
			return
		}
		sub := g.ring[free]
		g.next = (free + 1) % len(g.ring)
		sub.last = max(sub.last+1, p)
		sub.entries = append(sub.entries, modelEntry{sub.last, g.pool[0]})
		g.pool = g.pool[1:]
	}
}

// front puts messages before all others.
func (g *modelGroup) front(all []modelEntry) {
	pool := make([]*store.Message, 0, len(all)+len(g.pool))
	for _, e := range all {
		pool = append(pool, e.m)
	}
	g.pool = append(pool, g.pool...)
}

func (s *modelSub) remove(p pos) *modelEntry {
	for i, e := range s.entries {
		if e.p == p {
			s.entries = slices.Delete(s.entries, i, i+1)
			return &e
		}
	}
	return nil
}

// split takes out the entries for which match says so.
func (s *modelSub) split(match func(modelEntry) bool) (out []modelEntry) {
	var rest []modelEntry
	for _, e := range s.entries {
		if match(e) {
			out = append(out, e)
		} else {
			rest = append(rest, e)
		}
	}
	s.entries = rest
	return out
}

func (m *model) sit(p pos, s *modelSession, sub *modelSub, o *store.Subscription, transient bool, author uint64) {
	if sub.group == nil {
		if m.groups[o.Filter] == nil {
			m.groups[o.Filter] = &modelGroup{}
		}
		sub.group, sub.sess, sub.filter = m.groups[o.Filter], s, o.Filter
		sub.group.members = append(sub.group.members, sub)
	}
	m.unseat(sub)
	sub.transient, sub.qos, sub.seat, sub.author = transient, o.QoS, p, author
	sub.group.ring = append(sub.group.ring, sub)
	sub.group.dispatch(p)
}

func (m *model) unseat(sub *modelSub) {
	if sub.seat == 0 {
		return
	}
	g := sub.group
	i := slices.Index(g.ring, sub)
	if g.ring = slices.Delete(g.ring, i, i+1); i < g.next {
		g.next--
	}
	g.front(sub.split(func(e modelEntry) bool { return e.p > sub.taken }))
	sub.seat, sub.author = 0, 0
}

func (m *model) part(p pos, sub *modelSub) {
	if sub.seat == 0 {
		return
	}
	if sub.transient {
		m.resign(p, sub)
		return
	}
	m.unseat(sub)
	sub.group.dispatch(p)
}

func (m *model) resign(p pos, sub *modelSub) {
	g := sub.group
	m.unseat(sub)
	g.front(sub.split(func(e modelEntry) bool { return e.m.QoS < 2 }))
	delete(sub.sess.subs, sub.filter)
	if g.members = slices.DeleteFunc(g.members, func(other *modelSub) bool { return other == sub }); len(g.members) == 0 {
		delete(m.groups, sub.filter)
		return
	}
	g.dispatch(p)
}

// gone parts all members of an author, in the order of their seats.
func (m *model) gone(p pos, author uint64) {
	var all []*modelSub
	for _, g := range m.groups {
		for _, sub := range g.ring {
			if sub.author == author {
				all = append(all, sub)
			}
		}
	}
	slices.SortFunc(all, func(a, b *modelSub) int { return int(int64(a.seat) - int64(b.seat)) })
	for _, sub := range all {
		m.part(p, sub)
	}
	for client, s := range m.sessions {
		if s.epoch == 0 && s.record == "" && s.outbound == "" && len(s.held) == 0 && len(s.subs) == 0 {
			delete(m.sessions, client)
		}
	}
}

// move applies what a member says; a session may speak for its own members alone.
func (m *model) move(p pos, s *modelSession, r *record) bool {
	for _, sub := range s.subs {
		switch {
		case sub.group == nil:
		case r.kind == kindTake && sub.seat == r.ref && r.ref != 0:
			if sub.taken = max(sub.taken, min(sub.last, r.upto())); sub.qos == 0 {
				sub.split(func(e modelEntry) bool { return e.p <= sub.taken })
				sub.group.dispatch(p)
			}
			return true
		case r.kind == kindPart && sub.seat == r.ref && r.ref != 0:
			m.part(p, sub)
			return true
		case r.kind == kindBack && sub.seat == r.ref && r.ref != 0:
			var back []modelEntry
			eachSettled(r.data, func(n pos) {
				if n <= sub.taken {
					if e := sub.remove(n); e != nil {
						back = append(back, *e)
					}
				}
			})
			sub.group.front(back)
			sub.group.dispatch(p)
			return true
		}
	}
	return r.kind != kindTake
}

func (s *modelSub) describe() string {
	if s.group == nil {
		return ""
	}
	var b strings.Builder
	for _, e := range s.entries {
		fmt.Fprintf(&b, " %d=%s", e.p, e.m.Payload)
	}
	return fmt.Sprintf(" member %v %d %d %d %d %d:%s", s.transient, s.qos, s.seat, s.author, s.last, s.taken, &b)
}

func describeMember(s *subscription, body func(pos) string) string {
	if s.group == nil {
		return ""
	}
	var b strings.Builder
	for e := range s.queue.all() {
		fmt.Fprintf(&b, " %d=%s", e.pos(), body(e.msg().pos))
	}
	return fmt.Sprintf(" member %v %d %d %d %d %d:%s", s.transient, s.qos, s.seat, s.author, s.last, s.taken, &b)
}

func (g *modelGroup) describe(filter string) string {
	line := fmt.Sprintf("group %s next %d ring", filter, g.next)
	for _, sub := range g.ring {
		line += fmt.Sprintf(" %d", sub.number)
	}
	for _, m := range g.pool {
		line += " " + string(m.Payload)
	}
	return line
}

func describeGroups(s *state, body func(pos) string) (lines []string) {
	for filter, g := range s.groups {
		line := fmt.Sprintf("group %s next %d ring", filter, g.next)
		for _, sub := range g.ring {
			line += fmt.Sprintf(" %d", sub.number)
		}
		for _, m := range g.pool {
			line += " " + body(m.pos)
		}
		lines = append(lines, line)
	}
	return lines
}
