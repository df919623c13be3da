package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"inflight/runner/result"
	"inflight/runner/target"
)

// placements notes which nodes lead the streams of each arm. It is called before the first block of a pass, when the
// streams have been used, and after the last. That a broker does not tell is no reason to end a run.
func (r *run) placements(ctx context.Context, pass *Pass, brokers []*target.Broker) {
	for i, b := range brokers {
		leaders, err := b.Leaders(ctx)
		if err != nil && ctx.Err() == nil {
			a := &r.arms[i]
			r.events.send(Event{Kind: Talk, Arm: a.Name, Target: a.Target, Text: fmt.Sprintf("pass %d: %v", pass.Number, err)})
		}
		if err == nil && len(leaders) > 0 {
			r.result.Placements = addPlacement(r.result.Placements, result.Placement{
				Arm: r.arms[i].Name, Pass: pass.Number, Slot: pass.Slots[i], First: b.First(), Leaders: leadersOf(leaders),
			})
		}
	}
}

// addPlacement adds what was found in a pass, or, where something was before, what has moved since.
func addPlacement(all []result.Placement, found result.Placement) []result.Placement {
	for i := range all {
		if p := &all[i]; p.Arm == found.Arm && p.Pass == found.Pass {
			for _, l := range found.Leaders {
				if !slices.Contains(p.Leaders, l) {
					p.Moved = append(p.Moved, l)
				}
			}
			return all
		}
	}
	return append(all, found)
}

// leadersOf is the map as a list, by stream.
func leadersOf(leaders map[string]string) []result.Leader {
	var list []result.Leader
	for _, stream := range slices.Sorted(maps.Keys(leaders)) {
		list = append(list, result.Leader{Stream: stream, Node: leaders[stream]})
	}
	return list
}
