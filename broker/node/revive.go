package node

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// reviveEvery is how often the node looks whether JetStream is down.
	reviveEvery = time.Second
	// reviveRoom is how many bytes must be writable before it is started again.
	reviveRoom = 4 << 20
)

// revive starts JetStream again after something could not be written. Mostly the server shuts it down then, on this node
// alone, and by itself it never comes back; sometimes it goes on with a stream or a log that lacks what was not written, and
// no majority comes about any more. What is on disk is whole, and the rest is with the others. It waits until the shutdown
// is over and something can be written.
func (n *Node) revive(dir string) {
	defer close(n.revived)
	tick := time.NewTicker(reviveEvery)
	defer tick.Stop()
	said := false
	for down := 0; ; {
		select {
		case <-n.stop:
			return
		case <-tick.C:
		}
		if n.srv.JetStreamConfig() != nil { // it is up, or on its way down
			down, said = 0, false
			if n.broken.Load() && n.srv.JetStreamEnabled() {
				if err := n.srv.ShutdownJetStream(); err != nil {
					n.log.Error("JetStream, which could not write something, cannot be shut down", "error", err)
				}
			}
			continue
		}
		if down++; down < 2 {
			continue
		}
		if err := canWrite(dir); err != nil {
			if !said {
				said = true
				n.log.Error("JetStream is down until its directory can be written: free some space", "directory", dir, "error", err)
			}
			continue
		}
		n.broken.Store(false)
		n.log.Warn("JetStream was down and is started again", "directory", dir)
		opts := n.opts.Clone()
		if addr, ok := n.srv.Addr().(*net.TCPAddr); ok {
			opts.Port = addr.Port // which cannot change
		}
		if err := n.srv.ReloadOptions(opts); err != nil {
			n.log.Error("JetStream cannot be started", "error", err)
		}
		down = 0
	}
}

// canWrite tries whether there is room in a directory.
func canWrite(dir string) error {
	name := filepath.Join(dir, "room")
	err := os.WriteFile(name, make([]byte, reviveRoom), 0o600)
	if gone := os.Remove(name); err == nil {
		err = gone
	}
	if err != nil {
		return fmt.Errorf("write %d MiB: %w", reviveRoom>>20, err)
	}
	return nil
}
