package client

import (
	"errors"
	"net"
	"os"
	"time"
)

// errWouldBlock is returned by a read that found nothing in the time it had.
var errWouldBlock = errors.New("nothing to read")

const (
	minBuffer = 4 << 10 // bytes, of a connection with a small window
	// maxWrite is where a batch of packets is cut into another write: between two writes the loop looks for
	// acknowledgements, so that a big window that is being filled does not keep those that arrive waiting.
	maxWrite = 64 << 10
	// retryInterval is how long a loop waits for packets while the socket takes no more bytes. A broker that takes bytes
	// mostly also answers, which ends the wait at once.
	retryInterval = time.Millisecond
)

// socket does what a net.Conn does not: write what fits and read what is there, both without waiting for the peer.
type socket interface {
	// write writes until the socket is full; n < len(b) without an error means that it is.
	write(b []byte) (n int, err error)
	// tryRead reads once and returns errWouldBlock if nothing is there. It may change the read deadline.
	tryRead(b []byte) (n int, err error)
}

// deadlineSocket does it with short deadlines, which it leaves behind. It serves the systems on which a socket cannot be
// used raw.
type deadlineSocket struct{ nc *net.TCPConn }

func (s deadlineSocket) write(b []byte) (int, error) {
	if err := s.nc.SetWriteDeadline(time.Now().Add(retryInterval)); err != nil {
		return 0, err
	}
	n, err := s.nc.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

func (s deadlineSocket) tryRead(b []byte) (int, error) {
	if err := s.nc.SetReadDeadline(time.Now().Add(retryInterval)); err != nil {
		return 0, err
	}
	n, err := s.nc.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errWouldBlock
	}
	return n, err
}
