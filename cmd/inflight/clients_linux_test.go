package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inflight/report/stat"
	"inflight/runner/library"
	"inflight/runner/result"
	"inflight/scenarios"
)

// The same scenario through every client, against a broker that delivers: each message is accounted for, what a library does
// not tell is not there, and everything that shows a number says what it was measured through.
func TestEveryClient(t *testing.T) {
	skipShort(t)
	t.Parallel()
	clients := scenarios.Clients()
	if trouble := missingNode(t); trouble != "" {
		if os.Getenv("INFLIGHT_REQUIRE_PEERS") == "1" {
			t.Fatal(trouble)
		}
		t.Log(trouble)
		clients = clients[:len(clients)-1]
	}
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"compare"}
	for _, name := range clients {
		args = append(args, "reference?store=memory&client="+name)
	}
	c := start(t, append(args, "--qos", "1,2", "--window", "8", "--connections", "2", "--nodes", "1", "--passes", "1", "--blocks", "1",
		"--duration", "80ms", "--warmup", "20ms", "--control", "30ms", "--verify", "40ms", "--subscribers", "1", "--out", out)...)
	if code := c.exit(t); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, &c.log)
	}
	if left := c.family(); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	r, err := result.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range r.Arms {
		if a.Target != "reference?store=memory" || (a.Client == "") != (i == 0) || (a.ClientVersion == "") != (i == 0) {
			t.Errorf("arm %d is %+v", i, a)
		}
	}
	for i := range r.Cells {
		checkClientCell(t, &r.Cells[i], clients)
	}
	for _, name := range []string{"report.md", "report.html", "throughput.svg"} {
		data, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), "through paho3") {
			t.Errorf("%s does not say what the arms are loaded through", name)
		}
	}
	if !slices.ContainsFunc(r.Warnings, func(w result.Warning) bool { return w.Code == stat.CodeClients }) {
		t.Errorf("it is not said that the ratios are those of clients: %+v", r.Warnings)
	}
}

// missingNode says why MQTT.js cannot be used here; "" if it can. It is installed where the program has it.
func missingNode(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err == nil {
		_, err = library.Prepare(t.Context(), scenarios.ClientMQTTjs, filepath.Join(cache, "inflight"), t.Logf)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// A missing Node.js is said before anything is started or written.
func TestNoNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("inflight", "sweep", "null", "--client", "mqttjs")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir)
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != exitTrouble || !strings.Contains(string(out), "arm A: client mqttjs needs Node.js 18 or newer and npm: n") ||
		!strings.Contains(string(out), "apt-get install nodejs npm") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func checkClientCell(t *testing.T, c *result.Cell, clients []string) {
	t.Helper()
	client := clients[c.Arm[0]-'A']
	if client == scenarios.ClientWire || c.Control {
		if c.Client != "" || c.QoS > 0 && c.Order.Checked == 0 {
			t.Errorf("arm %s, QoS %d, control %v: client %q, %d acknowledgements in order", c.Arm, c.QoS, c.Control, c.Client, c.Order.Checked)
		}
		return
	}
	l := c.Ledger
	if c.Client != client || c.Messages == 0 || l == nil || l.Published == 0 || l.Violated(c.QoS) || l.Unordered != (client == scenarios.ClientPaho) {
		t.Errorf("%s at QoS %d: client %q, %d messages, ledger %+v", client, c.QoS, c.Client, c.Messages, l)
	}
	if c.Latency.AckService == nil || c.Latency.Receive != nil || c.Latency.Release != nil || c.Order.Checked > 0 {
		t.Errorf("%s at QoS %d: %+v and %d acknowledgements in order", client, c.QoS, c.Latency, c.Order.Checked)
	}
	if timed := client != scenarios.ClientMQTTjs; (c.Latency.EndToEnd != nil) != timed {
		t.Errorf("%s at QoS %d: end to end %+v", client, c.QoS, c.Latency.EndToEnd)
	}
	if c.GeneratorCPU == nil || *c.GeneratorCPU <= 0 {
		t.Errorf("%s at QoS %d: generator CPU %v", client, c.QoS, c.GeneratorCPU)
	}
}
