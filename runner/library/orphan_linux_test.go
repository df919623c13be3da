package library

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"inflight/scenarios"
)

// The process of MQTT.js ends with the program that started it, however that ends.
func TestNoOrphan(t *testing.T) {
	t.Parallel()
	clientOf(t, scenarios.ClientMQTTjs)
	broker := startPeer(t, &peer{batch: 1})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerEnv+"="+broker.addr)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	killErr := cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || killErr != nil {
		t.Fatalf("the owner: %v, %v", err, killErr)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); running(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there after its owner was killed", pid)
		}
	}
}

// running reports whether a process is there and no zombie, which somebody else has to reap.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}
