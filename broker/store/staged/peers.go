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
	joinSubject = "inf.j"  // a node that has just started, with its origin
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

// join makes this node known to the others, and answers them.
func (s *Store) join() error {
	own := origin(s.cfg.Node)
	_, err := s.nc.Subscribe(joinSubject, func(m *nats.Msg) {
		if of := string(m.Data); of != own {
			s.peers.add(of)
		}
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
		err = s.nc.Publish(joinSubject, []byte(own))
	}
	if err == nil {
		err = s.nc.FlushTimeout(s.cfg.Timeout)
	}
	if err != nil {
		return fmt.Errorf("listen to other nodes: %w", err)
	}
	return nil
}

// written waits until every node has written the retained messages that it was asked for by now: what was delivered before
// a subscription began, and is retained, is found by it. A node that does not answer in time is not waited for: it has
// not acknowledged that message to its publisher.
func (s *Store) written(ctx context.Context) error {
	own := s.retaining.caughtUp()
	others, cancel := context.WithTimeout(ctx, peerWait)
	defer cancel()
	var wg sync.WaitGroup
	for _, of := range s.peers.list() {
		wg.Go(func() { _, _ = s.nc.RequestWithContext(others, writtenRoot+of, nil) })
	}
	wg.Wait()
	select {
	case <-own:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("retained messages are still being written: %w", ctx.Err())
	}
}
