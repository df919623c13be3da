// Package store says what a broker must keep: the [Store] interface, the types that cross it, and a contract suite
// (package storetest) that holds every implementation to the same behaviour.
//
// The implementations are its sub-packages: memory (nothing survives), staged (QoS 2 messages staged in one JetStream
// stream until PUBREL, delivered through another), journal (one stream of records that every node applies).
package store
