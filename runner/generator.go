package runner

import (
	"os"

	"inflight/runner/target"
)

// processes are those of the load generator by their ids: this one first, and that of a client library that has one of its own.
type processes []int

// generator is what carries the load of a step.
func (r *run) generator(step *Step) processes {
	all := processes{os.Getpid()}
	if pid, ok := r.arms[step.Arm].process(); ok && !step.Control {
		all = append(all, pid)
	}
	return all
}

// usage is what they have used so far.
func (p processes) usage() target.Usage {
	all := target.Own()
	for _, pid := range p[1:] {
		all = together(all, target.UsageOf(pid))
	}
	return all
}

// rss is their resident memory now; nil where one does not tell.
func (p processes) rss() *int64 {
	var all int64
	for _, pid := range p {
		now, ok := target.PulseOf(pid)
		if !ok {
			return nil
		}
		all += now.RSS
	}
	return &all
}

// together is what two processes have used; absent where one of them does not tell.
func together(a, b target.Usage) target.Usage {
	sum := func(x, y *int64) *int64 {
		if x == nil || y == nil {
			return nil
		}
		n := *x + *y
		return &n
	}
	out := target.Usage{
		Name: a.Name, RSSPeak: sum(a.RSSPeak, b.RSSPeak), RSS: sum(a.RSS, b.RSS), Threads: sum(a.Threads, b.Threads), FDs: sum(a.FDs, b.FDs),
		DiskBytes: sum(a.DiskBytes, b.DiskBytes), WriteCalls: sum(a.WriteCalls, b.WriteCalls),
	}
	if a.CPUSeconds != nil && b.CPUSeconds != nil {
		s := *a.CPUSeconds + *b.CPUSeconds
		out.CPUSeconds = &s
	}
	return out
}
