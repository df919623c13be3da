package check

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inflight/runner/history"
)

// recorded is a history of the rule as the reference broker left it.
func recorded(t *testing.T, id string) *history.History {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "testdata", "histories", id+".history"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := history.Read(f)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return h
}

// mutation makes a history of a broker with a fault out of one without; it reports whether it found where.
type mutation func(h *history.History) bool

// find calls f for every received packet of the type on the connection of that name until it returns true.
func find(h *history.History, conn string, t history.Type, f func(i int, p *history.Packet) bool) bool {
	return findKind(h, history.Received, conn, t, f)
}

func findKind(h *history.History, kind history.Kind, conn string, t history.Type, f func(i int, p *history.Packet) bool) bool {
	for i, e := range h.Events {
		if e.Kind != kind || e.Conn < 0 || h.Conns[e.Conn].Name != conn && conn != "" {
			continue
		}
		p, _ := history.Decode(h.Conns[e.Conn].Version, kind == history.Received, e.Raw)
		if p.Type == t && f(i, &p) {
			return true
		}
	}
	return false
}

// is chooses by identifier, or by body for a PUBLISH; "" and 0 take any that is no fence.
func is(p *history.Packet, id uint16, b string) bool {
	if p.Type == history.PUBLISH {
		return !isFence(p) && (b == "" || BodyOf(p) == b)
	}
	return id == 0 && p.ID < 60_000 || p.ID == id
}

// drop removes a packet, as if the broker had not sent it.
func drop(conn string, t history.Type, id uint16, b string) mutation {
	return func(h *history.History) bool {
		return find(h, conn, t, func(i int, p *history.Packet) bool {
			if !is(p, id, b) {
				return false
			}
			h.Events = append(h.Events[:i:i], h.Events[i+1:]...)
			return true
		})
	}
}

// dropAll removes every delivery of a body.
func dropAll(conn string, t history.Type, b string) mutation {
	return func(h *history.History) bool {
		found := false
		for drop(conn, t, 0, b)(h) {
			found = true
		}
		return found
	}
}

// twiceAsIs repeats a packet unchanged.
func twiceAsIs(conn string, t history.Type, b string) mutation {
	return func(h *history.History) bool {
		return find(h, conn, t, func(i int, p *history.Packet) bool {
			if !is(p, 0, b) {
				return false
			}
			h.Events = append(h.Events[:i+1:i+1], h.Events[i:]...)
			return true
		})
	}
}

// present sets Session Present in the nth CONNACK of p.
func present(nth int, bit byte) mutation {
	return func(h *history.History) bool {
		n := 0
		return find(h, "p", history.CONNACK, func(i int, _ *history.Packet) bool {
			if n++; n < nth {
				return false
			}
			h.Events[i].Raw = append([]byte(nil), h.Events[i].Raw...)
			h.Events[i].Raw[2] = bit
			return true
		})
	}
}

// twice repeats a packet; a PUBLISH comes with another identifier, as another message.
func twice(conn string, t history.Type, id uint16, b string) mutation {
	return func(h *history.History) bool {
		return find(h, conn, t, func(i int, p *history.Packet) bool {
			if !is(p, id, b) {
				return false
			}
			e := h.Events[i]
			e.Raw = append([]byte(nil), e.Raw...)
			if p.Type == history.PUBLISH && p.QoS > 0 {
				binary.BigEndian.PutUint16(e.Raw[idAt(e.Raw):], 60_000)
			}
			h.Events = append(h.Events[:i+1:i+1], append([]history.Event{e}, h.Events[i+1:]...)...)
			return true
		})
	}
}

// idAt is the index of a PUBLISH's Packet Identifier.
func idAt(raw []byte) int {
	at := 1
	for raw[at] >= 0x80 {
		at++
	}
	at++
	return at + 2 + int(binary.BigEndian.Uint16(raw[at:]))
}

// swap exchanges the first packet of the type with the next one on its connection.
func swap(conn string, t history.Type) mutation {
	return func(h *history.History) bool {
		first := -1
		return find(h, conn, t, func(i int, p *history.Packet) bool {
			switch {
			case !is(p, 0, ""):
				return false
			case first < 0:
				first = i
				return false
			}
			h.Events[first].Raw, h.Events[i].Raw = h.Events[i].Raw, h.Events[first].Raw
			return true
		})
	}
}

// edit changes the bytes of a packet.
func edit(conn string, t history.Type, id uint16, b string, change func([]byte) []byte) mutation {
	return func(h *history.History) bool {
		return find(h, conn, t, func(i int, p *history.Packet) bool {
			if !is(p, id, b) {
				return false
			}
			h.Events[i].Raw = change(append([]byte(nil), h.Events[i].Raw...))
			return true
		})
	}
}

// reason gives an acknowledgement of 5.0 a Reason Code.
func reason(conn string, t history.Type, id uint16, code byte) mutation {
	return edit(conn, t, id, "", func(b []byte) []byte { return append([]byte{b[0], 3}, b[2], b[3], code) })
}

// xor changes a bit pattern of one byte.
func xor(at int, bits byte) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= bits; return b }
}

// insert adds a packet of the broker to the end of the nth connection of that name, from 1.
func insert(conn string, nth int, raw ...byte) mutation {
	return func(h *history.History) bool {
		at := -1
		for i, e := range h.Events {
			if e.Conn >= 0 && h.Conns[e.Conn].Name == conn && h.Conns[e.Conn].Nth == nth && e.Kind == history.Received {
				at = i + 1
			}
		}
		if at < 0 {
			// The connection got nothing yet.
			for i, e := range h.Events {
				if e.Conn >= 0 && h.Conns[e.Conn].Name == conn && h.Conns[e.Conn].Nth == nth && e.Kind == history.Sent {
					at = i + 1
				}
			}
		}
		if at < 0 {
			return false
		}
		e := h.Events[at-1]
		e.Kind, e.Raw, e.Text = history.Received, raw, ""
		h.Events = append(h.Events[:at:at], append([]history.Event{e}, h.Events[at:]...)...)
		return true
	}
}

// deliver adds a delivery to the end of a connection: QoS 0 on topic t.
func deliver(conn, topic, b string) mutation {
	return func(h *history.History) bool {
		full := h.Facts[FactPrefix] + topic
		raw := []byte{0x30, 0, byte(len(full) >> 8), byte(len(full))}
		raw = append(raw, full...)
		if h.Version == history.Level5 {
			raw = append(raw, 0)
		}
		raw = append(raw, b...)
		raw[1] = byte(len(raw) - 2)
		return insert(conn, 1, raw...)(h)
	}
}

// stuck is an expectation that was not met.
func stuck(text string) mutation {
	return func(h *history.History) bool { h.Stuck = text; return true }
}

// stayOpen removes that the broker closed a connection; the driver then says that it waited in vain.
func stayOpen(conn string) mutation {
	return func(h *history.History) bool {
		for i, e := range h.Events {
			if e.Kind == history.Closed && h.Conns[e.Conn].Name == conn {
				h.Events = append(h.Events[:i:i], h.Events[i+1:]...)
				h.Stuck = conn + ": the broker did not close the connection within 10s"
				return true
			}
		}
		return false
	}
}

// violations are, for each rule, histories that break it: each must be found.
type violation struct {
	why  string
	make mutation
	want string // part of the first finding
}

// Every rule is quiet on the history of the reference broker, and finds each fault that is put into it.
func TestRules(t *testing.T) {
	seen := map[string]bool{}
	for id, faults := range violations {
		r := ByID(id)
		if r == nil {
			t.Errorf("no rule is called %s", id)
			continue
		}
		seen[id] = true
		t.Run(id, func(t *testing.T) {
			clean := recorded(t, id)
			if v := Judge(r, clean); v.Outcome != OK {
				t.Fatalf("the history of the reference broker is %s: %s %v", v.Outcome, v.Why, v.Findings)
			}
			for inv, v := range Invariants(clean) {
				t.Errorf("the history of the reference broker breaks %s: %v", inv.ID, v.Findings)
			}
			for _, f := range faults {
				h := recorded(t, id)
				if !f.make(h) {
					t.Errorf("%s: the history has no place for it", f.why)
					continue
				}
				v := Judge(r, h)
				if v.Outcome != Violated || !strings.Contains(v.Findings[0].Text, f.want) {
					t.Errorf("%s: %s %v, want it violated: %q", f.why, v.Outcome, v.Findings, f.want)
				}
			}
		})
	}
	for _, r := range Catalogue() {
		if !seen[r.ID] && handmade[r.ID][0] == nil {
			t.Errorf("%s has no history that breaks it", r.ID)
		}
	}
}

// A run that could not be made, or did not fit, says nothing.
func TestJudgeIsHonest(t *testing.T) {
	r := ByID("Q2I-01")
	h := recorded(t, "Q2I-01")
	h.Trouble = "p: connection refused"
	if v := Judge(r, h); v.Outcome != Inconclusive || v.Why != h.Trouble {
		t.Errorf("trouble is %s: %s", v.Outcome, v.Why)
	}
	h = recorded(t, "Q2I-01")
	h.Full = true
	if v := Judge(r, h); v.Outcome != Inconclusive {
		t.Errorf("a history that is full is %s", v.Outcome)
	}
	if Invariants(h) != nil {
		t.Error("a history that is full was judged")
	}
}
