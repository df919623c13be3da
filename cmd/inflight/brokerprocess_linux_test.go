package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A broker that is configured by a file serves, says so in JSON, and ends with 0 on SIGTERM.
func TestBrokerDrainsOnSIGTERM(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "broker.yaml")
	if err := os.WriteFile(config, []byte("store: memory\nlisten: 127.0.0.1:0\nops-listen: :0\nlog-format: json\nsys-interval: 1ms\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, "broker", "--config", config)
	var line struct{ Msg, URL string }
	if err := json.Unmarshal([]byte(c.awaitLine(t, `"operations listener"`)), &line); err != nil {
		t.Fatal(err)
	}
	c.awaitLine(t, `"ready"`)
	for _, path := range []string{"/readyz", "/healthz", "/metrics"} {
		resp, err := http.Get(line.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.awaitLine(t, `"draining"`)
	if code := c.exit(t); code != exitOK {
		t.Errorf("exit code %d, want 0:\n%s", code, &c.log)
	}
}
