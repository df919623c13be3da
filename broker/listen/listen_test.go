package listen

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"inflight/broker/internal/testcert"
)

// patience bounds every wait; it is no criterion of speed.
const patience = 2 * time.Minute

func TestParse(t *testing.T) {
	for _, c := range []struct {
		why, url, want string
		loopback       bool
		err            string
	}{
		{"plain", "mqtt://127.0.0.1:1883", "mqtt://127.0.0.1:1883", true, ""},
		{"another name for it", "tcp://localhost:1883", "mqtt://localhost:1883", true, ""},
		{"a name for TLS", "ssl://[::1]:8883", "mqtts://[::1]:8883", true, ""},
		{"another", "tls://0.0.0.0:8883", "mqtts://0.0.0.0:8883", false, ""},
		{"every interface", "mqtt://:1883", "mqtt://:1883", false, ""},
		{"every interface, in IPv6", "mqtt://[::]:1883", "mqtt://[::]:1883", false, ""},
		{"the whole loopback net", "mqtt://127.9.9.9:1883", "mqtt://127.9.9.9:1883", true, ""},
		{"loopback in IPv6's clothes", "mqtt://[::ffff:127.0.0.1]:1883", "mqtt://[::ffff:127.0.0.1]:1883", true, ""},
		{"a name is not looked up", "mqtt://box:1883", "mqtt://box:1883", false, ""},
		{"a path", "ws://127.0.0.1:80/mqtt", "ws://127.0.0.1:80/mqtt", true, ""},
		{"the root is no path", "wss://127.0.0.1:80/", "wss://127.0.0.1:80", true, ""},
		{"no scheme", "127.0.0.1:1883", "", false, "want a URL"},
		{"unknown scheme", "http://127.0.0.1:1883", "", false, "unknown scheme"},
		{"no port", "mqtt://127.0.0.1", "", false, "HOST:PORT"},
		{"a port out of range", "mqtt://127.0.0.1:65536", "", false, "port"},
		{"a port that is none", "mqtt://127.0.0.1:x", "", false, "invalid port"},
		{"a path without WebSocket", "mqtt://127.0.0.1:1/x", "", false, "only a WebSocket"},
		{"a user", "mqtt://u:p@127.0.0.1:1", "", false, "want nothing but"},
		{"a query", "mqtt://127.0.0.1:1?x=y", "", false, "want nothing but"},
	} {
		e, err := Parse(c.url)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.why, err, c.err)
			}
		case err != nil || e.String() != c.want || e.Loopback() != c.loopback:
			t.Errorf("%s: %v, loopback %v, %v, want %s, %v", c.why, e, e.Loopback(), err, c.want, c.loopback)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		why string
		cfg Config
		err string
	}{
		{"plain", Config{URLs: []string{"mqtt://127.0.0.1:0"}}, ""},
		{"TLS", Config{URLs: []string{"mqtts://127.0.0.1:0"}, CertFile: "c", KeyFile: "k", ClientCAFile: "a"}, ""},
		{"no key", Config{URLs: []string{"wss://127.0.0.1:0"}, CertFile: "c"}, "needs a certificate and its key"},
		{"a certificate for nobody", Config{URLs: []string{"ws://127.0.0.1:0"}, CertFile: "c", KeyFile: "k"}, "no listener uses TLS"},
		{"client certificates, somehow", Config{URLs: []string{"mqtt://127.0.0.1:0"}, ClientCert: "maybe"}, `"maybe": want require or optional`},
		{"a negative limit", Config{URLs: []string{"mqtt://127.0.0.1:0"}, MaxConnections: -1}, "negative"},
		{"every problem at once", Config{URLs: []string{"x", "mqtt://y"}}, "mqtt://y"},
	} {
		err := c.cfg.Validate()
		if (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.why, err, c.err)
		}
	}
}

// echo serves listeners whose connections echo, after a line that says who came.
func echo(t *testing.T, cfg Config) *Set {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	go func() {
		defer close(served)
		s.Serve(func(nc net.Conn, h Hint) {
			mu.Lock()
			open[nc] = true
			mu.Unlock()
			defer func() {
				mu.Lock()
				delete(open, nc)
				mu.Unlock()
			}()
			fmt.Fprintf(nc, "%s %s\n", h.Scheme, h.Name)
			_, _ = io.Copy(nc, nc)
		})
	}()
	t.Cleanup(func() {
		s.Close()
		mu.Lock()
		for nc := range open {
			_ = nc.Close()
		}
		mu.Unlock()
		select {
		case <-served:
		case <-time.After(patience):
			t.Error("Serve goes on after Close and the end of every connection")
		}
	})
	return s
}

// greeting reads the first line.
func greeting(nc net.Conn) (string, error) {
	_ = nc.SetReadDeadline(time.Now().Add(patience))
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(nc, one); err != nil {
			return string(line), err
		}
		if one[0] == '\n' {
			return string(line), nil
		}
		line = append(line, one[0])
	}
}

// wantEcho sends more than any buffer holds and wants it back.
func wantEcho(t *testing.T, nc net.Conn) {
	t.Helper()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	go func() { _, _ = nc.Write(sent) }()
	got := make([]byte, len(sent))
	_ = nc.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("what came back differs: %v", err)
	}
}

func dialWS(t *testing.T, url string, tc *tls.Config, edit ...func(*websocket.DialOptions)) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	o := &websocket.DialOptions{
		Subprotocols: []string{"mqtt"}, HTTPHeader: http.Header{},
		HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: tc}},
	}
	for _, e := range edit {
		e(o)
	}
	c, r, err := websocket.Dial(t.Context(), url, o)
	if err == nil {
		t.Cleanup(func() { _ = c.CloseNow() })
	}
	return c, r, err
}

func TestEveryKind(t *testing.T) {
	ca := testcert.New(t)
	cert, key, caFile := ca.Write(t.TempDir(), "server")
	s := echo(t, Config{
		URLs:     []string{"mqtt://127.0.0.1:0", "mqtts://127.0.0.1:0", "ws://127.0.0.1:0/mqtt", "wss://127.0.0.1:0"},
		CertFile: cert, KeyFile: key, ClientCAFile: caFile, ClientCert: ClientCertOptional,
	})
	for i, want := range []string{"mqtt ", "mqtts ", "mqtts alice", "ws ", "wss ", "wss alice"} {
		scheme, name, _ := strings.Cut(want, " ")
		tc := ca.Client("-")
		if name != "" {
			tc = ca.Client(name)
		}
		var nc net.Conn
		var err error
		switch scheme {
		case "mqtt":
			nc, err = net.Dial("tcp", s.Addrs()[0].String())
		case "mqtts":
			nc, err = tls.Dial("tcp", s.Addrs()[1].String(), tc)
		default:
			url := s.URLs()[map[string]int{"ws": 2, "wss": 3}[scheme]]
			var c *websocket.Conn
			if c, _, err = dialWS(t, url, tc); err == nil {
				if c.Subprotocol() != "mqtt" {
					t.Errorf("%s: subprotocol %q is selected [MQTT-6.0.0-4]", want, c.Subprotocol())
				}
				nc = websocket.NetConn(t.Context(), c, websocket.MessageBinary)
			}
		}
		if err != nil {
			t.Fatalf("%d, %s: %v", i, want, err)
		}
		if got, err := greeting(nc); err != nil || got != want {
			t.Errorf("%s: greeted as %q, %v", want, got, err)
		}
		wantEcho(t, nc)
		_ = nc.Close()
	}
}

func TestClientCertificates(t *testing.T) {
	ca, stranger := testcert.New(t), testcert.New(t)
	cert, key, caFile := ca.Write(t.TempDir(), "server")
	s := echo(t, Config{URLs: []string{"mqtts://127.0.0.1:0"}, CertFile: cert, KeyFile: key, ClientCAFile: caFile})
	foreign := stranger.Client("alice")
	foreign.RootCAs = ca.Pool()
	old := ca.Client("alice")
	old.MaxVersion = tls.VersionTLS11
	old.MinVersion = tls.VersionTLS10
	for _, c := range []struct {
		why  string
		tc   *tls.Config
		want string // "": refused
	}{
		{"of the CA", ca.Client("alice"), "mqtts alice"},
		{"none", ca.Client("-"), ""},
		{"of another CA", foreign, ""},
		{"without a name", ca.Client(""), ""},
		{"TLS 1.1", old, ""},
	} {
		got := ""
		nc, err := tls.Dial("tcp", s.Addrs()[0].String(), c.tc)
		if err == nil {
			got, err = greeting(nc)
			_ = nc.Close()
		}
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", c.why, got, err, c.want)
		}
	}
}

func TestReload(t *testing.T) {
	dir := t.TempDir()
	ca := testcert.New(t)
	cert, key, caFile := ca.Write(dir, "first")
	s := echo(t, Config{URLs: []string{"mqtts://127.0.0.1:0"}, CertFile: cert, KeyFile: key, ClientCAFile: caFile})
	dial := func(tc *tls.Config) (*tls.Conn, string, error) {
		nc, err := tls.Dial("tcp", s.Addrs()[0].String(), tc)
		if err != nil {
			return nil, "", err
		}
		t.Cleanup(func() { _ = nc.Close() })
		if _, err := greeting(nc); err != nil {
			return nil, "", err
		}
		return nc, nc.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
	}
	before, name, err := dial(ca.Client("alice"))
	if err != nil || name != "first" {
		t.Fatalf("%q, %v", name, err)
	}
	// A file that is no certificate changes nothing.
	if err := os.WriteFile(cert, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), cert) {
		t.Errorf("reload of a broken certificate: %v", err)
	}
	if _, name, err := dial(ca.Client("alice")); err != nil || name != "first" {
		t.Errorf("after a failed reload: %q, %v", name, err)
	}
	ca.Write(dir, "third")
	if err := os.WriteFile(caFile, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), caFile) {
		t.Errorf("reload of a broken CA: %v", err)
	}
	if _, name, err := dial(ca.Client("alice")); err != nil || name != "first" {
		t.Errorf("a new certificate was taken with a broken CA: %q, %v", name, err)
	}
	next := testcert.New(t)
	next.Write(dir, "second")
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, name, err := dial(next.Client("bob")); err != nil || name != "second" {
		t.Errorf("after the reload: %q, %v", name, err)
	}
	gone := ca.Client("alice")
	gone.RootCAs = next.Pool()
	if _, _, err := dial(gone); err == nil {
		t.Error("a certificate of the CA that was taken away is let in")
	}
	wantEcho(t, before) // and the connection from before goes on
}

func TestWebSocketRules(t *testing.T) {
	s := echo(t, Config{URLs: []string{"ws://127.0.0.1:0/mqtt"}, Origins: []string{"app.example"}})
	url := s.URLs()[0]
	for _, c := range []struct {
		why    string
		url    string
		edit   func(*websocket.DialOptions)
		status int
	}{
		{"as it should be", url, func(*websocket.DialOptions) {}, 101},
		{"one of several subprotocols", url, func(o *websocket.DialOptions) { o.Subprotocols = []string{"x", "mqtt"} }, 101},
		{"no subprotocol [MQTT-6.0.0-3]", url, func(o *websocket.DialOptions) { o.Subprotocols = nil }, 400},
		{"another subprotocol", url, func(o *websocket.DialOptions) { o.Subprotocols = []string{"mqttv3.1"} }, 400},
		{"another path", url + "x", func(*websocket.DialOptions) {}, 404},
		{"a page of this host", url, func(o *websocket.DialOptions) { o.HTTPHeader.Set("Origin", "http://"+s.Addrs()[0].String()) }, 101},
		{"a page that may", url, func(o *websocket.DialOptions) { o.HTTPHeader.Set("Origin", "https://app.example") }, 101},
		{"a page of somebody else", url, func(o *websocket.DialOptions) { o.HTTPHeader.Set("Origin", "https://evil.example") }, 403},
	} {
		_, r, err := dialWS(t, c.url, nil, c.edit)
		if r == nil || r.StatusCode != c.status {
			t.Errorf("%s: %+v, %v, want status %d", c.why, r, err, c.status)
		}
	}
	r, err := http.Get("http" + strings.TrimPrefix(url, "ws"))
	if err != nil || r.StatusCode != 400 {
		t.Errorf("a browser that only looks: %+v, %v, want status 400", r, err)
	}
	if err == nil {
		_ = r.Body.Close()
	}
}

// Packets are a stream: frames may hold parts of them, nothing, or several [MQTT-6.0.0-2]; text closes [MQTT-6.0.0-1].
func TestWebSocketFrames(t *testing.T) {
	s := echo(t, Config{URLs: []string{"ws://127.0.0.1:0"}})
	c, _, err := dialWS(t, s.URLs()[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	in := websocket.NetConn(t.Context(), c, websocket.MessageBinary)
	if _, err := greeting(in); err != nil {
		t.Fatal(err)
	}
	for _, frame := range []string{"a", "", "bc", ""} {
		if err := c.Write(t.Context(), websocket.MessageBinary, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, 3)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "abc" {
		t.Fatalf("%q, %v", got, err)
	}
	if err := c.Write(t.Context(), websocket.MessageText, []byte("text")); err != nil {
		t.Fatal(err)
	}
	_, _, err = c.Read(t.Context())
	if websocket.CloseStatus(err) != websocket.StatusUnsupportedData {
		t.Errorf("after a text frame: %v, want close status %v", err, websocket.StatusUnsupportedData)
	}
}

// The broker closes: the client gets a close frame, and a client that never answers it holds nobody up.
func TestWebSocketClose(t *testing.T) {
	s, err := Open(Config{URLs: []string{"ws://127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	took := make(chan time.Duration, 1)
	go func() {
		defer close(served)
		s.Serve(func(nc net.Conn, _ Hint) {
			read := make(chan error)
			go func() {
				_, err := nc.Read(make([]byte, 1))
				read <- err
			}()
			start := time.Now()
			if err := nc.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if err := <-read; err == nil {
				t.Error("a read goes on after Close")
			}
			took <- time.Since(start)
			if err := nc.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("second close: %v", err)
			}
		})
	}()
	c, _, err := dialWS(t, s.URLs()[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is read here yet, so nothing answers the close frame; the library's own Close would wait 5 s.
	if d := <-took; d > 4*time.Second {
		t.Errorf("closing took %v: it waited for the peer", d)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("%v, want a normal closure", err)
	}
	s.Close()
	<-served
}

// A deadline ends what it is for, and half a close leaves the client time to read.
func TestWebSocketDeadlinesAndHalfClose(t *testing.T) {
	s, err := Open(Config{URLs: []string{"ws://127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	type half interface{ CloseWrite() error }
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.Serve(func(nc net.Conn, _ Hint) {
			_ = nc.SetDeadline(time.Now().Add(50 * time.Millisecond))
			if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read: %v, want a deadline that has passed", err)
			}
			_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
			if _, err := nc.Write([]byte("after")); err != nil {
				t.Errorf("write after a read that ended: %v", err)
			}
			_ = nc.SetWriteDeadline(time.Now().Add(10 * time.Second))
			if _, err := nc.Write([]byte(" it")); err != nil {
				t.Error(err)
			}
			b := make([]byte, 4)
			if _, err := io.ReadFull(nc, b); err != nil || string(b) != "ping" {
				t.Errorf("%q, %v", b, err)
			}
			if err := nc.(half).CloseWrite(); err != nil {
				t.Error(err)
			}
			if _, err := nc.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("write after half a close: %v", err)
			}
			if err := nc.(half).CloseWrite(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("second half close: %v", err)
			}
			if rest, err := io.ReadAll(nc); err != nil || string(rest) != "late" {
				t.Errorf("after half a close: %q, %v", rest, err)
			}
		})
	}()
	c, _, err := dialWS(t, s.URLs()[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"after", " it"} {
		if _, b, err := c.Read(t.Context()); err != nil || string(b) != want {
			t.Fatalf("%q, %v, want %q", b, err, want)
		}
	}
	for _, b := range []string{"ping", "late"} {
		if err := c.Write(t.Context(), websocket.MessageBinary, []byte(b)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("%v, want a normal closure", err)
	}
	s.Close()
	<-served
}

// A ping is answered although the deadline of the last write has passed.
func TestWebSocketPing(t *testing.T) {
	s, err := Open(Config{URLs: []string{"ws://127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.Serve(func(nc net.Conn, _ Hint) {
			_ = nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := nc.Write([]byte("x")); err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, nc)
		})
	}()
	c, _, err := dialWS(t, s.URLs()[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(150 * time.Millisecond)
	if err := c.Ping(c.CloseRead(t.Context())); err != nil {
		t.Error(err)
	}
	_ = c.Close(websocket.StatusNormalClosure, "")
	s.Close()
	<-served
}

func TestMaxConnections(t *testing.T) {
	var log lockedBuffer
	s := echo(t, Config{
		URLs: []string{"mqtt://127.0.0.1:0", "ws://127.0.0.1:0"}, MaxConnections: 2, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	dial := func() (net.Conn, error) {
		nc, err := net.Dial("tcp", s.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_, err = greeting(nc)
		return nc, err
	}
	first, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := dialWS(t, s.URLs()[1], nil); err != nil {
		t.Fatalf("the second, on another listener: %v", err)
	}
	for range 3 {
		if _, err := dial(); err == nil {
			t.Fatal("a third connection is served")
		}
	}
	if got := strings.Count(log.String(), "too many connections"); got != 1 {
		t.Errorf("%d lines for three refused connections within a second, want 1:\n%s", got, log.String())
	}
	_ = first.Close()
	for end := time.Now().Add(patience); ; {
		if _, err := dial(); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the place of a closed connection is not given again")
		}
	}
}

// A client that does not finish its handshake is closed, and holds up nobody meanwhile.
func TestHandshakeTimeout(t *testing.T) {
	ca := testcert.New(t)
	cert, key, _ := ca.Write(t.TempDir(), "server")
	s := echo(t, Config{
		URLs: []string{"mqtts://127.0.0.1:0", "ws://127.0.0.1:0", "wss://127.0.0.1:0"}, CertFile: cert, KeyFile: key,
		HandshakeTimeout: 300 * time.Millisecond,
	})
	var silent []net.Conn
	for _, a := range s.Addrs() {
		nc, err := net.Dial("tcp", a.String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		silent = append(silent, nc)
	}
	nc, err := tls.Dial("tcp", s.Addrs()[0].String(), ca.Client("-"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	if _, err := greeting(nc); err != nil {
		t.Fatalf("beside a silent client: %v", err)
	}
	for i, nc := range silent {
		_ = nc.SetReadDeadline(time.Now().Add(patience))
		_, err := io.Copy(io.Discard, nc)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: a silent client stays connected", s.URLs()[i])
		}
	}
	// What was handed over is not under the handshake's deadline any more.
	ws, _, err := dialWS(t, s.URLs()[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	in := websocket.NetConn(t.Context(), ws, websocket.MessageBinary)
	if _, err := greeting(in); err != nil {
		t.Fatal(err)
	}
	time.Sleep(400 * time.Millisecond)
	wantEcho(t, in)
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, c := range []struct {
		why string
		cfg Config
		err string
	}{
		{"taken", Config{URLs: []string{"mqtt://127.0.0.1:0", "mqtt://" + taken.Addr().String()}}, "is another broker running there?"},
		{"no certificate", Config{
			URLs: []string{"mqtts://127.0.0.1:0"}, CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"),
		}, "certificate " + dir},
	} {
		s, err := Open(c.cfg)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.why, err, c.err)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
