package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

func main() {
	os.Exit(runMain())
}

// runMain is main without the exit, for the tests that run this program as a command.
func runMain() int {
	// A closed pipe must come back as an error of the write: the default would end this process on the spot and leave
	// its brokers running.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	ctx, stop := untilSignal(context.Background())
	defer stop()
	return run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// untilSignal returns a context that the first SIGINT, SIGTERM or SIGHUP ends, a SIGHUP only until someone asks for
// hangups. The second one ends the process, as it does by default.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	hup := &hangup{c: make(chan struct{}, 1)}
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGHUP && hup.wanted.Load() {
					select {
					case hup.c <- struct{}{}:
					default: // one is waiting, and will see what this one is about
					}
					continue
				}
				cancel(&signalError{s})
			case <-ctx.Done():
			}
			return
		}
	}()
	return context.WithValue(ctx, hangupKey{}, hup), func() { cancel(context.Canceled) }
}

// hangup is where SIGHUP goes once it does not end the process any more.
type hangup struct {
	wanted atomic.Bool
	c      chan struct{}
}

type hangupKey struct{}

// hangups takes SIGHUP over: from now on each one is sent to the channel, for a server to reload. It is nil, which never
// receives, for a context that is not of untilSignal.
func hangups(ctx context.Context) <-chan struct{} {
	hup, ok := ctx.Value(hangupKey{}).(*hangup)
	if !ok {
		return nil
	}
	hup.wanted.Store(true)
	return hup.c
}

// signalError is why a context ended.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string {
	if e.signal == os.Interrupt {
		return "interrupted"
	}
	return fmt.Sprintf("stopped by a signal (%v)", e.signal)
}

// Is lets those who only ask whether the context was cancelled see that it was.
func (e *signalError) Is(target error) bool { return target == context.Canceled }

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "inflight: %v\n", err)
	}
	return exitCode(err)
}
