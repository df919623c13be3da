package library

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inflight/runner/client"
	"inflight/scenarios"
)

// ownerEnv makes the test binary a program that has a process of MQTT.js: its value is the address of a broker. It prints the
// id of that process and waits.
const ownerEnv = "INFLIGHT_TEST_OWNER"

// leakWait is how long goroutines may be left after the tests: paho.mqtt.golang may be 30 s in a Publish on a connection that
// has ended.
const leakWait = 40 * time.Second

func TestMain(m *testing.M) {
	if addr, ok := os.LookupEnv(ownerEnv); ok {
		if err := own(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	for end := time.Now().Add(leakWait); code == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func own(addr string) error {
	c, err := Prepare(context.Background(), scenarios.ClientMQTTjs, cache(), func(string, ...any) {})
	if err != nil {
		return err
	}
	if _, err := c.Open(context.Background(), client.Plan{
		Addrs: []string{addr}, Connections: 1, QoS: 1, Window: 1, Duration: time.Second,
	}); err != nil {
		return err
	}
	pid, _ := c.Process()
	fmt.Println(pid)
	select {}
}

// cache is where MQTT.js is installed, as for the program itself.
func cache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "inflight")
}

// clientOf makes a client ready until the test ends. Without Node.js, npm or its registry the test is skipped, or fails where
// INFLIGHT_REQUIRE_PEERS=1.
func clientOf(t *testing.T, name string) *Client {
	t.Helper()
	if name == scenarios.ClientMQTTjs && testing.Short() {
		t.Skip("a process of Node.js takes a second to start; run without -short")
	}
	c, err := Prepare(t.Context(), name, cache(), t.Logf)
	if err != nil {
		if os.Getenv("INFLIGHT_REQUIRE_PEERS") == "1" || name != scenarios.ClientMQTTjs {
			t.Fatal(err)
		}
		t.Skipf("needs Node.js 18 or newer with npm, and its registry (INFLIGHT_REQUIRE_PEERS=1 makes this a failure): %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
