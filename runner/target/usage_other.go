//go:build !linux

package target

// usage is not known on this system.
func usage(int, *Usage) {}

func pulse(int) (rss int64, cpuSeconds float64, ok bool) { return 0, 0, false }

func resetPeak(int) bool { return false }
