package library

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"inflight/runner/client"
)

// keepAlive is that of every connection of a library, in seconds; those of paho.mqtt.golang and of MQTT.js have it anyway, or
// twice as much.
const keepAlive = 30

// packetTimeout is how long paho.golang waits for an answer by itself. What stalls is ended by the run, which asks for how long
// nothing at all has come: with a large window one exchange may take long on a broker that is merely slow.
const packetTimeout = time.Hour

// refused is the first Reason Code that says no.
const refused = 0x80

// pahoSession is a connection of paho.golang.
type pahoSession struct {
	client *paho.Client
	conn   net.Conn
	plan   *client.Plan
	left   atomic.Bool // an exchange was given up
}

func dialPaho(ctx context.Context, plan *client.Plan, i int, lost func(error)) (session, error) {
	dialing := net.Dialer{Timeout: plan.DialTimeout}
	conn, err := dialing.DialContext(ctx, "tcp", addr(plan, i))
	if err != nil {
		return nil, err
	}
	s := &pahoSession{plan: plan, conn: conn, client: paho.NewClient(paho.ClientConfig{
		Conn: conn, PacketTimeout: packetTimeout, OnClientError: lost,
		OnServerDisconnect: func(d *paho.Disconnect) {
			lost(fmt.Errorf("the broker disconnects with reason code 0x%02x", d.ReasonCode))
		},
	})}
	window := uint16(plan.Window)
	connect := &paho.Connect{
		ClientID: plan.ClientID(i), CleanStart: true, KeepAlive: keepAlive,
		// What the library keeps room for. Nothing is received here.
		Properties: &paho.ConnectProperties{ReceiveMaximum: &window},
	}
	if plan.Username != "" {
		connect.UsernameFlag, connect.Username = true, plan.Username
		connect.PasswordFlag, connect.Password = plan.Password != nil, plan.Password
	}
	timeout := plan.DialTimeout
	if timeout <= 0 {
		timeout = dialTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ack, err := s.client.Connect(ctx, connect)
	if err != nil {
		return nil, err // it has closed the connection
	}
	if p := ack.Properties; p != nil {
		receiveMaximum, maximumQoS := 0, 2
		if p.ReceiveMaximum != nil {
			receiveMaximum = int(*p.ReceiveMaximum)
		}
		if p.MaximumQoS != nil {
			maximumQoS = int(*p.MaximumQoS)
		}
		if err := allows(plan, receiveMaximum, maximumQoS); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// allows says what of a load the broker has said in its CONNACK that it does not take. A Receive Maximum of 0 is none.
func allows(plan *client.Plan, receiveMaximum, maximumQoS int) error {
	switch {
	case plan.QoS > maximumQoS:
		return fmt.Errorf("QoS %d: the broker takes at most QoS %d (Maximum QoS of its CONNACK)", plan.QoS, maximumQoS)
	case receiveMaximum > 0 && plan.Window > receiveMaximum:
		return fmt.Errorf("window %d: the broker takes at most %d exchanges of a connection (Receive Maximum of its CONNACK); ask for a smaller window",
			plan.Window, receiveMaximum)
	}
	return nil
}

// load publishes from as many goroutines as the window has places: Publish returns when the exchange is over.
func (s *pahoSession) load(ctx context.Context, l *lane) error {
	failed := make(chan error, 1)
	var workers sync.WaitGroup
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	for range s.plan.Window {
		workers.Go(func() {
			if err := s.publish(ctx, l); err != nil {
				select {
				case failed <- err:
					stop(err)
				default:
				}
			}
		})
	}
	workers.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (s *pahoSession) publish(ctx context.Context, l *lane) error {
	buf := l.buffer()
	for {
		seq, ok := l.take(ctx)
		if !ok {
			return nil
		}
		message := &paho.Publish{QoS: byte(s.plan.QoS), Topic: l.topic(seq), Payload: l.payload(buf, seq)}
		sent := l.sent(seq)
		response, err := s.client.Publish(ctx, message)
		switch {
		case err != nil:
			s.left.Store(true)
			l.abandon(sent)
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("publish: %w", err)
		case response.ReasonCode >= refused:
			return fmt.Errorf("the broker refuses a message with reason code 0x%02x", response.ReasonCode)
		}
		l.done(seq, sent)
	}
}

// close disconnects. With an exchange that is not over the connection is cut instead, and the library left to end by itself:
// when it is told to while it reads a PUBREC, it takes away the connection to which it is about to write the PUBREL.
func (s *pahoSession) close() error {
	if !s.left.Load() {
		return s.client.Disconnect(&paho.Disconnect{})
	}
	err := s.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // the broker was faster
	}
	timer := time.NewTimer(dialTimeout)
	defer timer.Stop()
	select {
	case <-s.client.Done():
		return err
	case <-timer.C:
		return errors.New("paho.golang does not end after its connection has")
	}
}
