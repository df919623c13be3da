//go:build !linux

package target

// usage is not known on this system.
func usage(int) (rssPeak *int64, cpuSeconds *float64) { return nil, nil }
