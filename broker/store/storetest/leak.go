package storetest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// settleTime bounds how long goroutines may take to end after the last test.
const settleTime = time.Minute

// parallel is how many parallel tests run at a time. Those of stores and clusters wait more than they work: for elections,
// restarts, time-outs.
const parallel = "8"

// Main runs the tests of a package and fails when goroutines are left behind. Use it as the body of TestMain:
//
//	func TestMain(m *testing.M) { storetest.Main(m) }
func Main(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", parallel)
	}
	code := m.Run()
	if code == 0 {
		if left := Leaked(settleTime); left != "" {
			fmt.Fprintf(os.Stderr, "FAIL: goroutines that nobody ended:\n\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

// Leaked waits until no goroutine of this module or of NATS is left, at most as long as wait, and returns the stacks of
// those that are.
func Leaked(wait time.Duration) string {
	deadline := time.Now().Add(wait)
	for {
		left := foreign()
		if left == "" || time.Now().After(deadline) {
			return left
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// foreign returns the stacks of all goroutines that are neither the caller's nor the runtime's or the test framework's
// own.
func foreign() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var left []string
	for i, stack := range strings.Split(string(buf), "\n\n") {
		if i > 0 && (strings.Contains(stack, "inflight/") || strings.Contains(stack, "nats-io/")) {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}
