package null

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// maxBursts bounds what one connection holds back, in reads. A client with more than that under way waits: reading stops.
const maxBursts = 4096

// burst is the answers to one read, due at an absolute time.
type burst struct {
	due time.Time
	b   []byte
}

// delayed writes answers a fixed time after their packets arrived, in order. A second goroutine per connection waits for
// the next due time; there is no timer per message. The schedule is absolute, so lateness does not add up.
type delayed struct {
	nc     net.Conn
	delay  time.Duration
	queue  chan burst
	spare  chan []byte
	failed chan struct{} // closed when writing has ended early
	quit   context.Context
	stop   context.CancelFunc
	done   sync.WaitGroup
	closed bool

	sharers *atomic.Int64 // connections of the server that delay
}

var errEnded = errors.New("writing has ended")

func newDelayed(ctx context.Context, nc net.Conn, delay time.Duration, sharers *atomic.Int64) *delayed {
	d := &delayed{
		nc: nc, delay: delay, sharers: sharers,
		queue: make(chan burst, maxBursts), spare: make(chan []byte, 16), failed: make(chan struct{}),
	}
	d.quit, d.stop = context.WithCancel(ctx)
	d.done.Go(func() {
		if !d.write() {
			close(d.failed)
			_ = nc.Close() // the reader may be waiting
		}
	})
	return d
}

// push takes over the bytes of *out, whose packets arrived at that time, and leaves an empty slice.
func (d *delayed) push(out *[]byte, arrived time.Time) error {
	select {
	case d.queue <- burst{due: arrived.Add(d.delay), b: *out}:
	case <-d.failed:
		return errEnded
	}
	select {
	case *out = <-d.spare:
	default:
		*out = nil
	}
	return nil
}

// finish waits until everything that was pushed is written.
func (d *delayed) finish() {
	close(d.queue)
	d.closed = true
	d.done.Wait()
}

// close drops what is not due yet and waits for the writer.
func (d *delayed) close() {
	d.stop()
	_ = d.nc.Close()
	if !d.closed {
		d.finish()
	}
}

// write returns true when the queue was closed and everything in it is written.
func (d *delayed) write() bool {
	s := sleeper{sharers: d.sharers}
	d.sharers.Add(1)
	defer d.sharers.Add(-1)
	for burst := range d.queue {
		if !s.until(burst.due, d.quit.Done()) {
			return false
		}
		if _, err := d.nc.Write(burst.b); err != nil {
			return false
		}
		select {
		case d.spare <- burst.b[:0]:
		default:
		}
	}
	return true
}

// coarse waits until shortly before t, as far as that is longer than the timers' granularity; false: quit came first.
func coarse(t time.Time, quit <-chan struct{}) bool {
	const granularity = 20 * time.Millisecond
	left := time.Until(t) - granularity
	if left <= 0 {
		select {
		case <-quit:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-quit:
		return false
	}
}
