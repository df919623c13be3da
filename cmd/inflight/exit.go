package main

import (
	"errors"
	"fmt"
)

// Exit codes, the same for every command.
const (
	exitOK           = 0
	exitTrouble      = 1 // something went wrong: a broker died, a file could not be written, the run was interrupted
	exitUsage        = 2 // the command line or a scenario file asks for what cannot be
	exitGate         = 3 // a threshold was missed
	exitConformance  = 4 // a broker broke what it must keep: order, or exactly once
	exitInconclusive = 5 // the measurement does not decide the question
)

const exitHelp = `Exit codes: 0 ok, 1 error, 2 usage, 3 gate failed, 4 conformance
violated, 5 inconclusive.`

// codedError carries the exit code of an error that is more than trouble.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// usage marks an error as the user's; nil stays nil.
func usage(err error) error { return coded(exitUsage, err) }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

func coded(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// exitCode is the one place where errors become codes. Of several joined errors a violation wins: it was seen, whatever
// else ended the run.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		code := exitTrouble
		for _, e := range joined.Unwrap() {
			if c := exitCode(e); c == exitConformance || code == exitTrouble {
				code = c
			}
		}
		return code
	}
	var c *codedError
	if errors.As(err, &c) {
		return c.code
	}
	return exitTrouble
}
