//go:build !linux

package target

import "errors"

// CanFailStore reports whether FailStore works on this system.
func CanFailStore() bool { return false }

func (*process) limitFiles(bool) error {
	return errors.New("this system cannot limit the files of another process")
}
