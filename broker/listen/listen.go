package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Config of a Set.
type Config struct {
	URLs             []string      // none: a Set that accepts nothing
	CertFile         string        // PEM, needed by mqtts and wss
	KeyFile          string        // PEM
	ClientCAFile     string        // PEM; "": clients are not asked for a certificate
	ClientCert       string        // require or optional; default require
	Origins          []string      // hosts whose web pages may connect by WebSocket, beside the broker's own; * as in path.Match
	MaxConnections   int           // over all listeners; 0: no limit
	HandshakeTimeout time.Duration // from accept to the end of the TLS handshake and the upgrade; default 10 s
	Log              *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = 10 * time.Second
	}
	if c.ClientCert == "" {
		c.ClientCert = ClientCertRequire
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate checks the configuration without reading a file or opening a port; it reports every problem at once.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	needTLS := false
	for _, s := range c.URLs {
		e, err := Parse(s)
		errs = append(errs, err)
		needTLS = needTLS || e.TLS()
	}
	switch {
	case needTLS && (c.CertFile == "" || c.KeyFile == ""):
		errs = append(errs, errors.New("a TLS listener needs a certificate and its key (--cert, --key)"))
	case !needTLS && (c.CertFile != "" || c.KeyFile != "" || c.ClientCAFile != ""):
		errs = append(errs, errors.New("a certificate, key or client CA is given, but no listener uses TLS (mqtts:// or wss://)"))
	}
	if c.ClientCert != ClientCertRequire && c.ClientCert != ClientCertOptional {
		errs = append(errs, fmt.Errorf("client certificates are %q: want %s or %s", c.ClientCert, ClientCertRequire, ClientCertOptional))
	}
	if c.MaxConnections < 0 {
		errs = append(errs, errors.New("the limit on connections is negative"))
	}
	return errors.Join(errs...)
}

// Hint is what is known of a client before its CONNECT.
type Hint struct {
	Name   string // the Common Name of its verified certificate; "": none
	Scheme string // of the listener
}

// Set is a number of open listeners.
type Set struct {
	cfg   Config
	log   *slog.Logger
	certs *certificates // nil without TLS
	ends  []*end
	ctx   context.Context // ends with Close; handshakes stop then
	stop  context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // accept loops and connections
}

// end is one listener.
type end struct {
	Endpoint
	ln   net.Listener // counts; plain TCP
	http *http.Server // of a WebSocket; under Set.mu
}

// Open reads the certificates and opens every listener; connections wait until Serve. On an error none stays open.
func Open(cfg Config) (*Set, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Set{cfg: cfg, log: cfg.Log}
	if cfg.CertFile != "" {
		s.certs = &certificates{cfg: cfg}
		if err := s.certs.load(); err != nil {
			return nil, err
		}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	limit := &limiter{max: cfg.MaxConnections, log: cfg.Log}
	for _, url := range cfg.URLs {
		e, err := Parse(url)
		if err != nil {
			s.Close()
			return nil, err
		}
		ln, err := net.Listen("tcp", e.Addr)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("listener %s: %w (is another broker running there? choose another address)", url, err)
		}
		s.ends = append(s.ends, &end{Endpoint: e, ln: &limited{ln, limit}})
	}
	return s, nil
}

// Addrs are the addresses of the listeners in the order of the configuration.
func (s *Set) Addrs() []net.Addr {
	addrs := make([]net.Addr, len(s.ends))
	for i, e := range s.ends {
		addrs[i] = e.ln.Addr()
	}
	return addrs
}

// URLs are the listeners with the ports that they got.
func (s *Set) URLs() []string {
	urls := make([]string, len(s.ends))
	for i, e := range s.ends {
		bound := e.Endpoint
		bound.Addr = e.ln.Addr().String()
		urls[i] = bound.String()
	}
	return urls
}

// Reload reads the certificate, the key and the client CA again, for handshakes from now on. On an error the old ones stay.
func (s *Set) Reload() error {
	if s.certs == nil {
		return nil
	}
	return s.certs.load()
}

// Close stops accepting, and the handshakes under way. Connections that were handed over are the handler's to close.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.stop()
	for _, e := range s.ends {
		_ = e.ln.Close()
		if e.http != nil {
			_ = e.http.Close()
		}
	}
}

// Serve accepts connections until Close and hands each, once its handshake is done, to handle in a goroutine of its own.
// The connection is closed when handle returns. Serve returns when every handle has.
func (s *Set) Serve(handle func(net.Conn, Hint)) {
	for _, e := range s.ends {
		if e.Scheme == "ws" || e.Scheme == "wss" {
			s.serveHTTP(e, handle)
			continue
		}
		s.enter(func() {
			for {
				nc, err := e.ln.Accept()
				if err != nil {
					return
				}
				if !s.enter(func() { s.serveConn(e, nc, handle) }) {
					_ = nc.Close()
				}
			}
		})
	}
	<-s.ctx.Done()
	s.wg.Wait()
}

// enter runs f in a goroutine that Serve waits for, unless the set is closed.
func (s *Set) enter(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(f)
	return true
}

// serveConn does the TLS handshake, if there is one, and hands the connection over.
func (s *Set) serveConn(e *end, nc net.Conn, handle func(net.Conn, Hint)) {
	defer func() { _ = nc.Close() }()
	hint := Hint{Scheme: e.Scheme}
	if e.TLS() {
		secure := tls.Server(nc, s.certs.config())
		ctx, cancel := context.WithTimeout(s.ctx, s.cfg.HandshakeTimeout)
		err := secure.HandshakeContext(ctx)
		cancel()
		if err != nil {
			s.log.Debug("TLS handshake", "remote", nc.RemoteAddr().String(), "error", err)
			return
		}
		state := secure.ConnectionState()
		hint.Name = commonName(&state)
		nc = secure
	}
	handle(nc, hint)
}
