package null

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"inflight/broker/packet"
)

const (
	readBuffer = 256 << 10
	// maxRemaining is the largest Remaining Length accepted, in bytes.
	maxRemaining = 1<<20 + 1<<17
	// connectTimeout is how long a connection may stay without a CONNECT, section 3.1.4.
	connectTimeout = 10 * time.Second
)

// errDone ends a connection without trouble: the client said DISCONNECT.
var errDone = errors.New("disconnected")

// answers is the protocol of one connection without its I/O: packets in, answers appended to out.
type answers struct {
	codec     packet.Codec
	connected bool
	keepAlive time.Duration
	out       []byte
}

// serve is one connection. Without a delay it is one goroutine: one read, all its answers, one write.
func serve(ctx context.Context, nc net.Conn, c Config, started time.Time, delaying *atomic.Int64) {
	var a answers
	var (
		source io.Reader = nc
		times  arrivals
		d      *delayed
	)
	if c.Delay > 0 {
		times = newArrivals(nc)
		source = times
		d = newDelayed(ctx, nc, c.Delay, delaying)
		defer d.close()
	}
	r := packet.NewReader(source, readBuffer, maxRemaining)
	var alive deadline
	_ = nc.SetReadDeadline(time.Now().Add(connectTimeout))
	for {
		if a.connected {
			alive.extend(nc, a.keepAlive)
		}
		if err := r.Fill(); err != nil {
			return
		}
		if !awake(ctx, &c, started) {
			return
		}
		err := a.all(r)
		r.SetVersion(a.codec.Version)
		switch {
		case len(a.out) == 0:
		case d != nil:
			if d.push(&a.out, times.arrived()) != nil {
				return
			}
		default:
			if _, err := nc.Write(a.out); err != nil {
				return
			}
			a.out = a.out[:0]
		}
		if err != nil {
			if d != nil && errors.Is(err, errDone) {
				d.finish()
			}
			return
		}
	}
}

// awake waits for the end of a stall; false: the context ended first.
func awake(ctx context.Context, c *Config, started time.Time) bool {
	if c.Stall <= 0 {
		return true
	}
	left := c.stalled(time.Since(started))
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// all answers every packet in the buffer.
func (a *answers) all(r *packet.Reader) error {
	for {
		f, ok, err := r.Buffered()
		if !ok || err != nil {
			return err
		}
		if err := a.one(f); err != nil {
			return err
		}
	}
}

func (a *answers) one(f packet.Frame) error {
	if !a.connected {
		return a.connect(f) // [MQTT-3.1.0-1]
	}
	switch t := f.Type(); t {
	case packet.PUBLISH:
		p, err := a.codec.ParsePublish(f)
		if err != nil {
			return err
		}
		switch p.QoS {
		case 1:
			a.out = packet.AppendAck(a.out, packet.PUBACK, p.ID)
		case 2:
			a.out = packet.AppendAck(a.out, packet.PUBREC, p.ID)
		}
		return nil
	case packet.PUBREL:
		ack, err := a.codec.ParseAck(f)
		if err != nil {
			return err
		}
		a.out = packet.AppendAck(a.out, packet.PUBCOMP, ack.ID)
		return nil
	case packet.SUBSCRIBE:
		p, err := a.codec.ParseSubscribe(f)
		if err != nil {
			return err
		}
		codes := make([]packet.ReasonCode, len(p.Subscriptions))
		for i, s := range p.Subscriptions {
			codes[i] = packet.ReasonCode(s.QoS)
		}
		a.out = a.codec.AppendSuback(a.out, &packet.Suback{ID: p.ID, Codes: codes})
		return nil
	case packet.UNSUBSCRIBE:
		p, err := a.codec.ParseUnsubscribe(f)
		if err != nil {
			return err
		}
		a.out = a.codec.AppendUnsuback(a.out, &packet.Suback{ID: p.ID, Codes: make([]packet.ReasonCode, len(p.Filters))})
		return nil
	case packet.PINGREQ:
		if err := a.codec.ParseEmpty(f); err != nil {
			return err
		}
		a.out = packet.AppendEmpty(a.out, packet.PINGRESP)
		return nil
	case packet.DISCONNECT:
		return errDone
	default: // a second CONNECT [MQTT-3.1.0-2], an answer to what was never delivered, a packet that only a broker sends
		return fmt.Errorf("unexpected %v", t)
	}
}

func (a *answers) connect(f packet.Frame) error {
	if f.Type() != packet.CONNECT {
		return fmt.Errorf("%v before CONNECT", f.Type())
	}
	p, err := a.codec.ParseConnect(f)
	if err != nil {
		return err
	}
	code := packet.Accepted
	switch {
	case p.Level != packet.Level311 && p.Level != packet.Level5:
		code = packet.RefusedLevel // [MQTT-3.1.2-2]
	case p.Level == packet.Level311 && p.ClientID == "" && !p.CleanSession:
		code = packet.RefusedIdentifier // [MQTT-3.1.3-8]
	}
	if code != packet.Accepted {
		a.out = packet.AppendConnack(a.out, false, code)
		return errDone // [MQTT-3.2.2-5]
	}
	a.out = a.codec.AppendConnack(a.out, &packet.Connack{Properties: a.assigned(&p)})
	a.connected = true
	a.keepAlive = time.Duration(p.KeepAlive) * time.Second
	return nil
}

// assigned names a client of 5.0 that has no name [MQTT-3.1.3-6]. There are no sessions that two of one name could share.
func (a *answers) assigned(p *packet.Connect) *packet.Properties {
	if a.codec.Version != packet.V5 || p.ClientID != "" {
		return nil
	}
	return &packet.Properties{AssignedClientID: []byte("null")}
}

// deadline ends a connection that is silent for one and a half times its Keep Alive [MQTT-3.1.2-24], or, as it is moved
// only now and then, a little later.
type deadline struct {
	set time.Time
	off bool
}

func (d *deadline) extend(nc net.Conn, keepAlive time.Duration) {
	if keepAlive == 0 {
		if !d.off {
			d.off = true
			_ = nc.SetReadDeadline(time.Time{})
		}
		return
	}
	if now := time.Now(); now.Sub(d.set) > keepAlive/8 {
		d.set = now
		_ = nc.SetReadDeadline(now.Add(keepAlive*3/2 + keepAlive/8))
	}
}
