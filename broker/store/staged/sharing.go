package staged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
)

// orphansEvery is how often the consumers of groups are looked for that have no member any more: of nodes that died.
const orphansEvery = time.Minute

// sharer looks after the groups.
func (s *Store) sharer() {
	defer close(s.shared)
	tick := time.NewTicker(shareTick)
	defer tick.Stop()
	swept := time.Now()
	var suspects map[string]bool
	for {
		select {
		case <-s.stop:
			s.letGo(true) // an orderly end: the next start delivers nothing again that was settled
			return
		case <-tick.C:
		}
		s.letGo(false)
		for _, g := range s.tending() {
			g.tend()
		}
		if time.Since(swept) > orphansEvery {
			swept = time.Now()
			suspects = s.removeOrphans(suspects)
		}
	}
}

func (s *Store) tending() []*group {
	s.shareMu.Lock()
	defer s.shareMu.Unlock()
	all := make([]*group, 0, len(s.groups))
	for _, g := range s.groups {
		all = append(all, g)
	}
	return all
}

// tend makes the consumer of a group again if it is gone, and asks again where a request is overdue: it died with a leader.
func (g *group) tend() {
	idle := g.s.closed(g)
	g.mu.Lock()
	missing := g.missing
	g.mu.Unlock()
	if missing && !idle {
		ctx, cancel := context.WithTimeout(context.Background(), askAgain)
		err := g.create(ctx)
		cancel()
		if err != nil {
			g.s.log.Debug("consumer of a shared subscription", "filter", g.filter, "error", err)
			return
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.missing = false
	for i := len(g.pulls) - 1; i >= 0; i-- {
		if time.Since(g.pulls[i].issued) > pullExpires+time.Second {
			g.done(i)
		}
	}
	for _, m := range g.ring {
		g.ask(m)
	}
}

// arrived takes what was handed out to a member as the stream delivers it. It reports false for what the member has
// settled, else how it is settled, and given back, now.
func (m *groupMember) arrived(f *feed, seq uint64, msg *nats.Msg) (settle, back func(), ok bool) {
	from := handedFrom(msg.Subject)
	h, group, reply := &m.g.s.settling, m.g.name, msg.Reply
	if h.has(group, m.token, seq) {
		f.mark(seq)
		return nil, nil, false
	}
	m.took(from)
	settle = func() {
		f.mark(seq)
		h.add(group, m.token, seq, from, reply)
	}
	back = func() {
		m.g.mu.Lock()
		m.unsent[from] = true
		m.g.mu.Unlock()
	}
	return settle, back, true
}

// settledBefore takes what comes again though the member has settled it: the acknowledgement was lost, or is still waiting.
func (m *groupMember) settledBefore(seq uint64, msg *nats.Msg) {
	m.g.s.settling.add(m.g.name, m.token, seq, handedFrom(msg.Subject), msg.Reply)
}

// handedFrom is the sequence of the message that was handed out under a subject.
func handedFrom(subject string) uint64 {
	rest := strings.TrimPrefix(subject, handedRoot)
	_, rest, _ = strings.Cut(rest, ".")
	number, _, _ := strings.Cut(rest, ".")
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}

// settleDown waits a moment until the member's session has said what became of the message that it is being handed.
func (m *groupMember) settleDown() {
	for end := time.Now().Add(shareTick); m.busy.Load() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// untaken is what was handed out to a member that is not connected any more and its session did not get.
func (m *groupMember) untaken() map[uint64]bool {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	all := make(map[uint64]bool, len(m.out)+len(m.unsent))
	for seq := range m.out {
		all[seq] = true
	}
	for seq := range m.unsent {
		all[seq] = true
	}
	return all
}

// leftover is what was handed out to a member whose session goes on, and did not get to it while it was here.
type leftover struct {
	untaken map[uint64]bool
	subject string // of the feed: it tells whether there was another one since, on another node
}

// remember notes what a member leaves behind.
func (s *Store) remember(m *groupMember) {
	untaken := m.untaken()
	if len(untaken) == 0 {
		return
	}
	s.shareMu.Lock()
	defer s.shareMu.Unlock()
	s.left[m.token] = leftover{untaken, m.feed.cfg.DeliverSubject}
}

// recall returns what a member left behind, if its session was nowhere else since.
func (s *Store) recall(ctx context.Context, client, filter string) (map[uint64]bool, error) {
	token := memberToken(client, filter)
	s.shareMu.Lock()
	left, ok := s.left[token]
	delete(s.left, token)
	s.shareMu.Unlock()
	if !ok {
		return nil, nil
	}
	var consumer jetstream.PushConsumer
	err := persist(ctx, func(ctx context.Context) (err error) {
		consumer, err = s.js.PushConsumer(ctx, msgsStream, consumerName(client, filter))
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case consumer.CachedInfo().Config.DeliverSubject != left.subject:
		return nil, nil
	}
	return left.untaken, nil
}

// unshare forgets a member whose session is kept.
func (s *Store) unshare(ctx context.Context, client, filter string) error {
	untaken, err := s.recall(ctx, client, filter)
	if err != nil {
		return err
	}
	return s.forgetMember(ctx, client, filter, consumerName(client, filter), untaken)
}

// forgetMember removes a member for good, and the group's consumer with the last one. consumer is the member's. What was
// handed out to it and did not get to its session, as untaken tells, goes back to the group, and so does what it has not
// acknowledged of QoS 1; it must not be the case for QoS 2 [MQTT-4.8.2-5]. That happens after the consumer is gone: if the
// node dies in between it is lost with the session that ended, and not delivered twice.
func (s *Store) forgetMember(ctx context.Context, client, filter, consumer string, untaken map[uint64]bool) error {
	group, token := shareName(filter), memberToken(client, filter)
	left, err := s.leftOver(ctx, group, token, untaken)
	if err != nil {
		return err
	}
	if consumer != "" {
		if err := s.drop(ctx, consumer); err != nil {
			return err
		}
	}
	s.settling.drop(group, token)
	for _, l := range left {
		id := group + "." + strconv.FormatUint(l.Message.Seq, 36) + ".b"
		if err := s.giveBack(group, id, l.Message.Data); err != nil {
			s.log.Warn("give back to a shared subscription", "filter", filter, "error", err)
		}
	}
	s.shareMu.Lock()
	g := s.groups[filter]
	connected := g != nil && g.users > 0
	s.shareMu.Unlock()
	if connected {
		return nil
	}
	names, err := s.consumerNames(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, memberPrefix(group)) && name != consumer {
			return nil
		}
	}
	return s.drop(ctx, group)
}

// leftOver reads what is to go back to the group.
func (s *Store) leftOver(ctx context.Context, group, token string, untaken map[uint64]bool) (left []*stored, err error) {
	for next := uint64(1); ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		got, err := s.get(msgsStream, fmt.Sprintf(`{"seq":%d,"next_by_subj":"%s%s.*.%s"}`, next, handedRoot, group, token))
		if errors.Is(err, store.ErrNotFound) {
			return left, nil
		}
		if err != nil {
			return nil, err
		}
		next = got.Message.Seq + 1
		if s.settling.has(group, token, got.Message.Seq) {
			continue
		}
		m, err := store.Decode(got.Message.Data)
		if err == nil && (m.QoS == 1 || untaken[handedFrom(got.Message.Subject)]) {
			left = append(left, got)
		}
	}
}

// giveBack makes a message one of the group again.
func (s *Store) giveBack(group, id string, data []byte) error {
	ch := make(chan error, 1)
	msg := &nats.Msg{Subject: backRoot + group, Header: nats.Header{jetstream.MsgIDHeader: {id}}, Data: data}
	s.calls.send(msg, func(data []byte, err error) {
		if err == nil {
			_, _, err = parsePubAck(data)
		}
		ch <- err
	})
	return <-ch
}

// consumerNames lists the consumers of the delivery stream.
func (s *Store) consumerNames(context.Context) (names []string, err error) {
	return s.consumersOf(msgsStream)
}

// consumersOf lists the consumers of a stream.
func (s *Store) consumersOf(stream string) (names []string, err error) {
	for {
		data, err := s.askAgain("$JS.API.CONSUMER.NAMES."+stream, []byte(`{"offset":`+strconv.Itoa(len(names))+`}`), true)
		if err != nil {
			return nil, err
		}
		var page struct {
			Error     *apiError `json:"error"`
			Total     int       `json:"total"`
			Consumers []string  `json:"consumers"`
		}
		switch err := json.Unmarshal(data, &page); {
		case err != nil:
			return nil, err
		case page.Error != nil:
			return nil, page.Error
		}
		names = append(names, page.Consumers...)
		if len(page.Consumers) == 0 || len(names) >= page.Total {
			return names, nil
		}
	}
}

// removeOrphans removes the consumers of groups without a member that had none a round before either. A member has a consumer
// before its group has.
func (s *Store) removeOrphans(before map[string]bool) (suspects map[string]bool) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	names, err := s.consumerNames(ctx)
	if err != nil {
		return nil
	}
	suspects = make(map[string]bool)
	for _, name := range names {
		if strings.HasPrefix(name, groupConsumer) {
			suspects[name] = true
		}
	}
	for _, name := range names {
		if member, ok := strings.CutPrefix(name, memberConsumer); ok {
			group, _, _ := strings.Cut(member, "_")
			delete(suspects, groupConsumer+group)
		}
	}
	for _, g := range s.tending() {
		delete(suspects, g.name)
	}
	for name := range suspects {
		if before[name] {
			if err := s.drop(ctx, name); err != nil {
				s.log.Debug("consumer of a shared subscription without members", "error", err)
			}
		}
	}
	return suspects
}
