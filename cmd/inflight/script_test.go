package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"inflight/runner/result"
)

// TestMain lets the test binary be the command: testscript puts a copy of it named inflight into PATH, and a run starts
// its brokers from that copy, as the real program does.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"inflight": func() { os.Exit(runMain()) },
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// What a script builds or caches stays in its own directory.
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			return results(env.WorkDir)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits, "occupied": occupied, "freeaddr": freeAddr, "reachable": reachable},
	})
}

// results puts results that were made by hand into a script's directory: good, bad (incorrect), and elsewhere, which is
// good on a machine with more cores.
func results(dir string) error {
	golden := filepath.Join("..", "..", "testdata", "report")
	for name, from := range map[string]string{"good": "two-arms", "bad": "incorrect", "elsewhere": "two-arms"} {
		r, err := result.Read(filepath.Join(golden, from))
		if err != nil {
			return err
		}
		if name == "elsewhere" {
			r.Environment.Cores = 64
		}
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
		if err := result.Write(filepath.Join(dir, name), r); err != nil {
			return err
		}
	}
	return nil
}

// exits runs a command and wants it to end with a code: exits CODE PROGRAM [ARG...].
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	code, err := 0, ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%s: %v", args[1], err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s ended with %d, want %s", args[1], code, args[0])
	}
}

// occupied listens for as long as the script runs, and puts the address into a variable: occupied NAME.
func occupied(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: occupied NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

// freeAddr puts a loopback address that nobody listens on into a variable: freeaddr NAME.
func freeAddr(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: freeaddr NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	ts.Check(l.Close())
}

// reachable waits until somebody listens on an address: reachable ADDR.
func reachable(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: reachable ADDR")
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", args[0])
		if err == nil {
			ts.Check(c.Close())
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("nobody listens on %s: %v", args[0], err)
		}
	}
}
