//go:build unix

package client

import (
	"io"
	"net"
	"syscall"
)

// rawSocket calls read and write on the descriptor itself, which the net package has made non-blocking. The two closures
// are made once: a call allocates nothing and sets no timer.
type rawSocket struct {
	rc     syscall.RawConn
	rd, wr func(fd uintptr) bool
	b      []byte
	n      int
	err    error
}

func newSocket(nc *net.TCPConn) (socket, error) {
	rc, err := nc.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &rawSocket{rc: rc}
	s.rd, s.wr = s.readOnce, s.writeAll
	return s, nil
}

func (s *rawSocket) write(b []byte) (int, error) {
	s.b, s.n, s.err = b, 0, nil
	err := s.rc.Write(s.wr)
	s.b = nil
	if err != nil {
		return 0, err
	}
	return s.n, s.err
}

// writeAll reports true, done, in any case: false would make the net package wait.
func (s *rawSocket) writeAll(fd uintptr) bool {
	for s.n < len(s.b) {
		n, err := syscall.Write(int(fd), s.b[s.n:])
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return true
		case err != nil:
			s.err = err
			return true
		default:
			s.n += n
		}
	}
	return true
}

func (s *rawSocket) tryRead(b []byte) (int, error) {
	s.b, s.n, s.err = b, 0, nil
	err := s.rc.Read(s.rd)
	s.b = nil
	if err != nil {
		return 0, err
	}
	return s.n, s.err
}

func (s *rawSocket) readOnce(fd uintptr) bool {
	for {
		n, err := syscall.Read(int(fd), s.b)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			s.err = errWouldBlock
		case err != nil:
			s.err = err
		case n == 0:
			s.err = io.EOF
		default:
			s.n = n
		}
		return true
	}
}
