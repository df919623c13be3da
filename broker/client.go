package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"inflight/broker/packet"
	"inflight/broker/session"
	"inflight/broker/store"
	"inflight/broker/topic"
)

// client is a session that this node serves. It outlives its connections unless it is clean.
type client struct {
	srv   *Server
	id    string
	clean bool

	saving   sync.Mutex // held while the record is written; taken before mu
	revision uint64     // of the record, as this node wrote or read it last; under saving

	mu      sync.Mutex
	wake    *sync.Cond // whoever waits for room, for an operation, or for a connection
	conn    *conn      // nil while nobody is connected
	ended   bool
	sender  *session.Sender
	subs    map[string]*subscription
	out     outbound
	fresh   []wanted // retained messages that are still to be sent
	serving bool     // the first of them is being served
	client5
}

type subscription struct {
	filter string
	qos    byte               // changes on a repeated SUBSCRIBE; under client.mu
	opts   store.Subscription // as last asked for; under client.mu
	gone   bool               // unsubscribed: nothing new is sent [MQTT-3.10.4-2]; under client.mu
	feed   store.Feed         // nil while a shared subscription has none; under client.mu
	src    *session.Source
	shared bool
	round  int // counts the feeds of a shared subscription; under client.mu
}

func newClient(s *Server, id string, clean bool) *client {
	cl := &client{srv: s, id: id, clean: clean, sender: session.NewSender(s.cfg.Outbound), subs: make(map[string]*subscription)}
	cl.wake = sync.NewCond(&cl.mu)
	cl.out.on = !clean && s.store.Durability() != "memory"
	return cl
}

// deliver sends one message to the subscriber. It blocks while the window or the output is full, or nobody is connected;
// a QoS 0 publication is dropped then. round is that of the feed that it is from.
func (cl *client) deliver(sub *subscription, round int, d store.Delivery) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if !cl.ended && sub.round == round && sub.src.Before(d) {
		return
	}
	for !cl.ended && !sub.gone && sub.round == round {
		if !cl.wanted(sub, &d) {
			d.Settle()
			return
		}
		d.QoS = min(d.Message.QoS, sub.qos)
		c := cl.conn
		if c != nil && len(c.out)+cl.out.size() < maxOutput && (d.QoS == 0 || !cl.sender.Full()) {
			cl.dispatch(c, sub, d)
			return
		}
		if (d.Message.QoS == 0 && !d.Retain) || (d.QoS == 0 && c == nil) {
			why := dropSlow
			if c == nil {
				why = dropAway
			}
			cl.srv.metrics.drop(why)
			return
		}
		cl.wake.Wait()
	}
	// The feed of a connection that is gone can still bring what an earlier connection has sent.
	if d.Back != nil && !sub.src.Sent(d) {
		d.Back()
	}
}

// subscribe adds or changes one subscription, and reports whether there was none of this Topic Filter before.
func (cl *client) subscribe(ctx context.Context, s store.Subscription) (added bool, err error) {
	cl.mu.Lock()
	old := cl.subs[s.Filter]
	if old != nil && (old.qos > 0) == (s.QoS > 0) {
		old.qos = s.QoS // the feed goes on; what is in flight is not touched [MQTT-3.8.4-3]
		cl.configure(old, s)
		cl.mu.Unlock()
		return false, nil
	}
	cl.mu.Unlock()
	if old != nil {
		if _, err := cl.unsubscribe(ctx, s.Filter); err != nil {
			return false, err
		}
	}
	cl.mu.Lock()
	sub := &subscription{filter: s.Filter, qos: s.QoS, src: cl.sender.Source(s.Filter)}
	_, _, sub.shared = topic.Shared(s.Filter)
	cl.configure(sub, s)
	cl.mu.Unlock()
	if err := cl.open(ctx, sub); err != nil {
		return false, err
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.subs[s.Filter] = sub
	return old == nil, nil
}

// open opens the feed of a subscription.
func (cl *client) open(ctx context.Context, sub *subscription) error {
	cl.mu.Lock()
	// A feed asks for everything above QoS 0; the subscription's own QoS is applied on delivery, because it can change.
	ask := sub.opts
	if ask.QoS = sub.qos; ask.QoS > 0 {
		ask.QoS = 2
	}
	round := sub.round
	cl.mu.Unlock()
	feed, err := cl.srv.store.Subscribe(ctx, cl.id, ask, !cl.clean, func(d store.Delivery) { cl.deliver(sub, round, d) })
	if err != nil {
		return err
	}
	cl.mu.Lock()
	sub.feed = feed
	cl.mu.Unlock()
	return nil
}

// unsubscribe ends a subscription, and reports whether there was one.
func (cl *client) unsubscribe(ctx context.Context, filter string) (known bool, err error) {
	cl.mu.Lock()
	sub := cl.subs[filter]
	if sub == nil {
		cl.mu.Unlock()
		return false, nil
	}
	delete(cl.subs, filter)
	sub.gone = true
	started := cl.sender.Drop(sub.src)
	cl.wake.Broadcast()
	err = cl.flushed()
	cl.mu.Unlock()
	if sub.shared && err == nil {
		for _, settle := range started {
			settle() // it is completed here [MQTT-3.10.4-3], and so not for another member
		}
	}
	sub.feed.Close()
	if err != nil {
		return true, err
	}
	if cl.clean || sub.qos == 0 {
		return true, nil
	}
	return true, cl.srv.store.Unsubscribe(ctx, cl.id, filter)
}

// record is what other nodes must know of the session.
func (cl *client) record() *store.Session {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	rec := &store.Session{ClientID: cl.id, Node: cl.srv.cfg.Node, Clean: cl.clean, Updated: time.Now().UTC()}
	cl.recordEnd(rec)
	for _, sub := range cl.subs {
		s := sub.opts
		s.Filter, s.QoS = sub.filter, sub.qos
		rec.Subscriptions = append(rec.Subscriptions, s)
	}
	return rec
}

// save writes the record over the one that this node wrote or read last. errTakenOver says that the session is another
// node's by now.
func (cl *client) save(ctx context.Context) error {
	cl.saving.Lock()
	defer cl.saving.Unlock()
	rec := cl.record()
	rec.Revision = cl.revision
	switch err := cl.srv.swap(ctx, rec); {
	case errors.Is(err, store.ErrConflict):
		return fmt.Errorf("write session: %w", errTakenOver)
	case err != nil:
		return fmt.Errorf("write session: %w", err)
	}
	cl.revision = rec.Revision
	return nil
}

// end stops the feeds; durable ones keep their place in the store.
func (cl *client) end() {
	for _, sub := range cl.abandon() {
		if sub.feed != nil {
			sub.feed.Close()
		}
	}
}

// abandon lets no feed deliver any more and returns them. On its own it is how a session ends with the store: closing
// each feed would ask a cluster that may be going down as well.
func (cl *client) abandon() map[string]*subscription {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.ended = true
	subs := cl.subs
	cl.subs = map[string]*subscription{}
	cl.out.stopTimer()
	cl.stopExpiry()
	cl.wake.Broadcast()
	return subs
}

// kick closes the connection, if there is one, and waits until nothing of it is under way any more.
func (cl *client) kick(why error) {
	cl.mu.Lock()
	c := cl.conn
	cl.mu.Unlock()
	if c != nil {
		if why == errTakenOver {
			c.handOver()
		}
		c.close(why)
		<-c.finished
	}
}

// grant subscribes to each filter in turn, if the client may, and returns the SUBACK's Reason Codes. Retained messages of
// each are sent once sendRetained is called, again for a subscription that exists [MQTT-3.8.4-3] unless it asks otherwise.
func (cl *client) grant(ctx context.Context, c *conn, p *packet.Subscribe) ([]packet.ReasonCode, error) {
	codes := make([]packet.ReasonCode, len(p.Subscriptions))
	v5 := c.codec.Version == packet.V5
	var id uint32
	if p.Properties != nil && len(p.Properties.SubscriptionIDs) > 0 {
		id = p.Properties.SubscriptionIDs[0]
	}
	var granted []string
	for i, s := range p.Subscriptions {
		if err := topic.ValidFilter(s.Filter); err != nil {
			if !v5 {
				return nil, err
			}
			codes[i] = packet.TopicFilterInvalid
			continue
		}
		_, _, shared := topic.Shared(s.Filter)
		if !c.maySubscribe(s.Filter) {
			codes[i] = packet.NotAuthorized
			continue
		}
		if cl.atSubscriptionLimit(s.Filter) {
			cl.srv.log.Warn("subscribe", "client", cl.id, "filter", s.Filter, "error", "the session has as many subscriptions as it may")
			codes[i] = packet.QuotaExceeded
			continue
		}
		added, err := cl.subscribe(ctx, store.Subscription{
			Filter: s.Filter, QoS: s.QoS, NoLocal: s.NoLocal, RetainAsPublished: s.RetainAsPublished, ID: id,
		})
		if err != nil {
			cl.srv.log.Warn("subscribe", "client", cl.id, "filter", s.Filter, "error", err)
			codes[i] = packet.UnspecifiedError
			continue
		}
		codes[i] = packet.ReasonCode(s.QoS)
		// A shared one gets no retained messages, section 4.8.2.
		if !shared && (s.RetainHandling == 0 || s.RetainHandling == 1 && added) { // [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11] of 5.0
			granted = append(granted, s.Filter)
		}
	}
	if err := cl.wantRetained(ctx, granted); err != nil {
		return nil, err
	}
	return codes, cl.persist(ctx)
}

// persist writes the record of a session that must survive.
func (cl *client) persist(ctx context.Context) error {
	if cl.clean {
		return nil
	}
	return cl.save(ctx)
}
