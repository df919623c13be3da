package check

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"inflight/broker/packet"
	"inflight/runner/history"
)

// Op is what a step does.
type Op byte

// The operations of a script.
const (
	OpDial        Op = iota + 1 // open the transport connection, send nothing
	OpConnect                   // dial, CONNECT, and wait for the CONNACK that accepts
	OpSend                      // one write
	OpTrickle                   // the same bytes in pieces of N, For apart
	OpExpect                    // wait for packets; they are used up
	OpExpectClose               // wait for the broker to end the connection
	OpMode                      // change what is answered by itself
	OpQuiet                     // wait until nothing has arrived anywhere for a time
	OpWait                      // wait
	OpCut                       // end the connection without DISCONNECT: FIN
	OpReset                     // end it with RST
	OpFlow                      // publish with a sliding window, several flows side by side
	OpChurn                     // publish with a window while the connection is cut again and again
	OpHook                      // something outside the wire: restart, kill
	OpGather                    // wait until a client has got deliveries, on whichever of its connections
	OpMemory                    // record the broker's memory
	OpRelease                   // PUBREL for every PUBREC that has not got one, in their order
)

// Step is one instruction.
type Step struct {
	Op    Op
	Conn  string // the script's name of a client
	Text  string // the step for people
	Msgs  []Msg
	Wants []Want

	// What follows when it does not happen: a Soft expectation goes on, a Setup one makes the run say nothing.
	Soft, Setup bool
	Long        bool // it waits LongFactor times as long

	For  time.Duration // how long, at most or at all; 0: the run's timeout
	N    int           // of OpHook: the node, from 0
	Mode Mode
	Flow *Flow
	Name string // of a hook

	Streams []Stream // of OpFlow
	Cutter  *Cutter  // what is cut meanwhile
	Blow    *Blow    // what happens to the broker meanwhile
	Keep    []string // clients of kept sessions that are resumed meanwhile whenever their connection ends
}

// Stream is a flow of one connection.
type Stream struct {
	Conn string
	Flow Flow
}

// Cutter cuts and resumes a subscriber again and again.
type Cutter struct {
	Conn    string
	Every   time.Duration // mean time between two cuts
	Times   int           // at most
	Receive uint16        // Receive Maximum of its connections, 0: none
	Stay    time.Duration // away, each time
}

// Mode is what a connection answers by itself. The zero Mode answers as a receiver must, and releases nothing.
type Mode struct {
	HoldAck  bool // no PUBACK
	HoldRec  bool // no PUBREC
	HoldComp bool // no PUBCOMP
	Release  bool // PUBREL for each PUBREC
	Deaf     bool // reads nothing
	PerByte  bool // writes in pieces of one byte
}

// Flow is a stream of messages with a window. Message k, from 0, has the body Prefix+k.
type Flow struct {
	QoS    byte
	QoSes  []byte // cycle through these instead of QoS
	N      int
	Window int
	IDs    int    // how many identifiers are used in rotation, from First; 0: twice the window
	First  uint16 // 0: 1
	Topic  string
	Topics int // above 1: topic/0 and so on in rotation
	Prefix string
	Size   int // of the payload at least, bytes
	Batch  int // messages of one write, 0: as many as the window has room for

	// Of a churn.
	Every  time.Duration // mean time between two cuts
	Cuts   int           // at most
	Resume bool          // kept session: resend what is not acknowledged

	Hop     bool // each resumption is at the next node
	Patient bool // the broker may end the connection, or be away, for a while: it is resumed
	Brittle bool // that the connection ends, or nothing is answered any more, ends the flow and is no violation
}

// Script is a stimulus while it is being written. Its methods append steps.
type Script struct {
	V     byte // Protocol Level, 4 or 5
	Caps  Caps
	Quick bool
	Round int
	Rand  *rand.Rand

	Steps    []Step
	Retained []string          // topics whose retained message must be removed afterwards
	Facts    map[string]string // what the judge must know of this script

	fences int
	nextID map[string]uint16
}

// NewScript returns an empty script for one run of a rule.
func NewScript(level byte, caps Caps, quick bool, round int, seed uint64) *Script {
	return &Script{
		V: level, Caps: caps, Quick: quick, Round: round, Rand: rand.New(rand.NewPCG(seed, uint64(round))),
		Facts: map[string]string{}, nextID: map[string]uint16{},
	}
}

func (s *Script) add(step Step, format string, args ...any) {
	step.Text = fmt.Sprintf(format, args...)
	s.Steps = append(s.Steps, step)
}

// Is5 reports whether the script is for MQTT 5.0.
func (s *Script) Is5() bool { return s.V == history.Level5 }

// Pick returns quick for a quick run and full otherwise.
func (s *Script) Pick(full, quick int) int {
	if s.Quick {
		return quick
	}
	return full
}

// Dial opens a transport connection and sends nothing.
func (s *Script) Dial(conn string) {
	s.add(Step{Op: OpDial, Conn: conn, Setup: true}, "%s: dial", conn)
}

// Connect connects a client and waits until it is accepted; that it is not makes the run say nothing.
func (s *Script) Connect(conn string, options ...ConnectOption) {
	s.connect(conn, false, options)
}

// Resume connects a client of a kept session again; that it is not accepted is a violation.
func (s *Script) Resume(conn string, options ...ConnectOption) {
	s.connect(conn, true, append([]ConnectOption{Kept}, options...))
}

// Reconnect connects a client again with a clean session; that it is not accepted is a violation.
func (s *Script) Reconnect(conn string, options ...ConnectOption) { s.connect(conn, true, options) }

func (s *Script) connect(conn string, expected bool, options []ConnectOption) {
	c := &Connect{Expected: expected}
	for _, o := range options {
		o(c)
	}
	s.add(Step{Op: OpConnect, Conn: conn, Msgs: []Msg{{Type: packet.CONNECT, Connect: c}}, Mode: c.Mode, Setup: !expected},
		"%s: connect (%s), expect CONNACK", conn, c.text())
}

// Watch connects a client with a clean session and subscribes it.
func (s *Script) Watch(conn string, qos byte, filters ...string) {
	s.Connect(conn)
	s.Sub(conn, qos, filters...)
}

// Sub subscribes to each filter and waits for the SUBACK.
func (s *Script) Sub(conn string, qos byte, filters ...string) {
	var subs []packet.Subscription
	for _, f := range filters {
		subs = append(subs, packet.Subscription{Filter: f, QoS: qos})
	}
	s.Subscribe(conn, nil, subs...)
}

// Subscribe sends one SUBSCRIBE and waits for its SUBACK.
func (s *Script) Subscribe(conn string, p *packet.Properties, subs ...packet.Subscription) {
	id := s.ID(conn)
	s.Send(conn, Msg{Type: packet.SUBSCRIBE, ID: id, Subs: subs, Props: p})
	s.add(Step{Op: OpExpect, Conn: conn, Wants: []Want{{Type: history.SUBACK, ID: id}}, Setup: true}, "%s: expect SUBACK(%d)", conn, id)
}

// ID is a Packet Identifier for what is no message: subscriptions and fences. They count down from 65,000.
func (s *Script) ID(conn string) uint16 {
	if s.nextID[conn] == 0 {
		s.nextID[conn] = 65_001
	}
	s.nextID[conn]--
	return s.nextID[conn]
}

// Send writes the packets in one write.
func (s *Script) Send(conn string, msgs ...Msg) {
	s.add(Step{Op: OpSend, Conn: conn, Msgs: msgs}, "%s: send %s", conn, textOf(msgs))
}

// Trickle writes the packets in pieces of n bytes, gap apart.
func (s *Script) Trickle(conn string, n int, gap time.Duration, msgs ...Msg) {
	s.add(Step{Op: OpTrickle, Conn: conn, Msgs: msgs, N: n, For: gap}, "%s: send in pieces of %d bytes %s", conn, n, textOf(msgs))
}

// Expect waits for the packets, in any order; that one does not come is a violation and ends the script.
func (s *Script) Expect(conn string, wants ...Want) {
	s.add(Step{Op: OpExpect, Conn: conn, Wants: wants}, "%s: expect %s", conn, wantsText(wants))
}

// ExpectResent is Expect for what a resumption owes: when it comes is only a should, so that it gets a long time.
func (s *Script) ExpectResent(conn string, wants ...Want) {
	s.add(Step{Op: OpExpect, Conn: conn, Wants: wants, Long: true}, "%s: expect %s, which may take long", conn, wantsText(wants))
}

// AwaitAll waits until the client has got the deliveries, on whichever of its connections, as long as a broker may take to
// send again: what is late is not lost.
func (s *Script) AwaitAll(conn string, bodies ...string) {
	wants := Dels(bodies...)
	s.add(Step{Op: OpGather, Conn: conn, Wants: wants, Long: true}, "%s: wait until it has got %s, which may take long", conn, wantsText(wants))
}

// LongFactor is how many times an answer's time a Long step waits: with the usual ten seconds it covers brokers that send
// again by a timer of half a minute only.
const LongFactor = 4

// Maybe waits for the packets, or for the end of the connection, at most for d, and goes on whatever came.
func (s *Script) Maybe(conn string, d time.Duration, wants ...Want) {
	s.add(Step{Op: OpExpect, Conn: conn, Wants: wants, Soft: true, For: d}, "%s: wait up to %v for %s", conn, d, wantsText(wants))
}

// ExpectClose waits until the broker ends the connection; that it does not is a violation.
func (s *Script) ExpectClose(conn string) {
	s.add(Step{Op: OpExpectClose, Conn: conn}, "%s: expect the broker to close the connection", conn)
}

// MaybeClose waits for the end of the connection, at most for d.
func (s *Script) MaybeClose(conn string, d time.Duration) {
	s.add(Step{Op: OpExpectClose, Conn: conn, Soft: true, For: d}, "%s: see for %v whether the broker closes the connection", conn, d)
}

// Mode changes what the connection answers by itself.
func (s *Script) Mode(conn string, m Mode) {
	s.add(Step{Op: OpMode, Conn: conn, Mode: m}, "%s: %s", conn, m.text())
}

func (m Mode) text() string {
	c := Connect{Mode: m}
	_, rest, ok := strings.Cut(c.text(), ", ")
	if m.Deaf {
		return "read nothing any more"
	}
	if !ok {
		return "acknowledge everything from now on"
	}
	return "from now on " + rest
}

// Quiet waits until nothing has arrived on any connection for d.
func (s *Script) Quiet(d time.Duration) {
	s.add(Step{Op: OpQuiet, For: d}, "wait until nothing has come for %v", d)
}

// Wait waits.
func (s *Script) Wait(d time.Duration) { s.add(Step{Op: OpWait, For: d}, "wait %v", d) }

// Cut ends the connection without a DISCONNECT.
func (s *Script) Cut(conn string) { s.add(Step{Op: OpCut, Conn: conn}, "%s: cut", conn) }

// Reset ends the connection with RST.
func (s *Script) Reset(conn string) { s.add(Step{Op: OpReset, Conn: conn}, "%s: reset", conn) }

// Disconnect says goodbye and ends the connection.
func (s *Script) Disconnect(conn string) {
	s.Send(conn, Msg{Type: packet.DISCONNECT})
	s.ExpectClose(conn)
}

// Flow publishes with a sliding window and waits for every acknowledgement.
func (s *Script) Flow(conn string, f Flow) {
	f = f.withDefaults()
	s.add(Step{Op: OpFlow, Conn: conn, Streams: []Stream{{conn, f}}}, "%s: publish %d messages at QoS %s, window %d, %d identifiers in rotation", conn, f.N, f.qosText(), f.Window, f.IDs)
}

// Flows publishes several flows side by side. What cut names is cut and resumed meanwhile.
func (s *Script) Flows(cut *Cutter, streams ...Stream) {
	text := ""
	for i := range streams {
		f := streams[i].Flow.withDefaults()
		streams[i].Flow = f
		if i < mostShown {
			text += fmt.Sprintf("; %s: publish %d messages at QoS %s, window %d", streams[i].Conn, f.N, f.qosText(), f.Window)
		}
	}
	if len(streams) > mostShown {
		text += fmt.Sprintf("; ... (%d flows)", len(streams))
	}
	if cut != nil {
		text += fmt.Sprintf("; meanwhile cut %s about every %v and resume it", cut.Conn, cut.Every)
	}
	s.add(Step{Op: OpFlow, Conn: streams[0].Conn, Streams: streams, Cutter: cut}, "side by side: %s", strings.TrimPrefix(text, "; "))
}

// Churn publishes with a sliding window in a kept session whose connection is reset again and again; what is not
// acknowledged is sent again in order after each resumption.
func (s *Script) Churn(conn string, f Flow) {
	f = f.withDefaults()
	s.add(Step{Op: OpChurn, Conn: conn, Flow: &f}, "%s: publish %d messages at QoS %s, window %d, and reset the connection about every %v, %d times at most",
		conn, f.N, f.qosText(), f.Window, f.Every, f.Cuts)
}

func (f Flow) withDefaults() Flow {
	if f.Window < 1 {
		f.Window = 1
	}
	if f.First == 0 {
		f.First = 1
	}
	if f.IDs == 0 {
		f.IDs = min(2*f.Window, 60_000)
	}
	if f.Topic == "" {
		f.Topic = "t"
	}
	if f.Prefix == "" {
		f.Prefix = "m"
	}
	return f
}

func (f Flow) qosText() string {
	if len(f.QoSes) > 0 {
		return strings.Trim(fmt.Sprint(f.QoSes), "[]")
	}
	return fmt.Sprint(f.QoS)
}

// QoSOf is the QoS of message k.
func (f *Flow) QoSOf(k int) byte {
	if len(f.QoSes) > 0 {
		return f.QoSes[k%len(f.QoSes)]
	}
	return f.QoS
}

// TopicOf is the topic of message k.
func (f *Flow) TopicOf(k int) string {
	if f.Topics > 1 {
		return fmt.Sprintf("%s/%d", f.Topic, k%f.Topics)
	}
	return f.Topic
}

// Memory records the broker's memory as the fact name, in bytes.
func (s *Script) Memory(name string) {
	s.add(Step{Op: OpMemory, Name: name}, "read the broker's memory (%s)", name)
}

// Exchange completes one message: QoS 1 to its PUBACK, QoS 2 to its PUBCOMP.
func (s *Script) Exchange(conn string, m Msg) {
	s.Send(conn, m)
	switch m.QoS {
	case 1:
		s.Expect(conn, Ack(history.PUBACK, m.ID))
	case 2:
		s.Expect(conn, Ack(history.PUBREC, m.ID))
		s.Release(conn, m.ID)
	}
}

// Release sends PUBREL and waits for PUBCOMP.
func (s *Script) Release(conn string, id uint16) {
	s.Send(conn, Rel(id))
	s.Expect(conn, Ack(history.PUBCOMP, id))
}

// ReleaseSeen sends PUBREL for each PUBREC of the connection that has not got one, in their order, in one write.
func (s *Script) ReleaseSeen(conn string) {
	s.add(Step{Op: OpRelease, Conn: conn}, "%s: PUBREL for every PUBREC so far", conn)
}

// fenceMark begins the body of a message that is a fence and nothing else.
const fenceMark = "~"

// Fence publishes a sentinel of a publisher, of the topic and QoS of what went before, and waits until each watcher has
// it: what the broker delivers in order has come by then. A short time of quiet follows, for what comes out of order.
func (s *Script) Fence(conn string, qos byte, topic string, watchers ...string) {
	s.fences++
	body := fmt.Sprintf("%s%d", fenceMark, s.fences)
	s.Exchange(conn, Msg{Type: packet.PUBLISH, QoS: qos, ID: s.ID(conn), Topic: topic, Body: body})
	for _, w := range watchers {
		s.Expect(w, Del(body))
	}
	s.Quiet(Settle)
}

// Fact keeps what the judge must know of this script.
func (s *Script) Fact(key string, value any) { s.Facts[key] = fmt.Sprint(value) }

// Ping makes sure that the connection is served.
func (s *Script) Ping(conn string) {
	s.Send(conn, Msg{Type: packet.PINGREQ})
	s.Expect(conn, Want{Type: history.PINGRESP})
}

// Idle is how long the script may do nothing but wait.
func (s *Script) Idle() time.Duration {
	total := time.Duration(0)
	for _, step := range s.Steps {
		if step.Op == OpWait || step.Op == OpExpectClose && step.Soft {
			total += step.For
		}
	}
	return total
}
