package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inflight/broker/store"
	"inflight/broker/topic"
)

// applyBytes opens a batch and applies it.
func (s *state) applyBytes(seq uint64, data []byte, own func(int) *store.Message) bool {
	b, _ := open(data)
	return s.apply(seq, data, b, own)
}

// allHeld collects all that is held, by its Ref.
func (s *state) allHeld() map[pos]*held {
	all := make(map[pos]*held)
	for ref, h := range s.holds.strays {
		all[ref] = h
	}
	for i := range s.journal.slots {
		if list := s.journal.slots[i].held; list != nil {
			for index, h := range list.at {
				if h != nil {
					all[at(s.journal.first+uint64(i), index)] = h
				}
			}
		}
	}
	return all
}

// check looks at the invariants of a state.
func check(t interface{ Errorf(string, ...any) }, s *state) {
	refs := make(map[*msg]int32)
	all := s.allHeld()
	for ref, h := range all {
		refs[h.msg]++
		if h.ref != ref || h.sess.held.Get(h.id) != h || s.sessions[h.sess.client] != h.sess || s.holding(ref) != h {
			t.Errorf("held %d is not where it belongs", ref)
		}
	}
	n := 0
	for client, sess := range s.sessions {
		queued, size := 0, 0
		for filter, sub := range sess.subs {
			n++
			if sub.filter != filter || sub.sess != sess || s.subs[sub.number] != sub {
				t.Errorf("subscription %q of %q is not where it belongs", filter, client)
			}
			last := pos(0)
			for e := range sub.queue.all() {
				refs[e.msg()]++
				if sub.group == nil {
					queued++
					size += int(e.msg().size)
				}
				if e.pos() <= last {
					t.Errorf("queue of %q is out of order", filter)
				}
				last = e.pos()
			}
		}
		if sess.queued != queued || sess.bytes != size {
			t.Errorf("%q counts %d messages of %d bytes, has %d of %d", client, sess.queued, sess.bytes, queued, size)
		}
		if sess.epoch != 0 && s.epochs[sess.epoch] != sess {
			t.Errorf("claim of %q is not known", client)
		}
		for _, h := range inOrder(&sess.held) {
			if all[h.ref] != h {
				t.Errorf("held %d of %q is not known", h.ref, client)
			}
		}
	}
	for i, slot := range s.journal.slots {
		n := 0
		if slot.held != nil {
			for _, h := range slot.held.at {
				if h != nil {
					n++
				}
				if h != nil && h.pos != h.ref {
					t.Errorf("%d is listed with a batch, and its bytes are at %d", h.ref, h.pos)
				}
			}
			if n == 0 || n != slot.held.n {
				t.Errorf("batch %d lists %d that are held, counts %d", s.journal.first+uint64(i), n, slot.held.n)
			}
		}
	}
	members := checkGroups(t, s, refs)
	if n != len(s.subs) || n != s.tree.Len()+members {
		t.Errorf("%d subscriptions, %d by number, %d in the tree and %d members of groups", n, len(s.subs), s.tree.Len(), members)
	}
	if len(s.epochs) > len(s.sessions) {
		t.Errorf("%d claims of %d sessions", len(s.epochs), len(s.sessions))
	}
	for _, r := range s.retained {
		refs[r.msg]++
	}
	live := make(map[uint64]int32)
	var bytes, size int64
	for m, n := range refs {
		if m.refs != n {
			t.Errorf("message at %d counts %d users, has %d", m.pos, m.refs, n)
		}
		if m.pos != 0 {
			live[m.pos.seq()]++
			bytes += int64(m.size)
			if s.journal.find(m.pos) != m {
				t.Errorf("message at %d is not in the journal, which begins at %d", m.pos, s.journal.first)
			}
		}
	}
	for i, slot := range s.journal.slots {
		size += int64(slot.bytes)
		if seq := s.journal.first + uint64(i); slot.live != live[seq] {
			t.Errorf("batch %d counts %d needed messages, has %d", seq, slot.live, live[seq])
		}
	}
	if s.journal.live != bytes || s.journal.bytes != size {
		t.Errorf("journal counts %d of %d bytes, has %d of %d", s.journal.live, s.journal.bytes, bytes, size)
	}
	for seq, n := range live {
		if n > 0 && seq < s.journal.lowest() {
			t.Errorf("batch %d is needed, the lowest is %d", seq, s.journal.lowest())
		}
	}
}

// model says what a state must hold, in the plainest way.
type model struct {
	sessions map[string]*modelSession
	retained map[string]string
	groups   map[string]*modelGroup
}

type modelSession struct {
	epoch    pos
	record   string
	revision pos
	outbound string
	held     []modelMessage // oldest first
	subs     map[string]*modelSub
}

type modelSub struct {
	number pos
	queue  []pos
	modelMember
}

type modelMessage struct {
	p  pos
	id uint16
	m  *store.Message // nil: corrupt
}

func newModel() *model {
	return &model{sessions: make(map[string]*modelSession), retained: make(map[string]string), groups: make(map[string]*modelGroup)}
}

// describe writes a state, or a model, so that they can be compared.
func (m *model) describe() string {
	var lines []string
	for client, s := range m.sessions {
		var held []string
		for _, h := range s.held {
			held = append(held, fmt.Sprintf("%d=%d", h.id, h.p))
		}
		lines = append(lines, fmt.Sprintf("session %s epoch %d record %q at %d outbound %q held %v", client, s.epoch, s.record, s.revision, s.outbound, held))
		for filter, sub := range s.subs {
			lines = append(lines, fmt.Sprintf("sub %s %s %d %v%s", client, filter, sub.number, sub.queue, sub.describe()))
		}
	}
	for filter, g := range m.groups {
		lines = append(lines, g.describe(filter))
	}
	for name, payload := range m.retained {
		lines = append(lines, fmt.Sprintf("retained %s %s", name, payload))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func describe(s *state, body func(pos) string) string {
	var lines []string
	for client, sess := range s.sessions {
		var held []string
		for _, h := range s.heldOf(client) {
			held = append(held, fmt.Sprintf("%d=%d", h.ID, h.Ref))
		}
		lines = append(lines, fmt.Sprintf("session %s epoch %d record %q at %d outbound %q held %v", client, sess.epoch, sess.record, sess.revision, sess.outbound, held))
		for filter, sub := range sess.subs {
			var q []pos
			if sub.group == nil {
				for e := range sub.queue.all() {
					q = append(q, e.pos())
				}
			}
			lines = append(lines, fmt.Sprintf("sub %s %s %d %v%s", client, filter, sub.number, q, describeMember(sub, body)))
		}
	}
	lines = append(lines, describeGroups(s, body)...)
	for name, r := range s.retained {
		lines = append(lines, fmt.Sprintf("retained %s %s", name, body(r.msg.pos)))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func (m *model) get(client string) *modelSession {
	s := m.sessions[client]
	if s == nil {
		s = &modelSession{subs: make(map[string]*modelSub)}
		m.sessions[client] = s
	}
	return s
}

// find returns the client that a record is of, and whether it may have effect.
func (m *model) find(r *record) (string, bool) {
	if r.epoch != 0 {
		for client, s := range m.sessions {
			if s.epoch == r.epoch {
				return client, true
			}
		}
		return "", false
	}
	s := m.sessions[string(r.client)]
	return string(r.client), s == nil || s.epoch == 0 || r.conditional()
}

func (m *model) deliver(p pos, msg *store.Message) {
	for _, s := range m.sessions {
		for filter, sub := range s.subs {
			if sub.group == nil && topic.Match(filter, msg.Topic) {
				sub.queue = append(sub.queue, p)
			}
		}
	}
	for filter, g := range m.groups {
		if _, inner, _ := topic.Shared(filter); topic.Match(inner, msg.Topic) {
			g.pool = append(g.pool, msg)
			g.dispatch(p)
		}
	}
	m.retain(msg)
}

func (m *model) retain(msg *store.Message) {
	if msg.Retain {
		if m.retained[msg.Topic] = string(msg.Payload); len(msg.Payload) == 0 {
			delete(m.retained, msg.Topic)
		}
	}
}

// take applies a record and reports whether it has effect.
func (m *model) take(p pos, r *record, author uint64) bool {
	switch r.kind {
	case kindClaim:
		s := m.get(string(r.client))
		s.epoch = p
		for _, sub := range s.subs {
			if sub.author != author {
				m.part(p, sub)
			}
		}
		return true
	case kindGone:
		m.gone(p, uint64(r.ref))
		return true
	case kindPublish:
		msg, err := store.Decode(r.data)
		if err == nil {
			m.deliver(p, msg)
		}
		return err == nil
	case kindRetain:
		msg, err := store.Decode(r.data)
		if err == nil {
			m.retain(msg)
		}
		return err == nil
	case kindSync, kindCarry, kindTrim:
		return true
	}
	client, ok := m.find(r)
	if !ok {
		return false
	}
	s := m.get(client)
	defer func() {
		if s.epoch == 0 && s.record == "" && s.outbound == "" && len(s.held) == 0 && len(s.subs) == 0 {
			delete(m.sessions, client)
		}
	}()
	drop := func(match func(modelMessage) bool) { s.held = slices.DeleteFunc(s.held, match) }
	switch r.kind {
	case kindSession:
		s.record, s.revision = string(r.data), p
	case kindSwap:
		if s.revision != r.ref {
			return false
		}
		s.record, s.revision = string(r.data), p
	case kindSessionGone:
		if s.revision <= r.ref {
			s.record, s.revision, s.epoch = "", 0, 0
		}
	case kindOutbound:
		s.outbound = string(r.data)
	case kindHold:
		drop(func(h modelMessage) bool { return h.id == r.id })
		msg, _ := store.Decode(bytes.Clone(r.data))
		s.held = append(s.held, modelMessage{p: p, id: r.id, m: msg})
	case kindRelease:
		for _, h := range s.held {
			if h.p == r.ref {
				drop(func(h modelMessage) bool { return h.p == r.ref })
				if h.m != nil {
					m.deliver(p, h.m)
				}
				break
			}
		}
	case kindDiscard:
		drop(func(h modelMessage) bool { return h.p == r.ref })
	case kindForget:
		s.held = nil
	case kindSubscribe, kindJoin:
		var o store.Subscription
		if json.Unmarshal(r.data, &o) != nil || r.kind == kindJoin && !strings.HasPrefix(o.Filter, "$share/") {
			return false
		}
		sub := s.subs[o.Filter]
		if sub == nil {
			sub = &modelSub{number: p}
			s.subs[o.Filter] = sub
		}
		if strings.HasPrefix(o.Filter, "$share/") {
			m.sit(p, s, sub, &o, r.kind == kindJoin, author)
		}
	case kindUnsubscribe:
		if sub := s.subs[string(r.data)]; sub != nil && sub.group != nil {
			m.resign(p, sub)
			break
		}
		delete(s.subs, string(r.data))
	case kindTake, kindPart, kindBack:
		return m.move(p, s, r)
	case kindSettle:
		for _, sub := range s.subs {
			if sub.number == r.ref && sub.group != nil {
				eachSettled(r.data, func(p pos) { sub.remove(p) })
				sub.group.dispatch(p)
			} else if sub.number == r.ref {
				eachSettled(r.data, func(p pos) {
					sub.queue = slices.DeleteFunc(sub.queue, func(q pos) bool { return q == p })
				})
			}
		}
	}
	return true
}

// world draws the records of a history from what has happened so far.
type world struct {
	t      *rapid.T
	s      *state // to refer to what exists
	m      *model
	data   map[uint64][]byte // batches by sequence
	seq    uint64
	number map[uint64]uint64
}

func (w *world) body(p pos) string {
	b, err := open(w.data[p.seq()])
	if err != nil {
		w.t.Fatalf("message at %d: %v", p, err)
	}
	records, err := b.decodeAll(nil)
	if err != nil {
		w.t.Fatalf("message at %d: %v", p, err)
	}
	m, err := store.Decode(records[p.index()].data)
	if err != nil {
		w.t.Fatalf("message at %d: %v", p, err)
	}
	return string(m.Payload)
}

func (w *world) pick(label string, all []pos) pos {
	if len(all) == 0 || rapid.IntRange(0, 9).Draw(w.t, "stale") == 0 {
		return at(rapid.Uint64Range(0, w.seq+1).Draw(w.t, "seq"), rapid.IntRange(0, 3).Draw(w.t, "index"))
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return rapid.SampledFrom(all).Draw(w.t, label)
}

func keys[V any](m map[pos]V) (out []pos) {
	for p := range m {
		out = append(out, p)
	}
	return out
}

// filters are what the histories subscribe to.
var filters = []string{"t", "t/+", "#", "$share/g/#", "$share/g/t/+", "$share/h/#"}

// by lets a record mostly be of the session that has the subscription.
func (w *world) by(r *record, sub *subscription) {
	if sub == nil || rapid.IntRange(0, 9).Draw(w.t, "another's") == 0 {
		return
	}
	if r.epoch = sub.sess.epoch; r.epoch == 0 {
		r.client = []byte(sub.sess.client)
	}
}

func (w *world) record() record {
	t := w.t
	client := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "client")
	r := record{kind: rapid.SampledFrom([]kind{
		kindSync, kindClaim, kindSession, kindSessionGone, kindPublish, kindPublish, kindHold, kindHold, kindHold, kindRelease,
		kindRelease, kindRelease, kindDiscard, kindForget, kindSubscribe, kindSubscribe, kindUnsubscribe, kindSettle, kindSettle,
		kindOutbound, kindRetain, kindCarry, kindTrim, kindSwap, kindJoin, kindTake, kindTake, kindPart, kindBack, kindGone,
	}).Draw(t, "kind")}
	if r.kind.named() {
		sess := w.s.sessions[client]
		if sess != nil && sess.epoch != 0 && rapid.IntRange(0, 5).Draw(t, "by epoch") > 0 {
			r.epoch = sess.epoch
		} else if rapid.IntRange(0, 9).Draw(t, "old epoch") == 0 {
			r.epoch = w.pick("epoch", keys(w.s.epochs))
		}
		if r.epoch == 0 {
			r.client = []byte(client)
		}
	}
	message := func() []byte {
		m := &store.Message{
			Topic:   rapid.SampledFrom([]string{"t", "t/1", "t/2"}).Draw(t, "topic"),
			Payload: []byte(rapid.SampledFrom([]string{"", "x", fmt.Sprint(w.seq)}).Draw(t, "payload")),
			QoS:     byte(rapid.IntRange(1, 2).Draw(t, "qos")),
			Retain:  rapid.IntRange(0, 3).Draw(t, "retain") == 0,
		}
		if r.kind == kindRetain {
			m.Retain = true
		}
		if r.kind == kindHold && rapid.IntRange(0, 19).Draw(t, "corrupt") == 0 {
			return []byte("no message")
		}
		return store.Encode(nil, m)
	}
	switch r.kind {
	case kindClaim:
		r.client = []byte(client)
	case kindSession, kindOutbound:
		r.data = []byte(rapid.SampledFrom([]string{"{}", `{"node":"n"}`}).Draw(t, "data"))
	case kindSwap:
		r.data = []byte(`{"node":"swapped"}`)
		if sess := w.s.sessions[client]; sess != nil && rapid.Bool().Draw(t, "fresh") {
			r.ref = sess.revision
		}
	case kindSessionGone:
		if r.ref = anyRevision; rapid.Bool().Draw(t, "conditional") {
			r.ref = w.pick("revision", nil)
		}
	case kindPublish, kindRetain:
		r.data = message()
	case kindHold:
		r.id = uint16(rapid.IntRange(1, 3).Draw(t, "id"))
		r.data = message()
	case kindRelease, kindDiscard:
		r.ref = w.pick("held", keys(w.s.allHeld()))
	case kindSubscribe:
		r.data = []byte(`{"filter":"` + rapid.SampledFrom(filters).Draw(t, "filter") + `","qos":1}`)
	case kindJoin:
		r.data = []byte(`{"filter":"` + rapid.SampledFrom(filters[2:]).Draw(t, "filter") + `","qos":` + rapid.SampledFrom([]string{"0", "1", "2"}).Draw(t, "granted") + `}`)
	case kindUnsubscribe:
		r.data = []byte(rapid.SampledFrom(filters).Draw(t, "filter"))
	case kindTake, kindPart:
		r.ref = w.pick("seat", keys(w.s.seats))
		if sub := w.s.seats[r.ref]; sub != nil && r.kind == kindTake {
			upto := rapid.SampledFrom([]pos{sub.taken, sub.last, sub.last + 1, sub.last - 1}).Draw(t, "up to")
			r.data = binary.AppendUvarint(nil, uint64(upto))
		}
		w.by(&r, w.s.seats[r.ref])
	case kindGone:
		r.ref = pos(rapid.Uint64Range(1, 3).Draw(t, "gone"))
	case kindSettle, kindBack:
		of, what := w.s.subs, "subscription"
		if r.kind == kindBack {
			of, what = w.s.seats, "seat"
		}
		r.ref = w.pick(what, keys(of))
		w.by(&r, of[r.ref])
		var ps []pos
		if sub := of[r.ref]; sub != nil {
			for e := range sub.queue.all() {
				ps = append(ps, e.pos())
			}
		}
		var s settled
		for range rapid.IntRange(0, 3).Draw(t, "settles") {
			s.add(w.pick("delivery", append([]pos(nil), ps...)))
		}
		r.data = s.b
	case kindCarry:
		var live []*msg
		if live = w.s.journal.oldest(w.seq+1, 1000); len(live) > 0 {
			m := rapid.SampledFrom(live).Draw(t, "message")
			r.ref = m.pos
			b, _ := open(w.data[m.pos.seq()])
			records, _ := b.decodeAll(nil)
			r.data = records[m.pos.index()].data
		} else {
			r.data = []byte("x")
		}
	case kindTrim:
		r.ref = pos(rapid.Uint64Range(0, w.seq+2).Draw(t, "bound"))
	}
	return r
}

// A state is what the model says after every batch, whatever is appended twice or out of its turn; a state that was
// restored from a snapshot in between, and one that reads the journal from its beginning, are the same to the byte.
func TestStateAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, s: newState(), m: newModel(), data: make(map[uint64][]byte), number: make(map[uint64]uint64)}
		other := newState() // goes through a snapshot now and then
		w.s.limits.credit, other.limits.credit = modelCredit, modelCredit
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			author := rapid.Uint64Range(1, 3).Draw(t, "author")
			number := w.number[author] + 1
			switch rapid.IntRange(0, 9).Draw(t, "fault") {
			case 0:
				number-- // an append that is repeated
			case 1:
				number++ // one before it got lost
			}
			w.seq++
			var records []record
			for range rapid.IntRange(1, 4).Draw(t, "records") {
				records = append(records, w.record())
			}
			w.data[w.seq] = pack(author, number, records...)
			effect := number == w.number[author]+1
			var refused []int
			if effect {
				w.number[author] = number
				for i := range records {
					if !w.m.take(at(w.seq, i), &records[i], author) {
						refused = append(refused, i)
					}
				}
			}
			if got := w.s.applyBytes(w.seq, w.data[w.seq], nil); got != effect {
				t.Fatalf("batch %d of author %d: effect %v, want %v", number, author, got, effect)
			}
			var got []int
			for _, r := range w.s.refused {
				got = append(got, r.index)
			}
			if !slices.Equal(got, refused) {
				t.Fatalf("batch %+v: records %v have no effect, want %v", records, w.s.refused, refused)
			}
			check(t, w.s)
			if got, want := describe(w.s, w.body), w.m.describe(); got != want {
				t.Fatalf("after batch %d %+v:\n%s\nwant\n%s", w.seq, records, got, want)
			}
			other.applyBytes(w.seq, w.data[w.seq], nil)
			if rapid.IntRange(0, 4).Draw(t, "snapshot") == 0 {
				var err error
				if other, err = restore(other.encode(nil)); err != nil {
					t.Fatal(err)
				}
				other.limits.credit = modelCredit
				check(t, other)
			}
			if !bytes.Equal(other.encode(nil), w.s.encode(nil)) {
				t.Fatalf("a state that was restored goes another way:\n%s\nwant\n%s", describe(other, w.body), describe(w.s, w.body))
			}
		}
		if again := replayed(t, w); !bytes.Equal(again.encode(nil), w.s.encode(nil)) {
			t.Fatal("the journal read again is another state")
		}
	})
}

// replayed reads the journal from its beginning.
func replayed(t *rapid.T, w *world) *state {
	s := newState()
	s.limits.credit = modelCredit
	for seq := uint64(1); seq <= w.seq; seq++ {
		s.applyBytes(seq, w.data[seq], nil)
	}
	return s
}

// Limits hold in the same way on every node, and who meets one is counted.
func TestLimits(t *testing.T) {
	message := func(topic string, payload string) record {
		return record{kind: kindPublish, data: store.Encode(nil, &store.Message{Topic: topic, Payload: []byte(payload), QoS: 1, Retain: topic != "q"})}
	}
	s := newState()
	s.limits = limits{queued: 3, bytes: 100, retained: 2, authors: 2}
	s.applyBytes(1, pack(1, 1, record{kind: kindSubscribe, client: []byte("c"), data: []byte(`{"filter":"q","qos":1}`)}), nil)
	queued := func() int { return s.sessions["c"].subs["q"].queue.live }
	s.applyBytes(2, pack(1, 2, message("q", "1"), message("q", "2"), message("q", "3"), message("q", "4")), nil)
	if queued() != 3 || !s.sessions["c"].full {
		t.Errorf("%d messages are queued, limit 3", queued())
	}
	var settles settled
	for i := range 3 {
		settles.add(at(2, i))
	}
	s.applyBytes(3, pack(1, 3, record{kind: kindSettle, client: []byte("c"), ref: at(1, 0), data: settles.b}, message("q", strings.Repeat("x", 60)), message("q", strings.Repeat("x", 60))), nil)
	if queued() != 1 {
		t.Errorf("%d messages are queued, want one of 60 bytes: limit 100", queued())
	}
	s.applyBytes(4, pack(1, 4, message("a", "x"), message("b", "x"), message("c", "x"), message("a", "y"), message("b", ""), message("d", "x"),
		record{kind: kindRetain, data: message("e", "x").data}), nil)
	if got := fmt.Sprint(s.refused); !strings.Contains(got, "{2 ") || !strings.Contains(got, "{6 ") || len(s.refused) != 2 || len(s.retained) != 2 {
		t.Errorf("refused %v, %d retained; want the third topic and the fifth refused", got, len(s.retained))
	}
	held := message("f", "x")
	held.kind, held.client, held.id = kindHold, []byte("c"), 1
	s.applyBytes(5, pack(1, 5, held, record{kind: kindRelease, client: []byte("c"), ref: at(5, 0)}), nil)
	if len(s.refused) != 1 || !errors.Is(s.refused[0].err, errRetainedFull) || len(s.allHeld()) != 1 {
		t.Errorf("refused %v, %d held; want the release refused and the message held", s.refused, len(s.allHeld()))
	}
	// The author that was silent for longest is forgotten, and what it appends has no effect any more.
	s.applyBytes(6, pack(2, 1, record{kind: kindSync}), nil)
	s.applyBytes(7, pack(3, 1, record{kind: kindSync}), nil)
	if s.applyBytes(8, pack(1, 6, record{kind: kindSync}), nil) || s.last(1) != 0 || s.last(2) != 1 {
		t.Errorf("authors %v; want the first forgotten", s.authors)
	}
	check(t, s)
}
