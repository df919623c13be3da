package ops

import (
	"math/bits"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Snapshot is everything that the broker has counted, at one moment. Counters only grow while the process runs.
type Snapshot struct {
	Version, Store, Durability string
	Ready                      bool // whether the broker serves clients: started and not draining
	Uptime                     time.Duration
	Leaders                    map[string]string // of the streams of a cluster, by stream: the node, "" for none

	// Gauges.
	Connections, Sessions, Subscriptions int
	InFlightIn                           int // QoS 2 publications of clients between PUBLISH and PUBCOMP
	InFlightOut                          int // messages to subscribers that have no PUBACK or PUBCOMP yet
	Pending                              int // responses that wait in the pipelines
	StorePending                         int // store operations of connections under way

	// Counters.
	Accepted    int64
	Closed      []Labelled // connections by why they ended
	BytesIn     int64
	BytesOut    int64
	PacketsIn   []Labelled // by packet type
	PacketsOut  []Labelled
	MessagesIn  [3]int64 // PUBLISH packets by QoS, retransmissions included
	MessagesOut [3]int64
	Dropped     []Labelled // messages by why they were dropped
	StoreOps    []StoreOp
}

// Labelled is one counter of a family.
type Labelled struct {
	Label string
	Value int64
}

// StoreOp counts one kind of store operation.
type StoreOp struct {
	Kind       string
	OK, Failed int64
	Seconds    Latency // of both, of a sample
}

// latencyBuckets is how many buckets a [Latency] has: bounds from 2^14 ns (16 µs) to 2^34 ns (17 s), and one above.
const (
	firstBucketBit = 14
	latencyBuckets = 22
)

// Latency is a histogram of durations: counts per bucket, not cumulative, and the sum. Bucket i ends at 2^(14+i)
// nanoseconds, inclusive: powers of two cost one instruction to find, and are fine enough to tell a slow disk.
type Latency struct {
	Buckets [latencyBuckets]int64
	Sum     time.Duration
}

// Bucket is the index in [Latency] of a duration.
func Bucket(d time.Duration) int {
	if d <= 1<<firstBucketBit {
		return 0
	}
	return min(bits.Len64(uint64(d-1))-firstBucketBit, latencyBuckets-1)
}

// NewRegistry returns a registry of its own with the broker's metrics, the Go runtime's and the process's.
func NewRegistry(snapshot func() Snapshot) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{snapshot: snapshot, d: newDescriptions()},
	)
	return r
}

// descriptions are the metric families.
type descriptions struct {
	info, ready, uptime                  *prometheus.Desc
	connections, sessions, subscriptions *prometheus.Desc
	inFlight, pending, storePending      *prometheus.Desc
	accepted, closed                     *prometheus.Desc
	bytes, packets, messages, dropped    *prometheus.Desc
	storeOps, storeSeconds               *prometheus.Desc
	leader                               *prometheus.Desc
}

func newDescriptions() descriptions {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("inflight_broker_"+name, help, labels, nil)
	}
	return descriptions{
		info:          d("info", "Always 1; what is running.", "version", "store", "durability"),
		leader:        d("stream_leader", "1 for the node that leads a stream of the cluster, as this node knows it.", "stream", "leader"),
		ready:         d("serving", "1 while the broker takes connections, 0 while it starts or drains."),
		uptime:        d("uptime_seconds", "Time since the broker was started."),
		connections:   d("connections", "Network connections that are open."),
		sessions:      d("sessions", "Sessions that this node serves, connected or not."),
		subscriptions: d("subscriptions", "Subscriptions of these sessions."),
		inFlight:      d("inflight", "Exchanges under way: in, QoS 2 publications of clients; out, messages above QoS 0 to subscribers.", "direction"),
		pending:       d("pipeline_pending", "Responses that wait for a store operation or for their turn."),
		storePending:  d("store_pending", "Store operations of connections under way."),
		accepted:      d("connections_accepted_total", "Network connections accepted."),
		closed:        d("connections_closed_total", "Network connections ended, by why.", "reason"),
		bytes:         d("bytes_total", "Bytes of control packets.", "direction"),
		packets:       d("packets_total", "Control packets by type.", "direction", "type"),
		messages:      d("messages_total", "PUBLISH packets by QoS, retransmissions included.", "direction", "qos"),
		dropped:       d("messages_dropped_total", "Messages dropped for one subscription, by why.", "reason"),
		storeOps:      d("store_operations_total", "Store operations of connections that have ended.", "operation", "outcome"),
		storeSeconds:  d("store_operation_seconds", "How long store operations took, from the start to the outcome; of pipelined ones a sample.", "operation"),
	}
}

// collector turns a snapshot into metrics.
type collector struct {
	snapshot func() Snapshot
	d        descriptions
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.d.info, c.d.ready, c.d.uptime, c.d.connections, c.d.sessions, c.d.subscriptions, c.d.inFlight, c.d.pending, c.d.storePending,
		c.d.accepted, c.d.closed, c.d.bytes, c.d.packets, c.d.messages, c.d.dropped, c.d.storeOps, c.d.storeSeconds, c.d.leader,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.snapshot()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(c.d.info, 1, s.Version, s.Store, s.Durability)
	ready := 0.0
	if s.Ready {
		ready = 1
	}
	gauge(c.d.ready, ready)
	gauge(c.d.uptime, s.Uptime.Seconds())
	gauge(c.d.connections, float64(s.Connections))
	gauge(c.d.sessions, float64(s.Sessions))
	gauge(c.d.subscriptions, float64(s.Subscriptions))
	gauge(c.d.inFlight, float64(s.InFlightIn), "in")
	gauge(c.d.inFlight, float64(s.InFlightOut), "out")
	gauge(c.d.pending, float64(s.Pending))
	gauge(c.d.storePending, float64(s.StorePending))
	counter(c.d.accepted, s.Accepted)
	counter(c.d.bytes, s.BytesIn, "in")
	counter(c.d.bytes, s.BytesOut, "out")
	for _, l := range s.Closed {
		counter(c.d.closed, l.Value, l.Label)
	}
	for _, l := range s.PacketsIn {
		counter(c.d.packets, l.Value, "in", l.Label)
	}
	for _, l := range s.PacketsOut {
		counter(c.d.packets, l.Value, "out", l.Label)
	}
	for qos, name := range [...]string{"0", "1", "2"} {
		counter(c.d.messages, s.MessagesIn[qos], "in", name)
		counter(c.d.messages, s.MessagesOut[qos], "out", name)
	}
	for _, l := range s.Dropped {
		counter(c.d.dropped, l.Value, l.Label)
	}
	for stream, leader := range s.Leaders {
		if leader != "" {
			gauge(c.d.leader, 1, stream, leader)
		}
	}
	for _, op := range s.StoreOps {
		counter(c.d.storeOps, op.OK, op.Kind, "ok")
		counter(c.d.storeOps, op.Failed, op.Kind, "failed")
		ch <- histogram(c.d.storeSeconds, op)
	}
}

func histogram(d *prometheus.Desc, op StoreOp) prometheus.Metric {
	bounds := make(map[float64]uint64, latencyBuckets)
	total := uint64(0)
	for i, n := range op.Seconds.Buckets {
		total += uint64(n)
		if i < latencyBuckets-1 { // the last has no bound
			bounds[time.Duration(1<<(firstBucketBit+i)).Seconds()] = total
		}
	}
	return prometheus.MustNewConstHistogram(d, total, op.Seconds.Sum.Seconds(), bounds, op.Kind)
}
