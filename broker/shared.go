package broker

import (
	"context"
	"fmt"

	"inflight/broker/store"
)

// A shared subscription has a feed only while its client is connected: that is what makes the client a member of the group
// that gets messages. The session goes on, and with it what was sent and is not acknowledged.

// part closes the feeds of the shared subscriptions, when the connection has ended; without one, because it came to
// nothing. At a shutdown they end with the store.
func (cl *client) part(c *conn) {
	var feeds []store.Feed
	cl.mu.Lock()
	for _, sub := range cl.subs {
		if !sub.shared || sub.feed == nil {
			continue
		}
		sub.round++
		if c == nil || c.cause() != errShutdown {
			feeds = append(feeds, sub.feed)
			sub.feed = nil
		}
	}
	cl.wake.Broadcast()
	cl.mu.Unlock()
	for _, feed := range feeds {
		feed.Close()
	}
}

// rejoin opens them again, before the next connection is attached.
func (cl *client) rejoin(ctx context.Context) error {
	cl.mu.Lock()
	var subs []*subscription
	for _, sub := range cl.subs {
		if sub.shared && sub.feed == nil {
			cl.sender.Reopen(sub.src)
			subs = append(subs, sub)
		}
	}
	cl.mu.Unlock()
	for _, sub := range subs {
		if err := cl.open(ctx, sub); err != nil {
			cl.part(nil)
			return fmt.Errorf("shared subscription %.100q: %w", sub.filter, err)
		}
	}
	return nil
}
