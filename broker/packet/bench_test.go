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
	frame, _, _, _ := Split(publish, MaxRemaining)
	ack, _, _, _ := Split(AppendAck(nil, PUBREL, 77), MaxRemaining)

	var stream []byte
	for range 16 {
		stream = AppendAck(append(stream, publish...), PUBREL, 77)
	}
	src := bytes.NewReader(stream)
	reader := NewReader(src, 4096, 0)

	return map[string]func(){
		"AppendPublish": func() { buf = AppendPublish(buf[:0], &Publish{Topic: topic, Payload: payload, QoS: 2, ID: 77}) },
		"ParsePublish":  func() { must(ParsePublish(frame)) },
		"AppendAck":     func() { buf = AppendAck(buf[:0], PUBREC, 77) },
		"ParseAck":      func() { must(ParseAck(ack)) },
		"AppendEmpty":   func() { buf = AppendEmpty(buf[:0], PINGREQ) },
		"Split":         func() { _, n, _, err := Split(publish, MaxRemaining); must(n, err) },
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
