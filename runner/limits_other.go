//go:build !unix

package runner

// maxDescriptors is not known on this system.
func maxDescriptors() (n uint64, ok bool) { return 0, false }
