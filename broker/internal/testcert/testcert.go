// Package testcert makes certificates for tests.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA signs certificates.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte
}

// New makes a CA of its own.
func New(t testing.TB) *CA {
	t.Helper()
	ca := &CA{t: t, key: newKey(t)}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	ca.cert, ca.PEM = ca.sign(template, template, &ca.key.PublicKey)
	return ca
}

// Pool is what a client that trusts the CA takes.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Issue makes a certificate for 127.0.0.1 and localhost that serves both ends, and its key, in PEM.
func (ca *CA) Issue(commonName string) (cert, key []byte) {
	ca.t.Helper()
	k := newKey(ca.t)
	_, cert = ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}, ca.cert, &k.PublicKey)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Client is the TLS configuration of a client that trusts the CA, with a certificate unless commonName is "-".
func (ca *CA) Client(commonName string) *tls.Config {
	ca.t.Helper()
	cfg := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	if commonName != "-" {
		pair, err := tls.X509KeyPair(ca.Issue(commonName))
		if err != nil {
			ca.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

// Write issues a certificate and writes cert.pem, key.pem and ca.pem to dir.
func (ca *CA) Write(dir, commonName string) (certFile, keyFile, caFile string) {
	ca.t.Helper()
	cert, key := ca.Issue(commonName)
	for name, data := range map[string][]byte{"cert.pem": cert, "key.pem": key, "ca.pem": ca.PEM} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			ca.t.Fatal(err)
		}
	}
	return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
}

func (ca *CA) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey) (*x509.Certificate, []byte) {
	ca.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		ca.t.Fatal(err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
