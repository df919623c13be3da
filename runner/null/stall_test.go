package null

import (
	"testing"
	"time"

	"inflight/broker/packet"
)

func TestStalled(t *testing.T) {
	c := Config{Stall: time.Second, Every: 5 * time.Second}
	for _, test := range []struct{ at, want time.Duration }{
		{0, 0},
		{3999 * time.Millisecond, 0},
		{4 * time.Second, time.Second},
		{4900 * time.Millisecond, 100 * time.Millisecond},
		{5 * time.Second, 0},
		{9500 * time.Millisecond, 500 * time.Millisecond},
		{-time.Second, 0},
	} {
		if got := c.stalled(test.at); got != test.want {
			t.Errorf("after %v: stalled for another %v, want %v", test.at, got, test.want)
		}
	}
	if got := (&Config{Every: time.Second}).stalled(900 * time.Millisecond); got != 0 {
		t.Errorf("no stall: %v", got)
	}
	for _, bad := range []Config{{Delay: -1}, {Stall: time.Second}, {Stall: time.Second, Every: time.Second}, {Stall: -1, Every: 1}, {Every: 2 * MaxDelay}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// A connection that sends without end is silent for the stalls, and gets every answer after them.
func TestStall(t *testing.T) {
	t.Parallel()
	const stall, every = 120 * time.Millisecond, 200 * time.Millisecond
	c := dial(t, start(t, Config{Stall: stall, Every: every}))
	c.send(connect)
	c.want("CONNACK", packet.AppendConnack(nil, false, packet.Accepted))
	var longest time.Duration
	for began := time.Now(); time.Since(began) < 3*every; {
		sent := time.Now()
		c.send(publish(nil, 1, 1))
		c.want("PUBACK", packet.AppendAck(nil, packet.PUBACK, 1))
		longest = max(longest, time.Since(sent))
	}
	if longest < stall*9/10 {
		t.Errorf("the longest answer took %v, want a stall of %v", longest, stall)
	}
}
