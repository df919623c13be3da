package journal

import (
	"strings"
	"testing"

	"inflight/broker/store/storetest"
)

// A session that is away for long holds up to its limit and costs the journal no more than that; what it does not get is
// counted, and said once. The limit is the same on every node, and that of the one that was started last.
func TestLongAway(t *testing.T) {
	m := single(t)
	var log logged
	dropped := make(chan byte, 1000)
	s := m.open(t, log.config, small, func(c *Config) { c.QueueBytes, c.Dropped = 20_000, func(qos byte) { dropped <- qos } })
	e := storetest.NewEnv(t, s)
	away := e.Subscribe(e.Root+"/x", 2, true)
	away.Close()
	payload := strings.Repeat("x", 1000)
	for range 30 {
		e.Publish(e.Msg(1, payload))
	}
	kept := 30 - len(dropped)
	if kept < 15 || kept > 20 {
		t.Errorf("%d messages of 1,000 bytes are kept, limit 20,000", kept)
	}
	if n := strings.Count(log.String(), "queue is full"); n != 1 || !strings.Contains(log.String(), "client="+e.Client) {
		t.Errorf("said %d times, want once, with the client:\n%s", n, &log)
	}

	other := m.open(t, small, func(c *Config) { c.QueueBytes = 40_000 })
	for _, st := range []*Store{s, other} {
		await(t, "the new limit on both", func() bool {
			st.mu.Lock()
			defer st.mu.Unlock()
			return st.st.limits.bytes == 40_000
		})
	}
	before := len(dropped)
	for range 10 {
		e.Publish(e.Msg(1, payload))
	}
	if len(dropped) != before {
		t.Errorf("%d messages are dropped below the new limit", len(dropped)-before)
	}
	// The journal goes on, past its snapshots, and keeps what the session has: carried forward, and no more than that.
	first := s.journalFirst()
	traffic(t, e, 3)
	await(t, "the journal is trimmed", func() bool { return s.journalFirst() > first })
	s = restart(t, m, s, small)
	e = e.View(s)
	away = e.Subscribe(e.Root+"/x", 2, true)
	for range kept + 10 {
		d := away.Next("what was kept")
		if string(d.Message.Payload) != payload {
			t.Fatalf("got %.20q", d.Message.Payload)
		}
		d.Settle()
	}
	away.Quiet("nothing else", e.Root+"/x")
	away.Close()
}
