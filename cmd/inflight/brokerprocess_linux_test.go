package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"inflight/broker/packet"
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

// A broker that is killed publishes the wills of its clients when it is started again, once.
func TestKilledBrokerPublishesWills(t *testing.T) {
	skipShort(t)
	t.Parallel()
	dir := t.TempDir()
	serve := func() (c *child, addr string) {
		c = start(t, "broker", "--listen", "127.0.0.1:0", "--store-dir", dir)
		line := c.awaitLine(t, "msg=ready")
		return c, regexp.MustCompile(`mqtt=(\S+)`).FindStringSubmatch(line)[1]
	}
	connect := func(addr string, p packet.Connect) (net.Conn, *packet.Reader) {
		t.Helper()
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
		if _, err := nc.Write(packet.AppendConnect(nil, &p)); err != nil {
			t.Fatal(err)
		}
		rd := packet.NewReader(nc, 4096, 0)
		if f, err := rd.Next(); err != nil || f.Type() != packet.CONNACK || f.Body[1] != 0 {
			t.Fatalf("CONNECT: % x, %v", f.Body, err)
		}
		return nc, rd
	}
	c, addr := serve()
	watcher, answers := connect(addr, packet.Connect{ClientID: "watcher"})
	if _, err := watcher.Write(packet.AppendSubscribe(nil, &packet.Subscribe{ID: 1, Subscriptions: []packet.Subscription{{Filter: "gone/#", QoS: 2}}})); err != nil {
		t.Fatal(err)
	}
	if _, err := answers.Next(); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]bool)
	for i := range 6 {
		topic := fmt.Sprintf("gone/%d", i)
		connect(addr, packet.Connect{ClientID: topic, CleanSession: i%2 == 0, Will: &packet.Will{Topic: topic, QoS: 2 - byte(i/2)%2}})
		want[topic] = true
	}
	for round := range 2 { // the second time there is nobody left
		if err := c.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.exit(t)
		c, addr = serve()
		watcher, answers = connect(addr, packet.Connect{ClientID: "watcher"})
		for done := len(want); done > 0; {
			f, err := answers.Next()
			if err != nil {
				t.Fatalf("still to come: %v: %v", want, err)
			}
			var answer []byte
			switch f.Type() {
			case packet.PUBLISH:
				p, err := packet.ParsePublish(f)
				if err != nil || !want[string(p.Topic)] {
					t.Fatalf("got %q (%v), still to come: %v", p.Topic, err, want)
				}
				delete(want, string(p.Topic))
				if answer = packet.AppendAck(nil, packet.PUBREC, p.ID); p.QoS == 1 {
					answer, done = packet.AppendAck(nil, packet.PUBACK, p.ID), done-1
				}
			case packet.PUBREL:
				id, err := packet.ParseAck(f)
				if err != nil {
					t.Fatal(err)
				}
				answer, done = packet.AppendAck(nil, packet.PUBCOMP, id), done-1
			}
			if _, err := watcher.Write(answer); err != nil {
				t.Fatal(err)
			}
		}
		_ = watcher.SetDeadline(time.Now().Add(time.Second))
		if f, err := answers.Next(); err == nil {
			t.Fatalf("round %d, one more: %x % x\n%s", round, f.Header, f.Body, &c.log)
		}
	}
}
