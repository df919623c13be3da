package client

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range and precision of every latency histogram.
const (
	lowestLatency  = time.Microsecond
	highestLatency = 10 * time.Minute
	digits         = 3
)

// NewHistogram has the range and precision of every latency histogram; nanoseconds.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(lowestLatency), int64(highestLatency), digits)
}

// latencies are the histograms of one QoS; those that do not exist at it are nil.
type latencies struct {
	ack, receive, release, fence, response *hdrhistogram.Histogram
}

func newLatencies(plan *Plan) latencies {
	var l latencies
	switch plan.QoS {
	case 0:
		l.fence = NewHistogram()
	case 1:
		l.ack = NewHistogram()
	default:
		l.ack, l.receive, l.release = NewHistogram(), NewHistogram(), NewHistogram()
	}
	if plan.QoS > 0 && plan.Rate > 0 {
		l.response = NewHistogram()
	}
	return l
}

// recorder is a set of histograms that several connections share: at 170 KB each, one set for every connection would
// cost gigabytes. It is locked once for each batch of acknowledgements, not for each of them.
type recorder struct {
	sync.Mutex
	latencies
}

// tally records into one histogram and gathers runs of equal values: acknowledgements that were read together, of packets
// that were written together, have the same latency.
type tally struct {
	h     *hdrhistogram.Histogram
	value time.Duration
	n     int64
}

func (t *tally) add(v time.Duration) {
	if v != t.value {
		t.flush()
		t.value = v
	}
	t.n++
}

func (t *tally) flush() {
	if t.n > 0 {
		// The value is inside the range then, which is the only error there is.
		_ = t.h.RecordValues(int64(min(max(t.value, 0), highestLatency)), t.n)
		t.n = 0
	}
}

func (l *latencies) merge(from *latencies) {
	for _, pair := range [][2]*hdrhistogram.Histogram{
		{l.ack, from.ack}, {l.receive, from.receive}, {l.release, from.release}, {l.fence, from.fence}, {l.response, from.response},
	} {
		if pair[0] != nil {
			pair[0].Merge(pair[1]) // of the same range: nothing can be dropped
		}
	}
}
