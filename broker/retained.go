package broker

import (
	"context"
	"errors"

	"inflight/broker/store"
)

// wanted is a subscription whose retained messages are to be sent.
type wanted struct {
	sub *subscription
	end uint64 // they end here; what comes later the subscriber gets as it is published
}

// wantRetained notes that a SUBSCRIBE asked for the retained messages of subscriptions. One that is waiting for its turn
// already is not noted again: what waits is bounded by the number of subscriptions. What is published after the SUBACK
// does not come as retained as well.
func (cl *client) wantRetained(ctx context.Context, filters []string) error {
	if len(filters) == 0 {
		return nil
	}
	end, err := cl.srv.store.RetainedEnd(ctx)
	if err != nil {
		return err
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
next:
	for _, filter := range filters {
		sub := cl.subs[filter]
		if sub == nil {
			continue
		}
		for i := cl.retaining(); i < len(cl.fresh); i++ {
			if cl.fresh[i].sub == sub {
				continue next
			}
		}
		cl.fresh = append(cl.fresh, wanted{sub, end})
	}
	return nil
}

// retaining is 1 while the first subscription that wants its retained messages is getting them, else 0. cl.mu is held.
func (cl *client) retaining() int {
	if cl.serving {
		return 1
	}
	return 0
}

// sendRetained starts the sending of retained messages, unless it is going on.
func (cl *client) sendRetained() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.serving || len(cl.fresh) == 0 {
		return
	}
	cl.serving = true
	go cl.serveRetained()
}

// serveRetained sends the retained messages of one subscription after the other, one message at a time: a subscriber that
// reads slowly, or a kept session that is away, holds one of them in memory. It ends when there is no more to do, or with
// the session.
func (cl *client) serveRetained() {
	for {
		cl.mu.Lock()
		if cl.ended || len(cl.fresh) == 0 {
			cl.serving, cl.fresh = false, nil
			cl.mu.Unlock()
			return
		}
		sub, end := cl.fresh[0].sub, cl.fresh[0].end
		cl.mu.Unlock()
		err := cl.srv.store.Retained(context.Background(), sub.filter, end, func(m *store.Message) bool {
			cl.deliver(sub, 0, store.Delivery{Message: m, Retain: true, Settle: func() {}})
			cl.mu.Lock()
			defer cl.mu.Unlock()
			return !cl.ended && !sub.gone
		})
		cl.mu.Lock()
		cl.fresh = cl.fresh[1:]
		c, ended := cl.conn, cl.ended
		cl.mu.Unlock()
		if err != nil && !ended && !errors.Is(err, store.ErrClosed) {
			cl.srv.log.Warn("retained messages", "client", cl.id, "filter", sub.filter, "error", err)
			if c != nil {
				c.close(err) // the client subscribes again, or does without
			}
		}
	}
}
