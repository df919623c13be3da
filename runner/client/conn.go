package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"inflight/broker/packet"
	"inflight/runner/load"
)

// Limits and defaults of a connection.
const (
	defaultTimeout = 10 * time.Second
	readBuffer     = 64 << 10
	// maxRemaining is the largest Remaining Length accepted from a broker, in bytes: the largest payload that a scenario
	// may ask for, with room for a Topic Name.
	maxRemaining = 1<<20 + 1<<17
)

// Options are those of one connection.
type Options struct {
	Addr         string // host:port
	ClientID     string
	CleanSession bool
	KeepAlive    time.Duration // rounded up to whole seconds, 0: off
	Timeout      time.Duration // of dialling, CONNACK included, and of a Send; 0: 10 s
	Username     string        // "" for none
	Password     []byte        // only with a Username
	ReadBuffer   int           // bytes; 0: 64 KiB

	// Version is that of MQTT; the zero value is 3.1.1. In 5.0 a session that is not clean lasts [keptFor] after its connection.
	Version packet.Version
}

// keptFor is the Session Expiry Interval of a session that is to outlive its connection, in seconds. A run that is cut off
// leaves nothing behind for longer.
const keptFor = 600

// Conn is one connection that the broker has accepted. It belongs to one goroutine, but Close may be called by any.
type Conn struct {
	addr    string
	timeout time.Duration
	nc      *net.TCPConn
	r       *packet.Reader
	present bool
	nextID  uint16 // of SUBSCRIBEs
	codec   packet.Codec

	// What the CONNACK of 5.0 allows; in 3.1.1 there are no such limits.
	receiveMaximum int
	maximumQoS     byte

	sock socket
	try  bool // the reader must not wait
	torn bool // the last packet written is incomplete
}

// readSide is what the packet reader reads from.
type readSide struct{ c *Conn }

func (s readSide) Read(b []byte) (int, error) {
	if s.c.try {
		return s.c.sock.tryRead(b)
	}
	return s.c.nc.Read(b)
}

// Dial connects to the broker and waits for its CONNACK. A refusal is an error that has the return code in words. The
// connection has TCP_NODELAY set.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	timeout := o.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", o.Addr, innermost(err))
	}
	c, err := newConn(nc, o, timeout)
	if err == nil {
		err = c.within(ctx, func() error { return c.connect(o) })
		if err != nil {
			_ = nc.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", o.Addr, err)
	}
	return c, nil
}

func newConn(nc net.Conn, o Options, timeout time.Duration) (*Conn, error) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		_ = nc.Close()
		return nil, fmt.Errorf("not a TCP connection: %T", nc)
	}
	c := &Conn{
		addr: o.Addr, timeout: timeout, nc: tcp, codec: packet.Codec{Version: o.Version, From: packet.FromServer},
		receiveMaximum: load.MaxWindow, maximumQoS: 2,
	}
	c.r = packet.NewReader(readSide{c}, cmp.Or(o.ReadBuffer, readBuffer), maxRemaining)
	var err error
	if c.sock, err = newSocket(tcp); err == nil {
		err = tcp.SetNoDelay(true)
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) connect(o Options) error {
	connect := packet.Connect{
		ClientID:     o.ClientID,
		CleanSession: o.CleanSession,
		KeepAlive:    uint16(min((o.KeepAlive+time.Second-1)/time.Second, 65_535)),
		HasUsername:  o.Username != "",
		Username:     o.Username,
		HasPassword:  o.Username != "" && o.Password != nil,
		Password:     o.Password,
	}
	if o.Version == packet.V5 && !o.CleanSession {
		connect.Properties = &packet.Properties{SessionExpiry: packet.Some(uint32(keptFor))}
	}
	if err := c.Send(c.codec.AppendConnect(nil, &connect)); err != nil {
		return err
	}
	f, err := c.Next()
	if err != nil {
		return fmt.Errorf("waiting for the CONNACK: %w", err)
	}
	if f.Type() != packet.CONNACK {
		return fmt.Errorf("the first packet of the broker is %v instead of CONNACK [MQTT-3.2.0-1]; is this an MQTT port?", f.Type())
	}
	if o.Version == packet.V5 {
		return c.accepted5(f)
	}
	present, code, err := packet.ParseConnack(f)
	if err != nil {
		return err
	}
	if code != packet.Accepted {
		return fmt.Errorf("refused by the broker: %s (return code %d)", refusal(code), code)
	}
	c.present = present
	return nil
}

// accepted5 takes the CONNACK of 5.0. A broker that has no 5.0 may answer in the words of 3.1.1 [MQTT-3.1.2-2].
func (c *Conn) accepted5(f packet.Frame) error {
	if len(f.Body) == 2 {
		if _, code, err := packet.ParseConnack(f); err == nil && code != packet.Accepted {
			return fmt.Errorf("refused by the broker: it does not speak MQTT 5.0 (return code %d)", code)
		}
	}
	p, err := c.codec.ParseConnack(f)
	if err != nil {
		return err
	}
	if p.Code != packet.Success {
		return fmt.Errorf("refused by the broker: %v", p.Code)
	}
	c.present = p.SessionPresent
	if p.Properties != nil {
		if p.Properties.ReceiveMaximum.Set {
			c.receiveMaximum = int(p.Properties.ReceiveMaximum.Value)
		}
		if p.Properties.MaximumQoS.Set {
			c.maximumQoS = p.Properties.MaximumQoS.Value
		}
	}
	return nil
}

// Admits connects once and says what of a load the broker has said that it does not take: refusal is nil if nothing. It is an
// error when the broker could not be asked.
func Admits(ctx context.Context, o Options, qos, window int) (refusal, err error) {
	c, err := Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	return c.allows(qos, window), c.Disconnect()
}

// allows says what of a load the broker has said that it does not take.
func (c *Conn) allows(qos, window int) error {
	switch {
	case qos > int(c.maximumQoS):
		return fmt.Errorf("QoS %d: the broker at %s takes at most QoS %d (Maximum QoS of its CONNACK)", qos, c.addr, c.maximumQoS)
	case qos > 0 && window > c.receiveMaximum:
		return fmt.Errorf("window %d: the broker at %s takes at most %d exchanges of a connection (Receive Maximum of its CONNACK); ask for a smaller window",
			window, c.addr, c.receiveMaximum)
	}
	return nil
}

// refusal is the meaning of a CONNACK return code, table 3.1.
func refusal(code byte) string {
	switch code {
	case packet.RefusedLevel:
		return "unacceptable protocol version, it does not speak MQTT 3.1.1"
	case packet.RefusedIdentifier:
		return "client identifier rejected"
	case packet.RefusedUnavailable:
		return "server unavailable"
	case packet.RefusedCredentials:
		return "bad user name or password"
	case packet.RefusedUnauthorized:
		return "not authorized"
	default:
		return "reserved return code"
	}
}

// Addr is the address that was dialled.
func (c *Conn) Addr() string { return c.addr }

// SessionPresent is the flag of the CONNACK: the broker had a session of this Client Identifier.
func (c *Conn) SessionPresent() bool { return c.present }

// Send writes bytes as they are, within the connection's Timeout.
func (c *Conn) Send(b []byte) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return c.trouble(err)
	}
	_, err := c.nc.Write(b)
	return c.trouble(errors.Join(err, c.nc.SetWriteDeadline(time.Time{})))
}

// Next returns the next packet; it is valid until the next call. A broker that closed the connection is an error that
// says so and wraps io.EOF; a read deadline that passed wraps os.ErrDeadlineExceeded.
func (c *Conn) Next() (packet.Frame, error) {
	f, err := c.r.Next()
	return f, c.trouble(err)
}

// SetReadDeadline bounds Next; the zero time removes the bound.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.trouble(c.nc.SetReadDeadline(t)) }

// Subscribe sends a SUBSCRIBE and waits, within the connection's Timeout, for its SUBACK. A refusal is an error. It must
// be the only exchange under way: any other packet is an error, but a PUBLISH, which is dropped (the broker may deliver
// retained messages before the SUBACK).
func (c *Conn) Subscribe(ctx context.Context, filter string, qos byte) (granted byte, err error) {
	return c.subscribeWith(ctx, filter, qos, func(packet.Frame) error { return nil })
}

// subscribeWith is Subscribe with a handler of the deliveries that come before the SUBACK.
func (c *Conn) subscribeWith(ctx context.Context, filter string, qos byte, deliver func(packet.Frame) error) (granted byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err = c.within(ctx, func() error {
		var err error
		granted, err = c.subscribe(filter, qos, deliver)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("subscribing to %q at %s: %w", filter, c.addr, err)
	}
	return granted, nil
}

func (c *Conn) subscribe(filter string, qos byte, deliver func(packet.Frame) error) (granted byte, err error) {
	c.nextID = c.nextID%65_535 + 1
	id := c.nextID
	sub := packet.Subscribe{ID: id, Subscriptions: []packet.Subscription{{Filter: filter, QoS: qos}}}
	if err := c.Send(c.codec.AppendSubscribe(nil, &sub)); err != nil {
		return 0, err
	}
	for {
		f, err := c.Next()
		if err != nil {
			return 0, fmt.Errorf("waiting for the SUBACK: %w", err)
		}
		switch f.Type() {
		case packet.SUBACK:
			s, err := c.codec.ParseSuback(f)
			if err != nil {
				return 0, err
			}
			if s.ID != id || len(s.Codes) != 1 {
				return 0, fmt.Errorf("SUBACK for Packet Identifier %d with %d return codes, expected %d with 1", s.ID, len(s.Codes), id)
			}
			if code := s.Codes[0]; code >= refusals {
				return 0, fmt.Errorf("refused by the broker (return code 0x%02x)", byte(code))
			}
			return byte(s.Codes[0]), nil
		case packet.PUBLISH, packet.PUBREL:
			if err := deliver(f); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("%v instead of the SUBACK", f.Type())
		}
	}
}

// refusals are the Reason Codes from this one on.
const refusals packet.ReasonCode = 0x80

// unexpected is the error of a packet that has no place there. A broker of 5.0 may say why it closes.
func (c *Conn) unexpected(f packet.Frame, where string) error {
	if c.codec.Version == packet.V5 && f.Type() == packet.DISCONNECT {
		p, err := c.codec.ParseDisconnect(f)
		if err != nil {
			return err
		}
		return fmt.Errorf("the broker disconnects: %v", p.Code)
	}
	return fmt.Errorf("%w: unexpected %v on %s", load.ErrProtocol, f.Type(), where)
}

// Disconnect sends DISCONNECT and closes the connection. A packet that is only half written makes that impossible; the
// connection is then just closed.
func (c *Conn) Disconnect() error {
	var err error
	if !c.torn {
		err = c.Send(packet.AppendEmpty(nil, packet.DISCONNECT))
	}
	return errors.Join(err, c.Close())
}

// Close closes the connection without a DISCONNECT. A Next that is waiting returns with an error.
func (c *Conn) Close() error {
	if err := c.nc.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return c.trouble(err)
	}
	return nil
}

// within runs f, which uses the connection, until ctx ends.
func (c *Conn) within(ctx context.Context, f func() error) error {
	deadline, _ := ctx.Deadline()
	if err := c.SetReadDeadline(deadline); err != nil {
		return err
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.nc.SetDeadline(time.Unix(1, 0))
		close(fired)
	})
	err := f()
	if !stop() {
		<-fired
	}
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		if errors.Is(ctx.Err(), context.Canceled) {
			err = ctx.Err()
		} else {
			err = fmt.Errorf("no answer within %v: %w", c.timeout, err)
		}
	}
	return errors.Join(err, c.nc.SetDeadline(time.Time{}), c.SetReadDeadline(time.Time{}))
}

// trouble says in words what happened to the connection, without the net package's repetition of both addresses.
func (c *Conn) trouble(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the broker closed the connection inside a packet: %w", err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the broker closed the connection: %w", err)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the broker closed the connection: %w", innermost(err))
	}
	var bad *packet.Error
	if errors.As(err, &bad) {
		return fmt.Errorf("%w: %w", load.ErrProtocol, err)
	}
	return innermost(err)
}

// innermost strips the net package's wrapping, whose addresses our own errors name already.
func innermost(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
