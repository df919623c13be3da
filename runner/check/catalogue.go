package check

import "slices"

// Catalogue is every rule that has a script, in the order of the groups.
func Catalogue() []*Rule {
	return slices.Concat(groupH, groupA1, groupQ2I, groupQ2IEdges, groupRES, groupQ2O, groupQ2OEdges, groupORD, groupE2E, groupSUB, groupBAD, groupMISC)
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
