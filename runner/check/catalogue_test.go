package check

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"inflight/broker/packet"
	"inflight/runner/history"
)

var statement = regexp.MustCompile(`^MQTT-[0-9]+\.[0-9]+\.[0-9]+-[0-9]+$`)

// every is a broker that lacks nothing.
func every(level byte) Caps {
	return Caps{
		MaxQoS: 2, Receive: 64, Retain: true, Wildcards: true, Shared: true, SubIDs: level == 5, MaxPacket: 1 << 20, Aliases: 10, Delivers: true, Method: "A",
		OrderedAcks: true, Durable: true, Nodes: 3, Hooks: append(HookNames(), "memory"),
	}
}

// The catalogue is data; this is what its readers rely on.
func TestCatalogue(t *testing.T) {
	ids := map[string]bool{}
	for _, r := range slices.Concat(Catalogue(), AllInvariants(), controls) {
		if ids[r.ID] {
			t.Errorf("%s is there twice", r.ID)
		}
		ids[r.ID] = true
		if r.Title == "" || r.Level == 0 || r.In == 0 || r.Judge == nil {
			t.Errorf("%s lacks a title, a level, a version or a judgement", r.ID)
		}
		if ByID(r.ID) != r {
			t.Errorf("%s is not found by its ID", r.ID)
		}
		for _, level := range []byte{4, 5} {
			for _, s := range r.StatementsOf(level) {
				if !statement.MatchString(s) {
					t.Errorf("%s: %q is no statement", r.ID, s)
				}
			}
		}
		if r.Level != Must && r.Why == "" && r.Script != nil && len(r.StatementsOf(5)) == 0 {
			t.Errorf("%s: neither a statement nor a remark says where it comes from", r.ID)
		}
		if r.Control != "" && ByID(r.Control) == nil {
			t.Errorf("%s: no control is called %s", r.ID, r.Control)
		}
		if c := ControlFor(r); !strings.HasPrefix(c.ID, "CTL-") {
			t.Errorf("%s: its control is %s", r.ID, c.ID)
		}
	}
	if ByID("X-99") != nil {
		t.Error("a rule that is not there was found")
	}
}

// Every script can be written in each of its versions, quick and whole, and every packet of it be encoded; the same seed
// gives the same script.
func TestScripts(t *testing.T) {
	for _, r := range slices.Concat(Catalogue(), controls) {
		for _, level := range []byte{4, 5} {
			if !r.Applies(level) {
				continue
			}
			for _, quick := range []bool{true, false} {
				write := func() *Script {
					s := NewScript(level, every(level), quick, 1, 7)
					r.Script(s)
					return s
				}
				s := write()
				if len(s.Steps) == 0 {
					t.Fatalf("%s (level %d) is empty", r.ID, level)
				}
				again := write()
				e := &Encoding{
					V: packet.Version(level), Topic: func(t string) string { return "x/" + t }, Client: func(c string) string { return "x" + c },
					Echo: func(k int) uint16 { return uint16(k) },
				}
				for i, step := range s.Steps {
					if step.Text == "" || step.Text != again.Steps[i].Text {
						t.Errorf("%s: step %d is %q, then %q", r.ID, i, step.Text, again.Steps[i].Text)
					}
					for _, m := range step.Msgs {
						e.Conn = step.Conn
						b := m.Encode(nil, e)
						if len(b) == 0 {
							t.Errorf("%s: %s is no bytes", r.ID, m.String())
						}
						if m.Edit == nil && m.Raw == nil && m.Note == "" {
							legal(t, r.ID, level, &m, b)
						}
					}
				}
			}
		}
	}
	s := NewScript(5, every(5), true, 1, 7)
	Detection(s)
	if len(s.Steps) == 0 {
		t.Error("the detection is empty")
	}
}

// legal wants a packet that nothing was said to be wrong with to be well-formed.
func legal(t *testing.T, id string, level byte, m *Msg, b []byte) {
	t.Helper()
	if m.Connect != nil && (m.Connect.Level != 0 || m.Connect.Props != nil && m.Connect.Props.ReceiveMaximum.Set && m.Connect.Props.ReceiveMaximum.Value == 0) {
		return
	}
	if _, err := history.Decode(level, false, b); err != nil {
		t.Errorf("%s (level %d): %s: %v", id, level, m.String(), err)
	}
}

func TestNeeds(t *testing.T) {
	all := every(5)
	none := Caps{Receive: 65_535}
	for _, n := range []Need{QoS1, QoS2, Retain, Wildcards, Shared, SubIDs, MethodA, Aliases, SmallRM, SmallSize, Deliver, Memory, Durable, Cluster, NeedsRestart, NeedsKill, NeedsKillNode, NeedsStore, NeedsSlow, NeedsACL} {
		if why := all.Lacks([]Need{n}); why != "" {
			t.Errorf("a broker that has everything: %s", why)
		}
		if why := none.Lacks([]Need{n}); !strings.Contains(why, string(n)) {
			t.Errorf("a broker that has nothing does not lack %s", n)
		}
	}
	if all.Lacks([]Need{LowQoS}) == "" {
		t.Error("Maximum QoS 2 is taken for a low one")
	}
	facts := map[string]string{}
	all.KeepIn(facts)
	again := CapsOf(facts)
	again.Facts = nil
	if got, want := again.Shown(), all.Shown(); len(got) != len(want) {
		t.Errorf("%d capabilities, want %d", len(got), len(want))
	}
	for k, v := range all.Shown() {
		if again.Shown()[k] != v {
			t.Errorf("%s is %s after reading, want %s", k, again.Shown()[k], v)
		}
	}
}

// What is written for people.
func TestWords(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Must.String() + Contract.String() + Info.String() + Level(0).String(), "mustcontractinfo"},
		{(&Rule{ID: "INV-DECODE"}).Group() + (&Rule{ID: "X"}).Group(), "INVX"},
		{textOf(Publishes(1, 1, 9)), "P1(1, m1) P1(2, m2) P1(3, m3) ... P1(9, m9) (9 packets)"},
		{wantsText(Acks(history.PUBACK, 1, 9)), "PUBACK(1) PUBACK(2) PUBACK(3) ... PUBACK(9) (9 packets)"},
		{(&Msg{Type: packet.PUBREC, ID: 3, Code: 0x80}).String(), "PUBREC(3) reason 0x80"},
		{(&Msg{Raw: []byte{1, 2}, Note: "noise"}).String(), "2 bytes [noise]"},
		{(&Msg{Type: packet.UNSUBSCRIBE, ID: 3, Filters: []string{"t"}}).String(), "UNSUBSCRIBE(3, [t])"},
		{Echo(history.PUBREL, 2).String(), "PUBREL(that of delivery 2)"},
		{Mode{Deaf: true}.text(), "read nothing any more"},
		{Mode{}.text(), "acknowledge everything from now on"},
		{Mode{HoldRec: true, Release: true}.text(), "from now on withholds PUBREC, releases at PUBREC"},
		{shortList([]string{"a", "b", "c", "d", "e", "f"}), "a, b, c, d, e and 1 more (6 in all)"},
		{string(Payload("A", 4)), "A.xx"},
		{BodyOf(&history.Packet{Payload: []byte("A.xx")}), "A"},
		{BodyOf(&history.Packet{Payload: []byte("A.b")}), "A.b"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}
