//go:build !linux

package target

// usage is not known on this system.
func usage(int, *Usage) {}

func pulse(int) (Pulse, bool) { return Pulse{}, false }

func resetPeak(int) bool { return false }
