package store

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
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
		{"properties", Message{Topic: "a", Payload: []byte("x"), QoS: 1, Passed: []byte("\x01\x01")}},
		{"expiry", Message{Topic: "a", QoS: 1, Retain: true, Expires: 1}},
		{"publisher", Message{Topic: "a", Payload: []byte("x"), QoS: 2, From: "me"}},
		{"all of MQTT 5.0", Message{Topic: "a", Payload: []byte("x"), QoS: 2, From: "me", Expires: 1 << 60, Passed: make([]byte, 70_000)}},
		{"payload that looks like a message", Message{Topic: "a", Payload: Encode(nil, &Message{Topic: "b", QoS: 1}), QoS: 1}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			b := Encode([]byte("before"), &tc.m)
			got, err := Decode(b[len("before"):])
			if err != nil {
				t.Fatal(err)
			}
			if got.Topic != tc.m.Topic || !bytes.Equal(got.Payload, tc.m.Payload) || got.QoS != tc.m.QoS || got.Retain != tc.m.Retain ||
				!bytes.Equal(got.Passed, tc.m.Passed) || got.Expires != tc.m.Expires || got.From != tc.m.From {
				t.Errorf("got %+v, want %+v", got, tc.m)
			}
			if 4+got.Size() != len(b)-len("before") {
				t.Errorf("size %d, encoded in %d bytes", got.Size(), len(b)-len("before"))
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
	got = Encode(nil, &Message{Topic: "a/b", Payload: []byte("xy"), QoS: 1, Passed: []byte("\x01\x01"), Expires: 258, From: "me"})
	if want := []byte("\x02\x01\x00\x03a/b\x00\x00\x00\x00\x00\x00\x01\x02\x00\x02me\x00\x00\x00\x02\x01\x01xy"); !bytes.Equal(got, want) {
		t.Errorf("encoded % x, want % x", got, want)
	}
}

func TestDecodeCorrupt(t *testing.T) {
	for _, tc := range []struct{ reason, bytes string }{
		{"nothing", ""},
		{"a part of the header", "\x01\x00\x00"},
		{"another version", "\x03\x00\x00\x01a"},
		{"version 2 without a header", "\x02\x00\x00\x01a"},
		{"version 2 that ought to be 1", "\x02\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00x"},
		{"publisher runs past the end", "\x02\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x01\x00\x05\x00\x00\x00\x00"},
		{"properties run past the end", "\x02\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\xff\xff\xff\xffx"},
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
	f.Add(Encode(nil, &Message{Topic: "a", Payload: []byte("x"), QoS: 1, Passed: []byte("\x01\x01"), Expires: 258, From: "me"}))
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

func TestLives(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := now.Add(-time.Minute)
	expiry := func(n uint32) *uint32 { return &n }
	for _, tc := range []struct {
		reason string
		s      Session
		want   bool
	}{
		{"clean", Session{Clean: true}, false},
		{"kept for ever", Session{Ended: &ago}, true},
		{"expiry 0 ends with the connection", Session{Expiry: expiry(0)}, false},
		{"not long enough ago", Session{Expiry: expiry(61), Ended: &ago}, true},
		{"just expired", Session{Expiry: expiry(60), Ended: &ago}, false},
		{"its end is not known", Session{Expiry: expiry(1)}, true},
	} {
		if got := tc.s.Lives(now); got != tc.want {
			t.Errorf("%s: %v", tc.reason, got)
		}
	}
}

func TestLeft(t *testing.T) {
	m := Message{Expires: 10_000}
	for _, tc := range []struct {
		now  int64
		want uint32
	}{{0, 10}, {9_000, 1}, {9_001, 1}, {9_999, 1}, {10_000, 0}, {99_000, 0}} {
		if got := m.Left(time.UnixMilli(tc.now)); got != tc.want {
			t.Errorf("at %d ms: %d, want %d", tc.now, got, tc.want)
		}
	}
}
