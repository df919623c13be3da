package scenarios

import (
	"cmp"
	"slices"
	"time"
)

// Limits of a Scenario. They keep a typing error from becoming a week of load.
const (
	MaxWindow      = 65_535 // Packet Identifiers of one connection, section 2.3.1
	MaxConnections = 10_000
	MaxPayload     = 1 << 20
	MaxPasses      = 20
	MaxBlocks      = 100
	MaxNodes       = 9
	MaxReplicas    = 5                // of a JetStream stream
	MaxDuration    = 10 * time.Minute // of one block run
	MaxArms        = 6                // all of them run at the same time
	MaxPoints      = 1_000            // combinations of the swept values
	MaxRate        = 10_000_000       // messages per second
	MaxMessages    = 100_000_000      // of one run
	MaxTopics      = 1_000            // of one connection
	MaxSubscribers = 1_000
	MaxDelay       = time.Minute // of a slow subscriber, for each message
)

// Versions of MQTT.
const (
	MQTT311 = "3.1.1"
	MQTT5   = "5"
)

// Sessions of subscribers.
const (
	SessionClean = "clean"
	SessionKept  = "kept"
)

// None switches off a part of the run that has a time of its own: Control or Verify.
const None time.Duration = -1

// Scenario is one question: which arms, at which points, for how long. The zero value of a field means its default
// (see [Scenario.WithDefaults]).
type Scenario struct {
	Name        string
	Question    string
	Arms        []Arm
	QoS         []int    // 0, 1, 2
	Windows     []int    // exchanges outstanding per connection, 1 to 65,535
	Connections []int    // publishing connections, spread over the nodes
	Payloads    []int    // bytes
	Sizes       []string // distributions of payload sizes in their one spelling, further points beside Payloads
	Duration    time.Duration
	Warmup      time.Duration
	Control     time.Duration // of the QoS 0 control run; negative: no control
	Passes      int
	Blocks      int           // per pass and cell
	Nodes       int           // processes of a started broker, 1 or more
	Replicas    int           // stream replicas where the broker has them
	Verify      time.Duration // publishing time of a verification block; negative: none
	Drain       time.Duration // bound on waiting for deliveries
	Quick       bool
	Gate        []string // rules that a result is judged by, see package scenarios/rule; none: the gate's own defaults

	// Rates are those of open loops, in messages per second of all connections together; 0 is a closed loop, as fast as the
	// window allows.
	Rates    []int
	Ramps    []Ramp // further points beside Rates
	FindMax  Limit  // after the blocks of a point, the highest rate that keeps to it is searched for; zero: no search
	Messages int    // published in each run, for as long as that takes, instead of Duration; 0: Duration
	Topics   int    // of each publishing connection, in turns

	// Subscribers take part in the load, each of them to everything; 0: none. They have their own ledger.
	Subscribers       int
	SubscriberQoS     *int          // nil: that of the publications
	SubscriberDelay   time.Duration // that each of them takes for each message; 0: none
	SubscriberSession string        // SessionClean or SessionKept

	Version string // of MQTT that the load speaks: MQTT311 or MQTT5
	Pin     string // CPUs of generator and slots: PinOff, PinAuto, or sets that ParsePins reads
	Seed    int    // of the order of payload sizes; it is the same in every run
	Client  string // that carries the load of the arms which name none, one of Clients

	// QuickForm is what Quicken changes, from the scenario's own quick section; nil: the general short form.
	QuickForm []Setting
}

// Setting is one key of a scenario with its values as text, the way a file and a flag both give them.
type Setting struct {
	Key    string
	Values []string
}

// Arm is one broker under test; Name defaults to A, B, ...
type Arm struct {
	Name   string
	Target string // a target string, see package runner/target; ?client=NAME in it is the same as Client
	Client string // one of Clients; "": that of the scenario
}

// Point is one combination of the swept values.
type Point struct {
	QoS, Window, Connections, Payload int
	Rate                              int // messages per second, of a ramp at its start; 0: closed loop

	RampTo int    // messages per second at the end of a ramp; 0: the rate is constant
	Sizes  string // distribution of the payload sizes, of which Payload is the mean; "": all have that size
}

// MeanRate is the messages per second that an open loop asks for over the whole of its measured time.
func (p Point) MeanRate() float64 {
	if p.RampTo > 0 {
		return float64(p.Rate+p.RampTo) / 2
	}
	return float64(p.Rate)
}

// Ramp is the ramp in words that a scenario takes, "" if the rate is constant.
func (p Point) Ramp() string {
	if p.RampTo == 0 {
		return ""
	}
	return Ramp{p.Rate, p.RampTo}.String()
}

// Points expands the sweep: QoS outermost, then connections, payload, rate, and window innermost, each in the given order,
// single sizes before distributions and constant rates before ramps. A Scenario without rates has the closed loop alone.
func (s *Scenario) Points() []Point {
	var points []Point
	for _, qos := range s.QoS {
		for _, connections := range s.Connections {
			for _, payload := range s.payloads() {
				for _, rate := range s.rates() {
					for _, window := range s.Windows {
						points = append(points, Point{
							QoS: qos, Window: window, Connections: connections, Payload: payload.Payload, Sizes: payload.Sizes,
							Rate: rate.Rate, RampTo: rate.RampTo,
						})
					}
				}
			}
		}
	}
	return points
}

// payloads are the points of the payloads alone.
func (s *Scenario) payloads() (list []Point) {
	for _, bytes := range s.Payloads {
		list = append(list, Point{Payload: bytes})
	}
	for _, text := range s.Sizes {
		p := Point{Sizes: text}
		if of, err := parseSizes(text); err == nil { // else Validate says so
			p.Payload = of.mean()
		}
		list = append(list, p)
	}
	return list
}

// rates are the points of the rates alone.
func (s *Scenario) rates() (list []Point) {
	for _, rate := range s.Rates {
		list = append(list, Point{Rate: rate})
	}
	for _, ramp := range s.Ramps {
		list = append(list, Point{Rate: ramp.From, RampTo: ramp.To})
	}
	if list == nil {
		return []Point{{}}
	}
	return list
}

// WithDefaults returns a copy, sharing nothing with s, in which every field that was zero has its default. Replicas
// follow Nodes, at most 3, so that changing the number of nodes alone makes sense. Arms are named A, B, ... where they
// have no name, and have the client that their target string names.
func (s Scenario) WithDefaults() Scenario {
	s.Name = cmp.Or(s.Name, "unnamed")
	s.QoS = listOr(s.QoS, 2)
	s.Windows = listOr(s.Windows, 1, 10, 20, 256)
	s.Connections = listOr(s.Connections, 1)
	s.Sizes = slices.Clone(s.Sizes)
	if len(s.Sizes) == 0 {
		s.Payloads = listOr(s.Payloads, 256)
	}
	s.Payloads = slices.Clone(s.Payloads)
	s.Duration = cmp.Or(s.Duration, 500*time.Millisecond)
	s.Warmup = cmp.Or(s.Warmup, 100*time.Millisecond)
	s.Control = cmp.Or(s.Control, 250*time.Millisecond)
	s.Passes = cmp.Or(s.Passes, 2)
	s.Blocks = cmp.Or(s.Blocks, 5)
	s.Nodes = cmp.Or(s.Nodes, 3)
	s.Replicas = cmp.Or(s.Replicas, min(s.Nodes, 3))
	s.Verify = cmp.Or(s.Verify, 500*time.Millisecond)
	s.Drain = cmp.Or(s.Drain, 20*time.Second)
	s.Ramps = slices.Clone(s.Ramps)
	if len(s.Ramps) == 0 {
		s.Rates = listOr(s.Rates, 0)
	}
	s.Rates = slices.Clone(s.Rates)
	s.Seed = cmp.Or(s.Seed, 1)
	s.Topics = cmp.Or(s.Topics, 1)
	s.SubscriberSession = cmp.Or(s.SubscriberSession, SessionClean)
	s.Version = cmp.Or(s.Version, MQTT311)
	s.Pin = cmp.Or(s.Pin, PinOff)
	s.Client = cmp.Or(s.Client, ClientWire)
	if s.SubscriberQoS != nil {
		qos := *s.SubscriberQoS
		s.SubscriberQoS = &qos
	}
	s.QuickForm = slices.Clone(s.QuickForm)
	s.Gate = slices.Clone(s.Gate)
	s.Arms = slices.Clone(s.Arms)
	for i := range s.Arms {
		if s.Arms[i].Name == "" {
			s.Arms[i].Name = string(rune('A' + i%26))
		}
		s.Arms[i].settle(s.Client)
	}
	return s
}

// Quicken returns the short form of s: marked Quick, with the settings of its quick section, or of a general one when it
// has none. What is set afterwards wins.
func (s Scenario) Quicken() Scenario {
	form := s.QuickForm
	if form == nil {
		form = []Setting{
			{"blocks", []string{"2"}},
			{"duration", []string{"150ms"}},
			{"warmup", []string{"30ms"}},
			{"control", []string{"50ms"}},
			{"verify", []string{"60ms"}},
		}
	}
	s.Quick = true
	s.QuickForm = nil
	for _, setting := range form {
		// Load checked them when it read them; a Scenario made in code is checked by Validate.
		_ = s.Set(setting.Key, setting.Values...)
	}
	return s
}

func listOr(list []int, defaults ...int) []int {
	if len(list) == 0 {
		return defaults
	}
	return slices.Clone(list)
}
