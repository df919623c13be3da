package staged

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Subjects on plain NATS by which the stores of several nodes know of each other.
const (
	joinRoot    = "inf.j." // and an origin: tells it that of another node, which is about to serve
	writtenRoot = "inf.e." // and an origin: answered once the retained messages that were asked for there are written
)

// peerWait bounds how long the answer of another node may take. One that is gone is known to be gone at once.
const peerWait = 2 * time.Second

// peers are the origins of the other nodes that were ever there.
type peers struct {
	mu      sync.Mutex
	origins map[string]struct{}
}

func (p *peers) add(origin string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.origins == nil {
		p.origins = make(map[string]struct{})
	}
	p.origins[origin] = struct{}{}
}

func (p *peers) list() (origins []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for o := range p.origins {
		origins = append(origins, o)
	}
	return origins
}

// listen answers other nodes. It comes before the record of this node: who reads that finds it listening.
func (s *Store) listen() error {
	own := origin(s.cfg.Node)
	_, err := s.nc.Subscribe(joinRoot+own, func(m *nats.Msg) {
		s.peers.add(string(m.Data))
		_ = m.Respond(nil)
	})
	if err == nil {
		_, err = s.nc.Subscribe(writtenRoot+own, func(m *nats.Msg) {
			written := s.retaining.caughtUp()
			go func() {
				select {
				case <-written:
					_ = m.Respond(nil)
				case <-s.stop:
				}
			}()
		})
	}
	if err == nil {
		err = s.nc.FlushTimeout(s.cfg.Timeout)
	}
	if err != nil {
		return fmt.Errorf("listen to other nodes: %w", err)
	}
	return nil
}

// join makes this node known to those that are there, before it delivers anything.
func (s *Store) join(ctx context.Context) {
	s.askPeers(ctx, joinRoot, []byte(origin(s.cfg.Node)))
}

// askPeers asks every other node, and waits for the answers of those that are there.
func (s *Store) askPeers(ctx context.Context, root string, data []byte) {
	ctx, cancel := context.WithTimeout(ctx, peerWait)
	defer cancel()
	var wg sync.WaitGroup
	for _, of := range s.peers.list() {
		wg.Go(func() { _, _ = s.nc.RequestWithContext(ctx, root+of, data) })
	}
	wg.Wait()
}

// written waits until every node has written the retained messages that it was asked for by now: what was delivered before
// a subscription began, and is retained, is found by it. A node that does not answer in time is not waited for: it has
// not acknowledged that message to its publisher.
func (s *Store) written(ctx context.Context) error {
	own := s.retaining.caughtUp()
	s.askPeers(ctx, writtenRoot, nil)
	select {
	case <-own:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("retained messages are still being written: %w", ctx.Err())
	}
}
