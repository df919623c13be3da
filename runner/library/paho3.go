package library

import (
	"context"
	"errors"
	"fmt"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"inflight/runner/client"
)

// quiesce is how long paho.mqtt.golang may finish what it is at before it disconnects, in milliseconds.
const quiesce = 250

// mqtt311 is how it calls MQTT 3.1.1.
const mqtt311 = 4

// paho3Session is a connection of paho.mqtt.golang.
type paho3Session struct {
	client mqtt.Client
	plan   *client.Plan
}

func dialPaho3(ctx context.Context, plan *client.Plan, i int, lost func(error)) (session, error) {
	o := mqtt.NewClientOptions()
	o.AddBroker("tcp://" + addr(plan, i)).SetClientID(plan.ClientID(i)).SetCleanSession(true).SetProtocolVersion(mqtt311)
	// A run in which a connection breaks is over: what comes after it is not the window that was asked for.
	o.SetAutoReconnect(false).SetConnectRetry(false)
	o.SetConnectionLostHandler(func(_ mqtt.Client, err error) { lost(err) })
	if plan.DialTimeout > 0 {
		o.SetConnectTimeout(plan.DialTimeout)
	}
	if plan.Username != "" {
		o.SetUsername(plan.Username).SetPassword(string(plan.Password))
	}
	s := &paho3Session{client: mqtt.NewClient(o), plan: plan}
	token := s.client.Connect()
	select {
	case <-token.Done():
	case <-ctx.Done():
		s.client.Disconnect(0)
		return nil, ctx.Err()
	}
	if err := token.Error(); err != nil {
		return nil, err
	}
	return s, nil
}

// flight is a message that was published.
type flight struct {
	seq   int64
	sent  time.Duration
	token mqtt.Token
}

// strayTime is how long the end of a run waits for a Publish that does not return: on a connection that has ended the library
// may take 30 s to say so.
const strayTime = time.Second

// load publishes from one goroutine and waits for the tokens in another, in the order of the publishes.
func (s *paho3Session) load(ctx context.Context, l *lane) error {
	flights := make(chan flight, s.plan.Window) // never full: each has a place
	places := make(chan struct{}, s.plan.Window)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	published := make(chan struct{})
	go func() {
		defer close(published)
		s.publish(ctx, l, places, flights)
	}()
	var first error
	land := func(f flight) {
		if err := s.wait(ctx, l, f); err != nil && first == nil {
			first = err
			stop(err)
		}
		<-places
	}
	ended := ctx.Done()
	var stray <-chan time.Time
	for {
		select {
		case f := <-flights:
			land(f)
		case <-published:
			for len(flights) > 0 {
				land(<-flights)
			}
			return first
		case <-ended:
			ended = nil
			timer := time.NewTimer(strayTime)
			defer timer.Stop()
			stray = timer.C
		case <-stray:
			return first
		}
	}
}

// publish sends each message on to flights. Tokens are waited for in order, so that the buffer of a message is free again when
// its place is.
func (s *paho3Session) publish(ctx context.Context, l *lane, places chan<- struct{}, flights chan<- flight) {
	buffers := make([][]byte, s.plan.Window)
	for i := range buffers {
		buffers[i] = l.buffer()
	}
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		seq, ok := l.take(ctx)
		if !ok {
			return
		}
		payload := l.payload(buffers[seq%int64(len(buffers))], seq)
		sent := l.sent(seq)
		flights <- flight{seq, sent, s.client.Publish(l.topic(seq), byte(s.plan.QoS), false, payload)}
	}
}

func (s *paho3Session) wait(ctx context.Context, l *lane, f flight) error {
	select {
	case <-f.token.Done():
	case <-ctx.Done():
		l.abandon(f.sent)
		return nil
	}
	if err := f.token.Error(); err != nil {
		l.abandon(f.sent)
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("publish: %w", err)
	}
	l.done(f.seq, f.sent)
	return nil
}

func (s *paho3Session) close() error {
	if !s.client.IsConnected() {
		return errors.New("the connection had ended")
	}
	s.client.Disconnect(quiesce)
	return nil
}
