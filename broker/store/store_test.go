package store

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestEncodeDecode(t *testing.T) {
	for _, tc := range []struct {
		reason string
		m      Message
	}{
		{"plain", Message{Topic: "a/b", Payload: []byte("hello"), QoS: 1}},
		{"RES-03 QoS and retain stay", Message{Topic: "a", Payload: []byte("x"), QoS: 2, Retain: true}},
		{"QoS 0", Message{Topic: "a", Payload: []byte("x")}},
		{"no payload", Message{Topic: "a", QoS: 2}},
		{"longest topic", Message{Topic: strings.Repeat("t", 65_535), Payload: []byte("x"), QoS: 2}},
		{"any bytes", Message{Topic: "\u65e5/ü", Payload: []byte{0, 1, 255, '\n'}, QoS: 1}},
		{"payload that looks like a message", Message{Topic: "a", Payload: Encode(nil, &Message{Topic: "b", QoS: 1}), QoS: 1}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			b := Encode([]byte("before"), &tc.m)
			got, err := Decode(b[len("before"):])
			if err != nil {
				t.Fatal(err)
			}
			if got.Topic != tc.m.Topic || !bytes.Equal(got.Payload, tc.m.Payload) || got.QoS != tc.m.QoS || got.Retain != tc.m.Retain {
				t.Errorf("got %+v, want %+v", got, tc.m)
			}
			if got.Size() != len(tc.m.Topic)+len(tc.m.Payload) {
				t.Errorf("size %d", got.Size())
			}
		})
	}
}

// The format is on disk: it must not change unnoticed.
func TestEncodedBytes(t *testing.T) {
	got := Encode(nil, &Message{Topic: "a/b", Payload: []byte("xy"), QoS: 2, Retain: true})
	if want := []byte("\x01\x06\x00\x03a/bxy"); !bytes.Equal(got, want) {
		t.Errorf("encoded % x, want % x", got, want)
	}
}

func TestDecodeCorrupt(t *testing.T) {
	for _, tc := range []struct{ reason, bytes string }{
		{"nothing", ""},
		{"a part of the header", "\x01\x00\x00"},
		{"another version", "\x02\x00\x00\x01a"},
		{"version 0", "\x00\x00\x00\x01a"},
		{"unknown flag", "\x01\x08\x00\x01a"},
		{"QoS 3", "\x01\x03\x00\x01a"},
		{"no topic", "\x01\x01\x00\x00x"},
		{"topic runs past the end", "\x01\x01\x00\x05abcd"},
		{"topic of 65,535 bytes that are not there", "\x01\x01\xff\xffa"},
		{"text", "hello, world"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if m, err := Decode([]byte(tc.bytes)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %+v, %v; want ErrCorrupt", m, err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x01\x06\x00\x03a/bxy"))
	f.Add([]byte("\x01\x00\x00\x01a"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		if again := Encode(nil, m); !bytes.Equal(again, b) {
			t.Errorf("% x decodes to %+v, which is encoded as % x", b, m, again)
		}
	})
}
