package target

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"inflight/runner/transport"
)

// echoes starts a TLS listener and a WebSocket server over TLS that send back what comes, and returns both as endpoints.
func echoes(t *testing.T) []transport.Endpoint {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mqtt"}})
		if err != nil {
			t.Error(err)
			return
		}
		nc := websocket.NetConn(r.Context(), c, websocket.MessageBinary)
		_, _ = io.Copy(nc, nc)
		_ = nc.Close()
	}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	trust := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(nc, nc)
				_ = nc.Close()
			}()
		}
	}()
	return []transport.Endpoint{
		{Scheme: "tls", Addr: l.Addr().String(), TLS: trust},
		{Scheme: "wss", Addr: server.Listener.Addr().String(), Path: "/mqtt", TLS: trust},
	}
}

func TestBridge(t *testing.T) {
	t.Parallel()
	for _, e := range echoes(t) {
		b, err := newBridge(t.Context(), e)
		if err != nil {
			t.Fatalf("%v: %v", e, err)
		}
		var open net.Conn
		for range 2 {
			if open, err = net.Dial("tcp", b.addr()); err != nil {
				t.Fatal(err)
			}
			_ = open.SetDeadline(time.Now().Add(2 * time.Minute))
			text := strings.Repeat("in flight ", 20_000) // more than a buffer
			go func() { _, _ = io.WriteString(open, text) }()
			got := make([]byte, len(text))
			if _, err := io.ReadFull(open, got); err != nil || string(got) != text {
				t.Fatalf("%v: what came back is not what was sent: %v", e, err)
			}
		}
		// Closing ends what is open, and returns.
		if err := b.close(); err != nil {
			t.Errorf("%v: %v", e, err)
		}
		if _, err := open.Read(make([]byte, 1)); err == nil {
			t.Errorf("%v: the connection outlives its bridge", e)
		}
	}
}

func TestBridgeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, e := range echoes(t) {
		e.TLS = nil // the system's roots
		if _, err := newBridge(t.Context(), e); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%v: got %v, want an error about the certificate", e, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	if _, err := newBridge(t.Context(), transport.Endpoint{Scheme: "tls", Addr: addr}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want that the connection is refused", err)
	}
}
