package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/broker/packet"
	"inflight/runner/ledger"
	"inflight/runner/load"
	"inflight/runner/result"
)

// Limits of a Plan.
const (
	MaxConnections = 10_000
	MaxPayload     = 1 << 20 // bytes
	MaxTopics      = 1_000
	MaxRate        = 10_000_000
)

// LateAfter is how far behind its instant a message of an open loop must be written to count as late. A process that sleeps
// is woken up to a millisecond after its time.
const LateAfter = 2 * time.Millisecond

// Defaults of a Plan, used where its field is zero.
const (
	DefaultStallTimeout = 30 * time.Second
	DefaultDrain        = 10 * time.Second
)

// Plan is one population of publishing connections and the load that each Run puts on the broker.
type Plan struct {
	Addrs       []string // host:port; connection i dials Addrs[i%len(Addrs)]
	Connections int      // 1 or more
	QoS         int      // 0, 1 or 2
	Window      int      // exchanges outstanding per connection, 1 to 65,535; at QoS 0 messages not yet fenced
	Payload     int      // bytes; with a Ledger at least ledger.HeaderSize
	Sizes       []int    // bytes of a connection's consecutive messages, over and over; the largest is Payload; nil: all have Payload

	Topic    func(conn int) string // nil: inflight/RUN/CONN
	Topics   int                   // of each connection, taken in turns: Topic with /0, /1, ... behind it; 0 or 1: Topic itself
	ClientID func(conn int) string // nil: inflight-RUN-CONN
	Version  packet.Version        // of MQTT; the zero value is 3.1.1
	Run      uint64                // tells this population's messages from all others
	Username string                // "" for none
	Password []byte                // only with a Username

	Warmup      time.Duration // load before the measured time, not counted
	Duration    time.Duration // measured time; 0 only with MaxMessages: until they are all acknowledged
	MaxMessages int64         // published in each Run, all connections together; 0: no bound

	// Rate makes the loop open: so many messages per second, all connections together, on a schedule that is fixed when a Run
	// begins and does not wait for the broker. The Window bounds what is outstanding: a message whose instant has come
	// waits for a place, and its wait counts. 0: closed loop, as fast as the window allows.
	// With RampTo the rate changes evenly from Rate to RampTo over the measured time, and the warm-up is at Rate.
	Rate, RampTo float64

	Epoch time.Time // of the times in the payloads, with a Ledger and a Payload of ledger.TimedSize; zero: when Open begins

	Drain time.Duration // bound on waiting for outstanding acknowledgements after the end; 0: 10 s, negative: no wait

	StallTimeout time.Duration // nothing at all arriving for so long with exchanges outstanding fails the Run; 0: 30 s
	DialTimeout  time.Duration // of one connection, CONNACK included; 0: 10 s

	Ledger *ledger.Ledger // nil: payloads are not stamped
}

// Stats is what one Run measured. Histograms are in nanoseconds; those that do not exist at the QoS are nil.
type Stats struct {
	Messages int64         // exchanges completed within the measured time
	Bytes    int64         // of their payloads
	Duration time.Duration // the measured time itself; shorter than planned when the run ended early

	AckService *hdrhistogram.Histogram // QoS 1, 2: before the write of the PUBLISH -> PUBACK or PUBCOMP read
	Receive    *hdrhistogram.Histogram // QoS 2: PUBLISH -> PUBREC
	Release    *hdrhistogram.Histogram // QoS 2: PUBREL -> PUBCOMP
	Fence      *hdrhistogram.Histogram // QoS 0: PINGREQ behind a batch -> PINGRESP

	// AckResponse, of an open loop at QoS 1 and 2, is from the instant at which the schedule wanted a message written until its
	// PUBACK or PUBCOMP was read, of every message whose instant is in the measured time. Late are those messages that were
	// written more than LateAfter behind their instant, Missed those that were not written by the end of the measured time.
	AckResponse  *hdrhistogram.Histogram
	Late, Missed int64

	InFlightMean float64 // mean exchanges outstanding per connection over the measured time
	Spread       *Spread // of the connections, where there are several
	Order        result.Order

	Published    int64     // whole run: warm-up, measured time and drain
	Acknowledged int64     // whole run; at QoS 0: fenced
	LastAck      time.Time // when the last of them was read; zero when there was none
	CPUSeconds   *float64  // own process, user and system, over the measured time; nil where it cannot be read
}

// Spread is how far apart the connections of a Run were in its measured time.
type Spread struct {
	InFlightLow, InFlightHigh float64 // the lowest and the highest of their means of exchanges outstanding
	Fewest, Most              int64   // exchanges that one of them completed
}

// WithDefaults fills in what is zero, but for the client's own DialTimeout.
func (p Plan) WithDefaults() Plan {
	if p.Topic == nil {
		run := p.Run
		p.Topic = func(conn int) string { return fmt.Sprintf("inflight/%x/%d", run, conn) }
	}
	if p.ClientID == nil {
		run := p.Run
		p.ClientID = func(conn int) string { return fmt.Sprintf("inflight-%x-%d", run, conn) }
	}
	if p.Drain == 0 {
		p.Drain = DefaultDrain
	}
	if p.Epoch.IsZero() {
		p.Epoch = time.Now()
	}
	p.Topics = max(p.Topics, 1)
	if p.StallTimeout <= 0 {
		p.StallTimeout = DefaultStallTimeout
	}
	return p
}

// Pace is the schedule of the open loop; the zero Pace for a closed one.
func (p *Plan) Pace() load.Pace {
	pace := load.Pace{From: p.Rate, To: p.Rate}
	if p.RampTo > 0 {
		pace.To, pace.Hold, pace.Over = p.RampTo, p.Warmup, p.Duration
	}
	return pace
}

// Validate reports every problem of the plan at once.
func (p *Plan) Validate() error {
	var problems []error
	bad := func(is bool, format string, args ...any) {
		if is {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	bad(len(p.Addrs) == 0, "no address to connect to")
	bad(p.Connections < 1 || p.Connections > MaxConnections, "connections %d: must be 1 to %d", p.Connections, MaxConnections)
	bad(p.QoS < 0 || p.QoS > 2, "QoS %d: must be 0, 1 or 2", p.QoS)
	bad(p.Window < 1 || p.Window > load.MaxWindow, "window %d: must be 1 to %d, there are no more Packet Identifiers",
		p.Window, load.MaxWindow)
	bad(p.Payload < 0 || p.Payload > MaxPayload, "payload of %d bytes: must be 0 to %d", p.Payload, MaxPayload)
	bad(p.Ledger != nil && p.Payload < ledger.HeaderSize, "payload of %d bytes: the ledger's header takes %d",
		p.Payload, ledger.HeaderSize)
	bad(p.Ledger != nil && p.Ledger.Connections() < p.Connections, "a ledger of fewer than %d connections", p.Connections)
	for _, n := range p.Sizes {
		bad(n < 0 || n > p.Payload, "a payload of %d bytes among sizes up to %d", n, p.Payload)
		bad(p.Ledger != nil && n < ledger.HeaderSize, "a payload of %d bytes: the ledger's header takes %d", n, ledger.HeaderSize)
	}
	bad(p.Warmup < 0 || p.Duration < 0 || p.MaxMessages < 0, "warm-up, duration or number of messages below 0")
	bad(p.Topics > MaxTopics, "%d topics of each connection: at most %d", p.Topics, MaxTopics)
	bad(!(p.Rate >= 0) || p.Rate > MaxRate, "a rate of %v messages per second: must be 0 to %d", p.Rate, MaxRate)
	bad(!(p.RampTo >= 0) || p.RampTo > MaxRate, "a ramp to %v messages per second: must be 0 to %d", p.RampTo, MaxRate)
	bad(p.RampTo > 0 && (p.Rate == 0 || p.Duration == 0), "a ramp without a rate that it starts at, or without a duration")
	bad(p.Duration == 0 && p.MaxMessages == 0, "neither a duration nor a number of messages")
	if len(problems) > 0 {
		return fmt.Errorf("load: %w", errors.Join(problems...))
	}
	return nil
}
