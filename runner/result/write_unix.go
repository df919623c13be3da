//go:build !windows

package result

import (
	"errors"
	"os"
	"syscall"
)

// errDiskFull is a quota that is used up; a full file system is ENOSPC.
const errDiskFull = syscall.EDQUOT

// syncDir makes the rename itself durable. File systems that cannot sync a directory say EINVAL and are left alone.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil // a directory that may be written and not read: the file is in place
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}
