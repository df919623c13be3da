package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"inflight/broker/store"
)

// Inbox is a feed that collects what it is handed.
type Inbox struct {
	e      *Env
	name   string
	feed   store.Feed
	ch     chan store.Delivery
	Keep   bool // do not settle on Want
	taken  []store.Delivery
	closed sync.Once
}

// inboxSize is above what any test leaves unread.
const inboxSize = 1 << 16

// Subscribe starts a feed of Client on a filter.
func (e *Env) Subscribe(filter string, qos byte, durable bool) *Inbox {
	e.Helper()
	return e.SubscribeAs(e.Client, filter, qos, durable)
}

// SubscribeAs starts a feed of any client.
func (e *Env) SubscribeAs(client, filter string, qos byte, durable bool) *Inbox {
	e.Helper()
	in := &Inbox{e: e, name: fmt.Sprintf("%s at %s", client, filter), ch: make(chan store.Delivery, inboxSize)}
	feed, err := e.S.Subscribe(e.context(), client, store.Subscription{Filter: filter, QoS: qos}, durable, func(d store.Delivery) { in.ch <- d })
	if err != nil {
		e.Fatalf("subscribe %s: %v", in.name, err)
	}
	in.feed = feed
	e.feeds = append(e.feeds, in)
	return in
}

// Close closes the feed.
func (in *Inbox) Close() { in.closed.Do(in.feed.Close) }

// Deliveries is what has come and was not taken by the other methods.
func (in *Inbox) Deliveries() <-chan store.Delivery { return in.ch }

// Next waits for one delivery and does not settle it.
func (in *Inbox) Next(reason string) store.Delivery {
	in.e.Helper()
	select {
	case d := <-in.ch:
		return d
	case <-time.After(patience):
		in.e.Fatalf("%s: %s: nothing came within %v", in.name, reason, patience)
		return store.Delivery{}
	}
}

// Want waits for exactly these payloads in this order, and settles them.
func (in *Inbox) Want(reason string, payloads ...string) {
	in.e.Helper()
	var got []string
	for range payloads {
		d := in.Next(fmt.Sprintf("%s (so far %s)", reason, list(got)))
		got = append(got, string(d.Message.Payload))
		if in.Keep {
			in.taken = append(in.taken, d)
		} else {
			d.Settle()
		}
		if !slices.Equal(got, payloads[:len(got)]) {
			in.e.Fatalf("%s: %s: got %s, want %s", in.name, reason, list(got), list(payloads))
		}
	}
}

// Quiet checks that nothing else is on its way: a fence, published on topic now, is the next that comes.
func (in *Inbox) Quiet(reason, topic string) {
	in.e.Helper()
	fence := fmt.Sprintf("fence %d", time.Now().UnixNano())
	in.e.Publish(&store.Message{Topic: topic, Payload: []byte(fence), QoS: 1})
	in.Want(reason, fence)
}

// QuietTransient is Quiet for publications of QoS 0, which come another way.
func (in *Inbox) QuietTransient(reason, topic string) {
	in.e.Helper()
	fence := fmt.Sprintf("fence %d", time.Now().UnixNano())
	in.e.Transient(topic, fence)
	in.Want(reason, fence)
}

// Transient publishes a QoS 0 message.
func (e *Env) Transient(topic, payload string) {
	e.Helper()
	if err := e.S.Transient(&store.Message{Topic: topic, Payload: []byte(payload)}); err != nil {
		e.Fatalf("transient: %v", err)
	}
}

func list(payloads []string) string {
	if len(payloads) == 0 {
		return "nothing"
	}
	if len(payloads) > 12 {
		payloads = append(slices.Clone(payloads[:12]), "...")
	}
	return strings.Join(payloads, ", ")
}

// numbers are the payloads from to to, both included.
func numbers(from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}
