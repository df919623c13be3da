package result

import "syscall"

// errDiskFull is ERROR_DISK_FULL.
const errDiskFull = syscall.Errno(112)

// syncDir does nothing: Windows has no way to sync a directory, and its rename is durable with the file.
func syncDir(string) error { return nil }
