package client

import (
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// loop is what the event loops of a publisher and a subscriber share: an output buffer that is written without waiting,
// reads that wait no longer than they are told, and a clock. It belongs to the goroutine that runs the loop; cancel may
// be called by any.
type loop struct {
	conn      *Conn
	epoch     time.Time
	armed     time.Duration // the read deadline that the socket has
	out       []byte        // packets to be written: out[off:]
	off       int
	cancelled atomic.Bool
}

// now is the time since the epoch.
func (l *loop) now() time.Duration { return time.Since(l.epoch) }

// pending reports whether part of the output is not written yet.
func (l *loop) pending() bool { return l.off < len(l.out) }

// flush writes as much of the output as the socket takes.
func (l *loop) flush() error { return l.flushTo(l.conn.sock) }

// flushWaiting is flush, but waits a moment for the socket to take bytes again.
func (l *loop) flushWaiting() error {
	err := l.flushTo(deadlineSocket{l.conn.nc})
	return errors.Join(err, l.conn.nc.SetWriteDeadline(time.Time{}))
}

func (l *loop) flushTo(s socket) error {
	n, err := s.write(l.out[l.off:])
	l.off += n
	if l.off > len(l.out)/2 {
		l.out = l.out[:copy(l.out, l.out[l.off:])]
		l.off = 0
	}
	return err
}

// read fills the reader's buffer once, waiting until wake at most; it returns errWouldBlock if nothing came, which may be
// before wake.
func (l *loop) read(now, wake time.Duration) error {
	// A deadline costs a timer operation, so one that is early is left alone: it is set again when it fires.
	if l.armed > wake || l.armed <= now {
		if err := l.conn.nc.SetReadDeadline(l.epoch.Add(wake)); err != nil {
			return err
		}
		l.armed = wake
		if l.cancelled.Load() { // its deadline may just have been overwritten
			return errWouldBlock
		}
	}
	err := l.conn.r.Fill()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		l.armed = 0
		return errWouldBlock
	}
	return err
}

// tryRead is read without waiting.
func (l *loop) tryRead() error {
	l.conn.try = true
	err := l.conn.r.Fill()
	l.conn.try = false
	l.armed = 0
	if errors.Is(err, os.ErrDeadlineExceeded) { // an old one has passed: nothing was read
		if err = l.conn.nc.SetReadDeadline(time.Time{}); err == nil {
			err = errWouldBlock
		}
	}
	return err
}

// cancel makes the loop look at cancelled soon.
func (l *loop) cancel() {
	l.cancelled.Store(true)
	_ = l.conn.nc.SetReadDeadline(time.Unix(1, 0))
}
