package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readyTimeout bounds one readiness check; a load balancer has given up by then.
const readyTimeout = 2 * time.Second

// maxScrapes bounds how many scrapes run at the same time.
const maxScrapes = 2

// maxProfile bounds a profile that is taken over a time, and so an answer.
const maxProfile = 5 * time.Minute

// Config of the operations server. Listen and Snapshot are required.
type Config struct {
	Listen   string                          // host:port, see [Address]
	Snapshot func() Snapshot                 // taken at each scrape
	Ready    func(ctx context.Context) error // nil error: the broker can serve clients; nil: always
	Pprof    bool                            // serve /debug/pprof
	Log      *slog.Logger
}

// Server is a running operations server.
type Server struct {
	ln   net.Listener
	http *http.Server
	done chan struct{}
}

// Address completes the address of an operations listener: without a host it is on loopback, because whoever reaches it
// needs no password. All interfaces must be asked for, as 0.0.0.0 or [::].
func Address(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("operations listener %q: want host:port", listen)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return "", fmt.Errorf("operations listener %q: port %q is neither a number up to 65,535 nor a service", listen, port)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// Start serves in the background until Close.
func Start(cfg Config) (*Server, error) {
	address, err := Address(cfg.Listen)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("operations listener: %w (choose another address with --ops-listen)", err)
	}
	s := &Server{ln: ln, done: make(chan struct{})}
	s.http = &http.Server{
		Handler:           handler(cfg),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      maxProfile + 10*time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			cfg.Log.Error("operations listener", "error", err)
		}
	}()
	return s, nil
}

// Addr is the address of the listener.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Close ends the listener and whatever is being served.
func (s *Server) Close() {
	_ = s.http.Close()
	<-s.done
}

func handler(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(NewRegistry(cfg.Snapshot), promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if cfg.Ready != nil {
			ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
			defer cancel()
			if err := cfg.Ready(ctx); err != nil {
				plain(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
				return
			}
		}
		plain(w, http.StatusOK, "ready")
	})
	paths := "/metrics\n/healthz\n/readyz"
	if cfg.Pprof {
		paths += "\n/debug/pprof/"
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, paths) })
	return mux
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}
