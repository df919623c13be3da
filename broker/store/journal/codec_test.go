package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"testing"

	"inflight/broker/store"
)

// examples has a record of each kind.
func examples() []record {
	m := store.Encode(nil, &store.Message{Topic: "a", Payload: []byte("x"), QoS: 2})
	return []record{
		{kind: kindSync},
		{kind: kindClaim, client: []byte("client")},
		{kind: kindClaim, client: []byte{}},
		{kind: kindSession, epoch: 7, data: []byte("{}")},
		{kind: kindSession, client: []byte("client"), data: []byte("{}")},
		{kind: kindSwap, client: []byte("client"), ref: 9, data: []byte("{}")},
		{kind: kindSessionGone, epoch: 7, ref: anyRevision},
		{kind: kindSessionGone, client: []byte("client"), ref: 3},
		{kind: kindPublish, data: m},
		{kind: kindHold, epoch: at(1<<40, 65_535), id: 65_535, data: m},
		{kind: kindHold, client: []byte{}, id: 1, data: []byte{}},
		{kind: kindRelease, epoch: 7, ref: at(1, 2)},
		{kind: kindDiscard, client: []byte("client"), ref: at(1, 2)},
		{kind: kindForget, epoch: 7},
		{kind: kindSubscribe, epoch: 7, data: []byte(`{"filter":"a"}`)},
		{kind: kindUnsubscribe, epoch: 7, data: []byte("a")},
		{kind: kindSettle, epoch: 7, ref: 8, data: list(1, 2, at(9, 9), 5)},
		{kind: kindOutbound, epoch: 7, data: []byte{}},
		{kind: kindRetain, data: m},
		{kind: kindCarry, ref: 12, data: m},
		{kind: kindTrim, ref: 1 << 50},
		{kind: kindJoin, epoch: 7, data: []byte(`{"filter":"$share/g/a"}`)},
		{kind: kindTake, epoch: 7, ref: at(3, 0), data: binary.AppendUvarint(nil, uint64(at(4, 1)))},
		{kind: kindPart, client: []byte("client"), ref: at(3, 0)},
		{kind: kindBack, epoch: 7, ref: at(1, 2), data: list(at(3, 1), at(4, 1))},
		{kind: kindGone, ref: 1<<64 - 1},
		{kind: kindLimit, ref: 1 << 30},
	}
}

func list(ps ...pos) []byte {
	var s settled
	for _, p := range ps {
		s.add(p)
	}
	return s.b
}

// pack makes a batch.
func pack(author, number uint64, records ...record) []byte {
	b := make([]byte, headerSize)
	for i := range records {
		b = records[i].append(b)
	}
	return seal(b, author, number)
}

func TestBatchRoundTrip(t *testing.T) {
	want := examples()
	b, err := open(pack(1<<63+1, 42, want...))
	if err != nil {
		t.Fatal(err)
	}
	if b.author != 1<<63+1 || b.number != 42 {
		t.Errorf("author %d, number %d", b.author, b.number)
	}
	got, err := b.decodeAll(nil)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d records, %v; want %d", len(got), err, len(want))
	}
	seen := make(map[kind]bool)
	for i := range want {
		seen[want[i].kind] = true
		if fmt.Sprintf("%+v", got[i]) != fmt.Sprintf("%+v", want[i]) {
			t.Errorf("record %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
	for k := kindSync; k <= kindSwap; k++ {
		if !seen[k] {
			t.Errorf("no example of kind %d", k)
		}
	}
}

// The format is on disk: it must not change unnoticed.
func TestBatchBytes(t *testing.T) {
	b := pack(1, 2,
		record{kind: kindHold, epoch: 300, id: 7, data: []byte("\x01\x02\x00\x01ax")},
		record{kind: kindRelease, client: []byte("c"), ref: 5})
	want := "\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02" +
		"\x06\xac\x02\x00\x07\x06\x01\x02\x00\x01ax" + "\x07\x00\x01c\x05"
	if got := string(b[:len(b)-crcSize]); got != want {
		t.Errorf("encoded % x, want % x", got, want)
	}
	if sum := crc32.Checksum(b[:len(b)-crcSize], crc32.MakeTable(crc32.Castagnoli)); binary.BigEndian.Uint32(b[len(b)-crcSize:]) != sum {
		t.Error("the checksum is not CRC-32C of what is before it")
	}
}

func TestCorruptBatches(t *testing.T) {
	good := pack(1, 1, record{kind: kindPublish, data: []byte("\x01\x01\x00\x01ax")})
	for n := range good {
		if _, err := open(good[:n]); !errors.Is(err, errCorrupt) {
			t.Errorf("%d of %d bytes: %v", n, len(good), err)
		}
	}
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := open(b); !errors.Is(err, errCorrupt) {
			t.Errorf("bit %d is wrong: %v", bit, err)
		}
	}
	for _, tc := range []struct{ reason, records string }{
		{"kind 0", "\x00"},
		{"a kind that does not exist", "\x63"},
		{"no who", "\x09"},
		{"a client that runs past the end", "\x09\x00\x05abcd"},
		{"a message that runs past the end", "\x05\xff\x01x"},
		{"half a Packet Identifier", "\x06\x07\x00"},
		{"a number without an end", "\x07\x07\xff\xff"},
	} {
		b, err := open(seal(append(make([]byte, headerSize), tc.records...), 1, 1))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.decodeAll(nil); !errors.Is(err, errCorrupt) {
			t.Errorf("%s: %+v, %v", tc.reason, got, err)
		}
	}
	many := make([]record, maxRecords+1)
	for i := range many {
		many[i].kind = kindSync
	}
	if b, err := open(pack(1, 1, many...)); err != nil {
		t.Fatal(err)
	} else if _, err := b.decodeAll(nil); !errors.Is(err, errCorrupt) {
		t.Errorf("more records than a position can tell apart: %v", err)
	}
}

func TestSettledList(t *testing.T) {
	want := []pos{at(5, 1), at(5, 2), at(9, 0), at(2, 65_535), 1, at(1<<40, 7)}
	var got []pos
	if !eachSettled(list(want...), func(p pos) { got = append(got, p) }) || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if eachSettled([]byte{0xff}, func(pos) {}) {
		t.Error("half a number was taken")
	}
}

func FuzzBatch(f *testing.F) {
	for _, r := range examples() {
		f.Add(r.append(nil))
	}
	f.Fuzz(func(t *testing.T, records []byte) {
		b, err := open(seal(append(make([]byte, headerSize), records...), 1, 1))
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.decodeAll(nil)
		if err != nil {
			return
		}
		s := newState()
		s.applyBytes(1, pack(1, 1, got...), nil) // whatever it says, it must not break anything
		check(t, s)
		var again []byte
		for i := range got {
			again = got[i].append(again)
		}
		second, err := batch{records: again}.decodeAll(nil)
		if err != nil || fmt.Sprintf("%+v", second) != fmt.Sprintf("%+v", got) {
			t.Errorf("% x decodes to %+v, which decodes to %+v, %v", records, got, second, err)
		}
	})
}
