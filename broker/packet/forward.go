package packet

import "encoding/binary"

// Passed is what a Server passes on of the properties of a PUBLISH or a Will: Payload Format Indicator, Content Type,
// Response Topic, Correlation Data, and the User Properties in their order [MQTT-3.3.2-4] [MQTT-3.3.2-15]
// [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]. They are encoded as they go out again, without
// Property Length, in memory of their own; nil if there are none.
func (p *Properties) Passed() []byte {
	if p == nil {
		return nil
	}
	q := Properties{
		PayloadFormat: p.PayloadFormat, ContentType: p.ContentType, ResponseTopic: p.ResponseTopic,
		CorrelationData: p.CorrelationData, User: p.User,
	}
	n := q.size()
	if n == 0 {
		return nil
	}
	return q.Append(make([]byte, 0, lengthSize(n)+n))[lengthSize(n):]
}

// Forward is a PUBLISH on its way to a subscriber of MQTT 5.0: most of its properties were encoded when it came, so that
// delivering it to many decodes and allocates nothing. Properties of the Publish are ignored.
type Forward struct {
	Publish
	Passed         []byte      // see [Properties.Passed]
	Expiry         Opt[uint32] // Message Expiry Interval that is left, in seconds
	SubscriptionID uint32      // Subscription Identifier; 0: none
	TopicAlias     uint16      // 0: none; with it Topic may be empty
}

func (f *Forward) properties() int {
	n := len(f.Passed)
	if f.Expiry.Set {
		n += 5
	}
	if f.SubscriptionID > 0 {
		n += 1 + lengthSize(int(f.SubscriptionID))
	}
	if f.TopicAlias > 0 {
		n += 3
	}
	return n
}

func (f *Forward) remaining() int {
	props := f.properties()
	n := 2 + len(f.Topic) + lengthSize(props) + props + len(f.Payload)
	if f.QoS > 0 {
		n += 2
	}
	return n
}

// Size is the size of the whole packet in bytes, which is what Maximum Packet Size is about.
func (f *Forward) Size() int {
	n := f.remaining()
	return 1 + lengthSize(n) + n
}

// AppendForward appends the packet in the form of MQTT 5.0.
func AppendForward(b []byte, f *Forward) []byte {
	head := byte(PUBLISH)<<4 | f.QoS&3<<1
	if f.Dup {
		head |= 0x08
	}
	if f.Retain {
		head |= 0x01
	}
	b = appendLength(append(b, head), f.remaining())
	b = appendString(b, f.Topic)
	if f.QoS > 0 {
		b = binary.BigEndian.AppendUint16(b, f.ID)
	}
	b = appendLength(b, f.properties())
	b = appendUint32(b, PropMessageExpiry, f.Expiry)
	if f.SubscriptionID > 0 {
		b = appendLength(append(b, byte(PropSubscriptionID)), int(f.SubscriptionID))
	}
	if f.TopicAlias > 0 {
		b = binary.BigEndian.AppendUint16(append(b, byte(PropTopicAlias)), f.TopicAlias)
	}
	b = append(b, f.Passed...)
	return append(b, f.Payload...)
}
