package packet

import (
	"encoding/binary"
	"fmt"
)

// Property is the identifier of a property of MQTT 5.0, table 2-4.
type Property byte

// The properties.
const (
	PropPayloadFormat         Property = 1
	PropMessageExpiry         Property = 2
	PropContentType           Property = 3
	PropResponseTopic         Property = 8
	PropCorrelationData       Property = 9
	PropSubscriptionID        Property = 11
	PropSessionExpiry         Property = 17
	PropAssignedClientID      Property = 18
	PropServerKeepAlive       Property = 19
	PropAuthMethod            Property = 21
	PropAuthData              Property = 22
	PropRequestProblemInfo    Property = 23
	PropWillDelay             Property = 24
	PropRequestResponseInfo   Property = 25
	PropResponseInfo          Property = 26
	PropServerReference       Property = 28
	PropReasonString          Property = 31
	PropReceiveMaximum        Property = 33
	PropTopicAliasMaximum     Property = 34
	PropTopicAlias            Property = 35
	PropMaximumQoS            Property = 36
	PropRetainAvailable       Property = 37
	PropUser                  Property = 38
	PropMaximumPacketSize     Property = 39
	PropWildcardAvailable     Property = 40
	PropSubscriptionIDsAvail  Property = 41
	PropSharedSubscriptsAvail Property = 42
)

const (
	will         Type    = 0 // the Will Properties, in a [typeSet]
	onMessage    typeSet = 1<<PUBLISH | 1<<will
	onHandshake  typeSet = 1<<CONNECT | 1<<CONNACK
	everyPacket  typeSet = 0xFFFF &^ (1<<PINGREQ | 1<<PINGRESP)
	everyOutcome typeSet = onConnack | onReceipt | onRelease | onSuback | onUnsub | onEnd | onAuth
)

// properties is table 2-4: the name, and the packets that may have the property. An empty name is no property.
var properties = [...]struct {
	name string
	in   typeSet
}{
	PropPayloadFormat:         {"Payload Format Indicator", onMessage},
	PropMessageExpiry:         {"Message Expiry Interval", onMessage},
	PropContentType:           {"Content Type", onMessage},
	PropResponseTopic:         {"Response Topic", onMessage},
	PropCorrelationData:       {"Correlation Data", onMessage},
	PropSubscriptionID:        {"Subscription Identifier", 1<<PUBLISH | 1<<SUBSCRIBE},
	PropSessionExpiry:         {"Session Expiry Interval", onHandshake | onEnd},
	PropAssignedClientID:      {"Assigned Client Identifier", onConnack},
	PropServerKeepAlive:       {"Server Keep Alive", onConnack},
	PropAuthMethod:            {"Authentication Method", onHandshake | onAuth},
	PropAuthData:              {"Authentication Data", onHandshake | onAuth},
	PropRequestProblemInfo:    {"Request Problem Information", 1 << CONNECT},
	PropWillDelay:             {"Will Delay Interval", 1 << will},
	PropRequestResponseInfo:   {"Request Response Information", 1 << CONNECT},
	PropResponseInfo:          {"Response Information", onConnack},
	PropServerReference:       {"Server Reference", onConnack | onEnd},
	PropReasonString:          {"Reason String", everyOutcome},
	PropReceiveMaximum:        {"Receive Maximum", onHandshake},
	PropTopicAliasMaximum:     {"Topic Alias Maximum", onHandshake},
	PropTopicAlias:            {"Topic Alias", 1 << PUBLISH},
	PropMaximumQoS:            {"Maximum QoS", onConnack},
	PropRetainAvailable:       {"Retain Available", onConnack},
	PropUser:                  {"User Property", everyPacket},
	PropMaximumPacketSize:     {"Maximum Packet Size", onHandshake},
	PropWildcardAvailable:     {"Wildcard Subscription Available", onConnack},
	PropSubscriptionIDsAvail:  {"Subscription Identifiers Available", onConnack},
	PropSharedSubscriptsAvail: {"Shared Subscription Available", onConnack},
}

// Known reports whether the specification has the property at all.
func (p Property) Known() bool { return int(p) < len(properties) && properties[p].name != "" }

// String is the specification's name of the property.
func (p Property) String() string {
	if !p.Known() {
		return fmt.Sprintf("property 0x%02X", byte(p))
	}
	return properties[p].name
}

// Opt is a value that may be absent.
type Opt[T any] struct {
	Value T
	Set   bool
}

// Some is a value that is there.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, Set: true} }

// Or is the value, or absent if there is none.
func (o Opt[T]) Or(absent T) T {
	if o.Set {
		return o.Value
	}
	return absent
}

// UserProperty is a name and a value; the same name may appear more than once.
type UserProperty struct{ Key, Value []byte }

// Properties are the properties of any packet of MQTT 5.0, or of a Will. A nil *Properties has none. Absent are an [Opt]
// that is not Set, a nil slice of bytes (an empty one is there and empty), and no elements.
//
// Encoding writes whatever is present, in a fixed order, whether or not the packet may have it. How long the bytes of
// decoded properties live is said at each decoder; [Properties.Clone] keeps them.
type Properties struct {
	PayloadFormat         Opt[byte]   // 1: the payload is UTF-8
	MessageExpiry         Opt[uint32] // seconds
	SessionExpiry         Opt[uint32] // seconds; 0xFFFFFFFF: never
	WillDelay             Opt[uint32] // seconds
	MaximumPacketSize     Opt[uint32] // bytes, fixed header included; never 0
	ServerKeepAlive       Opt[uint16] // seconds
	ReceiveMaximum        Opt[uint16] // never 0; absent: 65,535
	TopicAliasMaximum     Opt[uint16] // absent: 0
	TopicAlias            Opt[uint16] // never 0
	MaximumQoS            Opt[byte]   // 0 or 1; absent: 2
	RetainAvailable       Opt[byte]   // 0 or 1; absent: 1, as for the next three
	WildcardAvailable     Opt[byte]
	SubscriptionIDsAvail  Opt[byte]
	SharedSubscriptsAvail Opt[byte]
	RequestProblemInfo    Opt[byte] // 0 or 1; absent: 1
	RequestResponseInfo   Opt[byte] // 0 or 1; absent: 0

	ContentType      []byte
	ResponseTopic    []byte
	CorrelationData  []byte // binary
	AssignedClientID []byte
	AuthMethod       []byte
	AuthData         []byte // binary
	ResponseInfo     []byte
	ServerReference  []byte
	ReasonString     []byte

	// SubscriptionIDs has at most one element in a SUBSCRIBE; each is 1 to 268,435,455.
	SubscriptionIDs []uint32
	// User has the user properties in their order on the wire [MQTT-3.3.2-18].
	User []UserProperty
}

// Clone copies p with everything that it has views of; nil stays nil.
func (p *Properties) Clone() *Properties {
	if p == nil {
		return nil
	}
	q := *p
	buf := make([]byte, 0, p.size())
	keep := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		start := len(buf)
		buf = append(buf, b...)
		return buf[start:len(buf):len(buf)]
	}
	for _, b := range []*[]byte{
		&q.ContentType, &q.ResponseTopic, &q.CorrelationData, &q.AssignedClientID, &q.AuthMethod, &q.AuthData,
		&q.ResponseInfo, &q.ServerReference, &q.ReasonString,
	} {
		*b = keep(*b)
	}
	q.SubscriptionIDs = append([]uint32(nil), p.SubscriptionIDs...)
	q.User = make([]UserProperty, 0, len(p.User))
	for _, u := range p.User {
		q.User = append(q.User, UserProperty{keep(u.Key), keep(u.Value)})
	}
	return &q
}

// Empty reports whether there is no property; nil has none.
func (p *Properties) Empty() bool { return p.size() == 0 }

// lengthSize is the number of bytes that a Variable Byte Integer takes.
func lengthSize(n int) int {
	switch {
	case n < 1<<7:
		return 1
	case n < 1<<14:
		return 2
	case n < 1<<21:
		return 3
	}
	return 4
}

// sectionSize is the size of the properties on the wire with their Property Length.
func (p *Properties) sectionSize() int {
	n := p.size()
	return lengthSize(n) + n
}

// size is what Property Length says: the bytes that follow it.
func (p *Properties) size() int {
	if p == nil {
		return 0
	}
	n := 0
	for _, o := range [...]Opt[byte]{
		p.PayloadFormat, p.MaximumQoS, p.RetainAvailable, p.WildcardAvailable, p.SubscriptionIDsAvail,
		p.SharedSubscriptsAvail, p.RequestProblemInfo, p.RequestResponseInfo,
	} {
		if o.Set {
			n += 2
		}
	}
	for _, o := range [...]Opt[uint16]{p.ServerKeepAlive, p.ReceiveMaximum, p.TopicAliasMaximum, p.TopicAlias} {
		if o.Set {
			n += 3
		}
	}
	for _, o := range [...]Opt[uint32]{p.MessageExpiry, p.SessionExpiry, p.WillDelay, p.MaximumPacketSize} {
		if o.Set {
			n += 5
		}
	}
	for _, b := range [...][]byte{
		p.ContentType, p.ResponseTopic, p.CorrelationData, p.AssignedClientID, p.AuthMethod, p.AuthData,
		p.ResponseInfo, p.ServerReference, p.ReasonString,
	} {
		if b != nil {
			n += 3 + len(b)
		}
	}
	for _, id := range p.SubscriptionIDs {
		n += 1 + lengthSize(int(id))
	}
	for _, u := range p.User {
		n += 5 + len(u.Key) + len(u.Value)
	}
	return n
}

// Append appends the properties as a packet has them: the Property Length, 0 where there are none [MQTT-2.2.2-1], and the
// properties.
func (p *Properties) Append(b []byte) []byte {
	n := p.size()
	b = appendLength(b, n)
	if n == 0 {
		return b
	}
	b = appendByte(b, PropPayloadFormat, p.PayloadFormat)
	b = appendUint32(b, PropMessageExpiry, p.MessageExpiry)
	b = appendData(b, PropContentType, p.ContentType)
	b = appendData(b, PropResponseTopic, p.ResponseTopic)
	b = appendData(b, PropCorrelationData, p.CorrelationData)
	for _, id := range p.SubscriptionIDs {
		b = appendLength(append(b, byte(PropSubscriptionID)), int(id))
	}
	b = appendUint32(b, PropSessionExpiry, p.SessionExpiry)
	b = appendData(b, PropAssignedClientID, p.AssignedClientID)
	b = appendUint16(b, PropServerKeepAlive, p.ServerKeepAlive)
	b = appendData(b, PropAuthMethod, p.AuthMethod)
	b = appendData(b, PropAuthData, p.AuthData)
	b = appendByte(b, PropRequestProblemInfo, p.RequestProblemInfo)
	b = appendUint32(b, PropWillDelay, p.WillDelay)
	b = appendByte(b, PropRequestResponseInfo, p.RequestResponseInfo)
	b = appendData(b, PropResponseInfo, p.ResponseInfo)
	b = appendData(b, PropServerReference, p.ServerReference)
	b = appendData(b, PropReasonString, p.ReasonString)
	b = appendUint16(b, PropReceiveMaximum, p.ReceiveMaximum)
	b = appendUint16(b, PropTopicAliasMaximum, p.TopicAliasMaximum)
	b = appendUint16(b, PropTopicAlias, p.TopicAlias)
	b = appendByte(b, PropMaximumQoS, p.MaximumQoS)
	b = appendByte(b, PropRetainAvailable, p.RetainAvailable)
	b = appendUint32(b, PropMaximumPacketSize, p.MaximumPacketSize)
	b = appendByte(b, PropWildcardAvailable, p.WildcardAvailable)
	b = appendByte(b, PropSubscriptionIDsAvail, p.SubscriptionIDsAvail)
	b = appendByte(b, PropSharedSubscriptsAvail, p.SharedSubscriptsAvail)
	for _, u := range p.User {
		b = appendString(append(b, byte(PropUser)), u.Key)
		b = appendString(b, u.Value)
	}
	return b
}

func appendByte(b []byte, id Property, o Opt[byte]) []byte {
	if o.Set {
		b = append(b, byte(id), o.Value)
	}
	return b
}

func appendUint16(b []byte, id Property, o Opt[uint16]) []byte {
	if o.Set {
		b = binary.BigEndian.AppendUint16(append(b, byte(id)), o.Value)
	}
	return b
}

func appendUint32(b []byte, id Property, o Opt[uint32]) []byte {
	if o.Set {
		b = binary.BigEndian.AppendUint32(append(b, byte(id)), o.Value)
	}
	return b
}

func appendData(b []byte, id Property, data []byte) []byte {
	if data != nil {
		b = appendString(append(b, byte(id)), data)
	}
	return b
}
