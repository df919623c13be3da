package null

import (
	"encoding/binary"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxWake bounds how far back an arrival may lie; a system clock that was set in between must not matter.
const maxWake = 100 * time.Millisecond

// kernelTimes takes the time of arrival from the kernel, which stamps each segment as it comes in. To wake this process,
// on an idle processor in particular, takes a good part of what the delay may be off.
type kernelTimes struct {
	rc   syscall.RawConn
	recv func(fd uintptr) bool
	b    []byte
	oob  [64]byte
	n    int
	err  error
	at   time.Time
}

func newArrivals(nc net.Conn) arrivals {
	plain := &readTimes{nc: nc}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return plain
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return plain
	}
	var failed error
	err = rc.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err != nil || failed != nil {
		return plain
	}
	k := &kernelTimes{rc: rc}
	k.recv = k.receive
	return k
}

func (k *kernelTimes) Read(b []byte) (int, error) {
	k.b = b
	err := k.rc.Read(k.recv)
	k.b = nil
	switch {
	case err != nil:
		return 0, err
	case k.err != nil:
		return 0, k.err
	case k.n == 0:
		return 0, io.EOF
	}
	return k.n, nil
}

// receive reports false, try again when there is something, as long as there is nothing.
func (k *kernelTimes) receive(fd uintptr) bool {
	for {
		n, oobn, _, _, err := unix.Recvmsg(int(fd), k.b, k.oob[:], 0)
		switch err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		}
		now := time.Now()
		k.n, k.err, k.at = n, err, now
		if stamp, ok := timestamp(k.oob[:oobn]); ok {
			if age := now.UnixNano() - stamp; age > 0 && age < int64(maxWake) {
				k.at = now.Add(-time.Duration(age))
			}
		}
		return true
	}
}

func (k *kernelTimes) arrived() time.Time { return k.at }

// timestamp finds the kernel's timestamp, in nanoseconds since 1970, in the control messages of a read; oob is the only
// one that was asked for.
func timestamp(oob []byte) (nanoseconds int64, ok bool) {
	if len(oob) < unix.CmsgLen(0) { // the end of the stream has none
		return 0, false
	}
	header, data, _, err := unix.ParseOneSocketControlMessage(oob)
	if err != nil || header.Level != unix.SOL_SOCKET || header.Type != unix.SCM_TIMESTAMPNS {
		return 0, false
	}
	switch len(data) { // struct timespec
	case 16:
		return int64(binary.NativeEndian.Uint64(data))*1e9 + int64(binary.NativeEndian.Uint64(data[8:])), true
	case 8:
		return int64(int32(binary.NativeEndian.Uint32(data)))*1e9 + int64(binary.NativeEndian.Uint32(data[4:])), true
	default:
		return 0, false
	}
}
