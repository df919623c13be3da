package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"inflight/broker/node"
	"inflight/broker/store"
)

// jetStream is where the streams are: an embedded node, or NATS servers that are already running.
type jetStream interface {
	Connect(name string) (*nats.Conn, error)
	Healthy() error
	MaxPayload() int64
	Stop()
}

// Bounds of a broker on NATS servers that are not its own.
const (
	// remoteStart is how long the streams may take to be there: a cluster that is being started may still be electing.
	remoteStart = 30 * time.Second
	// awayAfter is after how long without NATS every session is given up. It is well below the minute after which the
	// servers remove the consumers of subscriptions that nobody listens to, less the time that a dead server goes unnoticed.
	awayAfter = 20 * time.Second
	// awayTick is how often the connections are looked at.
	awayTick = 200 * time.Millisecond
	// nameWait is how long another broker may take to say that it has the same name.
	nameWait = time.Second
	// lookUps is how many sessions are looked up, or given up, at the same time.
	lookUps = 64
)

// storedExtra is what a message may take in the store beyond its packet: the publisher's Client Identifier, of up to
// 65,535 bytes, and headers. The servers must have room for that and for a packet of minPacket.
const (
	storedExtra = 65_535 + 1<<10
	minPacket   = 1 << 16
)

// nameSubject and a node's name is where brokers ask whether the name is taken.
const nameSubject = "inf.c.name."

// errStoreAway ends the connections when NATS has been away for too long.
var errStoreAway = errors.New("the store is out of reach")

// validateNATS reports everything that makes no sense beside servers that are already running.
func (c *Config) validateNATS(bad func(format string, args ...any)) {
	if err := c.NATS.Validate(); err != nil {
		bad("%w", err)
	}
	if err := node.ValidName(c.Node); err != nil {
		bad("%w", err)
	}
	var own []string
	for _, f := range []struct {
		flag  string
		given bool
	}{
		{"--store-dir", c.StoreDir != ""},
		{"--cluster", c.Cluster != ""},
		{"--cluster-listen", c.ClusterListen != ""},
		{"--cluster-advertise", c.Advertise != ""},
		{"--routes", len(c.Routes) > 0},
	} {
		if f.given {
			own = append(own, f.flag)
		}
	}
	if len(own) > 0 {
		bad("%s: only an embedded node has that, and --nats takes its place", strings.Join(own, ", "))
	}
	if c.Sync {
		bad("--sync with --nats: how often NATS servers sync is in their own configuration (jetstream { sync_interval: always })")
	}
}

// openNode starts the embedded node, or looks whether the servers in its place have what a broker needs.
func (s *Server) openNode(ctx context.Context) error {
	if !s.cfg.NATS.Given() {
		n, err := node.Start(ctx, s.cfg.nodeConfig())
		if err != nil {
			return err
		}
		s.node = n
		return s.fitPackets()
	}
	r, err := node.Dial(ctx, s.cfg.NATS, s.cfg.Replicas, s.log)
	if err != nil {
		return err
	}
	s.node, s.remote = r, r
	return s.fitPackets()
}

// fitPackets makes sure that every packet that is read can be stored.
func (s *Server) fitPackets() error {
	limit := int(s.node.MaxPayload())
	fits := limit - storedExtra
	switch {
	case s.cfg.MaxPacket <= fits:
	case s.cfg.roomy && fits >= minPacket:
		s.cfg.MaxPacket = fits
		s.log.Info("the packet limit is what NATS has room for", "limit", fits, "max_payload", limit)
	case s.cfg.roomy:
		return fmt.Errorf("NATS takes messages of %d bytes (max_payload), and a broker needs %d: raise it", limit, minPacket+storedExtra)
	case s.remote == nil:
		return fmt.Errorf("the packet limit is %d bytes, and the embedded node has room for %d: lower --max-packet", s.cfg.MaxPacket, fits)
	default:
		return fmt.Errorf("the packet limit is %d bytes, and NATS takes messages of %d (max_payload), which leaves room for %d: lower --max-packet, or raise max_payload to %d",
			s.cfg.MaxPacket, limit, fits, s.cfg.MaxPacket+storedExtra)
	}
	return nil
}

// leader is the name of the server that is to lead the streams; "": any.
func (s *Server) leader(nc *nats.Conn) string {
	switch {
	case !s.cfg.Lead:
		return ""
	case s.remote != nil:
		return nc.ConnectedServerName()
	}
	return s.cfg.Node
}

// claimName makes sure that no other broker has this one's name: each would take the other's sessions for its own. It asks
// who has the name. A broker that serves answers and keeps it; of those that start at the same time, which hear each
// other's question or answer, the one with the lowest identifier does.
func (s *Server) claimName() error {
	if s.remote == nil {
		return nil // an embedded node has its server's name, which the cluster keeps unique
	}
	fail := func(err error) error { return fmt.Errorf("claim the node name: %w", err) }
	self := nuid.Next()
	var mu sync.Mutex
	serving, taken := false, false
	if _, err := s.nc.Subscribe(nameSubject+s.cfg.Node, func(m *nats.Msg) {
		if string(m.Data) == self {
			return
		}
		mu.Lock()
		rank := self
		if serving {
			rank = "" // before any other
		}
		taken = taken || string(m.Data) < rank
		mu.Unlock()
		if err := m.Respond([]byte(rank)); err != nil {
			s.log.Warn("answer about the name", "error", err)
		}
	}); err != nil {
		return fail(err)
	}
	answers, err := s.nc.SubscribeSync(s.nc.NewInbox())
	if err != nil {
		return fail(err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := s.nc.PublishRequest(nameSubject+s.cfg.Node, answers.Subject, []byte(self)); err != nil {
		return fail(err)
	}
	beaten := false
	for end := time.Now().Add(nameWait); ; {
		m, err := answers.NextMsg(max(time.Until(end), time.Millisecond))
		if errors.Is(err, nats.ErrTimeout) {
			break
		}
		if err != nil {
			return fail(err)
		}
		beaten = beaten || string(m.Data) < self
	}
	mu.Lock()
	defer mu.Unlock()
	if beaten || taken {
		return fmt.Errorf("another broker on these NATS servers is named %q: give each a --node of its own", s.cfg.Node)
	}
	serving = true
	return nil
}

// watchRemote sees to what a time without NATS means for sessions. Connections with an operation under way are closed by its
// failure. The others stay, because a server that restarts is back in a moment and its streams go on; but afterwards
// another broker may have taken sessions over that this one could not be asked for. After awayAfter all are given up, as if
// this node had failed: what subscriptions that end with their connection have missed cannot be told any more.
func (s *Server) watchRemote(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	tick := time.NewTicker(awayTick)
	defer tick.Stop()
	_, seen := s.remote.Down(time.Now())
	gone := false
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			away, lost := s.remote.Down(now)
			switch {
			case away >= s.cfg.away && !gone:
				gone = true
				s.log.Error("NATS is away: every session is given up", "for", away)
				s.eachSession(func(cl *client) { s.lose(cl, errStoreAway) })
			case away == 0 && lost != seen:
				if s.checkSessions(ctx) {
					seen, gone = lost, false
				}
			}
		}
	}
}

// eachSession calls f for each session of this node, some at the same time.
func (s *Server) eachSession(f func(cl *client)) {
	s.mu.Lock()
	next := make(chan *client, len(s.clients))
	for _, cl := range s.clients {
		next <- cl
	}
	s.mu.Unlock()
	close(next)
	var wg sync.WaitGroup
	for range min(lookUps, len(next)) {
		wg.Go(func() {
			for cl := range next {
				f(cl)
			}
		})
	}
	wg.Wait()
}

// checkSessions gives up the sessions that another node took while this one could not be asked for them, and reports whether
// it could look up all.
func (s *Server) checkSessions(ctx context.Context) (complete bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.eachSession(func(cl *client) {
		if ctx.Err() != nil {
			return
		}
		lookUp, done := context.WithTimeout(ctx, s.cfg.StoreTimeout)
		defer done()
		rec, err := s.store.Session(lookUp, cl.id)
		switch {
		case errors.Is(err, store.ErrNotFound), err == nil && rec.Node != s.cfg.Node:
			s.lose(cl, errTakenOver)
		case err != nil:
			cancel() // nothing is known now, of the others either
		}
	})
	return ctx.Err() == nil
}

// lose gives a session up without a word to the store: whoever connects with its identifier finds there what this node has
// recorded, as after a crash. Unless it is another node's, this one publishes its will and ends it when that is due.
func (s *Server) lose(cl *client, why error) {
	unlock := s.lockID(cl.id)
	defer unlock()
	if s.client(cl.id) != cl {
		return
	}
	cl.kick(why)
	s.dropClient(cl)
	for _, sub := range cl.abandon() {
		go sub.feed.Close() // which waits for the store
	}
	if why == errStoreAway {
		s.attendLater(cl.id, time.Now()) // and again, until the store is back
	}
}
