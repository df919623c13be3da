package null

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// MaxConnections bounds the connections that are served at the same time; further ones are closed at once.
const MaxConnections = 16_384

// MaxDelay bounds the delay: what is held back takes memory.
const MaxDelay = time.Minute

// Config is how the broker answers. The zero value answers at once.
type Config struct {
	Delay time.Duration // between the arrival of a packet and its answer, at most MaxDelay

	// For the last Stall of every period of Every, counted from the start of Serve, no connection is read or answered. 0: never.
	Stall, Every time.Duration
}

// Validate reports what is wrong with the configuration.
func (c *Config) Validate() error {
	switch {
	case c.Delay < 0 || c.Delay > MaxDelay:
		return fmt.Errorf("delay %v: must be 0 to %v", c.Delay, MaxDelay)
	case c.Stall < 0 || c.Every < 0 || c.Every > MaxDelay:
		return fmt.Errorf("stall %v every %v: must be 0 to %v", c.Stall, c.Every, MaxDelay)
	case c.Stall > 0 && c.Stall >= c.Every:
		return fmt.Errorf("stall %v every %v: a stall must be shorter than its period", c.Stall, c.Every)
	}
	return nil
}

// stalled is how long a stall still lasts at a time since the start; 0: there is none.
func (c *Config) stalled(since time.Duration) time.Duration {
	if c.Stall <= 0 || since < 0 {
		return 0
	}
	left := c.Every - since%c.Every
	if left > c.Stall {
		return 0
	}
	return left
}

// Serve accepts connections on l until ctx ends, then closes l and all of them and waits for their goroutines. It
// returns nil when ctx ended it.
func Serve(ctx context.Context, l net.Listener, c Config) error {
	if err := c.Validate(); err != nil {
		_ = l.Close()
		return err
	}
	s := &server{config: c, started: time.Now(), open: map[net.Conn]struct{}{}}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	err := s.accept(ctx, l)
	_ = l.Close()
	s.closeAll()
	s.wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("accepting connections on %s: %w", l.Addr(), err)
}

type server struct {
	config   Config
	started  time.Time
	delaying atomic.Int64
	wg       sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]struct{}
}

func (s *server) accept(ctx context.Context, l net.Listener) error {
	const pause = 10 * time.Millisecond
	for {
		nc, err := l.Accept()
		if err != nil {
			var temporary interface{ Temporary() bool } // too many open files, say
			if errors.As(err, &temporary) && temporary.Temporary() && ctx.Err() == nil {
				time.Sleep(pause)
				continue
			}
			return err
		}
		if !s.add(nc) {
			_ = nc.Close()
			continue
		}
		s.wg.Go(func() {
			defer s.remove(nc)
			serve(ctx, nc, s.config, s.started, &s.delaying)
		})
	}
}

func (s *server) add(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= MaxConnections {
		return false
	}
	s.open[nc] = struct{}{}
	return true
}

func (s *server) remove(nc net.Conn) {
	s.mu.Lock()
	delete(s.open, nc)
	s.mu.Unlock()
	_ = nc.Close()
}

func (s *server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for nc := range s.open {
		_ = nc.Close()
	}
}
