//go:build !linux

package pin

import (
	"fmt"
	"runtime"
)

var errSystem = fmt.Errorf("%w: on %s a process cannot be kept on CPUs of its own (Linux can)", ErrImpossible, runtime.GOOS)

func allowed() ([]CPU, error) { return nil, errSystem }

// Thread is impossible.
func Thread([]int) (back func(), err error) { return nil, errSystem }

// Self is impossible.
func Self([]int) (back func(), err error) { return nil, errSystem }
