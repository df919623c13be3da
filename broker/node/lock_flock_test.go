//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package node

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A program that is being started has, for a moment, what this process has open. That does not keep the directory from the
// next node.
func TestLockEndsWithTheNode(t *testing.T) {
	t.Parallel()
	cfg := Config{Name: "n1", StoreDir: t.TempDir()}
	first, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := unix.Dup(int(first.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited) //nolint:errcheck // nothing was written
	first.Stop()
	second, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	second.Stop()
}
