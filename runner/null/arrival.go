package null

import (
	"net"
	"time"
)

// arrivals reads from a connection and says when what it read had arrived.
type arrivals interface {
	Read(b []byte) (int, error)
	arrived() time.Time // of the last Read
}

// readTimes takes the time of the read for the time of arrival. It is late by what it takes to wake a goroutine.
type readTimes struct {
	nc net.Conn
	at time.Time
}

func (r *readTimes) Read(b []byte) (int, error) {
	n, err := r.nc.Read(b)
	r.at = time.Now()
	return n, err
}

func (r *readTimes) arrived() time.Time { return r.at }
