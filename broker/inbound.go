package broker

import (
	"bytes"
	"context"

	"inflight/broker/packet"
	"inflight/broker/store"
)

// handle takes one packet.
func (c *conn) handle(f packet.Frame) error {
	switch t := f.Type(); t {
	case packet.PUBLISH:
		p, err := c.codec.ParsePublish(f)
		if err != nil {
			return err
		}
		return c.publish(&p)
	case packet.PUBREL, packet.PUBACK, packet.PUBREC, packet.PUBCOMP:
		a, err := c.codec.ParseAck(f)
		if err != nil {
			return err
		}
		return c.acknowledgement(t, a.ID, a.Code)
	case packet.SUBSCRIBE:
		p, err := c.codec.ParseSubscribe(f)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.srv.cfg.StoreTimeout)
		defer cancel()
		codes, err := c.client.grant(ctx, c, &p)
		if err != nil {
			return err
		}
		c.reply(func(b []byte) []byte { return c.codec.AppendSuback(b, &packet.Suback{ID: p.ID, Codes: codes}) })
		c.client.sendRetained()
	case packet.UNSUBSCRIBE:
		p, err := c.codec.ParseUnsubscribe(f)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.srv.cfg.StoreTimeout)
		defer cancel()
		codes := make([]packet.ReasonCode, len(p.Filters))
		for i, filter := range p.Filters {
			known, err := c.client.unsubscribe(ctx, filter)
			if err != nil {
				return err
			}
			if !known {
				codes[i] = packet.NoSubscriptionExisted
			}
		}
		if err := c.client.persist(ctx); err != nil {
			return err
		}
		c.reply(func(b []byte) []byte { return c.codec.AppendUnsuback(b, &packet.Suback{ID: p.ID, Codes: codes}) })
	case packet.PINGREQ:
		if err := c.codec.ParseEmpty(f); err != nil {
			return err
		}
		c.reply(func(b []byte) []byte { return packet.AppendEmpty(b, packet.PINGRESP) })
	case packet.DISCONNECT:
		p, err := c.codec.ParseDisconnect(f)
		if err != nil {
			return err
		}
		return c.disconnect(&p)
	default:
		// A second CONNECT included [MQTT-3.1.0-2], and an AUTH, because no method was agreed on [MQTT-4.12.0-5].
		return &packet.Error{Type: t, Reason: "not for a client to send here", Code: packet.ProtocolError}
	}
	return nil
}

func (c *conn) reply(add func([]byte) []byte) {
	c.client.mu.Lock()
	c.out = add(c.out)
	c.client.mu.Unlock()
	c.signal()
}

// publish takes a PUBLISH. The bytes of p are the reader's; what is kept is copied.
func (c *conn) publish(p *packet.Publish) error {
	if p.Properties != nil {
		if err := c.resolveAlias(p); err != nil {
			return err
		}
	}
	refused := c.mayPublish(p.Topic)
	if refused != nil && c.codec.Version != packet.V5 {
		return refused
	}
	if p.QoS == 0 {
		if refused != nil {
			return nil // it is dropped: no packet could say so
		}
		return c.srv.store.Transient(c.newMessage(p))
	}
	cl := c.client
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if c.receiveMaximum > 0 && c.recv.Over(p.ID, p.QoS, c.receiveMaximum) {
		return errReceiveMaximum
	}
	c.awaitRoom()
	if refused != nil {
		c.recv.Refuse(p.ID, p.QoS, packet.NotAuthorized)
		return c.settleRead()
	}
	var m *store.Message
	if p.QoS == 1 || !c.recv.Known(p.ID) {
		m = c.newMessage(p)
	}
	c.start(c.recv.Publish(p.ID, p.QoS, m))
	return c.settleRead()
}

// acknowledgement takes a PUBREL of the client's own publication, or an answer to what the broker sent.
func (c *conn) acknowledgement(t packet.Type, id uint16, code packet.ReasonCode) error {
	cl := c.client
	cl.mu.Lock()
	defer cl.mu.Unlock()
	var err error
	switch t {
	case packet.PUBREL:
		c.awaitRoom()
		c.start(c.recv.Pubrel(id))
		return c.settleRead()
	case packet.PUBACK:
		err = cl.sender.Puback(id)
		cl.recordLater()
	case packet.PUBREC:
		if code.Failed() {
			err = cl.sender.Refused(id)
			cl.recordLater()
			break
		}
		err = cl.pubrec(c, id)
	case packet.PUBCOMP:
		err = cl.sender.Pubcomp(id)
		cl.recordLater()
	}
	cl.more(c)
	cl.wake.Broadcast() // a feed may have waited for the window
	return err
}

func (c *conn) newMessage(p *packet.Publish) *store.Message {
	if string(p.Topic) != c.topic {
		c.topic = string(p.Topic)
	}
	m := &store.Message{Topic: c.topic, Payload: bytes.Clone(p.Payload), QoS: p.QoS, Retain: p.Retain}
	if c.codec.Version == packet.V5 {
		c.complete(m, p.Properties)
	}
	return m
}
