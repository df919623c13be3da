package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A broker on a NATS server of somebody else serves, says no password, and says in one line what it was refused.
func TestBrokerOnNATS(t *testing.T) {
	t.Parallel()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Username: "u", Password: "s3cret",
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	at := func(password string) string {
		return fmt.Sprintf("nats://u:%s@127.0.0.1:%d", password, srv.Addr().(*net.TCPAddr).Port)
	}
	c := start(t, "broker", "--nats", at("s3cret"), "--listen", "127.0.0.1:0", "--ops-listen", ":0", "--log-format", "json", "--lead")
	var line struct{ URL string }
	if err := json.Unmarshal([]byte(c.awaitLine(t, `"operations listener"`)), &line); err != nil {
		t.Fatal(err)
	}
	c.awaitLine(t, `"ready"`)
	if resp, err := http.Get(line.URL + "/readyz"); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %v, %v", resp, err)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.exit(t); code != exitOK {
		t.Errorf("exit code %d, want 0:\n%s", code, &c.log)
	}
	for _, test := range []struct {
		says string
		args []string
	}{
		{"refuses the credentials", []string{"--nats", at("wr0ng")}},
		{"lower --max-packet", []string{"--nats", at("s3cret"), "--max-packet", "4MiB"}},
		{"use --replicas 1", []string{"--nats", at("s3cret"), "--replicas", "3"}},
	} {
		c := start(t, append([]string{"broker", "--listen", "127.0.0.1:0"}, test.args...)...)
		if code := c.exit(t); code != exitTrouble {
			t.Errorf("%s: exit code %d, want %d", test.says, code, exitTrouble)
		}
		said := c.log.String()
		_, last, _ := strings.Cut(said, "inflight: ") // before it is the log
		if !strings.Contains(last, test.says) || strings.Count(last, "\n") != 1 || strings.Contains(said, "s3cret") || strings.Contains(said, "wr0ng") {
			t.Errorf("it says %q, want a last line with %q and no password", said, test.says)
		}
	}
}
