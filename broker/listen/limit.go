package listen

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// limiter counts connections over all listeners of a Set.
type limiter struct {
	max int // 0: no limit
	log *slog.Logger

	mu      sync.Mutex
	open    int
	refused int       // since the last line
	logged  time.Time // when that was
}

// limited is a listener whose Accept gives counted connections.
type limited struct {
	net.Listener
	limit *limiter
}

// Accept waits for a connection that is within the limit. It returns only the error of a closed listener: others, such as
// too many open files, pass.
func (l *limited) Accept() (net.Conn, error) {
	pause := 5 * time.Millisecond
	for {
		nc, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			l.limit.log.Error("accept", "listener", l.Addr().String(), "error", err)
			time.Sleep(pause) // do not spin
			pause = min(2*pause, time.Second)
			continue
		}
		if !l.limit.take(nc.RemoteAddr(), time.Now()) {
			_ = nc.Close()
			continue
		}
		if tcp, ok := nc.(*net.TCPConn); ok {
			_ = tcp.SetNoDelay(true) // an acknowledgement must not wait for the next one
		}
		return &counted{Conn: nc, limit: l.limit}, nil
	}
}

// take counts one connection unless there are too many.
func (l *limiter) take(from net.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.max == 0 || l.open < l.max {
		l.open++
		return true
	}
	l.refused++
	if now.Sub(l.logged) >= time.Second {
		l.log.Warn("too many connections: closed a new one", "limit", l.max, "remote", from.String(), "closed since the last line", l.refused)
		l.logged, l.refused = now, 0
	}
	return false
}

// counted is a connection that gives its place back when it is closed.
type counted struct {
	net.Conn
	limit *limiter
	once  sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() {
		c.limit.mu.Lock()
		c.limit.open--
		c.limit.mu.Unlock()
	})
	return c.Conn.Close()
}

// CloseWrite ends what is sent; what the client still sends can be read.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
