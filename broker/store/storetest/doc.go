// Package storetest is the contract suite of [store.Store]: what every implementation must do, as one test that each of
// them runs ([Run]), and the check for leaked goroutines that their tests end with ([Main]).
//
// The suite knows nothing of an implementation but what the [Fixture] tells it. A subtest uses Client Identifiers and topics of
// its own, so that all of them may run on one node.
//
// Nothing here waits in order to see that nothing comes: a fence, a further message of the same kind, must be the next
// thing that arrives.
package storetest
