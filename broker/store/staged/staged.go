package staged

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
	"inflight/broker/topic"
)

// Names of the streams and the roots of their subjects.
const (
	stagedStream   = "INF_staged"
	msgsStream     = "INF_msgs"
	sessionsStream = "INF_sessions"
	retainedStream = "INF_retained"

	stagedRoot   = "inf.h."
	msgsRoot     = "inf.m."
	sessionsRoot = "inf.s."
	outboundRoot = "inf.o."
	nodesRoot    = "inf.n."
	retainedRoot = "inf.r."
	transient    = "inf.q."

	interestSubject = "inf.i"

	anyOrigin = msgsRoot + "*." // what subscriptions filter by
)

// layout is the version of what is in the streams; each of them carries it in its metadata. The first one left none.
const (
	layout    = "5"
	layoutKey = "inflight-layout"
)

// maxSubject is how long a topic may be as a subject, in bytes: JetStream keeps the length of a subject in 16 bits, and
// the server ends a connection that sends more than its limit for one line.
const maxSubject = 60_000

// On servers that are not embedded that is for the operator to raise. What is left of the default of 4,096 bytes for one
// line, less what stands beside the topic in it, is sure to be taken: a longer line would cost the connection.
const foreignSubject = 3_500

// foreignConsumers is how many subscriptions such servers are asked to allow; their own limit for a stream is 1,000.
const foreignConsumers = 1 << 20

// DuplicateWindow is how long the delivery stream remembers a released message's id.
const DuplicateWindow = 2 * time.Minute

// leadWait bounds how long a node waits at its start to become the leader of a stream.
const leadWait = 5 * time.Second

// retryAfter is how long an answer may take before a question is asked again.
const retryAfter = time.Second

// busyWait is how long a release waits for another one of the same message that is under way.
const busyWait = 5 * time.Millisecond

// closeWait bounds how long the end of a store waits for its last discards, and that of a feed for its last settlements.
const closeWait = 2 * time.Second

// Config of the store.
type Config struct {
	Conn     *nats.Conn    // of this store alone; it is closed with it
	Node     string        // name of this node, unique among those that share the streams; required
	Replicas int           // of every stream; 0 means 1
	Timeout  time.Duration // of one store operation; 0 means 10 s
	Sync     bool          // the node syncs each write: named in the durability, not configured here
	Lead     string        // server name that should lead the streams; "": whichever JetStream chooses
	Foreign  bool          // the servers are not the embedded ones: their limits are not known
	Log      *slog.Logger
}

// Store implements [store.Store] on JetStream.
type Store struct {
	cfg   Config
	nc    *nats.Conn
	js    jetstream.JetStream
	calls *calls
	log   *slog.Logger
	epoch string // of the staged stream; part of a release's message id

	maxSubject int // bytes of a topic as a subject

	instance string // names this store in the subjects of what it stages

	published string // root of the subjects of what Publish delivers
	released  string // of what Release delivers: it tells this node's from others'

	mu       sync.RWMutex
	trackers map[string]*tracker // by Client Identifier

	outbounds outbounds
	lateHolds lateHolds
	retaining retaining
	drops     drops
	peers     peers

	shareMu  sync.Mutex
	groups   map[string]*group   // by Topic Filter: shared subscriptions with a member that is connected
	left     map[string]leftover // by member that is not
	settling settling
	shared   chan struct{} // closed when sharer has ended

	looking  looking // of sweeper
	guard    *guard
	discards discards
	sweeps   sweeps
	stop     chan struct{}
	stopped  chan struct{}
}

// Open creates the streams, or finds them, and starts the store. It retries until ctx ends, because a young cluster
// refuses for a while.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Node == "" {
		return nil, errors.New("no name for this node")
	}
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	s := &Store{
		cfg: cfg, nc: cfg.Conn, js: js, log: cfg.Log, trackers: make(map[string]*tracker),
		instance:  newInstance(),
		published: msgsRoot + "_.", released: msgsRoot + origin(cfg.Node) + ".",
		groups: make(map[string]*group), left: make(map[string]leftover), shared: make(chan struct{}),
		outbounds: outbounds{records: make(map[string]*outRecord)},
		settling:  settling{groups: make(map[string]map[settled]*settlement)},
		discards:  discards{kick: make(chan struct{}, 1)}, stop: make(chan struct{}), stopped: make(chan struct{}),
		sweeps: sweeps{stopped: make(chan struct{})}, looking: looking{soon: make(chan struct{}, 1)}, maxSubject: maxSubject,
	}
	consumers := 0 // as many as the node allows
	if cfg.Foreign {
		s.maxSubject, consumers = foreignSubject, foreignConsumers
	}
	streams := []jetstream.StreamConfig{
		{Name: stagedStream, Subjects: []string{stagedRoot + "*.*.*"}, Duplicates: 100 * time.Millisecond},
		{Name: msgsStream, Subjects: []string{msgsRoot + ">"}, Retention: jetstream.InterestPolicy, Duplicates: DuplicateWindow, MaxConsumers: consumers},
		{Name: sessionsStream, Subjects: []string{sessionsRoot + "*", outboundRoot + "*", holderRoot + "*", nodesRoot + "*", interestSubject}, MaxMsgsPerSubject: 1, AllowMsgTTL: true},
		{Name: retainedStream, Subjects: []string{retainedRoot + ">"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true},
	}
	for _, c := range streams {
		c.Storage, c.Replicas, c.AllowDirect = jetstream.FileStorage, cfg.Replicas, false
		c.Metadata = map[string]string{layoutKey: layout}
		info, err := s.createStream(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", c.Name, err)
		}
		if c.Name == stagedStream {
			s.epoch = strconv.FormatInt(info.Created.UnixNano(), 36)
		}
		s.lead(ctx, c.Name, info)
	}
	if s.calls, err = newCalls(cfg.Conn, cfg.Timeout); err != nil {
		return nil, err
	}
	if err := s.openInterest(ctx); err != nil {
		s.calls.close()
		return nil, err
	}
	if err := s.openGuard(ctx); err != nil {
		s.calls.close()
		return nil, fmt.Errorf("releases before this start: %w", err)
	}
	go s.purger()
	go s.sweeper()
	go s.sharer()
	return s, nil
}

func (s *Store) createStream(ctx context.Context, c jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	for limit := 3 * time.Second; ; { // two requests
		info, err := s.tryStream(ctx, c, limit)
		if err == nil {
			return info, nil
		}
		limit = longer(limit, err)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil, s.differs(ctx, c, err)
		}
		var api *jetstream.APIError
		if errors.As(err, &api) && api.ErrorCode == codeNoCluster {
			way := ", or --cluster and --routes"
			if s.cfg.Foreign {
				way = ""
			}
			return nil, fmt.Errorf("%d replicas need a cluster: use --replicas 1%s: %w", c.Replicas, way, err)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// differs says why a stream that exists cannot be used.
func (s *Store) differs(ctx context.Context, c jetstream.StreamConfig, err error) error {
	place := "another --store-dir"
	if s.cfg.Foreign {
		place = "another NATS account"
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if found, err := s.js.Stream(ctx, c.Name); err == nil {
		have := found.CachedInfo().Config
		switch version := have.Metadata[layoutKey]; {
		case version == "":
			return fmt.Errorf("it was made by an older inflight (layout 1, this one has %s): use %s, or that inflight", layout, place)
		case version != layout:
			return fmt.Errorf("it was made by another inflight (layout %.20q, this one has %s): use %s, or that inflight", version, layout, place)
		case have.Replicas != c.Replicas:
			return fmt.Errorf("it has %d replicas, not %d: use --replicas %[1]d, or %[3]s", have.Replicas, c.Replicas, place)
		}
	}
	return fmt.Errorf("it exists with another configuration: use %s: %w", place, err)
}

func (s *Store) tryStream(ctx context.Context, c jetstream.StreamConfig, limit time.Duration) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stream, err := s.js.CreateStream(ctx, c)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx)
	if err == nil && info.Cluster != nil && info.Cluster.Leader == "" {
		err = errors.New("no leader yet")
	}
	return info, err
}

// lead asks the stream to move to the preferred server. Leaders land at random otherwise, which moves rates by a factor
// of two from one start to the next. It is a wish: after leadWait it is given up and only logged. An answer can get lost
// with the old leader, so each request is bounded and the outcome is looked up.
func (s *Store) lead(ctx context.Context, stream string, info *jetstream.StreamInfo) {
	if s.cfg.Lead == "" || info.Cluster == nil || len(info.Cluster.Replicas) == 0 { // its only replica leads it
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leadWait)
	defer cancel()
	leader, asked := info.Cluster.Leader, time.Time{}
	for leader != s.cfg.Lead {
		if ctx.Err() != nil {
			s.log.Warn("stream did not move to the preferred leader", "stream", stream, "preferred", s.cfg.Lead, "leader", leader)
			return
		}
		attempt, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		if leader != "" && time.Since(asked) > time.Second {
			asked = time.Now()
			_, _ = s.nc.RequestWithContext(attempt, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, []byte(`{"placement":{"preferred":"`+s.cfg.Lead+`"}}`))
		}
		if st, err := s.js.Stream(attempt, stream); err == nil && st.CachedInfo().Cluster != nil {
			leader = st.CachedInfo().Cluster.Leader
		}
		cancel()
		if leader != s.cfg.Lead {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// hash turns any identifier into one subject token.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:15])
}

// origin is the token of a node in the subjects of what it releases.
func origin(node string) string { return hash(node)[:8] }

// lease returns the tracker of a client, which stays in the table until it is given back.
func (s *Store) lease(client string) *tracker {
	s.mu.RLock()
	t := s.trackers[client]
	if t != nil {
		t.leases.Add(1)
	}
	s.mu.RUnlock()
	if t != nil {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t = s.trackers[client]; t == nil {
		t = &tracker{client: client, subject: stagedRoot + hash(client)}
		s.trackers[client] = t
	}
	t.leases.Add(1)
	return t
}

func (t *tracker) giveBack() { t.leases.Add(-1) }

// retire drops a tracker that has nothing to track and that nobody uses.
func (s *Store) retire(t *tracker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.leases.Load() == 0 && t.idle() && s.trackers[t.client] == t {
		delete(s.trackers, t.client)
	}
}

// subject maps a topic to the subject of its messages, without the root.
func (s *Store) subject(name string) (string, error) {
	subject := topic.Subject(name)
	if len(subject) > s.maxSubject {
		return "", fmt.Errorf("topic %.100q...: as a subject it takes %d bytes, limit %d", name, len(subject), s.maxSubject)
	}
	return subject, nil
}

// ended turns the error of a closed connection, which is of the store alone, into the store's.
func ended(err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) {
		return store.ErrClosed
	}
	return err
}

// Publish makes a QoS 1 message durable in the delivery stream.
func (s *Store) Publish(m *store.Message, done store.Done) {
	subject, err := s.subject(m.Topic)
	if err != nil {
		done(0, err)
		return
	}
	msg := &nats.Msg{Subject: s.published + subject, Data: store.Encode(make([]byte, 0, 4+m.Size()), m)}
	deliver := func(done func(seq uint64, err error)) {
		s.calls.send(msg, func(data []byte, err error) {
			var seq uint64
			if err == nil {
				seq, _, err = parsePubAck(data)
			}
			done(seq, err)
		})
	}
	if !m.Retain {
		deliver(func(_ uint64, err error) { done(0, err) })
		return
	}
	op := s.retaining.ask(subject, msg.Data, m)
	deliver(func(seq uint64, err error) {
		s.retain(op, seq, err != nil, func(kept error) { done(0, first(err, kept)) })
	})
}

// first is the first of two errors.
func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// Transient publishes a QoS 0 message on plain NATS.
func (s *Store) Transient(m *store.Message) error {
	subject, err := s.subject(m.Topic)
	if err != nil {
		return err
	}
	msg := &nats.Msg{Subject: transient + subject, Data: store.Encode(make([]byte, 0, 4+m.Size()), m)}
	if m.Retain {
		s.retain(s.retaining.ask(subject, msg.Data, m), 0, false, func(err error) {
			if err != nil && !errors.Is(err, store.ErrClosed) {
				s.log.Warn("retained message of QoS 0", "topic", m.Topic, "error", err)
			}
		})
	}
	return ended(s.nc.PublishMsg(msg))
}

// Hold stages a QoS 2 message. Its Ref is the sequence in the staged stream. What could never be released is refused here.
func (s *Store) Hold(client string, id uint16, m *store.Message, done store.Done) {
	if 2+3*len(m.Topic) > s.maxSubject { // else it fits, however many of its bytes are escaped
		if _, err := s.subject(m.Topic); err != nil {
			done(0, err)
			return
		}
	}
	t := s.lease(client)
	h := t.sent() // from here on it is not idle
	t.giveBack()
	msg := &nats.Msg{
		Subject: t.subject + "." + strconv.Itoa(int(id)) + "." + s.instance,
		Data:    store.Encode(make([]byte, 0, 4+m.Size()), m),
	}
	s.calls.send(msg, func(data []byte, err error) {
		var seq uint64
		if err == nil {
			seq, _, err = parsePubAck(data)
		}
		var refused *apiError
		if err != nil && !errors.As(err, &refused) {
			s.lateHolds.add()
		}
		t.held(h, id, seq)
		done(store.Ref(seq), err)
	})
}

func (s *Store) messageID(ref store.Ref) string {
	return s.epoch + "." + strconv.FormatUint(uint64(ref), 36)
}

// Release publishes the message to the delivery stream under its id, then lets the staged copy go.
func (s *Store) Release(client string, _ uint16, ref store.Ref, m *store.Message, done store.Done) {
	subject, err := s.subject(m.Topic)
	if err != nil {
		done(ref, err)
		return
	}
	msg := &nats.Msg{
		Subject: s.released + subject,
		Header:  nats.Header{jetstream.MsgIDHeader: {s.messageID(ref)}},
		Data:    store.Encode(make([]byte, 0, 4+m.Size()), m),
	}
	var op *retainOp
	if m.Retain {
		op = s.retaining.ask(subject, msg.Data, m)
	}
	release, until := s.guard.sent(), time.Now().Add(s.cfg.Timeout)
	s.sendUnlessBusy(msg, until, func(seq uint64, duplicate bool, err error) {
		switch {
		case err != nil:
			s.guard.failed(release)
		case duplicate:
			s.guard.released(release, 0)
		default:
			s.guard.released(release, seq)
		}
		finish := func(kept error) {
			switch {
			case err == nil && kept == nil:
				s.discard(client, uint64(ref), seq)
			case err == nil && !duplicate:
				s.guard.doubtAt(seq) // the copy stays until it is retained
			}
			done(ref, first(err, kept))
		}
		if op == nil {
			finish(nil)
			return
		}
		s.retain(op, seq, err != nil, finish)
	})
}

// sendUnlessBusy publishes a message that has an id, again and again until the stream is not busy with another message of
// the same id.
func (s *Store) sendUnlessBusy(msg *nats.Msg, until time.Time, done func(seq uint64, duplicate bool, err error)) {
	s.calls.send(msg, func(data []byte, err error) {
		var seq uint64
		var duplicate bool
		if err == nil {
			seq, duplicate, err = parsePubAck(data)
		}
		var api *apiError
		if errors.As(err, &api) && api.ErrCode == codeDuplicateBusy && time.Now().Before(until) {
			again := &nats.Msg{Subject: msg.Subject, Header: msg.Header, Data: msg.Data}
			time.AfterFunc(busyWait, func() { s.sendUnlessBusy(again, until, done) })
			return
		}
		done(seq, duplicate, err)
	})
}

// Durability names what a nil error from done promises.
func (s *Store) Durability() string {
	if s.cfg.Sync {
		return "file+sync"
	}
	return "file"
}

// Close fails what is pending and closes the connection.
func (s *Store) Close() {
	select {
	case <-s.stop:
		return
	default:
	}
	close(s.stop)
	late, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	for _, ended := range []chan struct{}{s.stopped, s.shared} {
		select {
		case <-ended:
		case <-late.Done():
		}
	}
	s.calls.close() // whatever still waits fails, the purger too
	<-s.stopped
	<-s.sweeps.stopped
	<-s.shared
	s.nc.Close()
}
