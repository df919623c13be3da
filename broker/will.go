package broker

import (
	"time"

	"inflight/broker/packet"
	"inflight/broker/store"
)

// publishWill publishes the Will Message of a connection that ended without a DISCONNECT [MQTT-3.1.2-8], or sees to it
// that it is published once its delay has passed or the session ends, whatever comes first [MQTT-3.1.3-9].
func (c *conn) publishWill() {
	if c.will == nil || !c.rights().CanPublish(c.will.Topic) {
		return
	}
	m := &store.Message{Topic: c.will.Topic, Payload: c.will.Payload, QoS: c.will.QoS, Retain: c.will.Retain}
	if c.codec.Version == packet.V5 {
		c.complete(m, c.will.Properties)
	}
	cl := c.client
	if p := c.will.Properties; p != nil && p.WillDelay.Or(0) > 0 {
		cl.mu.Lock()
		if cl.expiry > 0 && !cl.ended {
			defer cl.mu.Unlock()
			delay := time.Duration(min(p.WillDelay.Value, cl.expiry)) * time.Second
			cl.will, cl.willSince = m, time.Now()
			cl.willTimer = time.AfterFunc(delay, func() { cl.lateWill(m) })
			return
		}
		cl.mu.Unlock()
	}
	cl.srv.publishWill(cl.id, m)
}

// lateWill publishes a will whose delay is over, unless the session was resumed meanwhile.
func (cl *client) lateWill(m *store.Message) {
	cl.mu.Lock()
	due := cl.will == m
	if due {
		cl.takeWill()
	}
	cl.mu.Unlock()
	if due {
		cl.srv.publishWill(cl.id, m)
	}
}

// takeWill returns the will that waits for its delay, which is then the caller's to publish or to drop. A Message Expiry
// Interval of its own begins with the publication, section 3.1.3.2.4. cl.mu is held.
func (cl *client) takeWill() *store.Message {
	m := cl.will
	cl.will = nil
	if m != nil && m.Expires != 0 {
		m.Expires += time.Since(cl.willSince).Milliseconds()
	}
	if cl.willTimer != nil {
		cl.willTimer.Stop()
		cl.willTimer = nil
	}
	return m
}

// endWill publishes the will that waits for its delay: the session ends.
func (cl *client) endWill() {
	cl.mu.Lock()
	m := cl.takeWill()
	cl.mu.Unlock()
	if m != nil {
		cl.srv.publishWill(cl.id, m)
	}
}

func (s *Server) publishWill(id string, m *store.Message) {
	if m.QoS == 0 {
		_ = s.store.Transient(m)
		return
	}
	s.store.Publish(m, func(_ store.Ref, err error) {
		if err != nil {
			s.log.Warn("will", "client", id, "error", err)
		}
	})
}
