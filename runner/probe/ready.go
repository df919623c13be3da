package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"inflight/broker/packet"
	"inflight/runner/check"
	"inflight/runner/history"
)

// Limits of waiting for a broker to be back.
const (
	readyPause   = 100 * time.Millisecond
	readyAttempt = 5 * time.Second
)

// AwaitReady returns when a client is accepted at the endpoint, in one of the versions of MQTT; or with the last reason why
// not when ctx ends.
func AwaitReady(ctx context.Context, e Endpoint, versions []byte) error {
	last := error(nil)
	for attempt := 0; ; attempt++ {
		err := accepts(ctx, e, versions[attempt%len(versions)])
		if err == nil {
			return nil
		}
		// An attempt that the end of ctx cut short says nothing.
		var late net.Error
		if last == nil || !errors.As(err, &late) || !late.Timeout() {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s takes no client: %w", e, last)
		case <-time.After(readyPause):
		}
	}
}

// accepts connects once.
func accepts(ctx context.Context, e Endpoint, level byte) error {
	nc, err := e.Dial(ctx, readyAttempt)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(readyAttempt))
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	m := check.Msg{Type: packet.CONNECT, Connect: &check.Connect{}}
	encoding := &check.Encoding{
		V: packet.Version(level), Client: func(string) string { return newTag() }, Username: e.Username, Password: e.Password,
	}
	if _, err := nc.Write(m.Encode(nil, encoding)); err != nil {
		return innermost(err)
	}
	raw, err := firstPacket(nc)
	if err != nil {
		return fmt.Errorf("no CONNACK: %w", innermost(err))
	}
	p, err := history.Decode(level, true, raw)
	switch {
	case err != nil:
		return err
	case p.Type != history.CONNACK || p.Reason != 0:
		return fmt.Errorf("it answers the CONNECT with %s", p.String())
	}
	_, _ = nc.Write(packet.AppendEmpty(nil, packet.DISCONNECT))
	return nil
}

// firstPacket reads one control packet.
func firstPacket(nc net.Conn) ([]byte, error) {
	buf := make([]byte, 0, 4<<10)
	for {
		n, err := history.FrameLength(buf)
		switch {
		case err != nil:
			return nil, err
		case n > cap(buf):
			return nil, fmt.Errorf("a packet of %d bytes was announced", n)
		case n > 0 && n <= len(buf):
			return buf[:n], nil
		}
		more, err := nc.Read(buf[len(buf):cap(buf)])
		if buf = buf[:len(buf)+more]; err != nil && more == 0 {
			return nil, err
		}
	}
}
