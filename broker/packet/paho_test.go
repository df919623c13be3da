package packet

import (
	"bytes"
	"fmt"

	"github.com/eclipse/paho.mqtt.golang/packets"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// tb is what *testing.T and *rapid.T share.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// agree compares this codec with an independent one in both directions. raw is one packet that this codec accepts, with
// its Remaining Length in the shortest form: the other decodes it to the same fields, and from those fields writes bytes
// that this codec decodes to the same. What the other accepts beyond that is its leniency, and is not compared.
func agree(t tb, raw []byte) {
	t.Helper()
	text, _, err := decode(raw, MaxRemaining)
	if err != nil {
		t.Fatalf("% x: %v", clip(raw), err)
	}
	f, _, _, _ := V311.Split(raw, MaxRemaining)
	want, known := toPaho(f)
	if !known {
		return
	}
	got, err := packets.ReadPacket(bytes.NewReader(raw))
	if err != nil {
		t.Errorf("% x\n%s\npaho: %v", clip(raw), text, err)
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("% x\n%s (-this +paho):\n%s", clip(raw), text, diff)
	}
	var written bytes.Buffer
	if err := want.Write(&written); err != nil {
		t.Fatalf("paho cannot write %v: %v", want, err)
	}
	if back, _, err := decode(written.Bytes(), MaxRemaining); back != text || err != nil {
		t.Errorf("paho wrote % x\ngot  %s, %v\nwant %s", clip(written.Bytes()), back, err, text)
	}
	if !bytes.Equal(written.Bytes(), raw) {
		t.Errorf("%s\nthis % x\npaho % x", text, clip(raw), clip(written.Bytes()))
	}
}

// toPaho is the packet in the other codec's types; known is false for what it does not represent.
func toPaho(f Frame) (p packets.ControlPacket, known bool) {
	header := packets.FixedHeader{
		MessageType: byte(f.Type()), Dup: f.Header&8 != 0, Qos: f.Header >> 1 & 3, Retain: f.Header&1 != 0,
		RemainingLength: len(f.Body),
	}
	switch f.Type() {
	case CONNECT:
		c, _ := ParseConnect(f)
		p := &packets.ConnectPacket{
			FixedHeader: header, ProtocolName: c.Protocol, ProtocolVersion: c.Level, CleanSession: c.CleanSession,
			Keepalive: c.KeepAlive, ClientIdentifier: c.ClientID,
			UsernameFlag: c.HasUsername, Username: c.Username, PasswordFlag: c.HasPassword, Password: c.Password,
		}
		if w := c.Will; w != nil {
			p.WillFlag, p.WillQos, p.WillRetain, p.WillTopic, p.WillMessage = true, w.QoS, w.Retain, w.Topic, w.Payload
		}
		return p, c.Level == Level311
	case CONNACK:
		sp, code, _ := ParseConnack(f)
		return &packets.ConnackPacket{FixedHeader: header, SessionPresent: sp, ReturnCode: code}, true
	case PUBLISH:
		c, _ := ParsePublish(f)
		return &packets.PublishPacket{FixedHeader: header, TopicName: string(c.Topic), MessageID: c.ID, Payload: c.Payload}, true
	case SUBSCRIBE:
		c, _ := ParseSubscribe(f)
		p := &packets.SubscribePacket{FixedHeader: header, MessageID: c.ID}
		for _, s := range c.Subscriptions {
			p.Topics, p.Qoss = append(p.Topics, s.Filter), append(p.Qoss, s.QoS)
		}
		return p, true
	case SUBACK:
		id, codes, _ := ParseSuback(f)
		return &packets.SubackPacket{FixedHeader: header, MessageID: id, ReturnCodes: codes}, true
	case UNSUBSCRIBE:
		c, _ := ParseUnsubscribe(f)
		for _, filter := range c.Filters {
			known = filter != "" // it takes an empty filter for the end
			if !known {
				return nil, false
			}
		}
		return &packets.UnsubscribePacket{FixedHeader: header, MessageID: c.ID, Topics: c.Filters}, true
	case PINGREQ:
		return &packets.PingreqPacket{FixedHeader: header}, true
	case PINGRESP:
		return &packets.PingrespPacket{FixedHeader: header}, true
	case DISCONNECT:
		return &packets.DisconnectPacket{FixedHeader: header}, true
	}
	return ackToPaho(f, header), true
}

func ackToPaho(f Frame, header packets.FixedHeader) packets.ControlPacket {
	id, _ := ParseAck(f)
	switch f.Type() {
	case PUBACK:
		return &packets.PubackPacket{FixedHeader: header, MessageID: id}
	case PUBREC:
		return &packets.PubrecPacket{FixedHeader: header, MessageID: id}
	case PUBREL:
		return &packets.PubrelPacket{FixedHeader: header, MessageID: id}
	case PUBCOMP:
		return &packets.PubcompPacket{FixedHeader: header, MessageID: id}
	case UNSUBACK:
		return &packets.UnsubackPacket{FixedHeader: header, MessageID: id}
	}
	panic(fmt.Sprintf("no acknowledgement: %v", f.Type()))
}
