package session

import (
	"fmt"
	"strings"

	"inflight/broker/packet"
)

// tester is what a *testing.T and a *rapid.T have in common.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// text writes packets in the short form that tests compare: "PUBREC 7", "PUBLISH 3 q2 a/b hello", with "dup" and "retain"
// where set.
func text(t tester, b []byte) []string {
	t.Helper()
	var out []string
	for len(b) > 0 {
		f, n, _, err := packet.V311.Split(b, packet.MaxRemaining)
		if err != nil || n == 0 {
			t.Fatalf("bytes that are no whole packet: % x (%v)", b, err)
		}
		b = b[n:]
		switch f.Type() {
		case packet.PUBLISH:
			p, err := packet.ParsePublish(f)
			if err != nil {
				t.Fatal(err)
			}
			s := fmt.Sprintf("PUBLISH %d q%d %s %s", p.ID, p.QoS, p.Topic, p.Payload)
			if p.Dup {
				s += " dup"
			}
			if p.Retain {
				s += " retain"
			}
			out = append(out, s)
		default:
			id, err := packet.ParseAck(f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%v %d", f.Type(), id))
		}
	}
	return out
}

// only keeps the packets of one type, as order is per packet type.
func only(packets []string, kind string) []string {
	var out []string
	for _, p := range packets {
		if strings.HasPrefix(p, kind+" ") {
			out = append(out, p)
		}
	}
	return out
}

func list(packets []string) string {
	if len(packets) == 0 {
		return "nothing"
	}
	return strings.Join(packets, ", ")
}

// answers makes "PUBREC 1, PUBREC 2, ..." from identifiers.
func answers(kind string, ids ...int) string {
	var out []string
	for _, id := range ids {
		out = append(out, fmt.Sprintf("%s %d", kind, id))
	}
	return list(out)
}
