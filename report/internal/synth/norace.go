//go:build !race

package synth

// Race tells that the race detector is on.
const Race = false
