package client

import (
	"context"
	"time"

	"inflight/broker/packet"
)

// Options are those of one connection.
type Options struct {
	Addr         string // host:port
	ClientID     string
	CleanSession bool
	KeepAlive    time.Duration // whole seconds, 0: off
	Timeout      time.Duration // of dialling, CONNACK included, and of a Send; 0: 10 s
	Username     string        // "" for none
	Password     []byte        // only with a Username
}

// Conn is one connection that the broker has accepted.
type Conn struct{}

// Dial connects and waits for the CONNACK.
func Dial(ctx context.Context, o Options) (*Conn, error) { return nil, nil }

// SessionPresent is the flag of the CONNACK.
func (c *Conn) SessionPresent() bool { return false }

// Send writes whole packets.
func (c *Conn) Send(b []byte) error { return nil }

// Next returns the next packet.
func (c *Conn) Next() (packet.Frame, error) { return packet.Frame{}, nil }

// SetReadDeadline bounds Next.
func (c *Conn) SetReadDeadline(t time.Time) error { return nil }

// Subscribe sends a SUBSCRIBE and returns the granted QoS.
func (c *Conn) Subscribe(ctx context.Context, filter string, qos byte) (granted byte, err error) {
	return 0, nil
}

// Disconnect sends DISCONNECT and closes the connection.
func (c *Conn) Disconnect() error { return nil }

// Close closes the connection without a DISCONNECT.
func (c *Conn) Close() error { return nil }
