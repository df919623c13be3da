package library

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"inflight/runner/client"
	"inflight/scenarios"
)

// The process is killed in the middle of a run, and the next load has another one.
func TestNodeDies(t *testing.T) {
	t.Parallel()
	c := clientOf(t, scenarios.ClientMQTTjs)
	broker := startPeer(t, &peer{batch: 1})
	plan := client.Plan{Addrs: []string{broker.addr}, Connections: 1, QoS: 1, Window: 4, Payload: 32, Duration: patience}
	p, err := c.Open(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	first, ok := c.Process()
	if !ok {
		t.Fatal("MQTT.js has no process")
	}
	process, err := os.FindProcess(first)
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the process of MQTT.js") {
		t.Errorf("%v, want the process to be named", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	plan.Duration, plan.MaxMessages = 0, 100
	if _, err := run(t, c, plan); err != nil {
		t.Errorf("after that: %v", err)
	}
	if second, _ := c.Process(); second == first {
		t.Errorf("still process %d", second)
	}
}

func TestNodeIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, err := range []error{
		Check(scenarios.ClientMQTTjs),
		func() error {
			_, err := Prepare(t.Context(), scenarios.ClientMQTTjs, t.TempDir(), t.Logf)
			return err
		}(),
	} {
		if err == nil || !strings.Contains(err.Error(), "is not in PATH (install them: apt-get install nodejs npm") {
			t.Errorf("%v, want what to install", err)
		}
	}
	for _, name := range []string{scenarios.ClientWire, scenarios.ClientPaho, scenarios.ClientPaho3} {
		if err := Check(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// programs puts shell scripts in the place of node and npm.
func programs(t *testing.T, node, npm string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a Unix shell, whose scripts stand in for node and npm")
	}
	dir := t.TempDir()
	for name, body := range map[string]string{"node": node, "npm": npm} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestInstallFails(t *testing.T) {
	for _, test := range []struct{ why, node, npm, want string }{
		{"a Node.js that is too old", "echo v12.22.1", "exit 0", `is Node.js "v12.22.1", and 18 or newer is needed`},
		{"something else called node", "echo hello", "exit 0", `is Node.js "hello"`},
		{"a node that does not run", "exit 3", "exit 0", "node --version: exit status 3"},
		{"no registry", "echo v20.1.0", "echo npm ERR! network >&2; exit 1", "is the npm registry reachable?"},
	} {
		t.Run(test.why, func(t *testing.T) {
			programs(t, test.node, test.npm)
			dir := t.TempDir()
			_, err := Prepare(t.Context(), scenarios.ClientMQTTjs, dir, t.Logf)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			left, _ := filepath.Glob(filepath.Join(dir, "clients", "*"))
			if len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
	t.Run("installed once", func(t *testing.T) {
		count := filepath.Join(t.TempDir(), "count")
		programs(t, "echo v20.1.0", "echo . >>"+count+"; mkdir node_modules")
		dir := t.TempDir()
		for range 2 {
			if _, err := Prepare(t.Context(), scenarios.ClientMQTTjs, dir, t.Logf); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := os.ReadFile(count); string(got) != ".\n" {
			t.Errorf("npm ran %d times, want once", strings.Count(string(got), "."))
		}
		installed, _ := filepath.Glob(filepath.Join(dir, "clients", "mqttjs-5.*", "package-lock.json"))
		if len(installed) != 1 {
			t.Errorf("installed: %q", installed)
		}
	})
}

// A driver that says what it should not is an error, and so is one that prints on its standard error and ends.
func TestDriverAnswers(t *testing.T) {
	for _, test := range []struct{ why, answer, want string }{
		{"no JSON", `echo hello; read x; sleep 60`, "an answer of MQTT.js: invalid character"},
		{"an error", `echo '{"error":"no such host"}'; read x; read x`, "no such host"},
		{"another answer", `echo '{"closed":true}'; read x; read x`, "something else"},
		{"its last words", `read x; echo SyntaxError: oh >&2; exit 2`, "SyntaxError: oh"},
	} {
		t.Run(test.why, func(t *testing.T) {
			programs(t, `case $1 in --version) echo v20.1.0;; *) `+test.answer+`;; esac`, "mkdir node_modules")
			c, err := Prepare(t.Context(), scenarios.ClientMQTTjs, t.TempDir(), t.Logf)
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Open(t.Context(), client.Plan{Addrs: []string{"127.0.0.1:1"}, Connections: 1, QoS: 1, Window: 1, Duration: time.Second})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
