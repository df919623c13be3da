package broker

import (
	"syscall"
	"testing"
	"time"
)

// troubles are what can happen to a cluster of three.
var troubles = []struct {
	name string
	do   func(c *crashes)
}{
	{"a member is killed", func(c *crashes) {
		p := c.all[c.number(3)]
		c.down(p)
		time.Sleep(500 * time.Millisecond)
		c.up(p)
	}},
	{"the first member is killed, which leads more often than not", func(c *crashes) {
		c.down(c.all[0])
		time.Sleep(2 * time.Second)
		c.up(c.all[0])
	}},
	{"a member stands still and goes on as if nothing had been", func(c *crashes) {
		p := c.all[c.number(3)]
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(3 * time.Second)
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
	}},
	{"no majority", func(c *crashes) {
		first := c.number(3)
		c.down(c.all[first], c.all[(first+1)%3])
		time.Sleep(2 * time.Second)
		c.up(c.all[first], c.all[(first+1)%3])
	}},
	{"a member is shut down in good order", func(c *crashes) {
		p := c.all[c.number(3)]
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.read:
		case <-time.After(startUp):
			c.t.Error("a broker does not end")
		}
		p.kill()
		c.up(p)
	}},
}

// TestMembersComeAndGo is about the journal, which has no other place to look than itself: members come and go while
// publishers and subscribers go on with whom they find, and nobody has to help.
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program and starts three of it, again and again; run without -short")
	}
	runTrouble(t, StoreJournal, 3, 20, func(c *crashes) {
		for _, what := range troubles {
			t.Log(what.name)
			what.do(c)
			time.Sleep(500 * time.Millisecond)
		}
	})
}
