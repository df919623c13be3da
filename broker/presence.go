package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/store"
)

// Each node keeps a record of its own in the store and writes it again every beatEvery: that is how the others, and this one
// after a restart, know until when it was there. A node whose record does not change for nodeGone, as seen by one's own
// clock, is gone, and so is at once one that said so when it went down. Names are told on core NATS; what counts is the
// record, so that a node which only the others cannot reach is not taken for gone.
//
// A node that was not able to write for longer than beatLate may have been taken for gone, and looks whether its sessions
// are still its own.
const (
	beatEvery = 2 * time.Second
	nodeGone  = 10 * time.Second
	beatLate  = nodeGone / 2
)

// maxNodes bounds the nodes that one node watches.
const maxNodes = 256

// presenceSubject is where nodes tell their names.
const presenceSubject = "inf.c.node"

// nodePrefix and its name make the Client Identifier of a node's record; no client has one with U+0000 [MQTT-1.5.4-2].
const nodePrefix = "\x00node "

func isNode(rec *store.Session) bool { return strings.HasPrefix(rec.ClientID, nodePrefix) }

// presence is what a node knows of the others. Its loop owns it, but for nodes.
type presence struct {
	s       *Server
	ctx     context.Context // ends with the broker
	end     context.CancelFunc
	done    chan struct{}
	wake    chan struct{} // to the loop: somebody told its name
	workers sync.WaitGroup

	beaten  time.Time // begin of the last beat that was written
	looked  time.Time // end of the last look at the others
	recheck int       // how many looks at the own sessions are due

	mu    sync.Mutex
	nodes map[string]*neighbour
}

// neighbour is another node.
type neighbour struct {
	revision uint64    // of its record
	since    time.Time // when that was seen first
	gone     bool
}

// durable reports whether sessions outlive this process.
func (s *Server) durable() bool { return s.store.Durability() != "memory" }

// startPresence says that this node is there, and finds out until when it was before. It is called before anybody connects.
func (s *Server) startPresence(ctx context.Context) error {
	if !s.durable() {
		return nil
	}
	before, err := s.store.Session(ctx, nodePrefix+s.cfg.Node)
	switch {
	case err == nil:
		s.lastBeat = before.Updated
	case !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("record of this node: %w", err)
	}
	p := &presence{s: s, done: make(chan struct{}), wake: make(chan struct{}, 1), nodes: make(map[string]*neighbour)}
	if s.nc != nil {
		if _, err := s.nc.Subscribe(presenceSubject, func(m *nats.Msg) { p.heard(string(m.Data)) }); err != nil {
			return fmt.Errorf("listen for other nodes: %w", err)
		}
	}
	if err := p.beat(ctx, false); err != nil {
		return fmt.Errorf("record of this node: %w", err)
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	s.presence = p
	go p.run()
	return nil
}

// stopPresence says that this node goes down. Its loop ends with the store.
func (s *Server) stopPresence() {
	p := s.presence
	if p == nil {
		return
	}
	p.end()
	said := make(chan struct{})
	go func() {
		defer close(said)
		if err := p.beat(context.Background(), true); err != nil {
			s.log.Debug("node goes down", "error", err)
		}
	}()
	p.workers.Go(func() { <-said })
	select {
	case <-said:
	case <-time.After(shutdownWait): // a cluster that goes down as well
	}
}

// join waits, once the store is closed, until nothing is under way any more.
func (p *presence) join() {
	if p != nil {
		<-p.done
		p.workers.Wait()
	}
}

func (p *presence) run() {
	defer close(p.done)
	p.workers.Go(p.begin)
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.wake:
		case <-tick.C:
			if err := p.beat(p.ctx, false); err != nil {
				p.s.log.Warn("record of this node", "error", err)
			}
			if p.recheck > 0 {
				p.recheck--
				p.s.checkSessions(p.ctx)
			}
		}
		p.look()
	}
}

// beat writes the record of this node and tells its name.
func (p *presence) beat(ctx context.Context, last bool) error {
	now := time.Now()
	rec := &store.Session{ClientID: nodePrefix + p.s.cfg.Node, Node: p.s.cfg.Node, Updated: now.UTC()}
	if last {
		rec.Ended = &rec.Updated
	}
	if err := p.s.store.PutSession(ctx, rec); err != nil {
		return err
	}
	if !last {
		// Whoever took this node for gone may still be taking its sessions: a second look, when that is over.
		if !p.beaten.IsZero() && time.Since(p.beaten) > beatLate {
			p.recheck = int(nodeGone/beatEvery) + 1
		}
		p.beaten = now
	}
	if p.s.nc == nil {
		return nil
	}
	name := []byte(p.s.cfg.Node)
	if last {
		name = append(name, leaving)
	}
	if err := p.s.nc.Publish(presenceSubject, name); err != nil || !last {
		return err
	}
	return p.s.nc.FlushTimeout(shutdownWait)
}

// leaving follows the name of a node that goes down.
const leaving = 0

// heard notes a node's name. It is called by NATS.
func (p *presence) heard(node string) {
	node, leaves := strings.CutSuffix(node, string(rune(leaving)))
	if p.note(node) || leaves {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// note adds a node, and reports whether it was not known.
func (p *presence) note(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if node == p.s.cfg.Node || node == "" || p.nodes[node] != nil || len(p.nodes) >= maxNodes {
		return false
	}
	p.nodes[node] = &neighbour{since: time.Now()}
	return true
}

// begin adopts this node's own sessions of before, and learns who else has sessions.
func (p *presence) begin() {
	s := p.s
	ended := s.lastBeat
	if ended.IsZero() {
		ended = s.metrics.epoch
	}
	for {
		err := s.adopt(p.ctx, s.cfg.Node, ended, func(context.Context) bool { return true })
		if err == nil {
			err = s.store.Sessions(p.ctx, func(rec *store.Session) bool {
				p.note(rec.Node)
				return p.ctx.Err() == nil
			})
		}
		if err == nil || p.ctx.Err() != nil {
			return
		}
		s.log.Warn("sessions of before the start", "error", err)
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(beatEvery):
		}
	}
}

// look reads the records of the other nodes and finds out who is gone.
func (p *presence) look() {
	p.mu.Lock()
	names := make([]string, 0, len(p.nodes))
	for name := range p.nodes {
		names = append(names, name)
	}
	if time.Since(p.looked) > beatLate {
		for _, n := range p.nodes { // their silence may have been this node's deafness
			n.since = time.Now()
		}
	}
	p.mu.Unlock()
	for _, name := range names {
		rec, err := p.s.store.Session(p.ctx, nodePrefix+name)
		if errors.Is(err, store.ErrNotFound) {
			rec, err = &store.Session{}, nil
		}
		if err != nil {
			return // nothing is known now
		}
		p.mu.Lock()
		n := p.nodes[name]
		if n == nil {
			p.mu.Unlock()
			continue
		}
		if rec.Revision != n.revision {
			n.revision, n.since, n.gone = rec.Revision, time.Now(), false
		}
		lost := !n.gone && (rec.Ended != nil || time.Since(n.since) >= nodeGone)
		n.gone = n.gone || lost
		revision := n.revision
		p.mu.Unlock()
		if lost {
			p.workers.Go(func() { p.lost(name, revision) })
		}
	}
	p.looked = time.Now()
}

// lost adopts the sessions of a node that is gone, for as long as its record does not change: a node that is back writes
// that before it serves anybody.
func (p *presence) lost(name string, revision uint64) {
	p.s.log.Info("node is gone", "node", name)
	gone := func(ctx context.Context) bool {
		rec, err := p.s.store.Session(ctx, nodePrefix+name)
		return err == nil && rec.Revision == revision || errors.Is(err, store.ErrNotFound) && revision == 0
	}
	err := p.s.adopt(p.ctx, name, time.Now(), gone)
	if err != nil && p.ctx.Err() == nil {
		p.s.log.Warn("sessions of a node that is gone", "node", name, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.nodes[name]; err != nil {
		n.gone = n.gone && n.revision != revision // once more, if it is not back
	} else if n.revision == revision {
		delete(p.nodes, name) // until it is heard of again
	}
}
