package packet

import (
	"bytes"
	"testing"
)

func TestForward(t *testing.T) {
	full := &Properties{
		PayloadFormat: Some[byte](1), ContentType: []byte("text"), ResponseTopic: []byte("re"), CorrelationData: []byte{0, 1},
		User:       []UserProperty{{[]byte("b"), []byte("1")}, {[]byte("a"), []byte("2")}, {[]byte("b"), []byte("1")}},
		TopicAlias: Some[uint16](3), MessageExpiry: Some[uint32](9),
	}
	for _, tc := range []struct {
		reason string
		props  *Properties
		expiry Opt[uint32]
		id     uint32
		qos    byte
		size   int
	}{
		{"bare, QoS 0", nil, Opt[uint32]{}, 0, 0, 10},
		{"bare, QoS 2", nil, Opt[uint32]{}, 0, 2, 10},
		{"expiry alone", nil, Some[uint32](7), 0, 1, 10},
		{"identifiers of one byte and four", nil, Opt[uint32]{}, 127, 1, 10},
		{"the longest identifier", nil, Opt[uint32]{}, 268_435_455, 1, 10},
		{"everything; the alias and the old expiry stay behind", full, Some[uint32](7), 300, 2, 200},
		{"a long Property Length", &Properties{CorrelationData: make([]byte, 300)}, Opt[uint32]{}, 1, 1, 100},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			f := Forward{
				Publish: Publish{Topic: []byte("a/b"), Payload: make([]byte, tc.size), QoS: tc.qos, Dup: tc.qos > 0, Retain: true},
				Passed:  tc.props.Passed(), Expiry: tc.expiry, SubscriptionID: tc.id,
			}
			want := Publish{Topic: f.Topic, Payload: f.Payload, QoS: f.QoS, Dup: f.Dup, Retain: true, Properties: &Properties{MessageExpiry: tc.expiry}}
			if tc.qos > 0 {
				f.ID, want.ID = 77, 77
			}
			if tc.id > 0 {
				want.Properties.SubscriptionIDs = []uint32{tc.id}
			}
			if p := tc.props; p != nil {
				q := want.Properties
				q.PayloadFormat, q.ContentType, q.ResponseTopic, q.CorrelationData, q.User = p.PayloadFormat, p.ContentType, p.ResponseTopic, p.CorrelationData, p.User
			}
			got := AppendForward(nil, &f)
			if len(got) != f.Size() {
				t.Errorf("%d bytes, Size says %d", len(got), f.Size())
			}
			frame, n, _, err := V5.Split(got, MaxRemaining)
			if err != nil || n != len(got) {
				t.Fatalf("% x: %d, %v", got, n, err)
			}
			c := Codec{Version: V5, From: FromServer}
			parsed, err := c.ParsePublish(frame)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := V5.AppendPublish(nil, &parsed), V5.AppendPublish(nil, &want); !bytes.Equal(a, b) {
				t.Errorf("got  % x\nwant % x", a, b)
			}
		})
	}
	f := Forward{Publish: Publish{Topic: []byte("a"), Payload: []byte("x"), QoS: 1, ID: 1}, Passed: full.Passed(), SubscriptionID: 9}
	b := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() { b = AppendForward(b[:0], &f) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
