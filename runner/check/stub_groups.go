package check

var (
	groupQ2O  []*Rule
	groupORD  []*Rule
	groupE2E  []*Rule
	groupSUB  []*Rule
	groupBAD  []*Rule
	groupMISC []*Rule
)
