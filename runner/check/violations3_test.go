package check

import (
	"bytes"
	"time"

	"inflight/runner/history"
)

func init() {
	for id, v := range violationsHooks {
		violations[id] = v
	}
}

// newSession says in a CONNACK that there was no session.
func newSession(b []byte) []byte { b[2] = 0; return b }

// violationsHooks are those of the rules that need more of a broker than its listener.
var violationsHooks = map[string][]violation{
	"A1-08": {
		{"it is delivered", deliver("d", "denied", "m3"), `d got "m3"`},
		{"it is acknowledged", reason("p", pubackT, 3, 0), "want 0x87"},
		{"it is refused for another reason", reason("p", pubackT, 3, 0x80), "refused with 0x80"},
		{"what may be published is refused", reason("p", pubackT, 4, 0x87), "message 4, which may be published, was refused"},
		{"what may be published is lost", drop("w", publishT, 0, "m4"), "acknowledged and not delivered"},
		{"no answer", drop("p", pubackT, 6, ""), "no PUBACK for the identifiers 6"},
		{"exchanged", swap("p", pubackT), "before PUBACK(1)"},
	},
	"A1-09": {
		{"acknowledged and lost", drop("w", publishT, 0, "m7"), "PUBACK was sent for m7"},
		{"left open", stayQuiet("p"), "without a word"},
	},
	"Q2I-28": {
		{"the next one is taken for a copy", drop("w", publishT, 0, "A"), "did not get A"},
		{"twice", twice("w", publishT, 0, "B"), "2 times"},
		{"it is delivered", deliver("d", "denied", "X"), `d got "X"`},
		{"what may be published is refused", reason("p", pubrecT, 7, 0x97), "PUBREC(7) refuses"},
	},
	"RES-13": {
		{"the session is gone", change("brestart", 2, connackT, "", newSession), "Session Present of connection 2 of brestart"},
		{"the subscriber's is gone", change("w", 3, connackT, "", newSession), "Session Present of connection 3 of w"},
		{"a message is gone", drop("w", publishT, 0, "bkill"), "did not get bkill"},
		{"a message is there twice", twice("w", publishT, 0, "ckill"), "2 times"},
	},
	"E2E-05": {{"lost", dropAll("w", publishT, "a39"), "did not get a39"}, {"twice", twice("w", publishT, 0, "b7"), "2 times"}},
	"E2E-06": {
		{"as slow at every window", func(h *history.History) bool {
			many := false
			for i := range h.Events {
				many = many || bytes.Contains(h.Events[i].Raw, []byte("many0"))
				if many {
					h.Events[i].At += time.Duration(i) * 50 * time.Millisecond
				}
			}
			return many
		}, "at window 256"},
		{"exchanged", swap("p", pubackT), "came before PUBACK"},
	},
	"E2E-07": {
		{"lost", drop("w2", publishT, 0, "m9"), "did not get m9"},
		{"twice", twice("w2", publishT, 0, "m9"), "2 times"},
		{"twice at QoS 0", twice("w0", publishT, 0, "m9"), "twice"},
	},
	"E2E-09": {{"lost", dropAll("w", publishT, "a39"), "did not get a39"}, {"twice", twice("w", publishT, 0, "b7"), "2 times"}},
}
