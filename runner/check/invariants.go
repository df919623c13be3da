package check

import (
	"strings"

	"inflight/runner/history"
)

// invariants are judged on every connection of every check. They have no script of their own.
var invariants = []*Rule{
	{
		ID: "INV-DECODE", In: Both, Level: Must, Statements: "2.2.2-1 2.3.1-1 1.5.3-1 | 2.1.3-1 2.2.1-4 1.5.4-1 3.2.2-8 3.4.2-1 3.5.2-1 3.6.2-1 3.7.2-1",
		Title:  "every packet of the broker is well-formed: flags, lengths, identifiers, UTF-8, properties and Reason Codes of its type",
		Faults: []string{"bad-flags"}, Judge: decodes,
	},
	{
		ID: "INV-FIRST", In: Both, Level: Must, Statements: "3.2.0-1 | 3.2.0-1 3.2.0-2",
		Title: "the first packet of a connection is its only CONNACK", Judge: connackFirst,
	},
	{
		ID: "INV-ACK", In: Both, Level: Must, Statements: "4.3.2-2 4.3.3-2 | 4.3.2-4 4.3.3-8 4.3.3-11",
		Title:  "no acknowledgement of an identifier that the session has not used, and none on a connection for more packets than were sent on it",
		Faults: []string{"ack-stray", "puback-twice"}, Judge: ackAsked,
	},
	{
		ID: "INV-ID", In: Both, Level: Must, Statements: "2.3.1-4 3.3.1-1 | 2.2.1-4 3.3.1-1",
		Title:  "no PUBLISH with an identifier in use, but with DUP on a later connection of the session",
		Faults: []string{"id-reused", "resend-live"}, Judge: idsFree,
	},
	{
		ID: "INV-WINDOW", In: V5, Level: Must, Statements: "3.3.4-9",
		Title:  "no more than Receive Maximum messages at QoS 1 and 2 outstanding to the client",
		Faults: []string{"receive-maximum-ignored"}, Judge: windowKept,
	},
	{
		ID: "INV-END", In: Both, Level: Must, Statements: "- | 3.14.4-1",
		Title: "nothing follows the broker's DISCONNECT, and no bytes that cannot be a packet come at all", Judge: endIsEnd,
	},
}

func decodes(j *J) {
	for _, i := range j.items {
		if i.Kind == history.Received && i.Err != nil {
			j.Fail([]Item{i}, "%v", i.Err)
		}
	}
}

func connackFirst(j *J) {
	seen := make([]bool, len(j.h.Conns))
	for _, i := range j.items {
		if i.Kind != history.Received {
			continue
		}
		if (i.P.Type == history.CONNACK) == seen[i.Conn] && !(j.V == history.Level5 && i.P.Type == history.AUTH && !seen[i.Conn]) {
			if seen[i.Conn] {
				j.Fail([]Item{i}, "a second CONNACK")
			} else if i.P.Type != history.DISCONNECT {
				j.Fail([]Item{i}, "%v before any CONNACK", i.P.Type)
			}
		}
		seen[i.Conn] = true
	}
}

// ackAsked counts per connection what was sent that an acknowledgement may answer. An exchange of an earlier connection
// may be answered late by a broker that keeps it; that one is row RES-12's.
func ackAsked(j *J) {
	type key struct {
		conn   int
		answer history.Type
		id     uint16
	}
	type used struct {
		client string
		answer history.Type
		id     uint16
	}
	asked, ever := map[key]int{}, map[used]int{} // the connection of the first use
	for _, i := range j.items {
		answer, ok := answerTo(&i.P)
		client := j.h.Conns[i.Conn].Client
		switch {
		case i.Kind == history.Sent && i.P.Type == history.CONNECT && i.P.Clean:
			for u := range ever {
				if u.client == client {
					delete(ever, u)
				}
			}
		case i.Kind == history.Sent && ok:
			asked[key{i.Conn, answer, i.P.ID}]++
			if _, known := ever[used{client, answer, i.P.ID}]; !known {
				ever[used{client, answer, i.P.ID}] = i.Conn
			}
		case i.Kind == history.Received && isAnswer(i.P.Type):
			k := key{i.Conn, i.P.Type, i.P.ID}
			if asked[k] > 0 {
				asked[k]--
				continue
			}
			first, known := ever[used{client, i.P.Type, i.P.ID}]
			switch {
			case i.P.Type == history.PINGRESP || !known:
				j.Fail([]Item{i}, "%v answers nothing that was sent", i.P.String())
			case !sentOn(j, i.Conn, i.P.Type, i.P.ID): // left over from the connection before, see RES-12
			case first != i.Conn && i.P.Type == history.PUBREC: // sent again at the resumption, and for the repeated PUBLISH
				j.Find(Info, []Item{i}, "%v is one more than there were packets to answer, after a resumption", i.P.String())
			default:
				j.Fail([]Item{i}, "%v is one more than there were packets to answer", i.P.String())
			}
		}
	}
}

// sentOn reports whether anything was sent on the connection that such an answer could be for.
func sentOn(j *J, conn int, answer history.Type, id uint16) bool {
	for _, i := range j.items {
		if a, ok := answerTo(&i.P); i.Conn == conn && i.Kind == history.Sent && ok && a == answer && i.P.ID == id {
			return true
		}
	}
	return false
}

// answerTo is the type of packet that answers one of a client.
func answerTo(p *history.Packet) (history.Type, bool) {
	switch p.Type {
	case history.PUBLISH:
		switch p.QoS {
		case 1:
			return history.PUBACK, true
		case 2:
			return history.PUBREC, true
		}
	case history.PUBREL:
		return history.PUBCOMP, true
	case history.SUBSCRIBE:
		return history.SUBACK, true
	case history.UNSUBSCRIBE:
		return history.UNSUBACK, true
	case history.PINGREQ:
		return history.PINGRESP, true
	}
	return 0, false
}

func isAnswer(t history.Type) bool {
	switch t {
	case history.PUBACK, history.PUBREC, history.PUBCOMP, history.SUBACK, history.UNSUBACK, history.PINGRESP:
		return true
	}
	return false
}

// sending follows the broker's exchanges of one session, as far as the client can know: an identifier is free once its
// PUBACK, its PUBCOMP, or a PUBREC that refuses was written.
type sending struct {
	state map[uint16]int // connection of the last PUBLISH or PUBREL
	count int            // outstanding on this connection
}

// followSending calls each for every PUBLISH of the broker above QoS 0, with the exchanges of its session before it.
func followSending(j *J, each func(i Item, s *sending, limit int)) {
	sessions := map[string]*sending{}
	limits := map[int]int{}
	for _, i := range j.items {
		client := j.h.Conns[i.Conn].Client
		s := sessions[client]
		if s == nil {
			s = &sending{state: map[uint16]int{}}
			sessions[client] = s
		}
		p := &i.P
		switch {
		case i.Kind == history.Sent && p.Type == history.CONNECT:
			limits[i.Conn] = int(p.Number(history.PropReceiveMaximum, 65_535))
		case i.Kind == history.Received && p.Type == history.CONNACK:
			s.count = 0
			if !p.Present {
				clear(s.state)
			}
		case i.Kind == history.Received && p.Type == history.PUBLISH && p.QoS > 0 && i.Err == nil:
			each(i, s, limits[i.Conn])
			if at, open := s.state[p.ID]; !open || at != i.Conn {
				s.count++
			}
			s.state[p.ID] = i.Conn
		case i.Kind == history.Received && p.Type == history.PUBREL:
			// A release that is owed from an earlier connection fills a place of the window too.
			if at, open := s.state[p.ID]; open && at != i.Conn {
				s.state[p.ID] = i.Conn
				s.count++
			}
		case i.Kind == history.Sent && (p.Type == history.PUBACK || p.Type == history.PUBCOMP || p.Type == history.PUBREC && p.Reason >= 0x80):
			if at, open := s.state[p.ID]; open {
				delete(s.state, p.ID)
				if at == i.Conn {
					s.count--
				}
			}
		}
	}
}

func idsFree(j *J) {
	followSending(j, func(i Item, s *sending, _ int) {
		at, open := s.state[i.P.ID]
		switch {
		case !open:
			if i.P.Dup && j.h.Conns[i.Conn].Nth == 1 && !strings.HasPrefix(i.P.Topic, "$") {
				j.Fail([]Item{i}, "PUBLISH(%d) has DUP set although the client has never seen it", i.P.ID)
			}
		case at == i.Conn && (j.Is5() || !i.P.Dup):
			j.Fail([]Item{i}, "PUBLISH(%d): the identifier is in use on this connection", i.P.ID)
		case at != i.Conn && !i.P.Dup:
			j.Fail([]Item{i}, "PUBLISH(%d): the identifier is in use since an earlier connection, and DUP is not set", i.P.ID)
		}
	})
}

func windowKept(j *J) {
	followSending(j, func(i Item, s *sending, limit int) {
		if at, open := s.state[i.P.ID]; open && at == i.Conn {
			return
		}
		if s.count >= limit {
			j.Fail([]Item{i}, "PUBLISH(%d) is outstanding message %d, the client's Receive Maximum is %d", i.P.ID, s.count+1, limit)
		}
	})
}

func endIsEnd(j *J) {
	ended := make([]bool, len(j.h.Conns))
	for _, i := range j.items {
		switch {
		case i.Kind == history.Garbage:
			j.Fail([]Item{i}, "%d bytes that cannot begin a control packet", len(i.Raw))
		case i.Kind == history.Received && ended[i.Conn]:
			j.Fail([]Item{i}, "%v after the broker's DISCONNECT", i.P.Type)
		case i.Kind == history.Received && i.P.Type == history.DISCONNECT:
			ended[i.Conn] = true
		}
	}
}

// Invariants judges every invariant on a history, whatever its rule; only those that found something are returned.
func Invariants(h *history.History) map[*Rule]Verdict {
	if h.Full {
		return nil
	}
	return broken(h, newView(h))
}

// broken are the invariants that do not hold in a history.
func broken(h *history.History, v *view) map[*Rule]Verdict {
	found := map[*Rule]Verdict{}
	for _, r := range invariants {
		if !r.Applies(h.Version) {
			continue
		}
		j := &J{view: v, Rule: r, Caps: CapsOf(h.Facts), V: h.Version}
		r.Judge(j)
		if len(j.findings) > 0 {
			worst := Level(0)
			for _, f := range j.findings {
				worst = max(worst, f.Level)
			}
			found[r] = Verdict{Outcome: Violated, Level: worst, Findings: j.findings}
		}
	}
	return found
}
