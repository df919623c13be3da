package broker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/auth"
	"inflight/broker/listen"
	"inflight/broker/node"
	"inflight/broker/ops"
	"inflight/broker/store"
	"inflight/broker/store/journal"
	"inflight/broker/store/memory"
	"inflight/broker/store/staged"
)

// Server is a running broker.
type Server struct {
	cfg    Config
	log    *slog.Logger
	node   jetStream    // nil for a store without streams
	remote *node.Remote // the same, if it is not embedded; else nil
	nc     *nats.Conn   // for messages between nodes; nil without one
	store  store.Store
	ln     *listen.Set

	checker *auth.Checker
	policy  atomic.Pointer[auth.Policy] // Reload replaces it

	mu       sync.Mutex
	closing  bool
	opened   bool // the store is open and connections are accepted
	draining bool // Drain was called
	conns    map[*conn]struct{}
	clients  map[string]*client // by Client Identifier: sessions that this node serves
	locks    map[string]*idLock
	overdue  overdue            // of the orphans
	orphans  map[string]*orphan // by Client Identifier: sessions that this node looks after and nobody is connected to

	presence *presence // nil if nothing outlives the process
	lastBeat time.Time // until when a node of this name was there before; zero: never

	wg sync.WaitGroup // connections and the accept loops

	metrics metrics
	ops     *ops.Server   // nil without an operations listener
	stop    chan struct{} // closed by Shutdown
}

type idLock struct {
	mu   sync.Mutex
	refs int
}

// Open starts a broker: the embedded node, the store, the listener. It accepts connections only once all of them are
// up. When ctx ends first, everything is stopped again.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, conns: make(map[*conn]struct{}), clients: make(map[string]*client),
		locks: make(map[string]*idLock), orphans: make(map[string]*orphan), stop: make(chan struct{}),
		metrics: metrics{epoch: time.Now(), clocked: cfg.OpsListen != ""},
	}
	// The files and the ports first: a taken one must not cost the start of a node.
	if err := s.openAccess(); err != nil {
		return nil, err
	}
	err := s.startOps() // before the store: that is what one waits for
	if err == nil {
		err = s.openStore(ctx)
	}
	if err == nil {
		err = s.startPresence(ctx)
	}
	if err != nil {
		s.ln.Close()
		s.closeStore()
		s.stopOps()
		return nil, err
	}
	s.mu.Lock()
	s.opened = true
	s.mu.Unlock()
	s.wg.Go(func() { s.ln.Serve(s.serve) })
	if s.remote != nil {
		s.wg.Go(func() { s.watchRemote(s.stop) })
	}
	if s.cfg.SysInterval > 0 {
		s.wg.Go(func() { s.sysLoop(s.stop) })
	}
	return s, nil
}

func (s *Server) openStore(ctx context.Context) error {
	if s.cfg.Store == StoreMemory {
		st := memory.Open(s.log)
		st.Limit(memory.Limits{Bytes: s.cfg.QueueBytes, Dropped: s.metrics.dropQueued})
		s.store = st
		return nil
	}
	if s.cfg.NATS.Given() {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, remoteStart)
		defer cancel()
	}
	if err := s.openNode(ctx); err != nil {
		return err
	}
	var err error
	if s.nc, err = s.node.Connect("control"); err != nil {
		return err
	}
	if err := s.claimName(); err != nil {
		return err
	}
	storeConn, err := s.node.Connect("store")
	if err != nil {
		return err
	}
	if s.store, err = s.openOn(ctx, storeConn); err != nil {
		storeConn.Close()
		return fmt.Errorf("%s store: %w", s.cfg.Store, err)
	}
	return s.serveTakeovers()
}

// openOn opens the store on JetStream.
func (s *Server) openOn(ctx context.Context, nc *nats.Conn) (store.Store, error) {
	c := s.cfg
	if c.Store == StoreJournal {
		st, err := journal.Open(ctx, journal.Config{
			Conn: nc, Replicas: c.Replicas, Timeout: c.StoreTimeout, Sync: c.Sync, Lead: s.leader(nc), Log: s.log,
			MaxBytes: s.journalBytes(), CacheBytes: c.JournalCache, FeedBytes: c.JournalAhead, Every: int64(c.JournalSnapshot),
			QueueBytes: c.QueueBytes, Dropped: s.metrics.dropQueued,
		})
		if err != nil {
			return nil, err // a nil *journal.Store is no nil store.Store
		}
		return st, nil
	}
	st, err := staged.Open(ctx, staged.Config{
		Conn: nc, Node: c.Node, Replicas: c.Replicas, Timeout: c.StoreTimeout, Sync: c.Sync, Lead: s.leader(nc), Log: s.log,
		Foreign: s.remote != nil,
	})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// journalBytes is how large a journal may get on an embedded node; 0: the store's default. JetStream refuses everything
// once its files are full, what would make room included, so messages must be refused well before.
func (s *Server) journalBytes() int64 {
	if s.cfg.JournalBytes > 0 {
		return int64(s.cfg.JournalBytes)
	}
	if n, ok := s.node.(*node.Node); ok && n.Storage() > 0 {
		return min(8<<30, n.Storage()/2)
	}
	return 0
}

func (s *Server) closeStore() {
	if s.nc != nil {
		s.nc.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
	if s.node != nil {
		s.node.Stop()
	}
}

// Addr is the address of the first listener, which is Listen if that is given; nil without listeners.
func (s *Server) Addr() net.Addr {
	if addrs := s.ln.Addrs(); len(addrs) > 0 {
		return addrs[0]
	}
	return nil
}

// ServeConn serves a network connection that no listener of the broker has accepted: one of the caller's own listener, or
// an end of a net.Pipe. It returns when the connection has ended, and closes it. nc carries control packets as a stream of
// bytes and must honour deadlines; if it has a method CloseWrite, its client gets time to read what is left. The limit on
// connections and the names in client certificates are the listeners'. A broker that drains or shuts down closes nc at once.
func (s *Server) ServeConn(nc net.Conn) {
	defer nc.Close()
	s.mu.Lock()
	if s.closing || s.draining {
		s.mu.Unlock()
		return
	}
	s.wg.Add(1) // before Shutdown waits, which sets closing first
	s.mu.Unlock()
	defer s.wg.Done()
	s.serve(nc, listen.Hint{})
}

// serve runs one connection to its end.
func (s *Server) serve(nc net.Conn, hint listen.Hint) {
	c := newConn(s, nc)
	c.hint = hint
	s.mu.Lock()
	if s.closing || s.draining {
		s.mu.Unlock()
		return
	}
	s.metrics.accepted.Add(1)
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	c.serve()
	c.gone()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.metrics.end(c.cause(), c.client != nil)
	close(c.ended)
}

// Shutdown stops accepting, closes every connection, waits for the store operations that are under way, and stops the
// store and the node. What was not acknowledged by then the clients will send again.
func (s *Server) Shutdown() {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return
	}
	s.closing = true
	open := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		open = append(open, c)
	}
	s.mu.Unlock()
	close(s.stop)
	s.ln.Close()
	for _, c := range open {
		c.close(errShutdown)
	}
	s.wg.Wait()
	s.mu.Lock()
	rest := s.clients
	s.clients = map[string]*client{}
	s.mu.Unlock()
	s.recordAll(rest)
	for _, cl := range rest {
		cl.abandon()
	}
	s.dropOrphans()
	s.stopPresence()
	s.closeStore()
	s.presence.join()
	s.stopOps()
}

// Serve runs a broker until ctx ends; then it drains and shuts down.
func Serve(ctx context.Context, cfg Config) error {
	s, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	addr := "none"
	if a := s.Addr(); a != nil {
		addr = a.String()
	}
	s.log.Info("ready", "mqtt", addr, "listeners", s.ln.URLs(), "node", s.cfg.Node, "store", s.cfg.Store, "durability", s.store.Durability(),
		"pipeline", s.cfg.Pipeline, "replicas", s.cfg.Replicas, "nats", s.cfg.NATS.String())
	for {
		select {
		case <-ctx.Done():
			s.Drain(context.WithoutCancel(ctx))
			s.Shutdown()
			return nil
		case <-cfg.Reload:
			s.reloadLogged()
		}
	}
}

// lockID serialises what happens to one Client Identifier on this node.
func (s *Server) lockID(id string) (unlock func()) {
	s.mu.Lock()
	l := s.locks[id]
	if l == nil {
		l = &idLock{}
		s.locks[id] = l
	}
	l.refs++
	s.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		s.mu.Lock()
		if l.refs--; l.refs == 0 {
			delete(s.locks, id)
		}
		s.mu.Unlock()
	}
}

func (s *Server) client(id string) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients[id]
}

func (s *Server) setClient(id string, cl *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[id] = cl
}

// dropClient removes cl from the table unless another one took its place, and reports whether it was there.
func (s *Server) dropClient(cl *client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients[cl.id] != cl {
		return false
	}
	delete(s.clients, cl.id)
	return true
}
