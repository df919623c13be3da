package runner

import (
	"fmt"
	"slices"

	"inflight/runner/target"
	"inflight/scenarios"
)

// spareDescriptors are those that a run needs beside its connections: logs, results, the runtime's own.
const spareDescriptors = 100

// CheckLimits says whether this machine lets a run of s have as many connections as it wants, before it is started.
func CheckLimits(s *scenarios.Scenario) error {
	n, ok := maxDescriptors()
	if !ok || len(s.Connections) == 0 {
		return nil
	}
	each := 1
	for _, arm := range s.Arms {
		if spec, err := target.Parse(arm.Target); err == nil {
			each = max(each, spec.Descriptors())
		}
	}
	return checkDescriptors(s, each, n)
}

// checkDescriptors has a connection take each descriptors.
func checkDescriptors(s *scenarios.Scenario, each int, limit uint64) error {
	connections := slices.Max(s.Connections)
	if need := each*(connections+s.Subscribers) + spareDescriptors; uint64(need) > limit {
		return fmt.Errorf("%d connections and %d subscribers need %d open files, and this process may have %d: raise the limit (ulimit -n %d), or ask for fewer",
			connections, s.Subscribers, need, limit, need)
	}
	return nil
}
