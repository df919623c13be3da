package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"inflight/broker/packet"
)

// refusedError is a CONNACK with another return code than 0.
type refusedError struct{ code byte }

// Error says what the return code means, table 3.1 of MQTT 3.1.1.
func (e *refusedError) Error() string {
	words := "an unknown reason"
	switch e.code {
	case packet.RefusedLevel:
		words = "MQTT 3.1.1 is not accepted"
	case packet.RefusedIdentifier:
		words = "the client identifier is not accepted"
	case packet.RefusedUnavailable:
		words = "the broker is unavailable"
	case packet.RefusedCredentials:
		words = "bad user name or password"
	case packet.RefusedUnauthorized:
		words = "not authorized"
	}
	return fmt.Sprintf("it refuses the connection: %s (CONNACK return code %d)", words, e.code)
}

// permanent reports whether a further attempt would be refused just the same. A broker that starts may be unavailable.
func permanent(err error) bool {
	var refused *refusedError
	return errors.As(err, &refused) && refused.code != packet.RefusedUnavailable
}

// maxProbePacket bounds what a broker can make a probe read, in bytes.
const maxProbePacket = 64 << 10

// probe is a client that does one thing after the other: enough to see that a broker works, not to measure it.
type probe struct {
	conn   net.Conn
	reader *packet.Reader
	forget func() bool // the context
}

// dialProbe connects with a clean session; all that follows ends at the deadline, and when ctx does.
func dialProbe(ctx context.Context, addr, clientID string, deadline time.Time) (*probe, error) {
	dialer := net.Dialer{Deadline: deadline}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p := &probe{conn: conn, reader: packet.NewReader(conn, 512, maxProbePacket)}
	// A deadline in the past ends what is going on, with an error that still says what was waited for.
	p.forget = context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	if err := p.connect(clientID); err != nil {
		p.forget()
		return nil, errors.Join(err, conn.Close())
	}
	return p, nil
}

func (p *probe) connect(clientID string) error {
	err := p.send(packet.AppendConnect(nil, &packet.Connect{ClientID: clientID, CleanSession: true, KeepAlive: 30}))
	if err != nil {
		return err
	}
	f, err := p.await(packet.CONNACK, 0)
	if err != nil {
		return err
	}
	_, code, err := packet.ParseConnack(f)
	if err == nil && code != packet.Accepted {
		err = &refusedError{code}
	}
	return err
}

func (p *probe) send(b []byte) error {
	_, err := p.conn.Write(b)
	return err
}

// await reads up to the next packet of type t, which for an acknowledgement must have Packet Identifier id.
func (p *probe) await(t packet.Type, id uint16) (packet.Frame, error) {
	for {
		f, err := p.reader.Next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return f, fmt.Errorf("no %v in time", t)
		case err != nil:
			return f, fmt.Errorf("no %v: %w", t, err)
		case f.Type() != t:
			continue
		case id == 0:
			return f, nil
		}
		var got uint16
		if t == packet.SUBACK {
			got, _, err = packet.ParseSuback(f)
		} else {
			got, err = packet.ParseAck(f)
		}
		if err != nil {
			return f, err
		}
		if got == id {
			return f, nil
		}
	}
}

// subscribe subscribes to topic at QoS 2.
func (p *probe) subscribe(topic string) error {
	const id = 1
	err := p.send(packet.AppendSubscribe(nil, &packet.Subscribe{ID: id, Subscriptions: []packet.Subscription{{Filter: topic, QoS: 2}}}))
	if err != nil {
		return err
	}
	f, err := p.await(packet.SUBACK, id)
	if err != nil {
		return err
	}
	_, codes, err := packet.ParseSuback(f)
	switch {
	case err != nil:
		return err
	case len(codes) != 1:
		return fmt.Errorf("SUBACK has %d return codes for one Topic Filter", len(codes))
	case codes[0] == packet.SubackFailure:
		return errors.New("the subscription is refused")
	case codes[0] != 2:
		return fmt.Errorf("the subscription at QoS 2 is granted QoS %d only", codes[0])
	}
	return nil
}

// publish sends payload at QoS 2 and completes the exchange.
func (p *probe) publish(topic string, payload []byte) error {
	const id = 2
	err := p.send(packet.AppendPublish(nil, &packet.Publish{Topic: []byte(topic), Payload: payload, ID: id, QoS: 2}))
	if err != nil {
		return err
	}
	if _, err = p.await(packet.PUBREC, id); err != nil {
		return err
	}
	if err = p.send(packet.AppendAck(nil, packet.PUBREL, id)); err != nil {
		return err
	}
	_, err = p.await(packet.PUBCOMP, id)
	return err
}

// receive waits for payload at QoS 2 and completes the receiving side.
func (p *probe) receive(payload []byte) error {
	for {
		f, err := p.await(packet.PUBLISH, 0)
		if err != nil {
			return fmt.Errorf("the delivery: %w", err)
		}
		m, err := packet.ParsePublish(f)
		if err != nil {
			return err
		}
		if !bytes.Equal(m.Payload, payload) {
			continue // nobody's but an earlier attempt's
		}
		if m.QoS != 2 {
			return fmt.Errorf("the message published at QoS 2 is delivered at QoS %d", m.QoS)
		}
		id := m.ID
		if err := p.send(packet.AppendAck(nil, packet.PUBREC, id)); err != nil {
			return err
		}
		if _, err := p.await(packet.PUBREL, id); err != nil {
			return fmt.Errorf("the delivery: %w", err)
		}
		return p.send(packet.AppendAck(nil, packet.PUBCOMP, id))
	}
}

// close says goodbye, so that the broker keeps nothing.
func (p *probe) close() {
	p.send(packet.AppendEmpty(nil, packet.DISCONNECT)) // best effort: the connection may be gone
	p.forget()
	p.conn.Close()
}

// roundTrip subscribes at one address, publishes at QoS 2 at the other (or the same) and completes both sides. Where
// nothing is delivered, the publishing side and the SUBACK are all there is. name tells clients and topics of different
// attempts apart: letters and digits, at most 21.
func roundTrip(ctx context.Context, publishAt, subscribeAt, name string, delivers bool, bound time.Duration) error {
	deadline := time.Now().Add(bound)
	topic, payload := "inflight/ready/"+name, []byte(name)
	subscriber, err := dialProbe(ctx, subscribeAt, name+"s", deadline)
	if err != nil {
		return err
	}
	defer subscriber.close()
	if err := subscriber.subscribe(topic); err != nil {
		return err
	}
	publisher, err := dialProbe(ctx, publishAt, name+"p", deadline)
	if err != nil {
		return err
	}
	defer publisher.close()
	if err := publisher.publish(topic, payload); err != nil {
		return err
	}
	if !delivers {
		return nil
	}
	return subscriber.receive(payload)
}
