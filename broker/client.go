package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/packet"
	"inflight/broker/session"
	"inflight/broker/store"
	"inflight/broker/topic"
)

// takeoverSubject and the node's name is where a node is asked to give a session up.
const takeoverSubject = "inf.c.takeover."

// takeoverTimeout bounds how long the node that had a session may take to finish what was under way there.
const takeoverTimeout = 15 * time.Second

// takeoverProbe is how often a node that has been asked is asked whether it is still there.
const takeoverProbe = 200 * time.Millisecond

// client is a session that this node serves. It outlives its connections unless it is clean.
type client struct {
	srv   *Server
	id    string
	clean bool

	mu      sync.Mutex
	wake    *sync.Cond // whoever waits for room, for an operation, or for a connection
	conn    *conn      // nil while nobody is connected
	ended   bool
	sender  *session.Sender
	subs    map[string]*subscription
	out     outbound
	fresh   []wanted // retained messages that are still to be sent
	serving bool     // the first of them is being served
}

type subscription struct {
	filter string
	qos    byte // changes on a repeated SUBSCRIBE; under client.mu
	gone   bool // unsubscribed: nothing new is sent [MQTT-3.10.4-2]; under client.mu
	feed   store.Feed
	src    *session.Source
}

func newClient(s *Server, id string, clean bool) *client {
	cl := &client{srv: s, id: id, clean: clean, sender: session.NewSender(s.cfg.Outbound), subs: make(map[string]*subscription)}
	cl.wake = sync.NewCond(&cl.mu)
	cl.out.on = !clean && s.store.Durability() != "memory"
	return cl
}

// deliver sends one message to the subscriber. It blocks while the window or the output is full, or nobody is connected;
// a QoS 0 publication is dropped then.
func (cl *client) deliver(sub *subscription, d store.Delivery) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.ended || sub.src.Before(d) {
		return
	}
	for !cl.ended && !sub.gone {
		d.QoS = min(d.Message.QoS, sub.qos)
		c := cl.conn
		if c != nil && len(c.out)+cl.out.size() < maxOutput && (d.QoS == 0 || !cl.sender.Full()) {
			cl.send(c, sub, d)
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
}

// subscribe adds or changes one subscription.
func (cl *client) subscribe(ctx context.Context, s store.Subscription) error {
	cl.mu.Lock()
	old := cl.subs[s.Filter]
	if old != nil && (old.qos > 0) == (s.QoS > 0) {
		old.qos = s.QoS // the feed goes on; what is in flight is not touched [MQTT-3.8.4-3]
		cl.mu.Unlock()
		return nil
	}
	cl.mu.Unlock()
	if old != nil {
		if err := cl.unsubscribe(ctx, s.Filter); err != nil {
			return err
		}
	}
	cl.mu.Lock()
	sub := &subscription{filter: s.Filter, qos: s.QoS, src: cl.sender.Source(s.Filter)}
	cl.mu.Unlock()
	// A feed asks for everything above QoS 0; the subscription's own QoS is applied on delivery, because it can change.
	ask := s
	if s.QoS > 0 {
		ask.QoS = 2
	}
	feed, err := cl.srv.store.Subscribe(ctx, cl.id, ask, !cl.clean, func(d store.Delivery) { cl.deliver(sub, d) })
	if err != nil {
		return err
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	sub.feed = feed
	cl.subs[s.Filter] = sub
	return nil
}

func (cl *client) unsubscribe(ctx context.Context, filter string) error {
	cl.mu.Lock()
	sub := cl.subs[filter]
	if sub == nil {
		cl.mu.Unlock()
		return nil
	}
	delete(cl.subs, filter)
	sub.gone = true
	cl.sender.Drop(sub.src)
	cl.wake.Broadcast()
	err := cl.flushed()
	cl.mu.Unlock()
	sub.feed.Close()
	if err != nil {
		return err
	}
	if cl.clean || sub.qos == 0 {
		return nil
	}
	return cl.srv.store.Unsubscribe(ctx, cl.id, filter)
}

// record is what other nodes must know of the session.
func (cl *client) record() *store.Session {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	rec := &store.Session{ClientID: cl.id, Node: cl.srv.cfg.Node, Clean: cl.clean, Updated: time.Now().UTC()}
	for _, sub := range cl.subs {
		rec.Subscriptions = append(rec.Subscriptions, store.Subscription{Filter: sub.filter, QoS: sub.qos})
	}
	return rec
}

// end stops the feeds; durable ones keep their place in the store.
func (cl *client) end() {
	for _, sub := range cl.abandon() {
		sub.feed.Close()
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
	cl.wake.Broadcast()
	return subs
}

// kick closes the connection, if there is one, and waits until nothing of it is under way any more.
func (cl *client) kick(why error) {
	cl.mu.Lock()
	c := cl.conn
	cl.mu.Unlock()
	if c != nil {
		c.close(why)
		<-c.finished
	}
}

// connect finds or makes the session of a CONNECT and attaches c to it. The node that served it before, this one or
// another, has given it up and finished its store operations when connect reads the store.
func (s *Server) connect(ctx context.Context, c *conn, p *packet.Connect) error {
	unlock := s.lockID(p.ClientID)
	defer unlock()

	old := s.client(p.ClientID)
	var rec *store.Session
	var state []byte
	if old != nil {
		old.kick(errTakenOver)
	}
	if old == nil {
		var err error
		if rec, err = s.store.Session(ctx, p.ClientID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("read session: %w", err)
		}
		if rec != nil && rec.Node != s.cfg.Node {
			if state, err = s.takeOver(ctx, rec.Node, p.ClientID); err != nil {
				return fmt.Errorf("take session over from node %s: %w", rec.Node, err)
			}
			// What the other node wrote while it let go counts.
			if rec, err = s.store.Session(ctx, p.ClientID); err != nil && !errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("read session: %w", err)
			}
		}
	}
	present := !p.CleanSession && (old != nil && !old.clean || rec != nil && !rec.Clean)
	present = present && c.mayResume(old, rec)
	cl := old
	var held []store.Held
	switch {
	case !present:
		if old != nil || rec != nil {
			if err := s.forget(ctx, p.ClientID, old, rec); err != nil {
				return err
			}
		}
		cl = newClient(s, p.ClientID, p.CleanSession)
	default:
		if cl == nil {
			var err error
			if cl, err = s.resume(ctx, rec, state); err != nil {
				return fmt.Errorf("resume session: %w", err)
			}
		}
		var err error
		if held, err = s.store.Held(ctx, p.ClientID); err != nil {
			return fmt.Errorf("resume session: %w", err)
		}
	}
	if old == nil || !present {
		if err := s.store.PutSession(ctx, cl.record()); err != nil {
			cl.end()
			return fmt.Errorf("write session: %w", err)
		}
		s.setClient(p.ClientID, cl)
	}
	c.attach(cl, present, held)
	return nil
}

// forget drops everything that an earlier session of the same identifier left.
func (s *Server) forget(ctx context.Context, id string, old *client, rec *store.Session) error {
	var subs []store.Subscription
	kept := false
	if old != nil {
		subs, kept = old.record().Subscriptions, !old.clean
		old.settled() // or its last record would come after the removal
		old.end()
		s.dropClient(old)
	} else {
		subs, kept = rec.Subscriptions, !rec.Clean
	}
	if kept {
		if err := s.putOutbound(id, nil); err != nil {
			return fmt.Errorf("drop old session: %w", err)
		}
	}
	for _, sub := range subs {
		if err := s.store.Unsubscribe(ctx, id, sub.Filter); err != nil {
			return fmt.Errorf("drop old session: %w", err)
		}
	}
	if err := s.store.Forget(ctx, id); err != nil {
		return fmt.Errorf("drop old session: %w", err)
	}
	return nil
}

// detach ends what is left of a clean session once its connection is finished. If another connection got hold of the
// identifier first, on this node or another, it has cleaned up, and the record is its own. When the broker shuts down the
// record stays: the next session of the identifier cleans up behind it.
func (s *Server) detach(c *conn) {
	cl := c.client
	if !cl.clean || c.cause() == errShutdown {
		return
	}
	unlock := s.lockID(cl.id)
	defer unlock()
	if !s.dropClient(cl) {
		return
	}
	cl.end()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	if c.recv.Open() > 0 {
		if err := s.store.Forget(ctx, cl.id); err != nil {
			s.log.Warn("end of session", "client", cl.id, "error", err)
			return // the record stays, so that the next session of this identifier cleans up
		}
	}
	if err := s.store.DeleteSession(ctx, cl.id); err != nil {
		s.log.Warn("end of session", "client", cl.id, "error", err)
	}
}

// takeOver asks another node to let go of a session, and returns its outbound state, if the node has it in memory. A
// node that is not there any more has let go.
func (s *Server) takeOver(ctx context.Context, node, id string) ([]byte, error) {
	if s.nc == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
	defer cancel()
	gone := make(chan struct{})
	go func() {
		// A node that goes away after it was asked does not answer, and nobody says so.
		tick := time.NewTicker(takeoverProbe)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			probe, stop := context.WithTimeout(ctx, time.Second)
			_, err := s.nc.RequestWithContext(probe, takeoverSubject+node, nil)
			stop()
			if errors.Is(err, nats.ErrNoResponders) {
				close(gone)
				cancel()
				return
			}
		}
	}()
	m, err := s.nc.RequestWithContext(ctx, takeoverSubject+node, []byte(id))
	select {
	case <-gone:
		return nil, nil
	default:
	}
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// serveTakeovers answers other nodes. It does not take the identifier's lock: two nodes that connect the same identifier
// at the same time would wait for each other.
func (s *Server) serveTakeovers() error {
	_, err := s.nc.Subscribe(takeoverSubject+s.cfg.Node, func(m *nats.Msg) {
		go func() {
			var state []byte // an empty identifier is a probe: there is no such client
			if cl := s.client(string(m.Data)); cl != nil {
				cl.kick(errTakenOver)
				if s.dropClient(cl) {
					state = cl.settled()
					cl.end()
				}
			}
			if err := m.Respond(state); err != nil {
				s.log.Warn("takeover", "error", err)
			}
		}()
	})
	if err != nil {
		return fmt.Errorf("listen for takeovers: %w", err)
	}
	return s.nc.Flush()
}

// grant subscribes to each filter in turn, if the client may, and returns the SUBACK's return codes. Retained messages of
// each are sent once sendRetained is called, again for a subscription that exists [MQTT-3.8.4-3].
func (cl *client) grant(ctx context.Context, subs []packet.Subscription, may func(filter string) bool) ([]byte, error) {
	codes := make([]byte, len(subs))
	var granted []string
	for i, s := range subs {
		if err := topic.ValidFilter(s.Filter); err != nil {
			return nil, err
		}
		if !may(s.Filter) {
			codes[i] = packet.SubackFailure
			continue
		}
		if cl.atSubscriptionLimit(s.Filter) {
			cl.srv.log.Warn("subscribe", "client", cl.id, "filter", s.Filter, "error", "the session has as many subscriptions as it may")
			codes[i] = packet.SubackFailure
			continue
		}
		if err := cl.subscribe(ctx, store.Subscription{Filter: s.Filter, QoS: s.QoS}); err != nil {
			cl.srv.log.Warn("subscribe", "client", cl.id, "filter", s.Filter, "error", err)
			codes[i] = packet.SubackFailure
			continue
		}
		codes[i] = s.QoS
		granted = append(granted, s.Filter)
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
	return cl.srv.store.PutSession(ctx, cl.record())
}
