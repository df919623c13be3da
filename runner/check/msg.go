package check

import (
	"fmt"
	"strconv"

	"inflight/broker/packet"
)

// Msg is a packet to send. Topics and filters are the script's short names; who sends it puts its own prefix before them.
type Msg struct {
	Type    packet.Type // 0: Raw alone
	QoS     byte
	ID      uint16
	Dup     bool
	Retain  bool
	Topic   string
	Body    string
	Size    int // of the payload at least
	Code    byte
	Props   *packet.Properties
	Subs    []packet.Subscription
	Filters []string
	Connect *Connect

	Raw   []byte                     // instead of a packet
	Edit  func(packet []byte) []byte // what is done to the packet, to make it illegal
	Note  string                     // what is wrong with it, for people
	Exact bool                       // the topic is sent as it is
	Echo  int                        // instead of ID: that of the Echo-th PUBLISH above QoS 0 that the connection received, from 1
}

// Encoding is what a Msg needs to become bytes.
type Encoding struct {
	V      packet.Version
	Topic  func(string) string // a script's topic or filter as it is on the wire
	Client func(string) string // a script's client as a Client Identifier
	Conn   string              // whose CONNECT it is
	Echo   func(k int) uint16  // the identifier of the kth delivery above QoS 0

	Username string
	Password []byte
}

// P is a PUBLISH on topic "t" with DUP 0.
func P(qos byte, id int, body string) Msg {
	return Msg{Type: packet.PUBLISH, QoS: qos, ID: uint16(id), Topic: "t", Body: body}
}

// P0, P1 and P2 are PUBLISH packets of one QoS.
func P0(body string) Msg         { return P(0, 0, body) }
func P1(id int, body string) Msg { return P(1, id, body) }
func P2(id int, body string) Msg { return P(2, id, body) }

// D1 and D2 are the same with DUP 1.
func D1(id int, body string) Msg { return P(1, id, body).dup() }
func D2(id int, body string) Msg { return P(2, id, body).dup() }

// Rel is a PUBREL.
func Rel(id uint16) Msg { return Msg{Type: packet.PUBREL, ID: id} }

// Answer is a PUBACK, PUBREC, PUBREL or PUBCOMP.
func Answer(t packet.Type, id uint16) Msg { return Msg{Type: t, ID: id} }

func (m Msg) dup() Msg { m.Dup = true; return m }

// Reply is an acknowledgement of the kth delivery above QoS 0 of the connection.
func Reply(t packet.Type, k int) Msg { return Msg{Type: t, Echo: k} }

// On returns the message on another topic.
func (m Msg) On(topic string) Msg { m.Topic = topic; return m }

// Retained returns the message with RETAIN.
func (m Msg) Retained() Msg { m.Retain = true; return m }

// With returns the message with properties, which only 5.0 has.
func (m Msg) With(p packet.Properties) Msg { m.Props = &p; return m }

// Wrong returns the message with edited bytes and says what is wrong with them.
func (m Msg) Wrong(note string, edit func([]byte) []byte) Msg { m.Note, m.Edit = note, edit; return m }

// Raw is a sequence of bytes.
func Raw(note string, b ...byte) Msg { return Msg{Raw: b, Note: note} }

// Publishes are n messages with the identifiers and bodies from first on: P(qos, first, "m<first>").
func Publishes(qos byte, first, n int) []Msg {
	var all []Msg
	for id := first; id < first+n; id++ {
		all = append(all, P(qos, id, Body(id)))
	}
	return all
}

// Rels are PUBRELs with the identifiers from first to last.
func Rels(first, last int) []Msg {
	var all []Msg
	for id := first; id <= last; id++ {
		all = append(all, Rel(uint16(id)))
	}
	return all
}

// Body is the body of a numbered message.
func Body(k int) string { return "m" + strconv.Itoa(k) }

// Bodies are those of the messages from first to last.
func Bodies(first, last int) []string {
	var all []string
	for k := first; k <= last; k++ {
		all = append(all, Body(k))
	}
	return all
}

// String is the packet for people.
func (m *Msg) String() string {
	s := ""
	switch {
	case m.Type == 0:
		s = fmt.Sprintf("%d bytes", len(m.Raw))
	case m.Type == packet.PUBLISH:
		letter, id := "P", fmt.Sprint(m.ID)
		if m.Echo != 0 {
			id = fmt.Sprintf("that of delivery %d", m.Echo)
		}
		if m.Dup {
			letter = "D"
		}
		s = fmt.Sprintf("%s%d(", letter, m.QoS)
		if m.QoS > 0 {
			s += id + ", "
		}
		s += m.Body
		if m.Topic != "t" {
			s += fmt.Sprintf(" on %q", m.Topic)
		}
		if m.Retain {
			s += ", RETAIN"
		}
		s += ")"
	case m.Type == packet.SUBSCRIBE:
		s = fmt.Sprintf("SUBSCRIBE(%d", m.ID)
		for _, f := range m.Subs {
			s += fmt.Sprintf(", %s QoS %d", f.Filter, f.QoS)
		}
		s += ")"
	case m.Type == packet.UNSUBSCRIBE:
		s = fmt.Sprintf("UNSUBSCRIBE(%d, %v)", m.ID, m.Filters)
	case m.Type == packet.CONNECT:
		s = "CONNECT(" + m.Connect.text() + ")"
	case m.Echo != 0:
		s = fmt.Sprintf("%v(that of delivery %d)", m.Type, m.Echo)
	case m.ID != 0:
		s = fmt.Sprintf("%v(%d)", m.Type, m.ID)
	default:
		s = m.Type.String()
	}
	if m.Code != 0 {
		s += fmt.Sprintf(" reason 0x%02X", m.Code)
	}
	if m.Note != "" {
		s += " [" + m.Note + "]"
	}
	return s
}

// Payload is the body with what fills it up to Size.
func Payload(body string, size int) []byte {
	b := []byte(body)
	if len(b) >= size {
		return b
	}
	b = append(b, '.')
	for len(b) < size {
		b = append(b, 'x')
	}
	return b
}

// Encode appends the packet's bytes.
func (m Msg) Encode(b []byte, e *Encoding) []byte {
	start := len(b)
	if m.Echo != 0 {
		m.ID = e.Echo(m.Echo)
	}
	v, reason := e.V, packet.ReasonCode(m.Code)
	switch m.Type {
	case 0:
		return append(b, m.Raw...)
	case packet.CONNECT:
		b = m.Connect.encode(b, e)
	case packet.PUBLISH:
		topic := m.Topic
		if !m.Exact && topic != "" {
			topic = e.Topic(topic)
		}
		b = v.AppendPublish(b, &packet.Publish{
			Topic: []byte(topic), Payload: Payload(m.Body, m.Size), ID: m.ID, QoS: m.QoS, Dup: m.Dup, Retain: m.Retain, Properties: m.Props,
		})
	case packet.PUBACK, packet.PUBREC, packet.PUBREL, packet.PUBCOMP:
		b = v.AppendAck(b, m.Type, packet.Ack{ID: m.ID, Code: reason, Properties: m.Props})
	case packet.SUBSCRIBE:
		subs := append([]packet.Subscription(nil), m.Subs...)
		for i := range subs {
			subs[i].Filter = e.Topic(subs[i].Filter)
		}
		b = v.AppendSubscribe(b, &packet.Subscribe{ID: m.ID, Subscriptions: subs, Properties: m.Props})
	case packet.UNSUBSCRIBE:
		var filters []string
		for _, f := range m.Filters {
			filters = append(filters, e.Topic(f))
		}
		b = v.AppendUnsubscribe(b, &packet.Unsubscribe{ID: m.ID, Filters: filters, Properties: m.Props})
	case packet.DISCONNECT:
		b = v.AppendDisconnect(b, &packet.Disconnect{Code: reason, Properties: m.Props})
	case packet.AUTH:
		b = v.AppendAuth(b, &packet.Auth{Code: reason, Properties: m.Props})
	default:
		b = packet.AppendEmpty(b, m.Type)
	}
	if m.Edit != nil {
		b = append(b[:start], m.Edit(append([]byte(nil), b[start:]...))...)
	}
	return b
}

func (o *Connect) encode(b []byte, e *Encoding) []byte {
	p := packet.Connect{
		Level: o.Level, ClientID: e.Client(e.Conn), CleanSession: !o.Kept || o.Fresh, KeepAlive: o.KeepAlive,
		HasUsername: e.Username != "", Username: e.Username, HasPassword: e.Username != "" && e.Password != nil, Password: e.Password,
	}
	if o.Client != nil {
		p.ClientID = *o.Client
	}
	if o.Will != nil {
		p.Will = &packet.Will{Topic: e.Topic(o.Will.Topic), Payload: []byte(o.Will.Body), QoS: o.Will.QoS, Retain: o.Will.Retain}
		if o.Will.Delay > 0 {
			p.Will.Properties = &packet.Properties{WillDelay: packet.Some(o.Will.Delay)}
		}
	}
	props := packet.Properties{}
	if o.Props != nil {
		props = *o.Props
	}
	if o.Kept && !props.SessionExpiry.Set {
		props.SessionExpiry = packet.Some[uint32](sessionExpiry)
	}
	p.Properties = &props
	return e.V.AppendConnect(b, &p)
}
