package listen

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// subprotocol is the one that MQTT has registered [MQTT-6.0.0-3].
const subprotocol = "mqtt"

// rawKey is the context key of the connection below an HTTP request.
type rawKey struct{}

// serveHTTP starts the HTTP server of a WebSocket listener.
func (s *Set) serveHTTP(e *end, handle func(net.Conn, Hint)) {
	ln := e.ln
	if e.TLS() {
		ln = tls.NewListener(ln, s.certs.config())
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.upgrade(e, w, r, handle) }),
		// The upgrade is all that a client has to ask for: one short request.
		ReadHeaderTimeout: s.cfg.HandshakeTimeout,
		ReadTimeout:       s.cfg.HandshakeTimeout,
		IdleTimeout:       s.cfg.HandshakeTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       func(ctx context.Context, nc net.Conn) context.Context { return context.WithValue(ctx, rawKey{}, nc) },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.mu.Lock()
	e.http = server
	s.mu.Unlock()
	s.enter(func() { _ = server.Serve(ln) })
}

// upgrade makes a connection of packets out of an HTTP request.
func (s *Set) upgrade(e *end, w http.ResponseWriter, r *http.Request, handle func(net.Conn, Hint)) {
	if e.Path != "" && r.URL.Path != e.Path {
		http.NotFound(w, r)
		return
	}
	raw, ok := r.Context().Value(rawKey{}).(net.Conn)
	if !ok || !offers(r, subprotocol) {
		s.log.Debug("WebSocket without the subprotocol mqtt", "remote", r.RemoteAddr)
		http.Error(w, "this is MQTT over WebSocket: the client must offer the subprotocol mqtt", http.StatusBadRequest) // [MQTT-6.0.0-3]
		return
	}
	done := make(chan struct{})
	if !s.enter(func() { <-done }) { // the server does not wait for handlers; Serve does
		return
	}
	defer close(done)
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{subprotocol}, OriginPatterns: s.cfg.Origins,
	})
	if err != nil {
		s.log.Debug("WebSocket upgrade", "remote", r.RemoteAddr, "error", err)
		return
	}
	_ = raw.SetDeadline(time.Time{}) // the upgrade's
	nc := &wsConn{Conn: websocket.NetConn(context.Background(), ws, websocket.MessageBinary), ws: ws, raw: raw}
	defer func() { _ = nc.Close() }()
	handle(nc, Hint{Name: commonName(r.TLS), Scheme: e.Scheme})
}

// offers reports whether the client offers a subprotocol.
func offers(r *http.Request, want string) bool {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(name), want) {
				return true
			}
		}
	}
	return false
}

// wsConn is the stream of bytes in the binary frames of a WebSocket.
type wsConn struct {
	net.Conn // reads and writes frames
	ws       *websocket.Conn
	raw      net.Conn // below ws

	writing sync.Mutex
	once    sync.Once
}

func (c *wsConn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.Conn.Write(b)
}

// closeFrame is a close frame of a server, status 1000 (normal closure).
var closeFrame = []byte{0x88, 0x02, 0x03, 0xE8}

// Close says goodbye, if nothing is being written, and closes. The library's Close would wait seconds for a peer that does
// not answer; here a connection is closed because somebody else waits for its end.
func (c *wsConn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		if c.writing.TryLock() {
			_ = c.raw.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = c.raw.Write(closeFrame)
			c.writing.Unlock()
		}
		err = c.raw.Close() // first, because it ends a Close of the library that is waiting
		_ = c.ws.CloseNow()
		_ = c.SetDeadline(time.Time{}) // stops its timers, which would keep the connection in memory
	})
	return err
}

func (c *wsConn) LocalAddr() net.Addr  { return c.raw.LocalAddr() }
func (c *wsConn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }
