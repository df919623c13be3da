package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"inflight/runner/result"
)

// child is this program running as a process of its own.
type child struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	log    strings.Builder // what it said so far
	stderr io.ReadCloser
	lines  *bufio.Scanner
	mark   string // in the environment of the process and of all that it starts
}

// start runs inflight with args. It and whatever it started are gone at the end of the test.
func start(t *testing.T, args ...string) *child {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a hanging child must not hang the tests
	t.Cleanup(cancel)
	c := &child{cmd: exec.CommandContext(ctx, "inflight", args...), mark: "INFLIGHT_TEST=" + t.TempDir()}
	c.cmd.Env = append(os.Environ(), c.mark)
	c.cmd.Stdout = &c.stdout
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stderr, c.lines = stderr, bufio.NewScanner(stderr)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range c.family() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return c
}

// awaitLine reads what the child says until a line has text.
func (c *child) awaitLine(t *testing.T, text string) string {
	t.Helper()
	for c.lines.Scan() {
		fmt.Fprintln(&c.log, c.lines.Text())
		if strings.Contains(c.lines.Text(), text) {
			return c.lines.Text()
		}
	}
	t.Fatalf("it ended without saying %q:\n%s", text, &c.log)
	return ""
}

// exit waits for the end and returns the exit code.
func (c *child) exit(t *testing.T) int {
	t.Helper()
	for c.lines.Scan() {
		fmt.Fprintln(&c.log, c.lines.Text())
	}
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

// family lists the processes that carry the child's mark.
func (c *child) family() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(environ, []byte(c.mark)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole run takes seconds; run without -short")
	}
}

// longRun is a run that nobody waits for: a minute, with a cell that is done after the first pass.
func longRun(out string) []string {
	return []string{
		"sweep", "null", "--window", "5", "--passes", "20", "--blocks", "1",
		"--duration", "300ms", "--warmup", "10ms", "--control", "20ms", "--out", out,
	}
}

func TestSignalStopsEverythingAndKeepsWhatWasMeasured(t *testing.T) {
	for name, test := range map[string]struct {
		signal syscall.Signal
		says   string
	}{
		"Ctrl-C":  {syscall.SIGINT, "inflight: interrupted\n"},
		"SIGTERM": {syscall.SIGTERM, "inflight: stopped by a signal (terminated)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			c := start(t, longRun(out)...)
			c.awaitLine(t, "pass 2 of 20: block 1")
			if len(c.family()) < 2 {
				t.Fatal("the broker is no process of its own")
			}
			if err := c.cmd.Process.Signal(test.signal); err != nil {
				t.Fatal(err)
			}
			if code := c.exit(t); code != exitTrouble {
				t.Errorf("exit code %d, want %d", code, exitTrouble)
			}
			if left := c.family(); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
			for _, want := range []string{test.says, "what was measured is kept, marked partial: " + out} {
				if !strings.Contains(c.log.String(), want) {
					t.Errorf("it did not say %q:\n%s", want, &c.log)
				}
			}
			r, err := result.Read(out)
			if err != nil {
				t.Fatal(err)
			}
			if !r.Partial || len(r.Cells) == 0 || r.Trouble == "" {
				t.Errorf("partial %v, trouble %q, %d cells: want the cells of pass 1 marked partial", r.Partial, r.Trouble, len(r.Cells))
			}
			if !strings.Contains(c.stdout.String(), "5") {
				t.Errorf("what was measured is not printed: %q", c.stdout.String())
			}
			if data, _ := filepath.Glob(filepath.Join(out, "data*")); len(data) > 0 {
				t.Errorf("%v is left", data)
			}
		})
	}
}

func TestBrokerThatDiesEndsTheRunWithItsName(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	c := start(t, longRun(out)...)
	c.awaitLine(t, "pass 2 of 20: block 1")
	for _, pid := range c.family() {
		if pid != c.cmd.Process.Pid {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code := c.exit(t); code != exitTrouble {
		t.Errorf("exit code %d, want %d", code, exitTrouble)
	}
	for _, want := range []string{"arm A (null)", "node n1 died: signal: killed", "listening on 127.0.0.1:", "marked partial: " + out} {
		if !strings.Contains(c.log.String(), want) {
			t.Errorf("it did not say %q:\n%s", want, &c.log)
		}
	}
	if r, err := result.Read(out); err != nil || !r.Partial || len(r.Cells) == 0 {
		t.Errorf("the result of pass 1 is not kept: %v", err)
	}
}

// A reader that goes away must not take this process down before it has stopped its brokers.
func TestClosedPipe(t *testing.T) {
	skipShort(t)
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	c := start(t, "sweep", "null", "--window", "5", "--passes", "1", "--blocks", "2",
		"--duration", "200ms", "--warmup", "10ms", "--control", "20ms", "--out", out)
	c.awaitLine(t, "block 1")
	// The end of the pipe that start has opened.
	if err := c.stderr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v because nobody reads what it says", err)
	}
	if left := c.family(); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if r, err := result.Read(out); err != nil || r.Partial {
		t.Errorf("the run was not finished: %v", err)
	}
}

// A full disk is one message with a way on, whether the result or only the renderings do not fit.
func TestFullDisk(t *testing.T) {
	skipShort(t)
	t.Parallel()
	for name, test := range map[string]struct {
		size string
		says string
	}{
		"no room for the result":     {"4k", "result.json: no space left on the disk: free some, or choose another directory"},
		"no room for the renderings": {"64k", ": no space left on the disk: free some, or choose another directory"},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			script := fmt.Sprintf("mount -t tmpfs -o size=%s tmpfs %q && exec inflight sweep null --window 5 --passes 1 --blocks 1 "+
				"--duration 60ms --warmup 10ms --control 20ms --out %q", test.size, mount, filepath.Join(mount, "out"))
			cmd := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if !strings.Contains(stderr.String(), "preparing A") {
				missing := fmt.Sprintf("needs unshare (util-linux) and the right to mount a tmpfs in a user namespace: %v: %s", err, &stderr)
				if os.Getenv("INFLIGHT_REQUIRE_PEERS") == "1" {
					t.Fatal(missing)
				}
				t.Skip(missing + " (INFLIGHT_REQUIRE_PEERS=1 makes this a failure)")
			}
			if cmd.ProcessState.ExitCode() != exitTrouble {
				t.Errorf("exit code %d, want %d", cmd.ProcessState.ExitCode(), exitTrouble)
			}
			if n := strings.Count(stderr.String(), "no space left"); n != 1 || !strings.Contains(stderr.String(), test.says) {
				t.Errorf("%d messages about the disk, want one that says %q:\n%s", n, test.says, &stderr)
			}
			if !strings.Contains(stdout.String(), "5") {
				t.Errorf("the numbers are lost: %q", &stdout)
			}
		})
	}
}

func TestNullServesUntilSIGTERM(t *testing.T) {
	t.Parallel()
	c := start(t, "null", "--listen", "127.0.0.1:0")
	c.awaitLine(t, "listening on 127.0.0.1:")
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.exit(t); code != exitOK {
		t.Errorf("exit code %d, want 0:\n%s", code, &c.log)
	}
}

func TestNullPortInUse(t *testing.T) {
	t.Parallel()
	first := start(t, "null", "--listen", "127.0.0.1:0")
	line := first.awaitLine(t, "listening on ")
	_, addr, _ := strings.Cut(line, "listening on ")
	second := start(t, "null", "--listen", addr)
	if code := second.exit(t); code != exitTrouble || !strings.Contains(second.log.String(), "address already in use") {
		t.Errorf("exit code %d, want %d and the reason:\n%s", code, exitTrouble, &second.log)
	}
}

// SIGHUP makes a broker read its files again; SIGTERM still ends it.
func TestBrokerReloadsOnSIGHUP(t *testing.T) {
	t.Parallel()
	acl := filepath.Join(t.TempDir(), "acl")
	put := func(text string) {
		if err := os.WriteFile(acl, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("everyone allow both a\n")
	c := start(t, "broker", "--store", "memory", "--listen", "127.0.0.1:0", "--acl-file", acl)
	c.awaitLine(t, "ready")
	for _, step := range []struct{ rules, says string }{
		{"everyone deny both a\n", "reloaded certificates, passwords and ACL"},
		{"nonsense\n", "reload: what has an error stays as it was"},
		{"everyone allow both b\n", "reloaded certificates, passwords and ACL"},
	} {
		put(step.rules)
		if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		c.awaitLine(t, step.says)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.exit(t); code != exitOK {
		t.Errorf("exit code %d, want 0:\n%s", code, &c.log)
	}
}
