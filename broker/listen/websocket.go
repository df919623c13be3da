package listen

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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
	nc := newWSConn(ws, raw)
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

// wsConn is the stream of bytes in the binary frames of a WebSocket. Its deadlines are those of the connection below: one
// that passes ends the read or the write, and leaves the other direction as it is, where the library's own net.Conn would
// close. A write deadline is for one Write.
type wsConn struct {
	ws  *websocket.Conn
	raw net.Conn // below ws

	reading sync.Mutex
	message io.Reader // what is being read; nil between messages

	writing sync.Mutex
	parted  bool // the close frame is out; under writing
	status  atomic.Uint32
	once    sync.Once
}

func newWSConn(ws *websocket.Conn, raw net.Conn) *wsConn {
	ws.SetReadLimit(-1) // packets have limits, frames have none
	c := &wsConn{ws: ws, raw: raw}
	c.status.Store(uint32(websocket.StatusNormalClosure))
	return c
}

// Read reads from the binary frames, whatever of a packet they hold [MQTT-6.0.0-2]. Any other frame is an error
// [MQTT-6.0.0-1].
func (c *wsConn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for {
		if c.message == nil {
			kind, r, err := c.ws.Reader(context.Background())
			if err != nil {
				if status := websocket.CloseStatus(err); status == websocket.StatusNormalClosure || status == websocket.StatusGoingAway {
					err = io.EOF
				}
				return 0, err
			}
			if kind != websocket.MessageBinary {
				c.status.Store(uint32(websocket.StatusUnsupportedData))
				return 0, errors.New("a WebSocket frame that is not binary [MQTT-6.0.0-1]")
			}
			c.message = r
		}
		n, err := c.message.Read(p)
		if err == io.EOF {
			c.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (c *wsConn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.parted {
		return 0, net.ErrClosed
	}
	defer func() { _ = c.raw.SetWriteDeadline(time.Time{}) }() // it is not that of the library's answer to a ping
	if err := c.ws.Write(context.Background(), websocket.MessageBinary, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// CloseWrite begins the closing handshake: nothing more is sent, and what the client has sent can be read up to its close
// frame, which is an io.EOF. Who closes without it takes from the client what is on its way.
func (c *wsConn) CloseWrite() error {
	if !c.writing.TryLock() {
		return errors.New("a write is under way")
	}
	defer c.writing.Unlock()
	if c.parted {
		return net.ErrClosed
	}
	c.parted = true
	// The library would wait for the answer here.
	frame := binary.BigEndian.AppendUint16([]byte{0x88, 0x02}, uint16(c.status.Load()))
	_ = c.raw.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, err := c.raw.Write(frame)
	return err
}

// Close says goodbye, if nothing is being written, and closes. The library's Close would wait seconds for a peer that does
// not answer; here a connection is closed because somebody else waits for its end.
func (c *wsConn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		_ = c.CloseWrite()
		err = c.raw.Close() // first, because it ends a Close of the library that is waiting
		_ = c.ws.CloseNow()
	})
	return err
}

func (c *wsConn) LocalAddr() net.Addr                { return c.raw.LocalAddr() }
func (c *wsConn) RemoteAddr() net.Addr               { return c.raw.RemoteAddr() }
func (c *wsConn) SetDeadline(t time.Time) error      { return c.raw.SetDeadline(t) }
func (c *wsConn) SetReadDeadline(t time.Time) error  { return c.raw.SetReadDeadline(t) }
func (c *wsConn) SetWriteDeadline(t time.Time) error { return c.raw.SetWriteDeadline(t) }
