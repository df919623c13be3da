package node

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// unlockFile need not do anything: the lock ends with the handle, which no other process gets.
func unlockFile(*os.File) {}

func lockFile(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return err
}
