package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"inflight/broker/ids"
	"inflight/broker/store"
	"inflight/broker/topic"
)

// limits is what a journal keeps at most. They are part of what a record does, so every node must have the same.
type limits struct {
	queued   int // messages of one session, all its subscriptions together, or of one group
	bytes    int // and their bytes; a record changes it
	credit   int // messages that a member of a group has not settled: for a slow one none should wait that others could have had
	retained int // topics with a retained message
	authors  int // that the state remembers; the one that was silent for longest goes first
}

// journalLimits are the limits of every journal.
var journalLimits = limits{queued: 1 << 20, bytes: 1 << 30, credit: 256, retained: 1_000_000, authors: 1024}

// maxNames bounds the topics that are kept as strings.
const maxNames = 8192

// Why a record has no effect.
var (
	errFenced       = errors.New("the session is served elsewhere, or it ended")
	errRetainedFull = errors.New("as many topics as possible have a retained message, no room for another")
)

// audience is what a node adds to the state: its open feeds. The state calls it while a batch is applied.
type audience interface {
	// mine reports whether an author is this node's.
	mine(author uint64) bool
	// wants reports whether a feed of this node is for messages of a topic.
	wants(topic string) bool
	// published tells of a message that takes effect, for feeds that keep nothing.
	published(p pos, m *msg, topic string)
	// queued tells of an entry of a subscription that has a feed here.
	queued(sub *subscription, e entry)
	// ended tells that the feed of a subscription here must deliver no more: it is gone, or served by another node.
	ended(sub *subscription)
	// parted tells that the feed of a member here was taken for one of a node that is gone.
	parted(sub *subscription)
	// dropped tells of a message that found no room in a session.
	dropped(sub *subscription, qos byte)
	// overflowed tells of one that found none in a group.
	overflowed(g *group, qos byte)
}

// state is the journal applied. It does no I/O and knows no clock: the same batches in the same order make the same state
// on every node, whatever their audiences. It is under Store.mu.
//
// Invariants:
//   - a batch has effect if its author's number is the next one, and none otherwise: an append that is repeated because its
//     outcome is not known has effect once, and appends of one author have effect in their order;
//   - a record of a session has effect if its epoch is that of the last claim of the client, and none otherwise;
//   - msg.refs counts who needs the bytes at msg.pos: the held copy, each queue, each group, the topic's retained message.
//     journal.low never passes a message with refs, so what the journal trims nobody needs.
type state struct {
	applied  uint64 // sequence of the last batch
	authors  map[uint64]*author
	sessions map[string]*session // by Client Identifier
	epochs   map[pos]*session    // by the claim
	subs     map[pos]*subscription
	holds    holds
	tree     topic.Tree[*subscription] // but the shared ones
	retained map[string]retained       // by topic
	journal  extent

	groups    map[string]*group // by the Topic Filter of the shared subscriptions
	groupTree topic.Tree[*group]
	seats     map[pos]*subscription // the connected members, by sharing.seat

	changes pos // of the last change of a retained message
	limits  limits

	grown    int64 // journal since it was trimmed last, as far as this node has seen it
	audience audience
	cache    cache
	names    map[string]string
	recent   *session // of the last record with an epoch: the next one's is mostly the same
	named    string   // the topic that was looked up last: the next one's is mostly the same
	records  []record // scratch
	at       pos      // of the record that is being applied
	current  current
	refused  []refusal
}

// author is a store that appends: one for each time that a node opens its store.
type author struct {
	last uint64 // number of its last batch
	seen uint64 // sequence of it
}

// session is what is kept of a client.
type session struct {
	client   string
	epoch    pos    // of the last claim; 0: never claimed
	record   []byte // as JSON; nil: none
	revision pos    // of the record: its position
	outbound []byte
	held     ids.Table[held] // by Packet Identifier: the newest copy
	subs     map[string]*subscription
	queued   int // messages in all queues
	bytes    int // and their bytes
	full     bool
}

// msg is a message in the journal.
type msg struct {
	pos  pos   // of the record that has its bytes
	size int32 // about what it costs, see store.Message.Size
	refs int32
	qos  byte

	// Of this node alone, see cache.
	users int32
	body  *store.Message
}

// subscription is a durable one, with what it has not settled.
type subscription struct {
	number pos // of the record that made it
	sess   *session
	filter string
	opts   []byte // store.Subscription as JSON
	opened pos    // of the record that opened its feed last; on this node, 0: another one took the client over since
	queue  queue
	sharing

	feed *feed // of this node; nil: none
}

type retained struct {
	*msg
	change pos
}

// refusal is a record without effect.
type refusal struct {
	index int
	err   error
}

// current is the message of the record that is being applied.
type current struct {
	of   *msg
	data []byte         // its bytes, in the batch
	own  *store.Message // as the caller gave it, on the node that appended it
	made *store.Message
}

func newState() *state {
	return &state{
		authors: make(map[uint64]*author), sessions: make(map[string]*session), epochs: make(map[pos]*session),
		subs: make(map[pos]*subscription), holds: holds{strays: make(map[pos]*held)}, retained: make(map[string]retained),
		groups: make(map[string]*group), seats: make(map[pos]*subscription),
		names: make(map[string]string), limits: journalLimits,
	}
}

// apply applies the batch with sequence seq, which is the next one, and b what [open] made of it. own are the messages of its records as they were given
// to this node, or nil. It reports whether the batch has effect; refused then lists the records that have none.
func (s *state) apply(seq uint64, data []byte, b batch, own func(index int) *store.Message) (effect bool) {
	s.applied = seq
	s.journal.push(seq, len(data), checksum(data))
	s.grown += int64(len(data)) + batchCost
	s.refused = s.refused[:0]
	if !b.whole {
		return false
	}
	var err error
	if s.records, err = b.decodeAll(s.records); err != nil || !s.accept(b, seq) {
		return false
	}
	s.journal.room = bringing(s.records)
	for i := range s.records {
		s.current = current{}
		if own != nil {
			s.current.own = own(i)
		}
		if err := s.take(at(seq, i), &s.records[i], b.author); err != nil {
			s.refused = append(s.refused, refusal{i, err})
		}
		s.records[i] = record{}
	}
	s.current = current{}
	return true
}

// accept reports whether a batch is the next one of its author.
func (s *state) accept(b batch, seq uint64) bool {
	a := s.authors[b.author]
	if a == nil {
		if b.number != 1 {
			return false
		}
		if len(s.authors) >= s.limits.authors {
			s.forgetAuthor()
		}
		a = &author{}
		s.authors[b.author] = a
	}
	if b.number != a.last+1 {
		return false
	}
	a.last, a.seen = b.number, seq
	return true
}

// last is the number of an author's last batch.
func (s *state) last(id uint64) uint64 {
	if a := s.authors[id]; a != nil {
		return a.last
	}
	return 0
}

func (s *state) forgetAuthor() {
	var oldest uint64
	seen := ^uint64(0)
	for id, a := range s.authors {
		if a.seen < seen {
			oldest, seen = id, a.seen
		}
	}
	delete(s.authors, oldest)
}

// take applies one record.
func (s *state) take(p pos, r *record, author uint64) error {
	s.at = p
	switch r.kind {
	case kindClaim:
		s.claim(p, string(r.client), author)
	case kindPublish:
		return s.publish(p, r.data)
	case kindRetain:
		return s.retainOnly(p, r.data)
	case kindCarry:
		s.carry(p, r.ref, len(r.data) == 0)
	case kindTrim:
		s.journal.trim(uint64(r.ref))
		s.grown = 0
	case kindGone:
		s.authorGone(uint64(r.ref))
	case kindLimit:
		s.limits.bytes = int(r.ref)
	}
	if !r.kind.named() {
		return nil
	}
	sess, err := s.session(r)
	if err != nil {
		return err
	}
	switch r.kind {
	case kindSession:
		sess = s.keep(sess, r)
		sess.record, sess.revision = bytes.Clone(r.data), p
	case kindSwap:
		if sess = s.keep(sess, r); sess.revision != r.ref {
			s.tidy(sess)
			return store.ErrConflict
		}
		sess.record, sess.revision = bytes.Clone(r.data), p
	case kindOutbound:
		sess = s.keep(sess, r)
		if sess.outbound = nil; len(r.data) > 0 {
			sess.outbound = bytes.Clone(r.data)
		}
	case kindHold:
		s.hold(p, s.keep(sess, r), r.id, r.data)
		return nil
	case kindSubscribe, kindJoin:
		return s.subscribe(p, s.keep(sess, r), r, author)
	}
	if sub := s.seats[r.ref]; r.kind == kindTake && (sess == nil || sub == nil || sub.sess != sess) {
		return errFenced // what is not recorded must not be sent
	}
	if sess == nil {
		return nil
	}
	switch r.kind {
	case kindSessionGone:
		if sess.revision <= r.ref {
			sess.record, sess.revision = nil, 0
			s.unclaim(sess)
		}
	case kindRelease:
		return s.release(p, sess, r.ref)
	case kindDiscard:
		if h := s.holding(r.ref); h != nil && h.sess == sess {
			s.unhold(h)
		}
	case kindForget:
		s.forget(sess)
	case kindUnsubscribe:
		s.unsubscribe(sess.subs[string(r.data)])
	case kindSettle:
		if sub := s.subs[r.ref]; sub != nil && sub.sess == sess {
			eachSettled(r.data, func(d pos) { s.settle(sub, d) })
			if sub.group != nil {
				s.dispatch(sub.group)
			}
		}
	case kindTake:
		s.taken(s.seats[r.ref], r.upto())
	case kindPart:
		if sub := s.seats[r.ref]; sub != nil && sub.sess == sess {
			s.part(sub)
		}
	case kindBack:
		// After the seat's end its entries may be with the session's next feed.
		if sub := s.seats[r.ref]; sub != nil && sub.sess == sess {
			s.giveBack(sub, r.data)
		}
	}
	s.tidy(sess)
	return nil
}

// session finds the session that a record is of; nil when nothing is kept of the client. A record whose epoch is not the
// client's is fenced off.
func (s *state) session(r *record) (*session, error) {
	if r.epoch != 0 {
		if s.recent != nil && s.recent.epoch == r.epoch { // its claim is still that one
			return s.recent, nil
		}
		if sess := s.epochs[r.epoch]; sess != nil {
			s.recent = sess
			return sess, nil
		}
		return nil, errFenced
	}
	sess := s.sessions[string(r.client)]
	if sess != nil && sess.epoch != 0 && !r.conditional() {
		return nil, errFenced
	}
	return sess, nil
}

// keep returns the session, new if there is none.
func (s *state) keep(sess *session, r *record) *session {
	if sess == nil {
		sess = s.account(string(r.client))
	}
	return sess
}

func (s *state) account(client string) *session {
	sess := s.sessions[client]
	if sess == nil {
		sess = &session{client: client, subs: make(map[string]*subscription)}
		s.sessions[client] = sess
	}
	return sess
}

// tidy forgets a session of which nothing is left.
func (s *state) tidy(sess *session) {
	if sess.epoch == 0 && sess.record == nil && sess.outbound == nil && sess.held.Len() == 0 && len(sess.subs) == 0 {
		delete(s.sessions, sess.client)
	}
}

// claim gives a client to an author: what other authors still append for it is fenced off, and their feeds end.
func (s *state) claim(p pos, client string, author uint64) {
	sess := s.account(client)
	s.unclaim(sess)
	for _, sub := range sess.subs {
		if s.audience != nil && !s.audience.mine(author) {
			s.end(sub)
			sub.opened = 0
		}
		if sub.author != author {
			s.part(sub)
		}
	}
	sess.epoch = p
	s.epochs[p] = sess
}

// unclaim ends the claim of a client, if there is one.
func (s *state) unclaim(sess *session) {
	delete(s.epochs, sess.epoch)
	sess.epoch = 0
}

// end ends the feed of a subscription on this node.
func (s *state) end(sub *subscription) {
	if sub.feed != nil {
		s.audience.ended(sub)
	}
}

// subscribe makes a subscription, or continues the one that there is. The latest author has its feed.
func (s *state) subscribe(p pos, sess *session, r *record, author uint64) error {
	var o store.Subscription
	err := json.Unmarshal(r.data, &o)
	_, inner, shared := topic.Shared(o.Filter)
	if err != nil || r.kind == kindJoin && !shared {
		s.tidy(sess)
		return fmt.Errorf("subscription: %w", errCorrupt)
	}
	sub := sess.subs[o.Filter]
	if sub == nil {
		sub = &subscription{number: p, sess: sess, filter: o.Filter}
		sess.subs[o.Filter] = sub
		s.subs[p] = sub
		if shared {
			s.membership(sub, inner)
		} else {
			s.tree.Add(o.Filter, sess.client, sub)
		}
	}
	s.end(sub)
	sub.opts, sub.opened = bytes.Clone(r.data), p
	if shared {
		s.unseat(sub)
		sub.transient, sub.qos = r.kind == kindJoin, o.QoS
		s.connect(sub, author)
	}
	return nil
}

func (s *state) unsubscribe(sub *subscription) {
	switch {
	case sub == nil:
		return
	case sub.group != nil:
		s.resign(sub)
		return
	}
	s.end(sub)
	for e := range sub.queue.all() {
		s.unqueue(sub, e)
	}
	delete(sub.sess.subs, sub.filter)
	delete(s.subs, sub.number)
	s.tree.Remove(sub.filter, sub.sess.client)
}
