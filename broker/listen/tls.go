package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// How clients' certificates are treated; the words are those of the configuration.
const (
	ClientCertRequire  = "require"  // a client without a certificate of the CA is refused
	ClientCertOptional = "optional" // a client may have none; one that it shows must be of the CA
)

// certificates holds the TLS configuration that new handshakes take.
type certificates struct {
	cfg     Config
	current atomic.Pointer[tls.Config]
}

// load reads the files anew. On an error what was there stays.
func (c *certificates) load() error {
	pair, err := tls.LoadX509KeyPair(c.cfg.CertFile, c.cfg.KeyFile)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.cfg.CertFile, c.cfg.KeyFile, err)
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true}
	if c.cfg.ClientCAFile != "" {
		pem, err := os.ReadFile(c.cfg.ClientCAFile)
		if err != nil {
			return fmt.Errorf("client CA: %w", err)
		}
		t.ClientCAs = x509.NewCertPool()
		if !t.ClientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("client CA %s: no certificate in it (want PEM)", c.cfg.ClientCAFile)
		}
		t.ClientAuth = tls.RequireAndVerifyClientCert
		if c.cfg.ClientCert == ClientCertOptional {
			t.ClientAuth = tls.VerifyClientCertIfGiven
		}
		t.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) > 0 && commonName(&state) == "" {
				return errors.New("the client's certificate has no Common Name")
			}
			return nil
		}
	}
	c.current.Store(t)
	return nil
}

// config is what listeners use: each handshake takes the newest files.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		SessionTicketsDisabled: true,
		GetConfigForClient:     func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	}
}

// commonName is the name that a verified certificate proves; "" without one.
func commonName(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return ""
	}
	return state.PeerCertificates[0].Subject.CommonName
}
