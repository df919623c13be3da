//go:build !unix

package client

import "net"

func newSocket(nc *net.TCPConn) (socket, error) { return deadlineSocket{nc}, nil }
