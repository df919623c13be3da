package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Endpoint is a listener's URL, taken apart.
type Endpoint struct {
	Scheme string // mqtt, mqtts, ws or wss
	Addr   string // host:port
	Path   string // of a WebSocket; "": every path
}

// Parse takes a listener's URL apart.
func Parse(s string) (Endpoint, error) {
	bad := func(format string, args ...any) (Endpoint, error) {
		return Endpoint{}, fmt.Errorf("listener %q: %w", s, fmt.Errorf(format, args...))
	}
	scheme, _, ok := strings.Cut(s, "://")
	if !ok {
		return bad("want a URL such as mqtt://127.0.0.1:1883")
	}
	u, err := url.Parse(s)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return bad("%w", err)
	}
	e := Endpoint{Addr: u.Host}
	switch strings.ToLower(scheme) {
	case "mqtt", "tcp":
		e.Scheme = "mqtt"
	case "mqtts", "tls", "ssl":
		e.Scheme = "mqtts"
	case "ws", "wss":
		e.Scheme = strings.ToLower(scheme)
	default:
		return bad("unknown scheme: want mqtt, mqtts, ws or wss")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery {
		return bad("want nothing but a host, a port and for a WebSocket a path")
	}
	switch path := u.Path; {
	case path == "" || path == "/":
	case e.Scheme == "mqtt" || e.Scheme == "mqtts":
		return bad("only a WebSocket has a path")
	default:
		e.Path = path
	}
	_, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		return bad("want HOST:PORT behind the scheme")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return bad("port %q is not 0 to 65535", port)
	}
	return e, nil
}

// TLS reports whether the endpoint needs a certificate.
func (e Endpoint) TLS() bool { return e.Scheme == "mqtts" || e.Scheme == "wss" }

// Loopback reports whether the endpoint can be reached from this machine alone, as far as its address says: a name other
// than localhost is not looked up.
func (e Endpoint) Loopback() bool {
	host, _, err := net.SplitHostPort(e.Addr)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// String is the URL.
func (e Endpoint) String() string { return e.Scheme + "://" + e.Addr + e.Path }
