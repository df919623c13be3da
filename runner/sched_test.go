package runner

import (
	"math"
	"testing"
	"time"
)

func TestSchedLatencies(t *testing.T) {
	buckets := []float64{0, 1e-6, 1e-3, 1, math.Inf(1)}
	before := schedLatencies{counts: []uint64{5, 5, 5, 5}, buckets: buckets}
	after := schedLatencies{counts: []uint64{985, 10, 15, 10}, buckets: buckets}
	d := after.since(before)
	if got := d.p99(); got == nil || *got != int64(time.Second) {
		t.Errorf("p99 of %v: %v, want the end of the bucket that one in a hundred lies beyond the start of", d.counts, got)
	}
	if d = d.add(schedLatencies{counts: []uint64{10_000, 0, 0, 0}, buckets: buckets}); *d.p99() != int64(time.Microsecond) {
		t.Errorf("p99 of %v: %v", d.counts, time.Duration(*d.p99()))
	}
	if last := (schedLatencies{counts: []uint64{0, 0, 0, 1_000}, buckets: buckets}).p99(); *last != int64(time.Second) {
		t.Errorf("the last bucket has no end: %v", *last)
	}
	if got := (schedLatencies{}).add(before).p99(); got != nil {
		t.Errorf("p99 of 20 samples: %v", got)
	}
	if got := readSchedLatencies(); len(got.counts) == 0 || len(got.buckets) != len(got.counts)+1 {
		t.Errorf("this runtime tells %d counts and %d buckets", len(got.counts), len(got.buckets))
	}
}
