package stat

import (
	"fmt"
	"slices"
	"strings"

	"inflight/runner/result"
)

// placements finds pairs of arms whose streams were not led alike: by the same nodes where both have the same streams, by the
// node of the first publisher to the same extent where they have not. The crossover cancels what belongs to a slot; where
// leaders are drawn anew with each start, it does not cancel them.
func placements(r *result.Result, warn func(code, format string, args ...any)) {
	if r.SideBySide || len(r.Arms) == 0 {
		return
	}
	base := placementsOf(r, r.Arms[0].Name)
	if len(r.Arms) == 1 {
		base.warnMoved(r.Arms[0].Name, warn)
		return
	}
	for _, arm := range r.Arms[1:] {
		other := placementsOf(r, arm.Name)
		if len(base) == 0 || len(other) == 0 || alike(append(slices.Clone(base), other...)) {
			continue
		}
		warn(CodePlacement, "the streams of %s and %s were not led alike, which alone may move rates; led by the node of the first publisher, pass by pass: %s %s; %s %s",
			r.Arms[0].Name, arm.Name, r.Arms[0].Name, base.near(), arm.Name, other.near())
	}
}

// armPlacements are those of one arm, by pass.
type armPlacements []result.Placement

func placementsOf(r *result.Result, arm string) armPlacements {
	var out armPlacements
	for _, p := range r.Placements {
		if p.Arm == arm {
			out = append(out, p)
		}
	}
	return out
}

// warnMoved is what there is to say of a single arm.
func (all armPlacements) warnMoved(arm string, warn func(code, format string, args ...any)) {
	if !alike(all) {
		warn(CodePlacement, "the streams of %s were not led alike all the time, which alone may move rates; led by the node of the first publisher, pass by pass: %s", arm, all.near())
	}
}

// alike reports whether no leader moved, and whether each is like the first.
func alike(all []result.Placement) bool {
	for i := range all {
		if len(all[i].Moved) > 0 || i > 0 && !likeEachOther(&all[0], &all[i]) {
			return false
		}
	}
	return true
}

// likeEachOther compares leaders by the streams' names where they have any in common, and otherwise by how many are near.
func likeEachOther(a, b *result.Placement) bool {
	led := map[string]string{}
	for _, l := range a.Leaders {
		led[l.Stream] = l.Node
	}
	common := 0
	for _, l := range b.Leaders {
		node, ok := led[l.Stream]
		if !ok {
			continue
		}
		common++
		if node != l.Node {
			return false
		}
	}
	if common > 0 {
		return true
	}
	nearA, nearB := nearest(a), nearest(b)
	return nearA*len(b.Leaders) == nearB*len(a.Leaders)
}

// nearest counts the streams that the node of the first publisher leads.
func nearest(p *result.Placement) (n int) {
	for _, l := range p.Leaders {
		if l.Node == p.First {
			n++
		}
	}
	return n
}

// near says how many streams were led by the node of the first publisher: 2 and 0 of 5, one number for each pass.
func (all armPlacements) near() string {
	var passes []string
	for i := range all {
		text := fmt.Sprintf("%d of %d", nearest(&all[i]), len(all[i].Leaders))
		if n := len(all[i].Moved); n > 0 {
			text += fmt.Sprintf(" (%d moved)", n)
		}
		passes = append(passes, text)
	}
	return strings.Join(passes, ", ")
}
