package misbehave

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"inflight/broker/packet"
)

// Fault is one way to be wrong.
type Fault struct {
	Name string
	Text string // what the broker does then
	Only string // the version that has it, "5.0", or "" for both
}

// Faults lists all of them.
func Faults() []Fault { return slices.Clone(faults) }

var faults = []Fault{
	{"puback-drop", "sends no PUBACK", ""},
	{"puback-twice", "sends each PUBACK twice", ""},
	{"puback-wrong-id", "acknowledges the identifier after the right one", ""},
	{"puback-error", "refuses with PUBACK 0x80 what it has taken", "5.0"},
	{"puback-swap", "exchanges two PUBACKs that leave together", ""},
	{"pubrec-drop", "sends no PUBREC", ""},
	{"pubrec-twice", "sends each PUBREC twice", ""},
	{"pubrec-wrong-id", "sends PUBREC for the identifier after the right one", ""},
	{"pubrec-swap", "exchanges two PUBRECs that leave together", ""},
	{"pubcomp-drop", "sends no PUBCOMP", ""},
	{"pubcomp-wrong-id", "sends PUBCOMP for the identifier after the right one", ""},
	{"pubcomp-swap", "exchanges two PUBCOMPs that leave together", ""},
	{"ack-stray", "sends a PUBACK for an identifier that was never used", ""},
	{"bad-flags", "sets reserved flags of PUBACK and PUBREC", ""},
	{"dup-drop", "ignores every PUBLISH with DUP", ""},
	{"dup-as-new", "takes a repeated PUBLISH of QoS 2 for another message", ""},
	{"dup-pubrec-error", "refuses a repeated PUBLISH with PUBREC 0x91", "5.0"},
	{"pubrel-dup-drop", "does not answer a repeated PUBREL", ""},
	{"pubrel-dup-delivers", "delivers again at a repeated PUBREL", ""},
	{"pubrel-unknown-drop", "does not answer the PUBREL of an identifier that it does not know", ""},
	{"pubrel-unknown-close", "closes the connection at the PUBREL of an identifier that it does not know, or no longer", ""},
	{"reuse-as-dup", "takes a new message for a copy when its identifier was used before", ""},
	{"overflow-drop", "acknowledges and forgets messages beyond sixteen that are not released", ""},
	{"window-blocks", "answers no PINGREQ while anything is unfinished", ""},
	{"resume-forgets", "forgets unreleased messages when the connection ends, and completes them all the same", ""},
	{"session-lost", "begins a new session where one should be resumed", ""},
	{"clean-keeps", "keeps a session that should have been clean, or have ended", ""},
	{"early-delivery", "delivers messages with even identifiers at PUBLISH, others at PUBREL", ""},
	{"alias-stale", "goes on with the first topic of a Topic Alias that is defined again", "5.0"},
	{"lose", "acknowledges messages and never delivers them", ""},
	{"deliver-twice", "delivers each message twice", ""},
	{"deliver-swap", "exchanges two deliveries", ""},
	{"dup-out", "sets DUP on first deliveries", ""},
	{"one-id-space", "ignores a PUBLISH whose identifier is in use by a delivery to the same client", ""},
	{"payload-cut", "cuts the last byte off payloads of more than a thousand", ""},
	{"partial-delivers", "delivers a message whose packet ends in the middle", ""},
	{"id-reused", "uses one identifier for all deliveries", ""},
	{"receive-maximum-ignored", "does not read the client's Receive Maximum", "5.0"},
	{"refused-pubrel", "answers a PUBREC that refuses with a PUBREL", "5.0"},
	{"max-packet-ignored", "does not read the client's Maximum Packet Size", "5.0"},
	{"pubrel-out-drop", "sends no PUBREL", ""},
	{"pubrel-out-once", "does not repeat a PUBREL", ""},
	{"pubrel-out-swap", "exchanges two PUBRELs that leave together", ""},
	{"pubrel-as-publish", "sends the PUBLISH again where a PUBREL is owed after a resumption", ""},
	{"resend-drop", "sends nothing again after a resumption", ""},
	{"resend-no-dup", "sends again without DUP", ""},
	{"resend-new-id", "sends again under another identifier", ""},
	{"resend-swap", "exchanges two deliveries that are sent again", ""},
	{"resend-acked", "sends again after a resumption what was acknowledged", ""},
	{"resend-live", "sends again on a live connection", "5.0"},
	{"acl-ignored", "lets everyone publish everything", ""},
	{"refusal-drop", "sends no PUBACK that refuses", "5.0"},
	{"refused-kept", "takes a message for the one before that was refused under its identifier, and forgets it", "5.0"},
	{"puback-early", "acknowledges at QoS 1 before the message is stored", ""},
	{"pubrec-early", "sends PUBREC before the message is stored, and stores it at its PUBREL", ""},
	{"restart-twice", "delivers each message twice to a client whose session is older than the process", ""},
	{"moved-forgets", "begins a new session for a client whose session began in another process, or before a restart", ""},
	{"queue-lost", "loses the first messages that were queued for a client that was away", ""},
}

// Set is a choice of faults, with what it knows of the sessions.
type Set struct {
	on   map[string]bool
	slow float64 // share by which acknowledged messages are slower; 0: not

	mu       sync.Mutex
	sessions map[string]*session
}

// New makes a Set of the named faults. Beside those of [Faults] there is "slow:10%", which breaks nothing: it makes the path
// of acknowledged messages slower by that share, to see whether a comparison finds it.
func New(names ...string) (*Set, error) {
	s := &Set{on: map[string]bool{}, sessions: map[string]*session{}}
	for _, name := range names {
		name = strings.TrimSpace(name)
		if share, ok, err := parseSlow(name); err != nil {
			return nil, err
		} else if ok {
			s.slow = share
			continue
		}
		if !slices.ContainsFunc(faults, func(f Fault) bool { return f.Name == name }) {
			return nil, fmt.Errorf("no fault is called %q", name)
		}
		s.on[name] = true
	}
	return s, nil
}

// Serve accepts connections until the listener is closed and hands each, wrapped, to serve, which returns at its end.
func (s *Set) Serve(l net.Listener, serve func(net.Conn)) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		nc, err := l.Accept()
		if err != nil {
			return err
		}
		all.Go(func() { serve(s.Wrap(nc)) })
	}
}

// Wrap puts the faults around one connection.
func (s *Set) Wrap(nc net.Conn) net.Conn {
	if len(s.on) > 0 || s.slow == 0 {
		nc = &conn{Conn: nc, set: s}
	}
	if s.slow > 0 {
		nc = newSlowConn(nc, s.slow)
	}
	return nc
}

// session is what a Set remembers of a client, over its connections.
type session struct {
	held    map[uint16]message // inbound QoS 2, between PUBLISH and PUBREL
	done    map[uint16]message // released, the last one of each identifier
	lost    map[uint16]bool    // acknowledged by us alone
	forgot  map[uint16]bool    // held when a connection ended, of resume-forgets
	shadow  map[uint16]uint16  // identifier that the broker knows in place of the client's, by the broker's
	next    uint16             // of identifiers of our own
	out     map[uint16]message // deliveries above QoS 0 that are not finished, by the broker's identifier
	rel     map[uint16]bool    // of those, PUBREL was sent
	recent  []message          // completed last
	ownOut  map[uint16]bool    // deliveries of our own: the broker must not see their acknowledgements
	renamed map[uint16]uint16  // identifier of the broker by the one that we gave the client
	queue   []uint16           // of id-reused: the broker's identifiers in the order of delivery
	conns   int

	welcome  bool                           // this process has accepted the client
	older    bool                           // it began before the process, or in another one
	unstored map[uint16][]byte              // PUBLISH packets that the broker has not got
	swallow  map[packet.Type]map[uint16]int // answers of the broker that were given before it
	refused  map[uint16]bool                // inbound identifiers whose last PUBREC refused
}

// message is a publication as it was seen.
type message struct {
	topic, payload string
	qos            byte
	retain         bool
}

func newSession() *session {
	return &session{
		held: map[uint16]message{}, done: map[uint16]message{}, lost: map[uint16]bool{}, forgot: map[uint16]bool{}, shadow: map[uint16]uint16{},
		next: 40_000, out: map[uint16]message{}, rel: map[uint16]bool{}, ownOut: map[uint16]bool{}, renamed: map[uint16]uint16{},
		unstored: map[uint16][]byte{}, refused: map[uint16]bool{},
		swallow: map[packet.Type]map[uint16]int{packet.PUBACK: {}, packet.PUBREC: {}},
	}
}

// own is an identifier of our own: beyond those of the checks.
func (s *session) own() uint16 {
	s.next++
	if s.next >= 60_000 {
		s.next = 40_001
	}
	return s.next
}

// sparedID reports whether an identifier that a client chose is left alone.
func sparedID(id uint16) bool { return id >= 30_000 }

// spared reports whether a delivery is left alone.
func spared(m *message) bool {
	return strings.HasPrefix(m.payload, "~") || strings.HasPrefix(m.payload, "=")
}

func seen(p *packet.Publish) message {
	return message{topic: string(p.Topic), payload: string(p.Payload), qos: p.QoS, retain: p.Retain}
}
