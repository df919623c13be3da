package result

import "time"

// Schema names the format of result.json; the number grows with an incompatible change.
const Schema = "inflight.result/1"

// FileName is the name of the result inside a run's directory.
const FileName = "result.json"

// Result is one run: how it was set up, every cell of every pass, and what follows from them.
type Result struct {
	Schema      string      `json:"schema"`
	Tool        Tool        `json:"tool"`
	Started     time.Time   `json:"started"`
	DurationNS  int64       `json:"duration_ns"`
	Partial     bool        `json:"partial"`           // the run was interrupted or failed: what was measured is here
	Trouble     string      `json:"trouble,omitempty"` // why it is partial
	Scenario    Scenario    `json:"scenario"`
	Environment Environment `json:"environment"`
	Arms        []Arm       `json:"arms"`
	Cells       []Cell      `json:"cells"`
	Placements  []Placement `json:"placements,omitempty"`   // of every arm that tells, in every pass
	SideBySide  bool        `json:"side_by_side,omitempty"` // the arms are of several runs: nothing between them is paired
	Runs        []Run       `json:"runs,omitempty"`         // side by side: those that were put together
	Reruns      []Rerun     `json:"reruns,omitempty"`       // of what a gate could not decide: further passes of some points
	Searches    []Search    `json:"searches,omitempty"`     // for the highest rate that keeps to a limit, of each arm, pass and point

	// The rest is derived from Cells by report/stat and can be made again at any time.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	Overall     []Comparison `json:"overall,omitempty"`  // of the throughput over all points together, one for each other arm; without a point
	Control     *Control     `json:"control,omitempty"`  // of the second arm over the first
	Controls    []Control    `json:"controls,omitempty"` // of each other arm over the first, where there are more than two
	Warnings    []Warning    `json:"warnings,omitempty"`
}

// Run is one of several that were put side by side.
type Run struct {
	Name        string      `json:"name"` // of its directory
	Started     time.Time   `json:"started"`
	Environment Environment `json:"environment"`
	Arms        []string    `json:"arms"`      // its arms, as the joint result names them
	OwnNames    []string    `json:"own_names"` // the same, as the run itself named them
}

// Rerun is a second measurement of some points. Its cells are among the others, in passes of their own.
type Rerun struct {
	Started    time.Time `json:"started"`
	DurationNS int64     `json:"duration_ns"`
	Points     []Point   `json:"points"`
	FirstPass  int       `json:"first_pass"` // number of its first pass; the passes before it are of the first run or an earlier rerun
}

// Point is one combination of the swept values.
type Point struct {
	QoS         int `json:"qos"`
	Window      int `json:"window"`
	Connections int `json:"connections"`
	Payload     int `json:"payload_bytes"`
	Rate        int `json:"rate_per_s,omitempty"` // of an open loop

	Ramp  string `json:"rate_ramp,omitempty"`     // as in Cell
	Sizes string `json:"payload_sizes,omitempty"` // as in Cell
}

// Search is what the search for the highest rate at which a limit holds came to, of an arm at a point in a pass. The response
// times that it goes by are those of an open loop: from the intended instant to the acknowledgement.
type Search struct {
	Arm         string `json:"arm"`
	Pass        int    `json:"pass"` // from 1
	QoS         int    `json:"qos"`
	Window      int    `json:"window"`
	Connections int    `json:"connections"`
	Payload     int    `json:"payload_bytes"`
	Sizes       string `json:"payload_sizes,omitempty"` // as in Cell

	Limit      string  `json:"limit"`      // as the scenario has it: p99<20ms
	Percentile float64 `json:"percentile"` // of the response time: 99
	LimitNS    int64   `json:"limit_ns"`   // that it is to stay below

	// The limit holds at Low and breaks at High, messages per second, each in two trials of three at most: what the broker takes
	// is between them. One is absent where none was found, and End says why: found, lowest_breaks, highest_holds,
	// generator_limit (what came next told about the load generator), out_of_trials.
	Low    *int    `json:"low_per_s,omitempty"`
	High   *int    `json:"high_per_s,omitempty"`
	End    string  `json:"end"`
	Trials []Trial `json:"trials"` // in their order
}

// Trial is one run of a Search at a rate.
type Trial struct {
	RatePerS    int     `json:"rate_per_s"`
	ReachedPerS float64 `json:"reached_per_s"`
	DurationNS  int64   `json:"duration_ns"`
	Due         int64   `json:"due"`                 // messages whose instant was in the measured time
	Late        int64   `json:"late"`                // as in Cell
	Missed      int64   `json:"missed"`              // as in Cell
	ValueNS     *int64  `json:"value_ns,omitempty"`  // the percentile over all that were due; absent where so many were not answered
	Held        bool    `json:"held"`                // it stayed below the limit
	Fault       string  `json:"generator,omitempty"` // why it may have been the load generator that did not, in words
}

// Tool identifies the program that made the result.
type Tool struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source, when the build recorded it
}

// Scenario is the effective configuration: every default filled in.
type Scenario struct {
	Name        string `json:"name"`
	Question    string `json:"question,omitempty"`
	QoS         []int  `json:"qos"`
	Windows     []int  `json:"windows"`
	Connections []int  `json:"connections"`
	Payloads    []int  `json:"payload_bytes"`
	DurationNS  int64  `json:"duration_ns"` // measured time of one block run of an arm
	WarmupNS    int64  `json:"warmup_ns"`   // before it, not counted
	ControlNS   int64  `json:"control_ns"`  // measured time of one control run of an arm; 0: no control
	Passes      int    `json:"passes"`
	Blocks      int    `json:"blocks"` // per pass and cell; a block is A B B A
	Nodes       int    `json:"nodes"`
	Replicas    int    `json:"replicas"`
	VerifyNS    int64  `json:"verify_ns"` // publishing time of one verification block; 0: none
	Quick       bool   `json:"quick"`

	Gate []string `json:"gate,omitempty"` // rules of package scenarios/rule, in their one spelling

	PayloadSizes      []string  `json:"payload_sizes,omitempty"`       // distributions, beside Payloads
	RateRamps         []string  `json:"rate_ramps,omitempty"`          // beside the constant rates
	Seed              int       `json:"seed,omitempty"`                // of the order of sizes
	FindMax           string    `json:"find_max,omitempty"`            // limit of the searches for the highest rate: p99<20ms
	Version           string    `json:"version,omitempty"`             // of MQTT that the load speaks: 3.1.1 or 5; "" is 3.1.1
	RatePerS          float64   `json:"rate_per_s,omitempty"`          // open loop: messages per second of a run; 0: closed loop
	RatesPerS         []float64 `json:"rates_per_s,omitempty"`         // several of them, 0 being a closed loop
	RunMessages       int64     `json:"run_messages,omitempty"`        // published in each run instead of for a time; 0: for DurationNS
	Topics            int       `json:"topics,omitempty"`              // per publishing connection; 0: one
	Subscribers       int       `json:"subscribers,omitempty"`         // during the load, each of them to everything
	SubscriberQoS     *int      `json:"subscriber_qos,omitempty"`      // absent: that of the publications
	SubscriberDelayNS int64     `json:"subscriber_delay_ns,omitempty"` // of each message at each subscriber; 0: as fast as it can
}

// Environment is the machine that the run was made on. Absent fields could not be read.
type Environment struct {
	CPU        string `json:"cpu,omitempty"`
	Cores      int    `json:"cores"`
	Kernel     string `json:"kernel,omitempty"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Go         string `json:"go"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	TCPNoDelay bool   `json:"tcp_nodelay"`

	Calibration *Calibration `json:"calibration,omitempty"` // of this machine, as it was stored before the run
	Pinning     *Pinning     `json:"pinning,omitempty"`     // absent: the scheduler placed every process
}

// Pinning is which CPUs the processes of a run could run on, in the kernel's form as 0,2-3. Without a Generator nothing was
// pinned although it was asked for, and Note says why.
type Pinning struct {
	Auto      bool     `json:"auto"` // a plan for the machine; false: a list of the user's
	Generator string   `json:"generator_cpus,omitempty"`
	Slots     []string `json:"slot_cpus,omitempty"` // by slot number; the same for several that share
	Note      string   `json:"note,omitempty"`
}

// Calibration is what is known of a machine: what the load generator can do there, and how far two runs of the same thing
// are apart.
type Calibration struct {
	Started  time.Time `json:"started"`
	Tool     string    `json:"tool"`
	Machine  string    `json:"machine"` // what the calibration is filed under: another one is another machine
	Ceilings []Ceiling `json:"ceilings"`
	Noise    []Noise   `json:"noise,omitempty"`

	// NoiseEffect is the least ratio above 1 that a comparison over all points, with as many blocks as the calibration had,
	// would have told from 1 four times in five.
	NoiseEffect *float64 `json:"noise_effect,omitempty"`
	NoiseTarget string   `json:"noise_target,omitempty"` // that was compared with itself

	ClockNS         int64  `json:"clock_resolution_ns"`
	SchedLatencyP99 *int64 `json:"sched_latency_p99_ns,omitempty"`
	LoopbackP50     *int64 `json:"loopback_p50_ns,omitempty"` // of the round trip of a byte
	LoopbackP99     *int64 `json:"loopback_p99_ns,omitempty"`
}

// Ceiling is what the load generator reached against the null broker.
type Ceiling struct {
	QoS            int      `json:"qos"`
	Window         int      `json:"window"`
	Connections    int      `json:"connections"`
	Payload        int      `json:"payload_bytes"`
	ThroughputPerS float64  `json:"throughput_per_s"`
	PerCPUSecond   *float64 `json:"messages_per_cpu_s,omitempty"` // of the generator
}

// Noise is what a broker compared with itself showed at a point.
type Noise struct {
	QoS         int      `json:"qos"`
	Window      int      `json:"window"`
	Connections int      `json:"connections"`
	Payload     int      `json:"payload_bytes"`
	Ratio       float64  `json:"ratio"`
	Low         *float64 `json:"low,omitempty"`
	High        *float64 `json:"high,omitempty"`
	Effect      *float64 `json:"effect,omitempty"` // as NoiseEffect, at this point alone
	Blocks      int      `json:"blocks"`
}

// Arm is one side of the run. Name is "A", "B", or the scenario's own word for it.
type Arm struct {
	Name       string   `json:"name"`
	Target     string   `json:"target"`
	Version    string   `json:"version"`              // as the broker itself reports it
	Command    []string `json:"command,omitempty"`    // of the first node; absent for a target that was not started
	Durability string   `json:"durability,omitempty"` // memory, file, file+sync; absent if not known

	// Client is the client library that carries the arm's load, as package scenarios names it; "" is the wire client. Its
	// controls are carried by the wire client always. ClientVersion names it for people, as "paho.golang v0.23.0".
	Client        string `json:"client,omitempty"`
	ClientVersion string `json:"client_version,omitempty"`
}

// Label is the target, and what it is loaded through unless that is the wire client.
func (a *Arm) Label() string {
	if a.Client == "" {
		return a.Target
	}
	return a.Target + " through " + a.Client
}

// Placement is which node of a cluster led which of its streams in a pass. A message takes a hop less where the node that
// its publisher is connected to leads, and a fixed share of the work is the leader's.
type Placement struct {
	Arm     string   `json:"arm"`
	Pass    int      `json:"pass"`
	Slot    int      `json:"slot"`
	First   string   `json:"first_node"`      // that connection 1 of the generator goes to; the others follow in turns, see Node.Connections
	Leaders []Leader `json:"leaders"`         // before the first block, by stream
	Moved   []Leader `json:"moved,omitempty"` // those that another node led after the last one
}

// Leader is the node that leads a stream; "" where there was none.
type Leader struct {
	Stream string `json:"stream"`
	Node   string `json:"node"`
}

// Cell is one arm at one point of the sweep in one pass, over all its blocks. Control cells are the QoS 0 runs that
// belong to the cell with the same window, connections and payload.
type Cell struct {
	Arm         string `json:"arm"`
	Pass        int    `json:"pass"` // from 1
	Slot        int    `json:"slot"` // from 1
	QoS         int    `json:"qos"`
	Window      int    `json:"window"`
	Connections int    `json:"connections"`
	Payload     int    `json:"payload_bytes"`
	Control     bool   `json:"control"`
	Client      string `json:"client,omitempty"` // that carried the load, as of the arm; "": the wire client

	ThroughputPerS float64  `json:"throughput_per_s"` // acknowledged exchanges over the measured time of all blocks
	Messages       int64    `json:"messages"`         // acknowledged within the measured time
	DurationNS     int64    `json:"duration_ns"`
	Latency        Latency  `json:"latency_ns"`
	InFlight       InFlight `json:"in_flight"`
	RSSPeak        *int64   `json:"rss_peak_bytes,omitempty"` // highest of any node during the runs of the cell; so far in this pass where the system cannot tell that
	CPUSeconds     *float64 `json:"cpu_s,omitempty"`          // all nodes, during the measured blocks; with subscribers until the last delivery
	Nodes          []Node   `json:"nodes,omitempty"`
	GeneratorCPU   *float64 `json:"generator_cpu_s,omitempty"`
	Order          Order    `json:"order"`
	Ledger         *Ledger  `json:"ledger,omitempty"` // of the verification block; absent on control cells
	Blocks         []Block  `json:"blocks"`

	// Class says what bounded the throughput: window-limited, rate-limited, broker-limited, generator-limited or stalled;
	// "" when it is not known.
	Class string `json:"class,omitempty"`

	// Open loop. RatePerS is what was asked for, all connections together; 0 is a closed loop. Late messages were written
	// after their instant, Missed ones never within the measured time.
	RatePerS float64 `json:"rate_per_s,omitempty"`
	Late     int64   `json:"late,omitempty"`
	Missed   int64   `json:"missed,omitempty"`

	// Ramp is the rate of an open loop that changed evenly over each run, as "1000..20000", of which RatePerS is the mean; "" for a
	// constant one. Sizes is the distribution of payload sizes, as a scenario has it, of which Payload is the mean; "" if all
	// payloads had that size.
	Ramp  string `json:"rate_ramp,omitempty"`
	Sizes string `json:"payload_sizes,omitempty"`

	PayloadBytesPerS *float64 `json:"payload_bytes_per_s,omitempty"` // of the acknowledged messages, over the measured time

	// Of all connections in any run of the cell: the fewest and the most messages that one of them got through, which are alike
	// where none is starved.
	FewestMessages *int64 `json:"connection_messages_fewest,omitempty"`
	MostMessages   *int64 `json:"connection_messages_most,omitempty"`

	// Subscribers that took part in the load, and what all of them together received within the time from the start of the
	// load to its last delivery.
	Subscribers   int      `json:"subscribers,omitempty"`
	DeliveredPerS *float64 `json:"delivered_per_s,omitempty"`

	// Histograms names the file, relative to the result's directory, of an HdrHistogram log with one tagged line each:
	// ack_service, ack_response, publish_to_pubrec, pubrel_to_pubcomp, fence, end_to_end.
	Histograms string `json:"histograms,omitempty"`

	Samples []Sample `json:"samples,omitempty"` // time line of the load, without what the passes did between its runs

	// Of the broker, summed over its nodes: bytes that it made the disk write within the measured time, and the most threads
	// and descriptors seen.
	DiskBytesWritten *int64 `json:"disk_bytes_written,omitempty"`
	Threads          *int64 `json:"threads,omitempty"`
	FDs              *int64 `json:"fds,omitempty"`
	WriteCalls       *int64 `json:"write_calls,omitempty"` // of its nodes together, see Node

	GeneratorRSSPeak *int64 `json:"generator_rss_peak_bytes,omitempty"` // of the load generator so far in the run
	SchedLatencyP99  *int64 `json:"sched_latency_p99_ns,omitempty"`     // for which goroutines of the load generator waited for a processor
	Generator        *Node  `json:"generator,omitempty"`                // the load generator's process, as the broker's

	CPUPer1000 *float64 `json:"cpu_s_per_1000,omitempty"` // CPUSeconds for 1,000 acknowledged messages

	// RSSSlope is how fast the resident memory of all nodes grew over the samples of the longest run, in bytes per second.
	// BytesPerInFlight is what it grew by at most in a run, from the run's start to its peak, for each exchange of the window
	// of all connections; BytesPerQueued for each message of QueuedPeak, which is the most messages that were published and
	// not yet processed by every subscriber. Absent where the numbers are too small to mean something.
	RSSSlope         *float64 `json:"rss_slope_bytes_per_s,omitempty"`
	RSSGrowth        *int64   `json:"rss_growth_bytes,omitempty"`
	BytesPerInFlight *float64 `json:"bytes_per_in_flight,omitempty"`
	QueuedPeak       int64    `json:"queued_peak,omitempty"`
	BytesPerQueued   *float64 `json:"bytes_per_queued,omitempty"`
}

// Classes of a Cell.
const (
	WindowLimited    = "window-limited"    // the window was full and Little's law holds: a larger one may do more
	RateLimited      = "rate-limited"      // open loop, and the broker kept up with what was asked for
	BrokerLimited    = "broker-limited"    // a larger window, or a higher rate, gains nothing
	GeneratorLimited = "generator-limited" // the harness was the bottleneck: the number is not the broker's
	Stalled          = "stalled"           // acknowledgements stopped for a good part of the time
)

// Sample is one moment of a cell's load. Sums are over the nodes of the broker; counts are over the connections.
type Sample struct {
	AtNS      int64    `json:"at_ns"` // since the start of the run of the whole scenario
	RSS       *int64   `json:"rss_bytes,omitempty"`
	CPU       *float64 `json:"cpu_s,omitempty"` // used since the broker was started
	Published int64    `json:"published"`       // in this run of the load
	Due       int64    `json:"due,omitempty"`   // open loop: what its schedule wanted published by then
	Delivered int64    `json:"delivered,omitempty"`

	NodeRSS      []int64 `json:"node_rss_bytes,omitempty"`      // of several nodes, in the order of the cell's
	GeneratorRSS *int64  `json:"generator_rss_bytes,omitempty"` // of the load generator
}

// Incorrect reports whether the cell's number must be struck out: an acknowledgement out of order, or a ledger that
// does not balance.
func (c *Cell) Incorrect() bool {
	return c.Order.Violations > 0 || (c.Ledger != nil && c.Ledger.Violated(c.QoS))
}

// Latency holds the distributions of one cell. Absent ones do not exist at the cell's QoS.
type Latency struct {
	AckService *Distribution `json:"ack_service,omitempty"` // PUBLISH sent -> PUBACK or PUBCOMP read
	Receive    *Distribution `json:"publish_to_pubrec,omitempty"`
	Release    *Distribution `json:"pubrel_to_pubcomp,omitempty"`
	Fence      *Distribution `json:"fence,omitempty"` // QoS 0: PINGREQ behind a batch -> PINGRESP

	AckResponse *Distribution `json:"ack_response,omitempty"` // open loop: intended instant -> PUBACK or PUBCOMP read
	EndToEnd    *Distribution `json:"end_to_end,omitempty"`   // PUBLISH sent -> read by a subscriber, all subscribers
}

// Distribution summarises a histogram; nanoseconds. A percentile with fewer than ten samples beyond it is absent.
type Distribution struct {
	Count int64  `json:"count"`
	Mean  int64  `json:"mean"`
	P50   *int64 `json:"p50,omitempty"`
	P90   *int64 `json:"p90,omitempty"`
	P99   *int64 `json:"p99,omitempty"`
	P999  *int64 `json:"p999,omitempty"`
	Max   int64  `json:"max"`
}

// InFlight compares the window that was asked for with the mean number of exchanges outstanding, all per connection.
// Little is throughput times mean latency per connection: it must agree with AchievedMean (Little's law).
type InFlight struct {
	Requested    int     `json:"requested"`
	AchievedMean float64 `json:"achieved_mean"`
	Little       float64 `json:"little,omitempty"`

	LowestMean  float64 `json:"lowest_mean,omitempty"`  // of the connection with the fewest outstanding in a run
	HighestMean float64 `json:"highest_mean,omitempty"` // of that with the most
}

// Node is one process of the broker during the runs of the cell, or the load generator.
type Node struct {
	Name       string   `json:"name"`
	RSSPeak    *int64   `json:"rss_peak_bytes,omitempty"`
	CPUSeconds *float64 `json:"cpu_s,omitempty"`
	Threads    *int64   `json:"threads,omitempty"` // most seen
	FDs        *int64   `json:"fds,omitempty"`     // open descriptors, most seen
	DiskBytes  *int64   `json:"disk_bytes_written,omitempty"`
	WriteCalls *int64   `json:"write_calls,omitempty"` // system calls that write, to sockets as well

	// As of the cell, for this process alone: messages and exchanges are those of all connections, whichever node they go to.
	// The load generator's growth begins before its publishers connect, since they are what it has for the exchanges; memory that
	// it still has from an earlier run is used again, and is no growth.
	RSSSlope         *float64 `json:"rss_slope_bytes_per_s,omitempty"`
	RSSGrowth        *int64   `json:"rss_growth_bytes,omitempty"`
	BytesPerInFlight *float64 `json:"bytes_per_in_flight,omitempty"`
	CPUPer1000       *float64 `json:"cpu_s_per_1000,omitempty"`

	Connections int `json:"connections,omitempty"` // of the generator's publishers to this node
}

// Order counts acknowledgements that did not come in the order of the packets that they answer, per packet type.
type Order struct {
	Checked    int64            `json:"checked"`
	Violations int64            `json:"violations"`
	ByType     map[string]int64 `json:"by_type,omitempty"` // PUBACK, PUBREC, PUBCOMP
	First      string           `json:"first,omitempty"`   // the first violation in words
}

// Ledger is the account of one verification block, or of a load with subscribers. Published and Acknowledged count
// messages, the others deliveries, of which each subscriber is to have one of each message.
type Ledger struct {
	Published    int64  `json:"published"`
	Acknowledged int64  `json:"acknowledged"`
	Delivered    int64  `json:"delivered"`               // distinct messages
	Subscribers  int    `json:"subscribers,omitempty"`   // each of which is to get every message; 0: one
	DeliveredQoS *int   `json:"delivered_qos,omitempty"` // of the subscriptions; absent: that of the cell
	Lost         int64  `json:"lost"`                    // acknowledged and not delivered
	Duplicated   int64  `json:"duplicated"`              // further copies of a message already delivered
	Reordered    int64  `json:"reordered"`               // first deliveries after a later message of the same connection
	Unordered    bool   `json:"unordered,omitempty"`     // the client keeps no order among publishes: Reordered was not judged
	Corrupt      int64  `json:"corrupt"`                 // deliveries that this run never published
	First        string `json:"first,omitempty"`
	DrainNS      int64  `json:"drain_ns"` // from the last acknowledgement to the last delivery
}

// Violated reports whether the account breaks what qos, that of the publications, promises: no loss of an acknowledged
// message above QoS 0, no second copy at QoS 2 (not even on a subscription at QoS 0: what MQTT allows there are copies of
// QoS 1 messages), and order at each.
func (l *Ledger) Violated(qos int) bool {
	delivered := qos
	if l.DeliveredQoS != nil {
		delivered = min(qos, *l.DeliveredQoS)
	}
	return l.Corrupt > 0 || l.Reordered > 0 || (delivered > 0 && l.Lost > 0) || (qos == 2 && delivered != 1 && l.Duplicated > 0)
}

// Add adds the account of another block of the same cell.
func (l *Ledger) Add(o *Ledger) {
	l.Published += o.Published
	l.Acknowledged += o.Acknowledged
	l.Delivered += o.Delivered
	l.Subscribers = max(l.Subscribers, o.Subscribers)
	l.Lost += o.Lost
	l.Duplicated += o.Duplicated
	l.Reordered += o.Reordered
	l.Unordered = l.Unordered || o.Unordered
	l.Corrupt += o.Corrupt
	l.DrainNS = max(l.DrainNS, o.DrainNS)
	if l.DeliveredQoS == nil {
		l.DeliveredQoS = o.DeliveredQoS
	}
	if l.First == "" {
		l.First = o.First
	}
}

// Block is one run of an arm inside an ABBA block.
type Block struct {
	Block          int     `json:"block"`    // from 1, counted through all passes
	Position       int     `json:"position"` // 1 to 4 in A B B A
	StartedNS      int64   `json:"started_ns"`
	DurationNS     int64   `json:"duration_ns"`
	Messages       int64   `json:"messages"`
	ThroughputPerS float64 `json:"throughput_per_s"`
	P99            *int64  `json:"p99_ns,omitempty"`
}

// Comparison is one arm over another, the base, at one point of the sweep. Low and High bound the 95 % interval; they are
// absent when there are too few blocks for one.
type Comparison struct {
	Base string `json:"base,omitempty"` // names of the arms; "" in old results: A, and B over it
	Arm  string `json:"arm,omitempty"`

	QoS         int       `json:"qos"`
	Window      int       `json:"window"`
	Connections int       `json:"connections"`
	Payload     int       `json:"payload_bytes"`
	RatePerS    float64   `json:"rate_per_s,omitempty"`
	Ramp        string    `json:"rate_ramp,omitempty"`     // as in Cell
	Sizes       string    `json:"payload_sizes,omitempty"` // as in Cell
	Metric      string    `json:"metric"`                  // throughput, ack_service_p99
	Ratio       float64   `json:"ratio"`
	Low         *float64  `json:"low,omitempty"`
	High        *float64  `json:"high,omitempty"`
	Passes      []float64 `json:"passes"`
	SlotEffect  *float64  `json:"slot_effect,omitempty"` // sqrt(r1/r2)
	Blocks      int       `json:"blocks"`
	Verdict     string    `json:"verdict"` // better, worse, same, inconclusive, incorrect
	Warnings    []Warning `json:"warnings,omitempty"`

	Corrected      *Corrected `json:"corrected,omitempty"`       // absent without a control
	P              *float64   `json:"p,omitempty"`               // of the ratio being 1
	PHolm          *float64   `json:"p_holm,omitempty"`          // the same, for all comparisons of the run together
	SmallestEffect *float64   `json:"smallest_effect,omitempty"` // the least ratio above 1 that this run would have told from 1 four times in five
}

// Corrected is a ratio with that of the QoS 0 control taken out.
type Corrected struct {
	Ratio float64  `json:"ratio"`
	Low   *float64 `json:"low,omitempty"`
	High  *float64 `json:"high,omitempty"`
}

// Control is the QoS 0 ratio of B over A, pooled over every block of the run: it must sit at 1.00
// between two builds of one broker, and its spread is the noise floor of the run.
type Control struct {
	Base   string    `json:"base,omitempty"` // as in Comparison
	Arm    string    `json:"arm,omitempty"`
	Ratio  float64   `json:"ratio"`
	Low    *float64  `json:"low,omitempty"`
	High   *float64  `json:"high,omitempty"`
	Blocks int       `json:"blocks"`
	Passes []float64 `json:"passes,omitempty"`
}

// Warning is a reservation that belongs beside a number. Code is stable, Text is for people.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}
