package runner

import (
	"fmt"
	"slices"

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
	return checkDescriptors(s, n)
}

func checkDescriptors(s *scenarios.Scenario, limit uint64) error {
	connections := slices.Max(s.Connections)
	if need := connections + s.Subscribers + spareDescriptors; uint64(need) > limit {
		return fmt.Errorf("%d connections and %d subscribers need %d open files, and this process may have %d: raise the limit (ulimit -n %d), or ask for fewer",
			connections, s.Subscribers, need, limit, need)
	}
	return nil
}
