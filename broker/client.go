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

// connectTries bounds how often a CONNECT begins anew because another node wrote the session's record meanwhile: one that
// adopts it, or one that serves the same client.
const connectTries = 3

// connect finds or makes the session of a CONNECT and attaches c to it. The node that served it before, this one or
// another, has given it up and finished its store operations when connect reads the store.
func (s *Server) connect(ctx context.Context, c *conn, p *packet.Connect) error {
	unlock := s.lockID(p.ClientID)
	defer unlock()
	for try := 1; ; try++ {
		err := s.tryConnect(ctx, c, p)
		if err == nil {
			s.drop(p.ClientID)
			return nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, errTakenOver) || try == connectTries {
			return err
		}
	}
}

func (s *Server) tryConnect(ctx context.Context, c *conn, p *packet.Connect) error {
	old := s.client(p.ClientID)
	var rec *store.Session
	var state []byte
	var err error
	if old != nil {
		old.kick(errTakenOver)
	} else if rec, state, err = s.find(ctx, p); err != nil {
		return err
	}
	// Of a record that is written between the two the save tells, which is a swap.
	if err := s.claim(ctx, p.ClientID); err != nil {
		return err
	}
	if old != nil && !p.CleanSession {
		if err := s.stillServes(ctx, old); err != nil {
			return err
		}
	}
	now := time.Now()
	present := !p.CleanSession && (old != nil && old.lives(now) || rec != nil && rec.Lives(now))
	present = present && c.mayResume(old, rec)
	if err := s.lastWill(ctx, old, rec, present, now); err != nil {
		return err
	}
	cl := old
	var held []store.Held
	switch {
	case !present:
		if old != nil || rec != nil {
			if err := s.forget(ctx, p.ClientID, old, rec); err != nil {
				return err
			}
		}
		cl = newClient(s, p.ClientID, c.expiry == 0)
		if old != nil {
			cl.revision = old.revision
		}
	default:
		if cl == nil {
			if cl, err = s.resume(ctx, rec, state); err != nil {
				return fmt.Errorf("resume session: %w", err)
			}
		}
		if held, err = s.store.Held(ctx, p.ClientID); err != nil {
			return fmt.Errorf("resume session: %w", err)
		}
		for _, h := range held {
			if h.ID == willID {
				s.store.Discard(p.ClientID, h.Ref) // of a will about which another node was faster
			}
		}
		if err := cl.rejoin(ctx); err != nil {
			return fmt.Errorf("resume session: %w", err)
		}
	}
	if rec != nil {
		cl.revision = rec.Revision
	}
	if changed := cl.begin(c); old == nil || !present || changed {
		if err := cl.save(ctx); err != nil {
			s.dropClient(cl)
			cl.end()
			return err
		}
		s.setClient(p.ClientID, cl)
	}
	c.attach(cl, present, held)
	return nil
}

// stillServes makes sure that no other node has gone on with a kept session since this one served it: that node may not have
// been able to ask this one for it. What is in memory here is then of before, and sending it again would be sending twice.
func (s *Server) stillServes(ctx context.Context, cl *client) error {
	if cl.clean || s.nc == nil {
		return nil
	}
	rec, err := s.store.Session(ctx, cl.id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("read session: %w", err)
	}
	cl.saving.Lock()
	current := err == nil && rec.Node == s.cfg.Node && rec.Revision == cl.revision
	cl.saving.Unlock()
	if current {
		return nil
	}
	s.let(cl)
	return errTakenOver
}

// claim fences off what other nodes may still have under way for a client, where the store can.
func (s *Server) claim(ctx context.Context, id string) error {
	if c, ok := s.store.(store.Claimer); ok {
		return c.Claim(ctx, id)
	}
	return nil
}

// find reads the record of a session that this node does not serve, after the node that does has let go of it. state is
// what that node had in memory.
func (s *Server) find(ctx context.Context, p *packet.Connect) (rec *store.Session, state []byte, err error) {
	read := func() {
		if rec, err = s.store.Session(ctx, p.ClientID); errors.Is(err, store.ErrNotFound) {
			rec, err = nil, nil
		} else if err != nil {
			err = fmt.Errorf("read session: %w", err)
		}
	}
	if read(); rec == nil {
		return nil, nil, err
	}
	ended := time.Now()
	if rec.Node == s.cfg.Node && rec.Updated.Before(s.metrics.epoch) && !s.lastBeat.IsZero() {
		ended = s.lastBeat // it was this node's, before it was started
	}
	if rec.Node != s.cfg.Node {
		if state, err = s.takeOver(ctx, rec.Node, p.ClientID); err != nil {
			return nil, nil, fmt.Errorf("take session over from node %s: %w", rec.Node, err)
		}
		// What the other node wrote while it let go counts.
		if read(); rec == nil {
			return nil, nil, err
		}
		ended = time.Now()
	}
	if rec.Ended == nil {
		rec.Ended = &ended
	}
	return rec, state, nil
}

// lastWill publishes the will that a session still has, if it is due now that its client is back: when the session ends
// here, or the client is too late for the will's delay.
func (s *Server) lastWill(ctx context.Context, old *client, rec *store.Session, present bool, now time.Time) error {
	var err error
	switch {
	case old != nil:
		if last := old.record(); last.Will != nil && (!present || willDue(last, now)) {
			err = old.publishWill(ctx)
		}
	case rec != nil:
		if rec.Will != nil && (!present || willDue(rec, now)) {
			err = s.publishWill(ctx, rec)
		}
	}
	if err != nil {
		return fmt.Errorf("will of the connection before: %w", err)
	}
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

// detach ends what is left of a session that ends with its connection, once that is finished. If another connection got
// hold of the identifier first, on this node or another, it has cleaned up, and the record is its own. When the broker
// shuts down the record stays: the next session of the identifier cleans up behind it.
func (s *Server) detach(c *conn) {
	cl := c.client
	cl.mu.Lock()
	expiry := cl.expiry
	cl.mu.Unlock()
	if expiry == neverExpires || expiry == 0 && c.cause() == errShutdown {
		return
	}
	unlock := s.lockID(cl.id)
	defer unlock()
	cl.mu.Lock()
	connected := cl.conn != nil
	expiry = cl.expiry
	cl.mu.Unlock()
	if connected || s.client(cl.id) != cl {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	if expiry > 0 {
		if c.recorded {
			return
		}
		if err := cl.save(ctx); err != nil {
			s.log.Warn("end of connection", "client", cl.id, "error", err)
		}
		return
	}
	s.endSession(ctx, cl, c.recv.Open() > 0)
}

// endSession forgets a session of this node; its will, if it still has one, is due. The lock of its identifier is held.
func (s *Server) endSession(ctx context.Context, cl *client, held bool) {
	err := cl.publishWill(ctx)
	switch {
	case err != nil:
		s.let(cl)
	case !cl.clean:
		err = s.forget(ctx, cl.id, cl, nil)
	case s.dropClient(cl):
		cl.end()
		if held {
			err = s.store.Forget(ctx, cl.id)
		}
	default:
		return
	}
	if err == nil {
		err = s.store.DeleteSession(ctx, cl.id, cl.revision)
	}
	switch {
	case err == nil, errors.Is(err, store.ErrClosed):
	case errors.Is(err, store.ErrConflict): // another node has it
	default:
		s.log.Warn("end of session", "client", cl.id, "error", err)
		s.attendLater(cl.id, time.Now().Add(willRetry))
	}
}

// let lets go of a session that another node has, or will find in the store.
func (s *Server) let(cl *client) {
	if s.dropClient(cl) {
		cl.end()
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
			id := string(m.Data)
			s.drop(id)
			if cl := s.client(id); cl != nil {
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
