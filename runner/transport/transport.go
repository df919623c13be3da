package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// Endpoint is where the broker listens, and what a client has to show.
type Endpoint struct {
	Scheme   string // tcp, tls, ws or wss; "": tcp
	Addr     string // host:port
	Path     string // of a WebSocket, "": /mqtt
	TLS      *tls.Config
	Username string
	Password []byte
}

// String is the endpoint as a URL, without what is secret.
func (e Endpoint) String() string {
	scheme := e.Scheme
	if scheme == "" {
		scheme = "tcp"
	}
	return scheme + "://" + e.Addr + e.path()
}

func (e Endpoint) path() string {
	switch {
	case e.Scheme != "ws" && e.Scheme != "wss":
		return ""
	case e.Path == "":
		return "/mqtt"
	}
	return e.Path
}

// Dial opens a transport connection. TCP_NODELAY is on.
func (e Endpoint) Dial(ctx context.Context, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch e.Scheme {
	case "ws", "wss":
		return e.dialWebSocket(ctx)
	}
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", e.Addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", e.Addr, innermost(err))
	}
	if e.Scheme != "tls" {
		return nc, nil
	}
	secure := tls.Client(nc, e.config())
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("TLS with %s: %w (%s)", e.Addr, innermost(err), tlsHint(err))
	}
	return secure, nil
}

// config is that of TLS, with the name of the host.
func (e Endpoint) config() *tls.Config {
	config := e.TLS.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(e.Addr)
	}
	return config
}

func (e Endpoint) dialWebSocket(ctx context.Context) (net.Conn, error) {
	options := &websocket.DialOptions{Subprotocols: []string{"mqtt"}}
	if e.Scheme == "wss" {
		// HTTP/1.1 alone has the Upgrade of a WebSocket, section 4.1 of RFC 6455.
		options.HTTPClient = &http.Client{Transport: &http.Transport{TLSClientConfig: e.config(), DisableKeepAlives: true}}
	}
	c, answer, err := websocket.Dial(ctx, e.String(), options)
	if answer != nil && answer.Body != nil {
		_ = answer.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("open a WebSocket at %s: %w", e, err)
	}
	c.SetReadLimit(-1)
	// The connection outlives the dialling.
	return websocket.NetConn(context.WithoutCancel(ctx), c, websocket.MessageBinary), nil
}

// innermost strips the net package's wrapping, which names the address once more.
func innermost(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}

// tlsHint says what to do about a handshake that failed.
func tlsHint(err error) string {
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return "name its CA: --ca"
	case strings.Contains(err.Error(), "certificate required"), strings.Contains(err.Error(), "bad certificate"):
		return certificateHint
	}
	return "is it a TLS listener?"
}

const certificateHint = "it wants a certificate of the client: --cert, --key"

// GoneHint says what to do about a connection that ended before its CONNACK, for the reason why.
func (e Endpoint) GoneHint(why string) string {
	switch {
	case strings.Contains(why, "certificate required"), strings.Contains(why, "bad certificate"):
		return " (" + certificateHint + ")"
	case e.Scheme == "" || e.Scheme == "tcp":
		return " (a TLS listener? try tls://)"
	}
	return ""
}
