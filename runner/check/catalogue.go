package check

import (
	"cmp"
	"slices"
)

// groups are the groups of the catalogue, in its order.
var groups = []string{"H", "A1", "Q2I", "RES", "Q2O", "ORD", "E2E", "SUB", "BAD", "MISC"}

// Catalogue is every rule that has a script, in the order of the groups.
func Catalogue() []*Rule {
	all := slices.Concat(groupH, groupA1, groupQ2I, groupQ2IEdges, groupRES, groupQ2O, groupQ2OEdges, groupORD, groupE2E, groupSUB, groupBAD, groupMISC, groupHooks)
	slices.SortStableFunc(all, func(a, b *Rule) int {
		return cmp.Or(cmp.Compare(slices.Index(groups, a.Group()), slices.Index(groups, b.Group())), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// AllInvariants are the rules that are judged on every connection of every check.
func AllInvariants() []*Rule { return slices.Clone(invariants) }

// ByID finds a rule, an invariant or a control; nil if there is none.
func ByID(id string) *Rule {
	for _, r := range slices.Concat(Catalogue(), invariants, controls) {
		if r.ID == id {
			return r
		}
	}
	return nil
}
