package broker

import (
	"context"
	"errors"
	"io"
	"time"

	"inflight/broker/ops"
)

// Why the broker takes no clients.
var (
	errStarting = errors.New("starting: the store is not open yet")
	errDraining = errors.New("draining: the broker is shutting down")
)

// lingerTime is how long a drained connection waits for its client to close.
const lingerTime = time.Second

// Drain lets go of the clients in good order: it stops accepting, reads nothing more, and closes each connection once the
// operations of what was read have ended and their responses are written. It returns when no connection is left, or when
// the drain time-out or ctx ends; Shutdown closes the rest. From the first moment on the broker is not ready.
//
// A connection without anything under way is closed at once. What was read and not acknowledged by then the clients send
// again, and what was acknowledged is in the store.
func (s *Server) Drain(ctx context.Context) {
	s.mu.Lock()
	if s.closing || s.draining {
		s.mu.Unlock()
		return
	}
	s.draining = true
	open := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		open = append(open, c)
	}
	s.mu.Unlock()
	s.log.Info("draining", "connections", len(open))
	s.ln.Close()
	for _, c := range open {
		c.leave()
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	for _, c := range open {
		select {
		case <-c.ended:
		case <-ctx.Done():
			s.log.Warn("connections that did not come to an end within the drain time-out are closed", "timeout", s.cfg.DrainTimeout)
			return
		}
	}
}

// leave makes the reader stop. It sees either the flag or a deadline in the past: it sets its own deadline first and
// looks at the flag then.
func (c *conn) leave() {
	c.leaving.Store(true)
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	close(c.left)
}

// settle waits, after the reader has stopped, until what it started is answered and written. Then it lets the client
// close first, for a moment: closing with input unread resets the connection, and a reset may destroy responses that are
// still on their way.
func (c *conn) settle() {
	c.client.mu.Lock()
	c.settling = true
	c.client.mu.Unlock()
	c.signal()
	select {
	case <-c.closed:
		return
	case <-c.answered:
	}
	<-c.left // its deadline must not end the wait that follows
	if c.polite.Load() {
		return // a DISCONNECT is still to come, and the wait after it
	}
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, c.nc)
}

// settled reports whether nothing is left to answer on a connection that is not read any more. client.mu is held.
func (c *conn) settled() bool { return c.settling && c.ops == 0 && c.pipe.Pending() == 0 }

// serving is nil while the broker takes connections.
func (s *Server) serving() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing || s.draining:
		return errDraining
	case !s.opened:
		return errStarting
	}
	return nil
}

// Ready is nil while the broker can serve clients: it takes connections, and the store has what it needs to acknowledge.
func (s *Server) Ready() error {
	if err := s.serving(); err != nil {
		return err
	}
	if s.node != nil {
		return s.node.Healthy()
	}
	return nil
}

// startOps starts the operations listener, if there is to be one.
func (s *Server) startOps() error {
	if s.cfg.OpsListen == "" {
		return nil
	}
	var err error
	s.ops, err = ops.Start(ops.Config{
		Listen: s.cfg.OpsListen, Snapshot: s.snapshot, Pprof: s.cfg.Pprof, Log: s.log,
		Ready: func(context.Context) error { return s.Ready() },
	})
	if err != nil {
		return err
	}
	s.log.Info("operations listener", "url", "http://"+s.ops.Addr().String())
	return nil
}

func (s *Server) stopOps() {
	if s.ops != nil {
		s.ops.Close()
	}
}
