package runner

import (
	"math"
	"runtime/metrics"
	"slices"
	"time"
)

// schedLatencies counts for how long goroutines of this process were ready and waited for a processor. A generator that
// waits is late, and what it measures is late with it.
type schedLatencies struct {
	counts  []uint64
	buckets []float64 // seconds; one more than counts
}

// readSchedLatencies returns the counts since the start of the process; none where the runtime does not tell.
func readSchedLatencies() schedLatencies {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return schedLatencies{}
	}
	h := sample[0].Value.Float64Histogram()
	return schedLatencies{counts: slices.Clone(h.Counts), buckets: slices.Clone(h.Buckets)}
}

// since returns what came after an earlier reading.
func (s schedLatencies) since(earlier schedLatencies) schedLatencies {
	out := schedLatencies{counts: slices.Clone(s.counts), buckets: s.buckets}
	for i := range min(len(out.counts), len(earlier.counts)) {
		out.counts[i] -= earlier.counts[i]
	}
	return out
}

// add is the sum of both; either may be empty.
func (s schedLatencies) add(other schedLatencies) schedLatencies {
	if len(s.counts) == 0 {
		return other
	}
	for i := range min(len(s.counts), len(other.counts)) {
		s.counts[i] += other.counts[i]
	}
	return s
}

// p99 is the upper end of the bucket that holds it, or the lower one of the last, which has no end; absent with too few
// samples.
func (s schedLatencies) p99() *int64 {
	var total uint64
	for _, n := range s.counts {
		total += n
	}
	if total < 100*samplesBeyond {
		return nil
	}
	beyond := total / 100
	for i := len(s.counts) - 1; i >= 0; i-- {
		if s.counts[i] <= beyond {
			beyond -= s.counts[i]
			continue
		}
		v := s.buckets[i+1]
		if math.IsInf(v, 0) {
			v = s.buckets[i]
		}
		ns := int64(v * float64(time.Second))
		return &ns
	}
	return nil
}
