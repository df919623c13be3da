package packet

import (
	"bytes"
	"testing"
)

// steady are the operations of each message on a busy connection, none of which may allocate.
func steady() map[string]func() {
	topic, payload := []byte("bench/0123456789"), make([]byte, 256)
	buf := make([]byte, 0, 1024)
	publish := AppendPublish(nil, &Publish{Topic: topic, Payload: payload, QoS: 2, ID: 77})
	frame, _, _, _ := V311.Split(publish, MaxRemaining)
	ack, _, _, _ := V311.Split(AppendAck(nil, PUBREL, 77), MaxRemaining)

	var stream []byte
	for range 16 {
		stream = AppendAck(append(stream, publish...), PUBREL, 77)
	}
	src := bytes.NewReader(stream)
	reader := NewReader(src, 4096, 0)

	plain := V5.AppendPublish(nil, &Publish{Topic: topic, Payload: payload, QoS: 2, ID: 77})
	plainFrame, _, _, _ := V311.Split(plain, MaxRemaining)
	rich := &Properties{
		PayloadFormat: Some[byte](1), MessageExpiry: Some[uint32](60), TopicAlias: Some[uint16](7), ContentType: []byte("application/json"),
		ResponseTopic: []byte("reply/77"), CorrelationData: []byte("77"), User: []UserProperty{{[]byte("a"), []byte("1")}, {[]byte("b"), []byte("2")}},
	}
	passed := rich.Passed()
	richFrame, _, _, _ := V311.Split(V5.AppendPublish(nil, &Publish{Topic: topic, Payload: payload, QoS: 2, ID: 77, Properties: rich}), MaxRemaining)
	refused := Ack{ID: 77, Code: QuotaExceeded, Properties: &Properties{ReasonString: []byte("too many")}}
	code, _, _, _ := V311.Split(V5.AppendAck(nil, PUBREC, Ack{ID: 77, Code: QuotaExceeded}), MaxRemaining)
	reason, _, _, _ := V311.Split(V5.AppendAck(nil, PUBREC, refused), MaxRemaining)
	codec311, codec5 := Codec{}, Codec{Version: V5}
	return map[string]func(){
		"311/AppendPublish": func() {
			buf = codec311.AppendPublish(buf[:0], &Publish{Topic: topic, Payload: payload, QoS: 2, ID: 77})
		},
		"311/ParsePublish": func() { must(codec311.ParsePublish(frame)) },
		"311/AppendAck":    func() { buf = codec311.AppendAck(buf[:0], PUBREC, Ack{ID: 77}) },
		"311/ParseAck":     func() { must(codec311.ParseAck(ack)) },
		"5/AppendPublish": func() {
			buf = codec5.AppendPublish(buf[:0], &Publish{Topic: topic, Payload: payload, QoS: 2, ID: 77})
		},
		"5/ParsePublish": func() { must(codec5.ParsePublish(plainFrame)) },
		"5/AppendPublish/properties": func() {
			buf = codec5.AppendPublish(buf[:0], &Publish{Topic: topic, Payload: payload, QoS: 2, ID: 77, Properties: rich})
		},
		"5/AppendForward": func() {
			buf = AppendForward(buf[:0], &Forward{
				Publish: Publish{Topic: topic, Payload: payload, QoS: 2, ID: 77}, Passed: passed, Expiry: Some[uint32](9), SubscriptionID: 300,
			})
		},
		"5/ParsePublish/properties": func() { must(codec5.ParsePublish(richFrame)) },
		"5/AppendAck":               func() { buf = codec5.AppendAck(buf[:0], PUBREC, Ack{ID: 77}) },
		"5/AppendAck/code":          func() { buf = codec5.AppendAck(buf[:0], PUBREC, Ack{ID: 77, Code: QuotaExceeded}) },
		"5/AppendAck/properties":    func() { buf = codec5.AppendAck(buf[:0], PUBREC, refused) },
		"5/ParseAck":                func() { must(codec5.ParseAck(ack)) },
		"5/ParseAck/code":           func() { must(codec5.ParseAck(code)) },
		"5/ParseAck/properties":     func() { must(codec5.ParseAck(reason)) },
		"5/Split": func() {
			_, n, _, err := V5.Split(plain, MaxRemaining)
			must(n, err)
		},
		"AppendPublish": func() { buf = AppendPublish(buf[:0], &Publish{Topic: topic, Payload: payload, QoS: 2, ID: 77}) },
		"ParsePublish":  func() { must(ParsePublish(frame)) },
		"AppendAck":     func() { buf = AppendAck(buf[:0], PUBREC, 77) },
		"ParseAck":      func() { must(ParseAck(ack)) },
		"AppendEmpty":   func() { buf = AppendEmpty(buf[:0], PINGREQ) },
		"Split":         func() { _, n, _, err := V311.Split(publish, MaxRemaining); must(n, err) },
		"Reader.Next": func() {
			if reader.start == reader.end && src.Len() == 0 {
				src.Reset(stream)
			}
			must(reader.Next())
		},
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestNoAllocations(t *testing.T) {
	for name, f := range steady() {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkCodec(b *testing.B) {
	for name, f := range steady() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
