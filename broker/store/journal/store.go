package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
	"inflight/broker/topic"
)

// Config of the store.
type Config struct {
	Conn     *nats.Conn    // of this store alone; it is closed with it
	Replicas int           // of every stream; 0 means 1
	Timeout  time.Duration // of one store operation; 0 means 10 s
	Sync     bool          // the node syncs each write: named in the durability, not configured here
	Lead     string        // server name that should lead the streams; "": whichever JetStream chooses
	Log      *slog.Logger

	QueueBytes int   // of the messages that wait for one session, or one group; the last store to open says so for all; 0 means 1 GiB
	MaxBytes   int64 // of the journal; with more, new messages wait; 0 means 8 GiB
	CacheBytes int   // of message bodies that wait for a feed in memory; 0 means 256 MiB
	FeedBytes  int   // and of those of one feed; 0 means 32 MiB
	Every      int64 // bytes of journal between two snapshots, at most an eighth of MaxBytes; 0 means 64 MiB

	Dropped func(qos byte) // called for each message that a subscription does not get; it must not block; may be nil
}

func (c Config) withDefaults() Config {
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.QueueBytes == 0 {
		c.QueueBytes = journalLimits.bytes
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 8 << 30
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 256 << 20
	}
	if c.FeedBytes == 0 {
		c.FeedBytes = 32 << 20
	}
	if c.Every == 0 {
		c.Every = 64 << 20
	}
	c.Every = min(c.Every, max(c.MaxBytes/8, 1)) // or a small journal would be full before it is trimmed
	if c.Dropped == nil {
		c.Dropped = func(byte) {}
	}
	return c
}

// Store implements [store.Store] on a journal. Lock order: applying, mu, committer.mu; a feed's own lock is the innermost.
type Store struct {
	cfg    Config
	log    *slog.Logger
	wire   *wire
	acks   *acks
	heard  *nats.Subscription // to what the leader publishes
	commit *committer

	applying sync.Mutex // one batch at a time; st.applied changes under both locks
	out      []outcome  // scratch, under applying
	missing  int        // polls in a row that found no journal, under applying
	behind   int        // or one that ends before what was applied, under applying
	halted   bool       // under applying
	gap      int        // or one that goes on only later, under applying
	spare    []*feed    // scratch, under applying

	mu       sync.Mutex
	st       *state
	feeds    topic.Tree[*feed] // that keep nothing, by a key of their own
	open     map[*feed]struct{}
	woken    []*feed // have something new, to be told once mu is free
	mineIDs  map[uint64]bool
	isClosed bool

	epochMu sync.RWMutex
	epochs  map[string]pos // by Client Identifier: the claims of this store

	dirtyMu sync.Mutex
	dirty   []*feed // have something settled

	acked    atomic.Uint64 // highest sequence that JetStream said it stored
	grouped  atomic.Bool   // there are shared subscriptions
	moved    atomic.Int64  // when something was applied last, in Unix nanoseconds
	keeper   keeper
	pages    pages
	gathered chan struct{} // records wait to be sent
	stop     chan struct{}
	wg       sync.WaitGroup
	life     context.Context // ends with the store
	end      context.CancelFunc
}

// Open finds the journal or makes it, and applies it: the newest snapshot, then what came after. It returns once this
// node has seen all that was ever acknowledged. It retries until ctx ends, because a young cluster refuses for a while.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	s := &Store{
		cfg: cfg, log: cfg.Log, open: make(map[*feed]struct{}), mineIDs: make(map[uint64]bool), epochs: make(map[string]pos),
		wire: &wire{nc: cfg.Conn, js: js, replicas: cfg.Replicas, lead: cfg.Lead, log: cfg.Log},
		stop: make(chan struct{}), gathered: make(chan struct{}, 1), keeper: keeper{due: make(chan struct{}, 1)},
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.pages.wire, s.pages.life = s.wire, s.life
	author, err := s.newAuthor()
	if err != nil {
		s.end()
		return nil, err
	}
	s.commit = newCommitter(author, func(number uint64, data []byte) error { return s.wire.append(s.acks, number, data) },
		s.drainSettled, s.signal)
	s.commit.limit = min(maxBatch, int(cfg.Conn.MaxPayload())/2)
	if err := s.boot(ctx); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (s *Store) boot(ctx context.Context) error {
	if err := s.wire.ensure(ctx, snapshotStream, 0); err != nil {
		return err
	}
	base, err := s.load(ctx, nil)
	if err != nil {
		return err
	}
	first := uint64(0)
	if base.applied > 0 {
		first = base.applied + jump // if the journal is gone
	}
	if err := s.wire.ensure(ctx, journalStream, first); err != nil {
		return err
	}
	s.wire.moveLeader(ctx, snapshotStream)
	s.wire.moveLeader(ctx, journalStream)
	if base, err = s.fit(ctx); err != nil {
		return err
	}
	s.adopt(base)
	if s.acks, err = s.wire.listenAcks(s.commit.nack, s.stored); err != nil {
		return err
	}
	s.heard, err = s.wire.nc.Subscribe(appliedSubject, s.arrived)
	if err == nil {
		// What does not fit is read from the journal.
		err = s.heard.SetPendingLimits(-1, 64<<20)
	}
	if err == nil {
		err = s.wire.flush(ctx)
	}
	if err != nil {
		return fmt.Errorf("listen to the journal: %w", ended(err))
	}
	s.wg.Go(s.sender)
	s.wg.Go(s.ticker)
	s.wg.Go(s.keep)
	s.wg.Go(s.watch)
	for {
		// Whatever was acknowledged is before this record.
		if _, err = s.sync(ctx); err == nil || ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
			break
		}
	}
	if err == nil {
		err = s.limit(ctx)
	}
	if err != nil {
		s.Close()
		return fmt.Errorf("apply the journal: %w", err)
	}
	return nil
}

// limit makes the limit of queues what this store is configured for, on every node.
func (s *Store) limit(ctx context.Context) error {
	s.mu.Lock()
	now := s.st.limits.bytes
	s.mu.Unlock()
	if now == s.cfg.QueueBytes {
		return nil
	}
	s.log.Info("the limit of queues changes", "bytes", s.cfg.QueueBytes, "was", now)
	_, err := s.do(ctx, &record{kind: kindLimit, ref: pos(s.cfg.QueueBytes)})
	return err
}

// signal tells the sender that records wait.
func (s *Store) signal() {
	select {
	case s.gathered <- struct{}{}:
	default:
	}
}

// sender sends what has gathered.
func (s *Store) sender() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.gathered:
			s.commit.ready()
		}
	}
}

// newAuthor makes up an author, which no other store is, and lets others see that it is there.
func (s *Store) newAuthor() (uint64, error) {
	id := rand.Uint64()
	if err := s.wire.appear(id); err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.mineIDs[id] = true
	s.mu.Unlock()
	return id, nil
}

// adopt puts a state in the place of the one that there is; the open feeds go on with it.
func (s *Store) adopt(st *state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.st
	s.st = st
	s.grouped.Store(len(st.groups) > 0)
	st.audience, st.cache.limit = (*hall)(s), s.cfg.CacheBytes
	s.pages.forget()
	if old == nil {
		return
	}
	for f := range s.open {
		f.rebind(old, st)
	}
}

// stored notes that JetStream stored an append. That the batch is not here yet is no reason to worry for a moment.
func (s *Store) stored(seq uint64) {
	for {
		old := s.acked.Load()
		if seq <= old || s.acked.CompareAndSwap(old, seq) {
			return
		}
	}
}

// arrived takes a batch as the leader of the stream publishes it.
func (s *Store) arrived(m *nats.Msg) {
	b, err := takeStored(m)
	if err != nil {
		return
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.halted {
		return
	}
	switch applied := s.st.applied; {
	case b.seq > applied+1:
		s.catchUp(b.seq - 1)
	case b.seq <= applied && s.st.journal.differs(b.seq, b.data):
		s.rebuild()
		s.catchUp(b.seq)
	}
	if b.seq == s.st.applied+1 {
		s.applyOne(b)
	}
}

// catchUp reads what was missed, at least up to a sequence if the journal has it. It begins with the last batch that was
// applied, to see that it is still the same journal. applying is held.
func (s *Store) catchUp(until uint64) {
	for s.st.applied < until && !s.halted {
		batches, err := s.wire.read(s.life, journalStream, max(s.st.applied, 1), readBatches, readBytes)
		if err != nil && !errors.Is(err, store.ErrClosed) && s.life.Err() == nil {
			s.log.Warn("journal", "error", err)
		}
		before := s.st.applied
		for _, b := range batches {
			if b.seq == s.st.applied && s.st.journal.differs(b.seq, b.data) {
				s.rebuild()
				break
			}
			if b.seq > s.st.applied+1 && !s.skip(b.seq) {
				return
			}
			if b.seq == s.st.applied+1 {
				s.applyOne(b)
			}
		}
		if s.st.applied == before {
			return // the ticker comes again
		}
	}
}

// applyOne applies the next batch and reports to whom it concerns. applying is held.
func (s *Store) applyOne(b stored) {
	opened, err := open(b.data)
	if err != nil {
		s.log.Error("a batch of the journal is corrupt and has no effect", "sequence", b.seq, "bytes", len(b.data))
	}
	var own func(int) *store.Message
	s.mu.Lock()
	mine := err == nil && opened.author == s.commit.author // which changes under applying alone
	if mine {
		own = s.commit.own(opened.number)
	}
	effect := s.st.apply(b.seq, b.data, opened, own)
	last := s.st.last(opened.author)
	space := s.cfg.MaxBytes - s.st.journal.bytes
	s.grouped.Store(len(s.st.groups) > 0)
	s.keeper.duty(s.st, s.cfg.Every, mine)
	woken := s.woken
	s.woken, s.spare = s.spare[:0], woken
	s.mu.Unlock()

	s.moved.Store(time.Now().UnixNano())
	for _, f := range woken {
		f.wake()
	}
	s.commit.setSpace(space)
	switch {
	case !mine:
	case effect:
		s.out = s.commit.applied(opened.number, b.seq, s.st.refused, s.out[:0])
		report(s.out)
	case opened.number > last+1:
		s.passedOver(opened, last)
	}
}

// passedOver deals with a batch of this node that has no effect because another one is missing before it: it is on its
// way again, or the journal does not know this author any more. applying is held.
func (s *Store) passedOver(b batch, last uint64) {
	if s.commit.again(last + 1) {
		return
	}
	s.log.Error("the journal does not know this node any more: what is on its way fails")
	author, err := s.newAuthor()
	if err != nil {
		return // the connection is closed
	}
	s.out = s.commit.rename(author, errUnknown, s.out[:0])
	report(s.out)
}

// errUnknown is the outcome of an append that nobody will learn.
var errUnknown = errors.New("the journal was replaced, and the outcome is not known")

// tickEvery is how often the store looks after what should have come.
const (
	tickEvery = 25 * time.Millisecond
	// lateAfter is how long a batch that JetStream has stored may take to get here before it is read.
	lateAfter = 100 * time.Millisecond
	// pollEvery is how often an idle node asks whether it has missed something.
	pollEvery = time.Second
	// shortenEvery is how often a node whose clients wait for room tries to make some.
	shortenEvery = 250 * time.Millisecond
)

// ticker sees to time-outs, to appends that got lost, and to batches whose publication got lost, as it can with the
// stream's leader.
func (s *Store) ticker() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	var out []outcome
	polled, shortened := time.Now(), time.Now()
	for {
		var now time.Time
		select {
		case <-s.stop:
			return
		case now = <-tick.C:
		}
		out = s.commit.tick(now, out[:0])
		report(out)
		if now.Sub(shortened) > shortenEvery && s.commit.starved() {
			shortened = now
			s.keeper.kick()
		}
		quiet := now.Sub(time.Unix(0, s.moved.Load()))
		switch {
		case quiet > lateAfter && s.acked.Load() > s.position():
			s.applying.Lock()
			s.catchUp(s.acked.Load())
			s.applying.Unlock()
		case quiet > pollEvery && now.Sub(polled) > pollEvery:
			polled = now
			s.poll()
		}
	}
}

// position is the sequence of the last batch that this node has applied.
func (s *Store) position() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st.applied
}

// hall is the store as the state's audience. Its methods are called while a batch is applied, with mu held.
type hall Store

func (h *hall) mine(author uint64) bool { return h.mineIDs[author] }

func (h *hall) wants(name string) (wanted bool) {
	if len(h.open) == 0 {
		return false
	}
	h.st.tree.Match(name, func(_ string, sub *subscription) { wanted = wanted || sub.feed != nil })
	if !wanted {
		h.feeds.Match(name, func(string, *feed) { wanted = true })
	}
	if !wanted {
		h.st.groupTree.Match(name, func(_ string, g *group) {
			wanted = wanted || slices.ContainsFunc(g.ring, func(sub *subscription) bool { return sub.feed != nil })
		})
	}
	return wanted
}

func (h *hall) published(p pos, m *msg, name string) {
	h.feeds.Match(name, func(_ string, f *feed) {
		if f.queue.live >= h.st.limits.queued {
			h.drop(f, m.qos)
			return
		}
		h.cacheFor(f, f.queue.push(p, m))
	})
}

func (h *hall) queued(sub *subscription, e entry) { h.cacheFor(sub.feed, e) }

// cacheFor keeps the body of an entry in memory for its feed, as far as there is room, and wakes the feed.
func (h *hall) cacheFor(f *feed, e entry) {
	m := e.msg()
	if f.cached+int(m.size) <= h.cfg.FeedBytes && h.st.cache.put(m, h.st.body(m)) {
		e.setCached(true)
		f.cached += int(m.size)
	}
	if !f.waking {
		f.waking = true
		h.woken = append(h.woken, f)
	}
}

func (h *hall) ended(sub *subscription) { sub.feed.detach(h.st) }

func (h *hall) parted(sub *subscription) { (*Store)(h).seatAgain(sub.feed) }

func (h *hall) overflowed(g *group, qos byte) {
	h.cfg.Dropped(qos)
	if !g.full {
		h.log.Warn("queue of a shared subscription is full: new messages are dropped", "filter", g.filter, "messages", g.queued, "bytes", g.bytes)
	}
}

func (h *hall) dropped(sub *subscription, qos byte) {
	h.cfg.Dropped(qos)
	if !sub.sess.full {
		h.log.Warn("queue is full: new messages are dropped", "client", sub.sess.client, "filter", sub.filter,
			"messages", sub.sess.queued, "bytes", sub.sess.bytes)
	}
}

func (h *hall) drop(f *feed, qos byte) {
	h.cfg.Dropped(qos)
	if !f.full {
		f.full = true
		h.log.Warn("queue is full: new messages are dropped", "client", f.client, "filter", f.filter, "messages", h.st.limits.queued)
	}
}
