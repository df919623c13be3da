package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of a relay.
const (
	chunk    = 64 << 10               // bytes of one read
	queued   = 256                    // chunks of one direction that wait for their time; a full queue stops reading
	holdTime = 3 * time.Second        // a connection to somebody who is not up yet is held for so long
	holdPoll = 20 * time.Millisecond  // between two tries to reach him
	retryGap = 100 * time.Millisecond // after an Accept that failed: out of descriptors, most likely
)

// Relay carries TCP connections to an address and lets every byte of either direction arrive later by a delay, which can
// be changed at any time. Order is kept, and bytes are not held up one after the other: what is sent together arrives
// together. Its methods are safe from any goroutine.
type Relay struct {
	to       string
	listener net.Listener
	delay    atomic.Int64 // nanoseconds, one way

	ctx    context.Context // of all connections
	cancel context.CancelFunc
	group  sync.WaitGroup
}

// NewRelay listens on a free port of listen, an IP address, and carries what comes to the address to, host:port. Nobody
// needs to listen there yet.
func NewRelay(listen, to string) (*Relay, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(listen, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the relay to %s: %w", to, err)
	}
	r := &Relay{to: to, listener: l}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.group.Go(r.serve)
	return r, nil
}

// Addr is where the relay listens, host:port.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Delay makes each direction slower by d from now on; 0 for not at all. What is on its way already keeps its time.
func (r *Relay) Delay(d time.Duration) { r.delay.Store(int64(d)) }

// Close ends every connection and returns once nothing of the relay is left.
func (r *Relay) Close() error {
	r.cancel()
	err := r.listener.Close()
	r.group.Wait()
	return err
}

func (r *Relay) serve() {
	for {
		from, err := r.listener.Accept()
		switch {
		case err == nil:
			r.group.Go(func() { r.carry(from) })
		case r.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			pause(r.ctx, retryGap)
		}
	}
}

// carry carries one connection until either side ends it; the other side ends then too, behind what was on its way.
func (r *Relay) carry(from net.Conn) {
	defer from.Close()
	to, err := r.dial()
	if err != nil {
		return
	}
	defer to.Close()
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		_ = from.Close()
		_ = to.Close()
	})()
	var both sync.WaitGroup
	both.Go(func() {
		defer cancel()
		r.direction(ctx, cancel, to, from)
	})
	both.Go(func() {
		defer cancel()
		r.direction(ctx, cancel, from, to)
	})
	both.Wait()
}

// dial reaches the other side, and waits a while for one that does not listen yet.
func (r *Relay) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(r.ctx, holdTime)
	defer cancel()
	var d net.Dialer
	for {
		nc, err := d.DialContext(ctx, "tcp", r.to)
		if err == nil || ctx.Err() != nil {
			return nc, err
		}
		pause(ctx, holdPoll)
	}
}

// late is what was read, and when it is to be written.
type late struct {
	data []byte
	due  time.Time
}

// direction carries one direction until its source ends, and then what is on its way; or until it cannot be written on,
// when it calls end.
func (r *Relay) direction(ctx context.Context, end func(), to io.Writer, from io.Reader) {
	queue := make(chan late, queued)
	var writer sync.WaitGroup
	writer.Go(func() {
		for l := range queue {
			if !pause(ctx, time.Until(l.due)) {
				return
			}
			if _, err := to.Write(l.data); err != nil {
				end()
				return
			}
		}
	})
	buffer := make([]byte, chunk)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			due := time.Now().Add(time.Duration(r.delay.Load()))
			select {
			case queue <- late{bytes.Clone(buffer[:n]), due}:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			break
		}
	}
	close(queue)
	writer.Wait()
}

// pause waits; false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
