package probe

import (
	"errors"
	"fmt"
	"time"

	"inflight/runner/check"
	"inflight/runner/history"
)

func (r *run) dial(name string, node int) (*conn, error) {
	endpoint := r.endpoint(node)
	nc, err := endpoint.Dial(r.ctx, r.timeout)
	if err != nil {
		return nil, &stepError{true, name + ": " + err.Error()}
	}
	c := &conn{run: r, name: name, level: r.level, nc: nc, node: node}
	c.index = r.rec.Open(history.Conn{Name: name, Client: r.client(name), Version: r.level, Addr: endpoint.String()})
	r.mu.Lock()
	r.conns[name] = c
	r.all = append(r.all, c)
	r.mu.Unlock()
	c.start()
	return c, nil
}

// reconnectPause is what lies between two tries to resume: a broker may refuse a client that it still thinks is there.
const reconnectPause = 50 * time.Millisecond

func (r *run) connect(s *check.Step) error {
	want := s.Msgs[0].Connect
	start := time.Now()
	for {
		err := r.tryConnect(s, want)
		if err == nil {
			return nil
		}
		// A flapping client may be turned away without a CONNACK: that is no refusal yet. Nor is it one to be told to come
		// again, which a busy broker may take a while to say.
		limit := r.timeout
		if errors.Is(err, errBusy) {
			limit = r.long()
		}
		again := errors.Is(err, errGone) || errors.Is(err, errBusy)
		if !want.Expected || r.ctx.Err() != nil || time.Since(start) > limit || !again {
			text := err.Error()
			if errors.Is(err, errTrouble) {
				return err
			}
			return &stepError{!want.Expected, text}
		}
		r.sleep(reconnectPause)
	}
}

// errGone is a connection that ended before its CONNACK.
var errGone = errors.New("closed before the CONNACK")

// errBusy is a refusal that asks to come again.
var errBusy = errors.New("the broker is not available at the moment")

// busy reports whether a CONNACK asks to come again: Server unavailable, in either version, Server busy, Quota exceeded,
// Connection rate exceeded.
func busy(level, code byte) bool {
	if level < history.Level5 {
		return code == 0x03
	}
	return code == 0x88 || code == 0x89 || code == 0x97 || code == 0x9F
}

func (r *run) tryConnect(s *check.Step, want *check.Connect) error {
	c, err := r.dial(s.Conn, want.Node)
	if err != nil {
		return err
	}
	r.mu.Lock()
	c.mode = s.Mode
	if want.Kept {
		r.kept[s.Conn] = true
	}
	r.mu.Unlock()
	_ = c.write(r.bytes(s.Conn, s.Msgs))
	var ack *history.Packet
	ok := r.await(r.timeout, func() bool {
		for i := range c.got {
			if c.got[i].Type == history.CONNACK {
				p := c.got[i]
				c.got = append(c.got[:i], c.got[i+1:]...)
				ack = &p
				return true
			}
		}
		return c.closed
	})
	switch {
	case ack != nil && ack.Reason == 0:
		return nil
	case ack != nil && busy(r.level, ack.Reason):
		c.cut(false)
		return fmt.Errorf("%s: the CONNECT was refused with 0x%02X: %w", s.Conn, ack.Reason, errBusy)
	case ack != nil:
		c.cut(false)
		return fmt.Errorf("%s: the CONNECT was refused with 0x%02X%s", s.Conn, ack.Reason, hint(ack.Reason, r.env.Endpoint.Username != ""))
	case !ok:
		c.cut(false)
		return fmt.Errorf("%s: no CONNACK within %v%s", s.Conn, r.timeout, c.stranger())
	}
	what := c.stranger()
	if what == "" && r.env.Hints {
		what = r.env.Endpoint.GoneHint(c.why)
	}
	return fmt.Errorf("%s: the broker closed the connection (%s): %w%s", s.Conn, c.why, errGone, what)
}

// hint says what to do about some refusals.
func hint(code byte, named bool) string {
	switch code {
	case 4, 5, 0x86, 0x87:
		if named {
			return " (it does not take this user name and password)"
		}
		return " (it wants a user name and password: --username, --password-file)"
	case 1, 0x84:
		return " (it does not speak this version of MQTT)"
	}
	return ""
}
