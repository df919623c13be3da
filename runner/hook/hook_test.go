package hook

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const whole = `
declares: [durable]
nodes: ["a:1", "b:2"]
timeout: 5s
hooks:
  restart: [sh, -c, "echo $0 >&2; exit ${1}", "it {{.Addr}}", "0"]
  kill: [sh, -c, "echo one; echo; echo two {{.Node}}; exit 3"]
  kill-node: ["true"]
  start-node: ["false"]
  acl: [sh, -c, 'test "$0" = "{{.Denied}}"', inflight/+/denied]
`

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ why, file, want string }{
		{"everything", whole, ""},
		{"nothing", "{}", ""},
		{"an unknown key", "hook: {}", "unknown field"},
		{"an unknown hook", "hooks: { restrat: [x] }", `unknown hook "restrat": did you mean "restart"?`},
		{"an unknown contract", "declares: [durabel]", `unknown contract "durabel": did you mean "durable"?`},
		{"a shell line", "hooks: { kill: systemctl kill x }", "string was used where sequence is expected"},
		{"no program", `hooks: { kill: [""] }`, "kill: want a list"},
		{"half a pair", "hooks: { stop-store: [x] }", "stop-store needs the hook start-store"},
		{"no nodes", "hooks: { kill-node: [x], start-node: [x] }", "kill-node needs nodes"},
		{"no address", "nodes: [a]", `"a" is no host:port`},
		{"a node twice", "nodes: ['a:1', 'a:1']", "a:1 is there twice"},
		{"an unknown placeholder", "hooks: { kill: ['{{.Host}}'] }", "known: {{.Node}}"},
		{"a placeholder that does not end", "hooks: { kill: ['{{.Node'] }", "unclosed action"},
		{"no time", "timeout: soon", "want a duration"},
		{"too long", "timeout: 24h", "up to 10m"},
	} {
		f, err := parse([]byte(tt.file))
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.why, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", tt.why, err, tt.want)
		case tt.want == "" && f == nil:
			t.Errorf("%s: no file", tt.why)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large, well := filepath.Join(dir, "large"), filepath.Join(dir, "well.yaml")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(well, []byte(whole), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "read the hooks") {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := Read(large); err == nil || !strings.Contains(err.Error(), "is it a file of hooks?") {
		t.Errorf("a file that is something else: %v", err)
	}
	f, err := Read(well)
	if err != nil || strings.Join(f.Names(), " ") != "acl kill kill-node restart start-node" {
		t.Errorf("%v %v", f, err)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	f, err := parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, want string }{
		{"restart", ""},
		{"acl", ""},
		{"kill", "exit status 3: one; two 2"},
		{"start-node", "false: exit status 1"},
		{"slow-store", "there is no hook slow-store"},
	} {
		err := f.Run(t.Context(), tt.name, 2, "b:2")
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A command that does not end is killed with what it has started, and one that leaves a service behind is not waited for.
func TestRunIsBounded(t *testing.T) {
	t.Parallel()
	service := filepath.Join(t.TempDir(), "pid")
	f := &File{timeout: 200 * time.Millisecond, Hooks: map[string][]string{
		"restart": {"sh", "-c", "sleep 100 & wait"},
		"kill":    {"sh", "-c", "sleep 100 & echo $! >" + service + "; exit 0"},
	}}
	start := time.Now()
	if err := f.Run(t.Context(), "restart", 1, ""); err == nil || !strings.Contains(err.Error(), "not done after 200ms") {
		t.Errorf("a command that hangs: %v", err)
	}
	f.timeout = time.Minute
	if err := f.Run(t.Context(), "kill", 1, ""); err != nil {
		t.Errorf("a command that leaves something behind: %v", err)
	}
	if pid, err := os.ReadFile(service); err != nil {
		t.Error(err)
	} else if err := exec.Command("kill", strings.TrimSpace(string(pid))).Run(); err != nil {
		t.Errorf("what it left behind is gone: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Run(ctx, "restart", 1, ""); err == nil {
		t.Error("a check that was interrupted ran its hook to the end")
	}
	if d := time.Since(start); d > 50*time.Second {
		t.Errorf("took %v", d)
	}
}
