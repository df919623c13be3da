package staged

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"inflight/broker/store"
	"inflight/broker/topic"
)

const (
	// shareAckWait is after how long a message that a node pulled for a group is for another one, if it was not handed out:
	// that node is gone.
	shareAckWait = 5 * time.Second
	// shareAckPending bounds the messages of a group that are pulled and not handed out for good.
	shareAckPending = 8192
	// inboxAckPending bounds the messages that were handed out to a member and are not let go of, see settling.
	inboxAckPending = 1 << 16
	// memberCredit is how many messages wait for one member at most; one that has as many is passed over.
	memberCredit = 64
	// memberPulls requests of pullBatch messages each are open for a member that takes what it gets.
	memberPulls = 2
	pullBatch   = memberCredit / 4
	// pullExpires is how long a request waits for messages; it is made again after that, or when it is overdue.
	pullExpires = 5 * time.Second
	// shareTick is how often the groups are looked after.
	shareTick = 500 * time.Millisecond
)

// Subjects, below msgsRoot, of what was handed out to a member (<root>.<group>.<sequence>.<member>) and of what comes back
// from one (<root>.<group>).
const (
	handedBranch = "i."
	backBranch   = "j."
	handedRoot   = msgsRoot + "_." + handedBranch
	backRoot     = msgsRoot + "_." + backBranch
)

// Names of the consumers of groups and of members begin so.
const (
	groupConsumer  = "share_"
	memberConsumer = "member_"
)

// shareName is the consumer of a group, and the token of the group in subjects.
func shareName(filter string) string { return groupConsumer + hash(filter) }

// memberToken is a member of any group in subjects.
func memberToken(client, filter string) string { return hash(client, filter) }

// memberPrefix begins the names of the consumers of a group's members.
func memberPrefix(group string) string { return memberConsumer + group[len(groupConsumer):] + "_" }

// consumerName is the durable consumer of a subscription.
func consumerName(client, filter string) string {
	if _, _, shared := topic.Shared(filter); shared {
		return memberPrefix(shareName(filter)) + memberToken(client, filter)
	}
	return "c" + hash(client, filter)
}

// group is what the connected members of a shared subscription on this node have in common. See the package's text.
//
// Each member asks the group's consumer for as much as it has room for. JetStream serves open requests in turn, so each
// member of any node gets its turn; what comes to this node goes to its members in the order in which the stream has it.
type group struct {
	s        *Store
	name     string
	filter   string
	subjects []string // of the filter inside
	cfg      jetstream.ConsumerConfig
	inbox    string

	// Under Store.shareMu.
	users  int
	sub    *nats.Subscription   // of what is pulled
	quicks []*nats.Subscription // of QoS 0 publications

	mu      sync.Mutex
	ring    []*groupMember // in the order in which they came
	next    int            // of ring, whose turn it is
	quick   int            // the same for QoS 0 publications
	pulls   []*pull        // open, in the order in which JetStream serves them: the first gets a message and goes to the end
	token   uint64         // of the last pull
	missing bool           // the consumer is gone, or nobody serves it: see tend
}

// groupMember is a shared subscription whose client is connected.
type groupMember struct {
	g        *group
	token    string
	feed     *feed  // of what is handed out to it; nil at QoS 0
	consumer string // its name
	deliver  func(store.Delivery)
	plain    chan store.Delivery // at QoS 0: publications of QoS 1 and 2, of which nothing is kept
	busy     atomic.Bool         // its session is being handed a message
	stop     chan struct{}
	closed   sync.Once
	close    func()

	// Under group.mu.
	out       map[uint64]bool // handed out, by sequence, and not taken by its session
	unsent    map[uint64]bool // taken by its session, and not sent
	sending   int             // on their way to the stream
	connected bool            // in the ring
	asked     int             // messages that were asked for and did not come
	pulls     int
}

// share starts the feed of a shared subscription: of a member of its group.
func (s *Store) share(ctx context.Context, client string, sub store.Subscription, durable bool, deliver func(store.Delivery)) (store.Feed, error) {
	_, inner, _ := topic.Shared(sub.Filter)
	var subjects []string
	for _, subject := range topic.SubjectFilter(inner) {
		if len(subject) > s.maxSubject {
			return nil, fmt.Errorf("subscribe to %.100q: as a subject it takes %d bytes, limit %d", sub.Filter, len(subject), s.maxSubject)
		}
		subjects = append(subjects, subject)
	}
	m := &groupMember{
		g: s.enter(sub.Filter, subjects), token: memberToken(client, sub.Filter), deliver: deliver, out: make(map[uint64]bool),
		unsent: make(map[uint64]bool), plain: make(chan store.Delivery, memberCredit), stop: make(chan struct{}),
	}
	keep := durable && sub.QoS > 0
	m.close = func() {
		m.g.leave(m)
		if m.feed != nil {
			m.feed.Close()
		}
		close(m.stop)
		m.settleDown()
		if keep {
			s.remember(m)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
		defer cancel()
		if err := s.forgetMember(ctx, client, sub.Filter, m.consumer, m.untaken()); err != nil && !errors.Is(err, store.ErrClosed) {
			s.log.Warn("remove shared subscription", "filter", sub.Filter, "error", err)
		}
	}
	err := m.begin(ctx, client, sub, keep)
	if err == nil {
		err = m.g.join(ctx, m)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("subscribe to %.100q: %w", sub.Filter, ended(err))
	}
	if sub.QoS == 0 {
		go m.run()
	}
	return m, nil
}

// begin starts the feed of what is handed out to the member. Its consumer comes first: a group's consumer without any
// member's is removed.
func (m *groupMember) begin(ctx context.Context, client string, sub store.Subscription, keep bool) error {
	if sub.QoS == 0 {
		return nil
	}
	s := m.g.s
	m.feed = s.newFeed(sub.QoS, m.deliver)
	m.feed.member = m
	cfg := jetstream.ConsumerConfig{
		Durable:   consumerName(client, sub.Filter),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: inboxAckPending, MaxDeliver: -1,
		Replicas: s.cfg.Replicas, FilterSubject: handedRoot + m.g.name + ".*." + m.token,
	}
	var err error
	m.consumer, err = s.begin(ctx, m.feed, cfg, keep)
	return err
}

// Close ends the member's being connected.
func (m *groupMember) Close() { m.closed.Do(m.close) }

// run hands over what comes to a subscription of QoS 0.
func (m *groupMember) run() {
	for {
		select {
		case <-m.stop:
			return
		case <-m.g.s.stop:
			return
		case d := <-m.plain:
			m.took(d.Seq)
			d.Seq = 0
			m.deliver(d)
		}
	}
}

// enter returns the group of a shared subscription, for one more member.
func (s *Store) enter(filter string, subjects []string) *group {
	s.shareMu.Lock()
	defer s.shareMu.Unlock()
	g := s.groups[filter]
	if g == nil {
		g = &group{
			s: s, name: shareName(filter), filter: filter, subjects: subjects, inbox: "inf.w." + nuid.Next() + ".",
			cfg: jetstream.ConsumerConfig{
				Durable: shareName(filter), AckPolicy: jetstream.AckExplicitPolicy,
				AckWait: shareAckWait, MaxAckPending: shareAckPending, MaxDeliver: -1, MaxWaiting: 1 << 16,
			},
		}
		for _, subject := range subjects {
			g.cfg.FilterSubjects = append(g.cfg.FilterSubjects, anyOrigin+subject)
		}
		g.cfg.FilterSubjects = append(g.cfg.FilterSubjects, backRoot+g.name)
		s.groups[filter] = g
	}
	g.users++
	return g
}

// exit is the end of enter. Without members what still answers requests is given back to the group until all of them have
// ended: what would come to nobody would be missed for shareAckWait.
func (s *Store) exit(g *group) {
	s.shareMu.Lock()
	defer s.shareMu.Unlock()
	if g.users--; g.users > 0 {
		return
	}
	for _, sub := range g.quicks {
		g.s.drops.end(sub)
		_ = sub.Unsubscribe()
	}
	g.quicks = nil
}

// closed ends a group without members once its requests have ended, and reports whether it has no members.
func (s *Store) closed(g *group) (idle bool) {
	s.shareMu.Lock()
	defer s.shareMu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users > 0 {
		return false
	}
	if len(g.pulls) == 0 {
		if g.sub != nil {
			_ = g.sub.Unsubscribe()
		}
		delete(s.groups, g.filter)
	}
	return true
}

// join makes m a connected member of its group.
func (g *group) join(ctx context.Context, m *groupMember) error {
	// Also where this node has members: the last one of another node may just have taken the consumer with it.
	if err := g.create(ctx); err != nil {
		return err
	}
	g.s.shareMu.Lock()
	delete(g.s.left, m.token)
	err := g.listen()
	g.s.shareMu.Unlock()
	if err != nil {
		return err
	}
	if err := g.s.nc.FlushWithContext(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ring, m.connected, g.missing = append(g.ring, m), true, false
	g.ask(m)
	return nil
}

// create creates the group's consumer, which begins with what is stored after this (see fromNow), or finds it: one that is
// there began before. The answer that it exists can come before any node has made it, and until one has, the stream lets go
// of what is stored: only its leader's own answer says that it is there.
func (g *group) create(ctx context.Context) error {
	for {
		cfg := g.cfg
		if err := g.s.fromNow(&cfg); err != nil {
			return err
		}
		err := persist(ctx, func(ctx context.Context) error {
			_, err := g.s.js.CreateConsumer(ctx, msgsStream, cfg)
			return err
		})
		if errors.Is(err, jetstream.ErrConsumerExists) {
			err = persist(ctx, func(ctx context.Context) error {
				_, err := g.s.js.Consumer(ctx, msgsStream, g.name) // which its leader answers
				return err
			})
			if errors.Is(err, jetstream.ErrConsumerNotFound) && ctx.Err() == nil {
				continue // the last member of another node has just taken it away
			}
		}
		if err != nil {
			return err
		}
		return g.s.declare(ctx)
	}
}

// listen subscribes to what is pulled, and, as one of the nodes that have members, to QoS 0 publications. The lock of the
// groups is held.
func (g *group) listen() (err error) {
	if g.sub == nil {
		if g.sub, err = g.s.nc.Subscribe(g.inbox+"*", g.pulled); err != nil {
			return err
		}
		if err = g.sub.SetPendingLimits(-1, -1); err != nil { // what was asked for bounds it
			return err
		}
	}
	for _, subject := range g.subjects[len(g.quicks):] {
		sub, err := g.s.nc.QueueSubscribe(transient+subject, g.name, g.transient)
		if err != nil {
			return err
		}
		g.quicks = append(g.quicks, sub)
		if err := g.s.drops.bound(sub); err != nil {
			return err
		}
	}
	return nil
}

// leave ends a member's being connected. Nothing is on its way to it when it returns.
func (g *group) leave(m *groupMember) {
	g.mu.Lock()
	m.connected = false
	if i := slices.Index(g.ring, m); i >= 0 {
		g.ring = slices.Delete(g.ring, i, i+1)
		if g.next > i {
			g.next--
		}
	}
	g.mu.Unlock()
	g.s.exit(g)
	for end := time.Now().Add(closeWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		g.mu.Lock()
		sending := m.sending
		g.mu.Unlock()
		if sending == 0 {
			return
		}
	}
}

// offer hands a message to a subscription of QoS 0; it may be dropped.
func (m *groupMember) offer(seq uint64, msg *nats.Msg) {
	decoded, err := store.Decode(msg.Data)
	if err == nil {
		select {
		case m.plain <- store.Delivery{Message: decoded, Seq: seq, Settle: func() {}}:
			return
		default:
		}
	}
	m.took(seq)
}

// took notes that a member's session has got a message, which makes room for another one.
func (m *groupMember) took(seq uint64) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	delete(m.out, seq)
	m.g.ask(m)
}

// transient takes a QoS 0 publication, which no other node gets.
func (g *group) transient(msg *nats.Msg) {
	g.mu.Lock()
	n := len(g.ring)
	if n == 0 {
		g.mu.Unlock()
		return
	}
	m := g.ring[g.quick%n]
	g.quick = (g.quick + 1) % n
	g.mu.Unlock()
	if decoded, err := store.Decode(msg.Data); err == nil {
		m.deliver(store.Delivery{Message: decoded, Settle: func() {}})
	}
}
