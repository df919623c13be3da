package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inflight/broker/auth"
	"inflight/broker/listen"
	"inflight/broker/packet"
	"inflight/broker/store"
)

// Access is the part of a Config that says where clients connect and who may do what; packages listen and auth describe
// the URLs and the files.
type Access struct {
	Listeners []string // URLs: mqtt://, mqtts://, ws://, wss://, each with a port
	// NoListener opens none: the broker serves only what [Server.ServeConn] is given, and whoever proves no name is let in
	// only with AllowAnonymous.
	NoListener bool
	Cert       string // certificate file of the TLS listeners, PEM
	Key        string // and its key
	ClientCA   string // CA of clients' certificates, PEM; "": clients are not asked for one
	// ClientCert says whether a client must have a certificate: require (default) or optional.
	ClientCert   string
	Origins      []string // hosts whose web pages may connect by WebSocket
	PasswordFile string   // "": nobody has a password
	ACLFile      string   // "": everyone may do everything
	// AllowAnonymous lets clients in that prove no name. Without it they are let in only while every listener is on a
	// loopback interface and there is no password file.
	AllowAnonymous bool
	MaxConnections int // over all listeners; default 50,000

	// Reload makes Serve read the certificates and both files again each time something is received; what has an error
	// stays as it was.
	Reload <-chan struct{}
}

func (a Access) withDefaults() Access {
	if a.MaxConnections == 0 {
		a.MaxConnections = 50_000
	}
	return a
}

// urls are all listeners.
func (c *Config) urls() []string {
	var urls []string
	if c.Listen != "" {
		urls = append(urls, "mqtt://"+c.Listen)
	}
	return append(urls, c.Listeners...)
}

func (c *Config) listenConfig() listen.Config {
	return listen.Config{
		URLs: c.urls(), CertFile: c.Cert, KeyFile: c.Key, ClientCAFile: c.ClientCA, ClientCert: c.ClientCert, Origins: c.Origins,
		MaxConnections: c.MaxConnections, HandshakeTimeout: c.ConnectTimeout, Log: c.Log,
	}
}

// validateAccess wants that a listener which other machines can reach has a way to tell who a client is.
func (c *Config) validateAccess() error {
	if err := c.listenConfig().Validate(); err != nil {
		return err
	}
	if c.NoListener {
		switch {
		case len(c.urls()) > 0:
			return errors.New("listeners are given, and none is to be opened")
		case c.PasswordFile == "" && !c.AllowAnonymous:
			return errors.New("no client could prove who it is: give a password file, or allow anonymous clients")
		}
		return nil
	}
	var errs []error
	for _, url := range c.urls() {
		e, _ := listen.Parse(url)
		proof := c.PasswordFile != "" || c.ClientCA != "" && e.TLS()
		if !e.Loopback() && !proof && !c.AllowAnonymous {
			errs = append(errs, fmt.Errorf("listener %s can be reached from other machines, and no client could prove who it is: "+
				"give --password-file, or TLS with --client-ca, or let everyone in with --allow-anonymous", url))
		}
	}
	return errors.Join(errs...)
}

// anonymous reports whether clients that prove no name are let in.
func (c *Config) anonymous() bool {
	if c.AllowAnonymous || c.NoListener {
		return c.AllowAnonymous
	}
	for _, url := range c.urls() {
		if e, _ := listen.Parse(url); !e.Loopback() {
			return false
		}
	}
	return c.PasswordFile == ""
}

func (c *Config) authFiles() auth.Files {
	return auth.Files{Passwords: c.PasswordFile, ACL: c.ACLFile, Anonymous: c.anonymous()}
}

// openAccess reads the files and opens the listeners, which accept nothing yet.
func (s *Server) openAccess() error {
	policy, err := auth.Load(s.cfg.authFiles())
	if err != nil {
		return err
	}
	s.policy.Store(policy)
	s.checker = auth.NewChecker()
	if s.ln, err = listen.Open(s.cfg.listenConfig()); err != nil {
		return err
	}
	for _, url := range s.cfg.urls() {
		if e, _ := listen.Parse(url); s.cfg.PasswordFile != "" && !e.TLS() && !e.Loopback() {
			s.log.Warn("passwords cross the network in the clear on this listener", "listener", url)
		}
	}
	return nil
}

// Reload reads the certificates, the passwords and the ACL again. New handshakes and every PUBLISH and SUBSCRIBE from now
// on are judged by them. A connection is closed when its user is gone or has another password, or when it has a
// subscription that is not allowed any more. Certificates on one side, passwords and ACL on the other stay as they were if
// they have an error.
func (s *Server) Reload() error {
	errCert := s.ln.Reload()
	now, err := auth.Load(s.cfg.authFiles())
	if err != nil {
		return errors.Join(errCert, err)
	}
	before := s.policy.Swap(now)
	s.mu.Lock()
	clients := make([]*client, 0, len(s.clients))
	for _, cl := range s.clients {
		clients = append(clients, cl)
	}
	s.mu.Unlock()
	for _, cl := range clients {
		cl.mu.Lock()
		c := cl.conn
		cl.mu.Unlock()
		if c != nil {
			c.recheck(before, now)
		}
	}
	return errCert
}

func (s *Server) reloadLogged() {
	if err := s.Reload(); err != nil {
		s.log.Error("reload: what has an error stays as it was", "error", err)
		return
	}
	s.log.Info("reloaded certificates, passwords and ACL")
}

// errRevoked closes a connection that a reload leaves without its rights.
var errRevoked = errors.New("a reload took the client's rights")

// permit is who a client is and what it may do. It is the reader's, but for who and hint, which do not change once the
// connection is attached.
type permit struct {
	hint listen.Hint
	who  auth.Identity

	policy  *auth.Policy // that granted is of
	granted *auth.Rights
}

// admit decides a CONNECT: it returns the identity's refusal, or keeps who the client is. It may wait for bcrypt.
func (c *conn) admit(p *packet.Connect) (code packet.ReasonCode, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.srv.cfg.ConnectTimeout)
	defer cancel()
	policy := c.srv.policy.Load()
	who, err := policy.Authenticate(ctx, c.srv.checker, auth.Credentials{
		Proven: c.hint.Name, HasUser: p.HasUsername, User: p.Username, HasPassword: p.HasPassword, Password: p.Password,
		ClientID: p.ClientID,
	})
	switch {
	case errors.Is(err, auth.ErrCredentials):
		code = packet.BadUserNameOrPassword
	case errors.Is(err, auth.ErrAnonymous), errors.Is(err, auth.ErrOtherName):
		code = packet.NotAuthorized
	case err != nil:
		code = packet.ServerUnavailable
	}
	if err == nil {
		c.who, c.policy, c.granted = who, policy, policy.ACL.For(who)
		if p.Will != nil && !c.granted.CanPublish(p.Will.Topic) {
			code, err = packet.NotAuthorized, fmt.Errorf("will to %s is not allowed", short(p.Will.Topic))
		}
	}
	if err != nil {
		c.srv.log.Info("client refused", "remote", c.nc.RemoteAddr().String(), "client", short(p.ClientID), "user", short(p.Username), "error", err)
	}
	return code, err
}

// readmit closes the connection if a reload between its CONNECT and its session took its rights.
func (c *conn) readmit() {
	if now := c.srv.policy.Load(); now != c.policy {
		c.recheck(c.policy, now)
	}
}

// recheck closes the connection if the client was let in by before and would not be by now, or has a subscription that it
// must not have any more.
func (c *conn) recheck(before, now *auth.Policy) {
	ok := c.hint.Name != "" || now.Keeps(before, c.who.User)
	rights := now.ACL.For(c.who)
	for _, sub := range c.client.record().Subscriptions {
		ok = ok && rights.CanSubscribe(sub.Filter)
	}
	if !ok {
		c.srv.log.Info("connection closed by a reload", "client", short(c.who.ClientID), "user", short(c.who.User))
		c.close(errRevoked)
	}
}

// rights are what the client may do at this moment. Only the reader asks.
func (c *conn) rights() *auth.Rights {
	if now := c.srv.policy.Load(); now != c.policy {
		c.policy, c.granted = now, now.ACL.For(c.who)
	}
	return c.granted
}

// mayPublish decides a PUBLISH. Version 3.1.1 leaves two answers to one that is not allowed, the acknowledgement as if
// nothing were wrong and the end of the connection [MQTT-3.3.5-2]; it is the end, because a lost message that was
// acknowledged is what this broker is there to rule out.
func (c *conn) mayPublish(topic []byte) error {
	rights := c.rights()
	if rights == nil || rights.CanPublish(string(topic)) {
		return nil
	}
	c.srv.log.Warn("publish not allowed", "client", short(c.who.ClientID), "user", short(c.who.User), "topic", short(string(topic)))
	return fmt.Errorf("PUBLISH to %s: %w [MQTT-3.3.5-2]", short(string(topic)), errNotAllowed)
}

// errNotAllowed is a PUBLISH that the client has no right to. MQTT 5.0 has a Reason Code for it.
var errNotAllowed = errors.New("not allowed")

// maySubscribe decides one Topic Filter of a SUBSCRIBE.
func (c *conn) maySubscribe(filter string) bool {
	if c.rights().CanSubscribe(filter) {
		return true
	}
	c.srv.log.Warn("subscribe not allowed", "client", short(c.who.ClientID), "user", short(c.who.User), "filter", short(filter))
	return false
}

// mayResume reports whether the client may have every subscription of the session that its identifier names. Identifiers
// are no secret: without this, whoever knows one gets what was queued for somebody else.
func (c *conn) mayResume(old *client, rec *store.Session) bool {
	if c.rights() == nil {
		return true
	}
	if old != nil {
		rec = old.record()
	}
	if rec == nil {
		return true
	}
	for _, sub := range rec.Subscriptions {
		if !c.rights().CanSubscribe(sub.Filter) {
			c.srv.log.Warn("session not resumed: a subscription of it is not allowed", "client", short(c.who.ClientID),
				"user", short(c.who.User), "filter", short(sub.Filter), "last used", rec.Updated.Format(time.RFC3339))
			return false
		}
	}
	return true
}

// short is the beginning of a string that a client chose, so that it cannot fill a log.
func short(s string) string {
	const shown = 64
	if len(s) > shown {
		return s[:shown] + "..."
	}
	return s
}
