package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

// Bounds of a connection to a NATS server: how long connecting to one of them may take, how soon a server that says nothing
// counts as gone (the second ping unanswered), and the pause between two rounds of tries. A connection that is lost must
// be found out before what depends on it is given up on the other side: see Remote.Down.
const (
	dialTimeout   = 5 * time.Second
	pingInterval  = 5 * time.Second
	reconnectWait = 250 * time.Millisecond
)

// healthWait bounds a look at the health of the streams.
const healthWait = 2 * time.Second

// Remote is NATS servers that are already running, in the place of an embedded node.
type Remote struct {
	servers    Servers
	log        *slog.Logger
	maxPayload int64

	mu    sync.Mutex
	conns map[*nats.Conn]time.Time // since when it is down; zero while it is connected
	lost  int                      // how often one of them was lost
}

// Dial connects to the servers for a moment and makes sure that a broker can work with them, or says in one sentence why
// not. It does not wait for servers that are not there. replicas is how many a stream is to have.
func Dial(ctx context.Context, servers Servers, replicas int, log *slog.Logger) (*Remote, error) {
	if err := servers.Validate(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Remote{servers: servers, log: log, conns: make(map[*nats.Conn]time.Time)}
	if err := r.check(ctx, replicas); err != nil {
		return nil, err
	}
	return r, nil
}

// Connect returns a connection that comes back by itself after it was lost. Meanwhile what is published fails at once: it
// must not arrive later, when whoever sent it has given it up. The caller closes the connection.
func (r *Remote) Connect(name string) (*nats.Conn, error) {
	nc, err := r.dial(
		nats.Name("inflight broker: "+name),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // a server whose users are being changed is one that comes back
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			r.mu.Lock()
			if _, open := r.conns[nc]; open {
				r.conns[nc] = time.Now()
				r.lost++
			}
			r.mu.Unlock()
			if err != nil {
				r.log.Warn("NATS connection lost", "connection", name, "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			r.mu.Lock()
			if _, open := r.conns[nc]; open {
				r.conns[nc] = time.Time{}
			}
			r.mu.Unlock()
			r.log.Info("NATS connection is back", "connection", name, "server", nc.ConnectedUrlRedacted())
		}),
		nats.ClosedHandler(func(nc *nats.Conn) {
			r.mu.Lock()
			delete(r.conns, nc)
			r.mu.Unlock()
		}),
		nats.ErrorHandler(logErrors(r.log, name)),
	)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.conns[nc] = time.Time{}
	r.mu.Unlock()
	return nc, nil
}

// logErrors reports what goes wrong on a connection beside an operation.
func logErrors(log *slog.Logger, name string) nats.ErrHandler {
	return func(_ *nats.Conn, sub *nats.Subscription, err error) {
		subject := ""
		if sub != nil {
			subject = sub.Subject
		}
		log.Warn("node connection", "name", name, "subject", subject, "error", err)
	}
}

// Down is for how long a connection has been lost, 0 while none is, and how often one was lost so far.
func (r *Remote) Down(now time.Time) (since time.Duration, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.conns {
		if !at.IsZero() {
			since = max(since, now.Sub(at), 1)
		}
	}
	return since, r.lost
}

// Healthy reports why the servers cannot be used now: a connection is lost, or a stream does not answer, which is how a
// lost majority shows. It asks the servers and takes healthWait at most.
func (r *Remote) Healthy() error {
	r.mu.Lock()
	var asked *nats.Conn
	for nc, at := range r.conns {
		asked = nc
		if !at.IsZero() || !nc.IsConnected() {
			asked = nil
			break
		}
	}
	r.mu.Unlock()
	if asked == nil {
		return fmt.Errorf("no connection to NATS (%s)", &r.servers)
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthWait)
	defer cancel()
	names, err := streams(ctx, asked)
	if err != nil {
		return fmt.Errorf("NATS (%s): %w", &r.servers, err)
	}
	if len(names) == 0 {
		return fmt.Errorf("NATS (%s): the streams of this broker are gone", &r.servers)
	}
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			if err := request(ctx, asked, "$JS.API.STREAM.INFO."+name, nil, nil); err != nil {
				errs[i] = fmt.Errorf("stream %s does not answer (a majority of its replicas must be up): %w", name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// MaxPayload is how many bytes of a message the servers take, headers included.
func (r *Remote) MaxPayload() int64 { return r.maxPayload }

// oneLine puts several errors beside each other.
func oneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// Stop does nothing: the servers are not the broker's. The connections are closed by those who asked for them.
func (r *Remote) Stop() {}

// dial connects, and says what to do when that fails.
func (r *Remote) dial(options ...nats.Option) (*nats.Conn, error) {
	o := nats.GetDefaultOptions()
	o.Servers = r.servers.resolved()
	o.Timeout = dialTimeout
	o.InboxPrefix = inboxes
	s := &r.servers
	notes := &notingDialer{Dialer: net.Dialer{Timeout: dialTimeout}}
	options = append(options, nats.SetCustomDialer(notes))
	if s.Creds != "" {
		options = append(options, nats.UserCredentials(s.Creds))
	}
	if s.NKey != "" {
		nkey, err := nats.NkeyOptionFromSeed(s.NKey)
		if err != nil {
			return nil, fmt.Errorf("--nats-nkey %s: %w", s.NKey, err)
		}
		options = append(options, nkey)
	}
	if s.CA != "" {
		options = append(options, nats.RootCAs(s.CA))
	}
	if s.Cert != "" {
		options = append(options, nats.ClientCert(s.Cert, s.Key))
	}
	for _, option := range options {
		if err := option(&o); err != nil {
			return nil, fmt.Errorf("NATS: %w", err)
		}
	}
	nc, err := o.Connect()
	if err != nil {
		return nil, explain(s, notes, err)
	}
	return nc, nil
}

// notingDialer keeps why no connection came about: nats.go says no more than that there is no server.
type notingDialer struct {
	net.Dialer
	mu     sync.Mutex
	failed []error
}

func (d *notingDialer) Dial(network, address string) (net.Conn, error) {
	nc, err := d.Dialer.Dial(network, address)
	if err != nil {
		d.mu.Lock()
		if len(d.failed) < 8 { // of a connection that tries for ever, the first ones do
			d.failed = append(d.failed, err)
		}
		d.mu.Unlock()
	}
	return nc, err
}

// explain says in one sentence why nobody let the broker in, and what to do.
func explain(s *Servers, notes *notingDialer, err error) error {
	var unknown x509.UnknownAuthorityError
	var wrongName x509.HostnameError
	var record tls.RecordHeaderError
	notes.mu.Lock()
	failed := errors.Join(notes.failed...)
	notes.mu.Unlock()
	switch text := err.Error(); {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported), strings.Contains(strings.ToLower(text), "authorization violation"):
		return fmt.Errorf("NATS (%s) refuses the credentials: check the user and password or the token in --nats, or --nats-creds or --nats-nkey: %w", s, err)
	case errors.As(err, &unknown):
		return fmt.Errorf("NATS (%s) has a certificate of an unknown CA: give that with --nats-ca: %w", s, err)
	case errors.As(err, &wrongName):
		return fmt.Errorf("NATS (%s) has a certificate for another name: %w", s, err)
	case errors.Is(err, nats.ErrSecureConnWanted), errors.As(err, &record):
		return fmt.Errorf("NATS (%s) does not speak TLS: use nats://, without --nats-ca and --nats-cert: %w", s, err)
	case strings.Contains(text, "tls: certificate required"), strings.Contains(text, "tls: bad certificate"), strings.Contains(text, "tls: unknown certificate"),
		strings.Contains(text, "after TLS handshake"):
		return fmt.Errorf("NATS (%s) refuses the broker's certificate: give one of its CA with --nats-cert and --nats-key: %w", s, err)
	case errors.Is(failed, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody listens for NATS at %s: start the NATS server, or give its address with --nats (%w)", s, oneLine(failed))
	case failed != nil:
		return fmt.Errorf("NATS (%s) cannot be reached: %w", s, oneLine(failed))
	}
	return fmt.Errorf("connect to NATS (%s): %w", s, err)
}

// errNoAnswer is a question to JetStream that was not answered in time.
var errNoAnswer = errors.New("no answer")

// request asks JetStream, waits askWait at most, and reads the answer into value.
func request(ctx context.Context, nc *nats.Conn, subject string, body []byte, value any) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, body)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", subject, errNoAnswer)
	case err != nil:
		return err
	}
	var failed struct {
		Error *APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		return fmt.Errorf("answer to %s: %w", subject, err)
	}
	if failed.Error != nil {
		return failed.Error
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(m.Data, value)
}

// APIError is the answer of JetStream to what it does not do.
type APIError struct {
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// Error gives the description and the number.
func (e *APIError) Error() string { return fmt.Sprintf("JetStream: %s (%d)", e.Description, e.ErrCode) }

// streams lists the streams of the broker.
func streams(ctx context.Context, nc *nats.Conn) ([]string, error) {
	var found struct {
		Streams []string `json:"streams"`
	}
	err := request(ctx, nc, "$JS.API.STREAM.NAMES", []byte(`{"subject":"`+root+`>"}`), &found)
	return found.Streams, err
}
