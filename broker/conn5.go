package broker

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"inflight/broker/packet"
	"inflight/broker/session"
	"inflight/broker/store"
)

// topicAliases is the Topic Alias Maximum that clients are told: a topic of up to 64 KiB is kept for each.
const topicAliases = 64

// neverExpires is the Session Expiry Interval of a session that is kept, section 3.1.2.11.2.
const neverExpires = math.MaxUint32

// goodbyeTime bounds how long a DISCONNECT may take to leave, and a client to go after it.
const goodbyeTime = 500 * time.Millisecond

// conn5 is what a connection has for MQTT 5.0. The codec is the reader's; its Version is set before the session is
// attached and does not change after that.
type conn5 struct {
	codec    packet.Codec
	assigned bool   // the Client Identifier is the broker's
	expiry   uint32 // Session Expiry Interval, granted; what MQTT 3.1.1 asks for in its own words
	link     session.Link
	aliases  [][]byte // by Topic Alias - 1; the reader's

	receiveMaximum  int // that the client was told; 0: none
	serverKeepAlive packet.Opt[uint16]
	sessionExpiry   packet.Opt[uint32] // Session Expiry Interval, if it is another one than the client asked for

	polite  atomic.Bool // a DISCONNECT is due at the end
	greetMu sync.Mutex  // held while the CONNACK is written
	greeted bool        // it is out: a DISCONNECT may follow [MQTT-3.14.0-1]; the writer's, and under greetMu until it is set
	parting atomic.Bool // the DISCONNECT is on its way; nothing is handled any more
	goodbye chan struct{}
}

// Why a connection was closed.
var (
	errWithWill       = errors.New("client disconnected and wants its will published")
	errReceiveMaximum = &packet.Error{
		Type: packet.PUBLISH, Statement: "MQTT-3.3.4-7", Code: packet.ReceiveMaximumExceeded,
		Reason: "more publications are outstanding than the CONNACK allows",
	}
)

// negotiate takes from a CONNECT what the connection and its session are to be.
func (c *conn) negotiate(p *packet.Connect) (packet.ReasonCode, error) {
	c.link.Version = c.codec.Version
	if c.codec.Version != packet.V5 {
		if !p.CleanSession {
			c.expiry = c.srv.cfg.limitExpiry(neverExpires)
		}
		return packet.Success, nil
	}
	c.limitKeepAlive(p)
	c.receiveMaximum = min(c.srv.cfg.Window, math.MaxUint16)
	q := p.Properties
	if q == nil {
		return packet.Success, nil
	}
	if q.AuthMethod != nil {
		return packet.BadAuthenticationMethod, fmt.Errorf("authentication method %.40q is not supported [MQTT-4.12.0-1]", q.AuthMethod)
	}
	c.expiry = c.srv.cfg.limitExpiry(q.SessionExpiry.Or(0))
	if c.expiry != q.SessionExpiry.Or(0) {
		c.sessionExpiry = packet.Some(c.expiry)
	}
	c.link.TopicAliases = int(q.TopicAliasMaximum.Or(0))
	c.link.ReceiveMaximum = int(q.ReceiveMaximum.Or(math.MaxUint16))
	if q.MaximumPacketSize.Set {
		c.link.MaximumPacket = int(min(q.MaximumPacketSize.Value, math.MaxInt32))
	}
	return packet.Success, nil
}

// connack is the answer to a CONNECT that is accepted.
func (c *conn) connack(present bool) *packet.Connack {
	p := &packet.Connack{SessionPresent: present}
	if c.codec.Version != packet.V5 {
		return p
	}
	p.Properties = &packet.Properties{
		// A packet of that size fits the limit of the Remaining Length whatever its own length takes.
		MaximumPacketSize: packet.Some(uint32(c.srv.cfg.MaxPacket) + 2),
		TopicAliasMaximum: packet.Some[uint16](topicAliases),
		ServerKeepAlive:   c.serverKeepAlive, // [MQTT-3.2.2-21]
		SessionExpiry:     c.sessionExpiry,   // section 3.2.2.3.2
		// What is not said is available: QoS 2, retained messages, wildcards, Subscription Identifiers, Shared Subscriptions.
	}
	if c.receiveMaximum < math.MaxUint16 {
		p.Properties.ReceiveMaximum = packet.Some(uint16(c.receiveMaximum))
	}
	if c.assigned {
		p.Properties.AssignedClientID = []byte(c.client.id) // [MQTT-3.2.2-16]
	}
	return p
}

// unknown answers a PUBREL for an unknown Packet Identifier.
func (c *conn) unknown() packet.ReasonCode {
	if c.codec.Version == packet.V5 {
		return packet.PacketIdentifierNotFound
	}
	return packet.Success
}

// disconnect takes a DISCONNECT and says why the connection ends. Any Reason Code but 0 publishes the will
// [MQTT-3.14.4-3].
func (c *conn) disconnect(p *packet.Disconnect) error {
	if p.Properties != nil && p.Properties.SessionExpiry.Set {
		expiry := p.Properties.SessionExpiry.Value
		if c.expiry == 0 && expiry != 0 {
			return &packet.Error{
				Type: packet.DISCONNECT, Code: packet.ProtocolError,
				Reason: "a Session Expiry Interval for a session that ends with its connection",
			}
		}
		c.client.mu.Lock()
		c.client.expiry = c.srv.cfg.limitExpiry(expiry) // which the client cannot be told any more
		c.client.mu.Unlock()
	}
	if p.Code != packet.NormalDisconnection {
		return errWithWill
	}
	return errDisconnect
}

// resolveAlias sets, or is replaced by, what the Topic Alias of a PUBLISH stands for.
func (c *conn) resolveAlias(p *packet.Publish) error {
	if !p.Properties.TopicAlias.Set {
		return nil
	}
	alias := int(p.Properties.TopicAlias.Value)
	if alias == 0 || alias > topicAliases {
		return &packet.Error{
			Type: packet.PUBLISH, Statement: "MQTT-3.3.2-9", Code: packet.TopicAliasInvalid,
			Reason: fmt.Sprintf("Topic Alias %d is above the maximum of %d", alias, topicAliases),
		}
	}
	if len(p.Topic) > 0 {
		if c.aliases == nil {
			c.aliases = make([][]byte, topicAliases)
		}
		c.aliases[alias-1] = append(c.aliases[alias-1][:0], p.Topic...)
		return nil
	}
	if c.aliases == nil || len(c.aliases[alias-1]) == 0 {
		return &packet.Error{
			Type: packet.PUBLISH, Code: packet.ProtocolError, Reason: fmt.Sprintf("Topic Alias %d stands for nothing yet", alias),
		}
	}
	p.Topic = c.aliases[alias-1]
	return nil
}

// complete gives a message what MQTT 5.0 adds. Who published it is kept where a subscription with No Local may ask.
func (c *conn) complete(m *store.Message, p *packet.Properties) {
	if c.client.noLocal.Load() || m.Retain {
		m.From = c.client.id
	}
	if p == nil {
		return
	}
	m.Passed = p.Passed()
	if p.MessageExpiry.Set {
		m.Expires = time.Now().UnixMilli() + int64(p.MessageExpiry.Value)*1000
	}
}

// goodbyeCode is the Reason Code for a client whose connection is closed; ok is false where there is nobody, or no need,
// to tell.
func goodbyeCode(why error) (code packet.ReasonCode, ok bool) {
	var malformed *packet.Error
	switch {
	case why == errDisconnect || why == errWithWill:
		return 0, false
	case errors.As(why, &malformed), errors.Is(why, packet.ErrTooLarge):
		return packet.CodeOf(why), true
	case errors.Is(why, errTakenOver):
		return packet.SessionTakenOver, true
	case errors.Is(why, errShutdown):
		return packet.ServerShuttingDown, true
	case errors.Is(why, errRevoked), errors.Is(why, errNotAllowed):
		return packet.NotAuthorized, true
	case errors.Is(why, session.ErrUnexpectedAck):
		return packet.ProtocolError, true
	case errors.Is(why, os.ErrDeadlineExceeded):
		return packet.KeepAliveTimeout, true
	case errors.Is(why, io.EOF), errors.Is(why, io.ErrUnexpectedEOF), errors.Is(why, net.ErrClosed), isNet(why):
		return 0, false
	}
	return packet.UnspecifiedError, true // the store
}

func isNet(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

// sayGoodbye sends a DISCONNECT and closes the network connection, without waiting: whoever closes the connection may be
// another client's. It reports whether it did. What the client still sends is read and thrown away for a moment, because
// a socket that is closed with unread bytes takes back what it sent.
func (c *conn) sayGoodbye(why error) bool {
	code, ok := goodbyeCode(why)
	if !ok {
		return false
	}
	p := packet.Disconnect{Code: code}
	var malformed *packet.Error
	if errors.As(why, &malformed) {
		p.Properties = &packet.Properties{ReasonString: []byte(why.Error())}
	}
	b := packet.V5.AppendDisconnect(nil, &p)
	if limit := c.link.MaximumPacket; limit > 0 && len(b) > limit { // [MQTT-3.14.2-3]
		p.Properties = nil
		b = packet.V5.AppendDisconnect(b[:0], &p)
	}
	c.parting.Store(true)
	half, ok := c.nc.(interface{ CloseWrite() error })
	if ok {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // the reader has nothing to wait for; without halves it would end both
	}
	end := time.AfterFunc(2*goodbyeTime, func() { _ = c.nc.Close() })
	go func() {
		defer close(c.goodbye)
		defer c.nc.Close()
		defer end.Stop()
		_ = c.nc.SetWriteDeadline(time.Now().Add(goodbyeTime))
		c.greetMu.Lock()
		greeted := c.greeted
		c.greetMu.Unlock()
		if !greeted {
			return
		}
		if _, err := c.nc.Write(b); err != nil {
			return
		}
		c.srv.metrics.out.packet(b[0], len(b))
		if !ok || half.CloseWrite() != nil {
			return
		}
		_ = c.nc.SetReadDeadline(time.Now().Add(goodbyeTime))
		_, _ = io.Copy(io.Discard, c.nc)
	}()
	return true
}

// send writes packets, first of all the CONNACK. Only the writer calls it.
func (c *conn) send(b []byte) error {
	if !c.greeted {
		c.greetMu.Lock()
		defer c.greetMu.Unlock()
	}
	_, err := c.nc.Write(b)
	if err == nil && !c.greeted {
		c.greeted = true
	}
	return err
}

// gone waits until the network connection is closed.
func (c *conn) gone() {
	if c.parting.Load() {
		<-c.goodbye
	}
}
