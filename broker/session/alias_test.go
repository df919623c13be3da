package session

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inflight/broker/packet"
	"inflight/broker/store"
)

// resolver is a client of MQTT 5.0 as far as Topic Aliases go: it keeps what each stands for on its connection.
type resolver struct {
	max    int
	topics map[uint16]string
}

// resolve reads packets and returns "topic payload" of each PUBLISH.
func (r *resolver) resolve(b []byte) (got []string, err error) {
	codec := packet.Codec{Version: packet.V5, From: packet.FromServer}
	rd := packet.NewReader(bytes.NewReader(b), 1<<16, 0)
	rd.SetVersion(packet.V5)
	for {
		f, err := rd.Next()
		if err != nil {
			return got, nil // the end
		}
		if f.Type() != packet.PUBLISH {
			continue
		}
		p, err := codec.ParsePublish(f)
		if err != nil {
			return nil, err
		}
		topic := string(p.Topic)
		if p.Properties != nil && p.Properties.TopicAlias.Set {
			alias := p.Properties.TopicAlias.Value
			switch {
			case alias == 0 || int(alias) > r.max: // [MQTT-3.1.2-26] [MQTT-3.3.2-8]
				return nil, fmt.Errorf("alias %d of %d", alias, r.max)
			case topic != "":
				r.topics[alias] = topic
			case r.topics[alias] == "":
				return nil, fmt.Errorf("alias %d stands for nothing", alias)
			default:
				topic = r.topics[alias]
			}
		}
		if topic == "" {
			return nil, fmt.Errorf("no topic")
		}
		got = append(got, topic+" "+string(p.Payload))
	}
}

func TestAliases(t *testing.T) {
	s := NewSender(10)
	send := func(topic string, qos byte) string {
		b := s.Send(nil, nil, store.Delivery{Message: &store.Message{Topic: topic, QoS: qos}, QoS: qos, Settle: func() {}})
		f, err := packet.NewReader(bytes.NewReader(b), 1<<16, 0).Next()
		if err != nil {
			t.Fatal(err)
		}
		codec := packet.Codec{Version: s.link.Version, From: packet.FromServer}
		p, err := codec.ParsePublish(f)
		if err != nil {
			t.Fatal(err)
		}
		if p.Properties == nil || !p.Properties.TopicAlias.Set {
			return string(p.Topic)
		}
		return fmt.Sprintf("%s=%d", p.Topic, p.Properties.TopicAlias.Value)
	}
	for i, c := range []struct {
		reason string
		link   *Link // a new connection
		topic  string
		qos    byte
		want   string
	}{
		{"no maximum was announced [MQTT-3.1.2-27]", &Link{Version: packet.V5}, "a/long", 0, "a/long"},
		{"nor can 3.1.1", &Link{Version: packet.V311, TopicAliases: 9}, "a/long", 0, "a/long"},
		{"the first topic gets the first alias", &Link{Version: packet.V5, TopicAliases: 2}, "a/long", 0, "a/long=1"},
		{"then it stands for it", nil, "a/long", 1, "=1"},
		{"too short to be worth it", nil, "abc", 1, "abc"},
		{"the second", nil, "b/long", 1, "b/long=2"},
		{"no more than the maximum [MQTT-3.1.2-26]", nil, "c/long", 1, "c/long"},
		{"what was given stays", nil, "b/long", 0, "=2"},
		{"a new connection knows none", &Link{Version: packet.V5, TopicAliases: 2, Late: true}, "b/long", 1, "b/long=1"},
		{"QoS 0 may overtake what says so", nil, "b/long", 0, "b/long=1"},
		{"what leaves late", nil, "b/long", 2, "=1"},
		{"not what leaves at once", nil, "b/long", 0, "=1"},
		{"said at once first", nil, "c/long", 0, "c/long=2"},
		{"then late as well", nil, "c/long", 1, "=2"},
		{"a packet that would be too large with it", &Link{Version: packet.V5, TopicAliases: 2, MaximumPacket: 14}, "a/longer", 0, "a/longer"},
		{"one that is not", nil, "a/lo", 0, "a/lo=1"},
	} {
		if c.link != nil {
			s.Connect(*c.link)
		}
		if got := send(c.topic, c.qos); got != c.want {
			t.Errorf("row %d, %s: got %q, want %q", i+1, c.reason, got, c.want)
		}
	}
	s.Connect(Link{Version: packet.V5, TopicAliases: 65_535})
	for i := range maxAliases + 1 {
		topic := fmt.Sprintf("topic %d", i)
		want := fmt.Sprintf("%s=%d", topic, i+1)
		if i == maxAliases {
			want = topic
		}
		if got := send(topic, 0); got != want {
			t.Errorf("got %q, want %q: at most %d", got, want, maxAliases)
		}
	}
}

// Whatever is sent, resent, and leaves late, a client that resolves aliases sees the topics of the messages.
func TestAliasesResolve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSender(rapid.IntRange(1, 20).Draw(t, "window"))
		var direct, held []byte
		var want map[string]int
		var client *resolver
		number := 0
		expect := func(m *store.Message) { want[m.Topic+" "+string(m.Payload)]++ }
		var open []*store.Message
		connect := func() {
			link := Link{
				Version: packet.V5, TopicAliases: rapid.IntRange(0, 4).Draw(t, "maximum"), Late: rapid.Bool().Draw(t, "late"),
				MaximumPacket: rapid.SampledFrom([]int{0, 0, 40}).Draw(t, "size"),
			}
			s.Connect(link)
			client = &resolver{max: link.TopicAliases, topics: map[uint16]string{}}
			direct, held, want = nil, nil, map[string]int{}
			if link.MaximumPacket == 0 {
				for _, m := range open {
					expect(m)
				}
				if direct = s.Resend(nil, time.Now()); link.Late {
					direct, held = nil, direct
				}
			}
		}
		flush := func() {
			for _, b := range []*[]byte{&direct, &held} {
				got, err := client.resolve(*b)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range got {
					want[m]--
				}
				*b = nil
			}
		}
		connect()
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				qos := byte(rapid.IntRange(0, 1).Draw(t, "qos"))
				if qos > 0 && (s.Full() || s.Owes()) {
					t.Skip("no room")
				}
				number++
				m := &store.Message{
					Topic: strings.Repeat(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "topic"), rapid.IntRange(1, 8).Draw(t, "length")),
					QoS:   qos, Payload: fmt.Append(nil, number),
				}
				d := store.Delivery{Message: m, QoS: qos, Settle: func() {}}
				if !s.Fits(nil, &d) {
					t.Skip("too large")
				}
				expect(m)
				out := &direct
				if qos > 0 && s.link.Late {
					out = &held
				}
				before := len(*out)
				*out = s.Send(*out, nil, d)
				if n := len(*out) - before; s.link.MaximumPacket > 0 && n > s.link.MaximumPacket {
					t.Fatalf("a packet of %d bytes", n)
				}
				if qos > 0 {
					open = append(open, m)
				}
			},
			"what leaves late leaves": func(*rapid.T) { flush() },
			"connect":                 func(*rapid.T) { connect() },
		})
		flush()
		for m, n := range want {
			if n != 0 && !s.Owes() {
				t.Errorf("%q is %d short", m, n)
			}
		}
	})
}

func TestAliasesDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; run without -race, as .ci/run does as well")
	}
	s := NewSender(10)
	s.Connect(Link{Version: packet.V5, TopicAliases: 2})
	buf := make([]byte, 0, 1<<12)
	var messages []*store.Message
	for i := range 4 {
		messages = append(messages, &store.Message{Topic: fmt.Sprintf("%d/%s", i, strings.Repeat("x", 60))})
	}
	send := func() {
		for _, m := range messages {
			buf = s.Send(buf[:0], nil, store.Delivery{Message: m})
		}
	}
	send()
	if n := testing.AllocsPerRun(100, send); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
