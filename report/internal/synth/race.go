//go:build race

package synth

// Race tells that the race detector is on. It makes drawing pixels fifty times slower and has nothing to find there, so
// tests draw fewer pictures then.
const Race = true
