package misbehave

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// What is held back leaves in its order and not before its time, also when the connection is closed behind it.
func TestSlowLine(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	received := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(client)
		received <- string(b)
	}()
	c := newSlowConn(server, 0.1)
	begun := time.Now()
	for i, s := range []string{"a", "b", "c"} {
		// The second is due before the first, and waits for it.
		if err := c.line.write([]byte(s), begun, []time.Duration{20, 0, 30}[i]*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := <-received; got != "abc" || time.Since(begun) < 30*time.Millisecond {
		t.Errorf("%q after %v", got, time.Since(begun))
	}
}

// A client that is gone is an error of a later write, and nothing waits for it.
func TestSlowLineOfAClosedConnection(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	_ = client.Close()
	c := newSlowConn(server, 0.1)
	if err := c.line.write([]byte("x"), time.Now(), time.Millisecond); err != nil {
		t.Errorf("before it was written: %v", err)
	}
	c.line.drain()
	for range 2 {
		if err := c.line.write([]byte("x"), time.Now(), 0); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("after it could not be written: %v", err)
		}
	}
	_ = c.Close()
}
