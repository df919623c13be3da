package probe

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inflight/runner/check"
	"inflight/runner/result"
)

// fall ends every connection, as the end of the broker's process does; the sessions stay, as those on a disk do.
func (b *smallBroker) fall() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
	b.conns = nil
}

// instances starts the small broker as one that may be stopped, and counts how often it was started and ended.
func instances(b *smallBroker, hook func(name string) error, started, stopped *atomic.Int64) func(context.Context) (*Instance, error) {
	return func(context.Context) (*Instance, error) {
		started.Add(1)
		return &Instance{
			Nodes: []Endpoint{{Addr: b.addr}},
			Hook: func(_ context.Context, name string, _ int) error {
				b.fall()
				return hook(name)
			},
			Stop: func() error { stopped.Add(1); return nil },
		}, nil
	}
}

// The rules that need the broker's process share one of their own, and lose nothing over its ends.
func TestOwnInstance(t *testing.T) {
	t.Parallel()
	main, own := startSmall(t, nil), startSmall(t, nil)
	var started, stopped atomic.Int64
	cfg := config(t, main.addr, "RES-13", "E2E-05", "A1-09", "E2E-09")
	cfg.Quick, cfg.Durable, cfg.Hooks = true, true, []string{check.HookRestart, check.HookKill}
	cfg.Own = instances(own, func(string) error { return nil }, &started, &stopped)
	c, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"RES-13", "E2E-05"} {
		if r := find(t, c, id, "3.1.1"); r.Outcome != result.CheckOK {
			t.Errorf("%s is %s: %s %v", id, r.Outcome, r.Why, r.Findings)
		}
	}
	for id, want := range map[string]string{"A1-09": "needs the hook stop-store", "E2E-09": "needs a cluster of which more than one node is known"} {
		if r := find(t, c, id, "3.1.1"); r.Outcome != result.CheckNotApplicable || r.Why != want {
			t.Errorf("%s is %s: %q, want %q", id, r.Outcome, r.Why, want)
		}
	}
	if started.Load() != 1 || stopped.Load() != 1 {
		t.Errorf("%d brokers were started and %d ended, want one", started.Load(), stopped.Load())
	}
	for _, e := range own.sessions {
		if e.conn != nil {
			t.Error("a client is still connected")
		}
	}
}

// What a hook could not do is said, and the broker that it was not done to is not used again.
func TestOwnInstanceThatFails(t *testing.T) {
	t.Parallel()
	b := startSmall(t, nil)
	var started, stopped atomic.Int64
	cfg := config(t, b.addr, "RES-13", "E2E-05")
	cfg.Versions, cfg.Quick, cfg.Durable, cfg.Shared, cfg.Hooks = []byte{4}, true, true, true, []string{check.HookRestart, check.HookKill}
	cfg.Own = instances(b, func(name string) error { return errors.New("no " + name + " today") }, &started, &stopped)
	c, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"RES-13": "hook restart: no restart today", "E2E-05": "hook kill: no kill today"} {
		if r := find(t, c, id, "3.1.1"); r.Outcome != result.CheckInconclusive || r.Why != want {
			t.Errorf("%s is %s: %q, want %q", id, r.Outcome, r.Why, want)
		}
	}
	if started.Load() < 2 || started.Load() != stopped.Load() {
		t.Errorf("%d brokers were started and %d ended", started.Load(), stopped.Load())
	}
	cfg.Own = func(context.Context) (*Instance, error) { return nil, errors.New("no room") }
	cfg.Dir = t.TempDir()
	if c, err = Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if r := find(t, c, "RES-13", "3.1.1"); r.Outcome != result.CheckInconclusive || r.Why != "start a broker of its own: no room" {
		t.Errorf("without a broker: %s %q", r.Outcome, r.Why)
	}
}

// A broker of its own that dies by itself is no finding, and what it died of is said.
func TestOwnInstanceDies(t *testing.T) {
	t.Parallel()
	b := startSmall(t, nil)
	cfg := config(t, b.addr, "RES-13")
	cfg.Versions, cfg.Durable, cfg.Hooks = []byte{4}, true, []string{check.HookRestart}
	cfg.Own = func(context.Context) (*Instance, error) {
		died := make(chan struct{})
		return &Instance{
			Nodes: []Endpoint{{Addr: b.addr}}, Died: died, Why: func() error { return errors.New("it fell over") }, Stop: func() error { return nil },
			Hook: func(ctx context.Context, _ string, _ int) error {
				close(died)
				<-ctx.Done()
				return ctx.Err()
			},
		}, nil
	}
	c, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r := find(t, c, "RES-13", "3.1.1"); r.Outcome != result.CheckInconclusive || r.Why != "it fell over" {
		t.Errorf("it is %s: %q", r.Outcome, r.Why)
	}
}

func TestAwaitReady(t *testing.T) {
	t.Parallel()
	b := startSmall(t, nil)
	if err := AwaitReady(t.Context(), Endpoint{Addr: b.addr}, []byte{4, 5}); err != nil {
		t.Error(err)
	}
	refuses := listen(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 100))
		_, _ = c.Write([]byte{0x20, 2, 0, 5})
	})
	for _, tt := range []struct{ why, addr, want string }{
		{"nobody", "127.0.0.1:1", "connection refused"},
		{"one that refuses", refuses, "it answers the CONNECT with CONNACK code 0x05"},
		{"one that closes", listen(t, func(net.Conn) {}), "no CONNACK"},
		{"one that talks", listen(t, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }), "no CONNACK"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := AwaitReady(ctx, Endpoint{Addr: tt.addr}, []byte{4})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// What a hook began is undone when the script ends early, if the broker is another's.
func TestUndo(t *testing.T) {
	t.Parallel()
	b := startSmall(t, nil)
	for _, lasting := range []bool{true, false} {
		var calls []string
		env := Environment{Endpoint: Endpoint{Addr: b.addr}, Timeout: time.Second, Tag: newTag(), Undo: lasting}
		env.Hook = func(ctx context.Context, name string, _ int) error {
			calls = append(calls, name)
			return ctx.Err()
		}
		h := play(t, env, func(s *check.Script) {
			s.Connect("p")
			s.Hook(check.HookSlowStore)
			s.Hook(check.HookFastStore)
			s.Hook(check.HookStopStore)
			s.Expect("p", check.Del("never"))
		})
		want := "slow-store fast-store stop-store"
		if lasting {
			want += " start-store"
		}
		if got := strings.Join(calls, " "); got != want || h.Stuck == "" {
			t.Errorf("the hooks were %s, want %s; %q", got, want, h.Stuck)
		}
	}
}
