package packet

import (
	"bytes"

	"github.com/eclipse/paho.golang/packets"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// agree5 compares this codec with an independent one of MQTT 5.0 in both directions, as agree does for 3.1.1. The other
// writes properties in another order, and none that is empty; so what it writes is compared as what it means.
func agree5(t tb, raw []byte, from Role) {
	t.Helper()
	text, _, err := decode5(raw, MaxRemaining, from)
	if err != nil {
		t.Fatalf("% x: %v", clip(raw), err)
	}
	f, _, _, _ := V5.Split(raw, MaxRemaining)
	c := Codec{Version: V5, From: from}
	want, written := toPaho5(&c, f)
	if want == nil || f.Type() == DISCONNECT && len(f.Body) == 0 {
		return // which the other takes for cut short
	}
	got, err := packets.ReadPacket(bytes.NewReader(raw))
	if err != nil {
		t.Errorf("% x\n%s\npaho: %v", clip(raw), text, err)
		return
	}
	if diff := cmp.Diff(want, got.Content, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("% x\n%s (-this +paho):\n%s", clip(raw), text, diff)
	}
	if written == "" {
		return
	}
	var out bytes.Buffer
	if _, err := want.WriteTo(&out); err != nil {
		t.Fatalf("paho cannot write %v: %v", want, err)
	}
	if back, _, err := decode5(out.Bytes(), MaxRemaining, from); back != written || err != nil {
		t.Errorf("paho wrote % x\ngot  %s, %v\nwant %s", clip(out.Bytes()), back, err, written)
	}
}

func ptr[T, U byte | uint16 | uint32 | int](o Opt[T], as func(T) U) *U {
	if !o.Set {
		return nil
	}
	v := as(o.Value)
	return &v
}

func id[T any](v T) T { return v }

func toPahoProperties(p *Properties) *packets.Properties {
	if p == nil {
		return &packets.Properties{}
	}
	q := &packets.Properties{
		PayloadFormat: ptr(p.PayloadFormat, id), MessageExpiry: ptr(p.MessageExpiry, id), ContentType: string(p.ContentType),
		ResponseTopic: string(p.ResponseTopic), CorrelationData: p.CorrelationData, SessionExpiryInterval: ptr(p.SessionExpiry, id),
		AssignedClientID: string(p.AssignedClientID), ServerKeepAlive: ptr(p.ServerKeepAlive, id), AuthMethod: string(p.AuthMethod),
		AuthData: p.AuthData, RequestProblemInfo: ptr(p.RequestProblemInfo, id), WillDelayInterval: ptr(p.WillDelay, id),
		RequestResponseInfo: ptr(p.RequestResponseInfo, id), ResponseInfo: string(p.ResponseInfo),
		ServerReference: string(p.ServerReference), ReasonString: string(p.ReasonString), ReceiveMaximum: ptr(p.ReceiveMaximum, id),
		TopicAliasMaximum: ptr(p.TopicAliasMaximum, id), TopicAlias: ptr(p.TopicAlias, id), MaximumQOS: ptr(p.MaximumQoS, id),
		RetainAvailable: ptr(p.RetainAvailable, id), MaximumPacketSize: ptr(p.MaximumPacketSize, id),
		WildcardSubAvailable: ptr(p.WildcardAvailable, id), SubIDAvailable: ptr(p.SubscriptionIDsAvail, id),
		SharedSubAvailable: ptr(p.SharedSubscriptsAvail, id),
	}
	for _, n := range p.SubscriptionIDs { // it keeps the last one
		last := int(n)
		q.SubscriptionIdentifier = &last
	}
	for _, u := range p.User {
		q.User = append(q.User, packets.User{Key: string(u.Key), Value: string(u.Value)})
	}
	return q
}

// pahoWrites is what of p comes through the other's encoder.
func pahoWrites(p *Properties) *Properties {
	if p == nil {
		return nil
	}
	q := *p
	for _, b := range []*[]byte{
		&q.ContentType, &q.CorrelationData, &q.AssignedClientID, &q.AuthData, &q.ResponseInfo, &q.ServerReference, &q.ReasonString,
		&q.AuthMethod,
	} {
		if len(*b) == 0 {
			*b = nil
		}
	}
	if n := len(q.SubscriptionIDs); n > 1 {
		q.SubscriptionIDs = q.SubscriptionIDs[n-1:]
	}
	return &q
}

// toPaho5 is the packet in the other codec's types, and what that codec's encoding of it must decode to: "" where it
// cannot write the packet.
func toPaho5(c *Codec, f Frame) (p packets.Packet, written string) {
	text := func(again []byte) string {
		s, _, err := decode5(again, MaxRemaining, c.From)
		if err != nil {
			return ""
		}
		return s
	}
	switch t := f.Type(); t {
	case CONNECT:
		m, _ := c.ParseConnect(f)
		q := &packets.Connect{
			ProtocolName: m.Protocol, ProtocolVersion: m.Level, CleanStart: m.CleanSession, KeepAlive: m.KeepAlive, ClientID: m.ClientID,
			UsernameFlag: m.HasUsername, Username: m.Username, PasswordFlag: m.HasPassword, Password: m.Password,
			Properties: toPahoProperties(m.Properties),
		}
		if m.Level != Level5 {
			return nil, ""
		}
		if w := m.Will; w != nil {
			q.WillFlag, q.WillQOS, q.WillRetain, q.WillTopic, q.WillMessage = true, w.QoS, w.Retain, w.Topic, w.Payload
			q.WillProperties = toPahoProperties(w.Properties)
			if w.Properties != nil { // of the Will's it writes only these
				w.Properties = &Properties{WillDelay: w.Properties.WillDelay, User: w.Properties.User}
			}
		}
		m.Properties = pahoWrites(m.Properties)
		return q, text(V5.AppendConnect(nil, &m))
	case CONNACK:
		m, _ := c.ParseConnack(f)
		q := &packets.Connack{SessionPresent: m.SessionPresent, ReasonCode: byte(m.Code), Properties: toPahoProperties(m.Properties)}
		m.Properties = pahoWrites(m.Properties)
		return q, text(V5.AppendConnack(nil, &m))
	case PUBLISH:
		m, _ := c.ParsePublish(f)
		q := &packets.Publish{
			Topic: string(m.Topic), Payload: m.Payload, PacketID: m.ID, QoS: m.QoS, Duplicate: m.Dup, Retain: m.Retain,
			Properties: toPahoProperties(m.Properties),
		}
		m.Properties = pahoWrites(m.Properties)
		return q, text(V5.AppendPublish(nil, &m))
	case SUBSCRIBE:
		m, _ := c.ParseSubscribe(f)
		q := &packets.Subscribe{PacketID: m.ID, Properties: toPahoProperties(m.Properties)}
		for _, s := range m.Subscriptions {
			q.Subscriptions = append(q.Subscriptions, packets.SubOptions{
				Topic: s.Filter, QoS: s.QoS, NoLocal: s.NoLocal, RetainAsPublished: s.RetainAsPublished, RetainHandling: s.RetainHandling,
			})
		}
		m.Properties = pahoWrites(m.Properties)
		return q, text(V5.AppendSubscribe(nil, &m))
	case SUBACK, UNSUBACK:
		m, _ := c.ParseSuback(f)
		var reasons []byte
		for _, code := range m.Codes {
			reasons = append(reasons, byte(code))
		}
		properties := toPahoProperties(m.Properties)
		m.Properties = pahoWrites(m.Properties)
		if t == SUBACK {
			return &packets.Suback{PacketID: m.ID, Reasons: reasons, Properties: properties}, text(V5.AppendSuback(nil, &m))
		}
		return &packets.Unsuback{PacketID: m.ID, Reasons: reasons, Properties: properties}, text(V5.AppendUnsuback(nil, &m))
	case UNSUBSCRIBE:
		m, _ := c.ParseUnsubscribe(f)
		q := &packets.Unsubscribe{PacketID: m.ID, Topics: m.Filters, Properties: toPahoProperties(m.Properties)}
		m.Properties = pahoWrites(m.Properties)
		return q, text(V5.AppendUnsubscribe(nil, &m))
	case DISCONNECT, AUTH:
		parse, add := c.ParseDisconnect, V5.AppendDisconnect
		if t == AUTH {
			parse, add = c.ParseAuth, V5.AppendAuth
		}
		m, _ := parse(f)
		properties := toPahoProperties(m.Properties)
		m.Properties = pahoWrites(m.Properties)
		written = text(add(nil, &m))
		if t == DISCONNECT {
			return &packets.Disconnect{ReasonCode: byte(m.Code), Properties: properties}, written
		}
		if m.Properties == nil {
			written = "" // it writes a Property Length of 0 without the Authentication Method
		}
		return &packets.Auth{ReasonCode: byte(m.Code), Properties: properties}, written
	case PINGREQ:
		return &packets.Pingreq{}, "PINGREQ"
	case PINGRESP:
		return &packets.Pingresp{}, "PINGRESP"
	default:
		a, _ := c.ParseAck(f)
		properties := toPahoProperties(a.Properties)
		a.Properties = pahoWrites(a.Properties)
		written = text(V5.AppendAck(nil, t, a))
		switch t {
		case PUBACK:
			return &packets.Puback{PacketID: a.ID, ReasonCode: byte(a.Code), Properties: properties}, written
		case PUBREC:
			return &packets.Pubrec{PacketID: a.ID, ReasonCode: byte(a.Code), Properties: properties}, written
		case PUBREL:
			return &packets.Pubrel{PacketID: a.ID, ReasonCode: byte(a.Code), Properties: properties}, written
		default:
			return &packets.Pubcomp{PacketID: a.ID, ReasonCode: byte(a.Code), Properties: properties}, written
		}
	}
}
