package pin

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"inflight/scenarios"
)

// last is one of the CPUs that the test may run on.
func last(t *testing.T) int {
	t.Helper()
	cpus, err := allowed()
	if err != nil || len(cpus) == 0 {
		t.Fatalf("%v, %v", cpus, err)
	}
	return cpus[len(cpus)-1].Number
}

// affinities are the CPU sets of all threads, each once.
func affinities(t *testing.T) map[unix.CPUSet]bool {
	t.Helper()
	seen := map[unix.CPUSet]bool{}
	tasks, _ := filepath.Glob("/proc/self/task/[0-9]*")
	for _, task := range tasks {
		id, _ := strconv.Atoi(filepath.Base(task))
		var set unix.CPUSet
		if unix.SchedGetaffinity(id, &set) == nil {
			seen[set] = true
		}
	}
	return seen
}

func TestSelf(t *testing.T) {
	cpu := last(t)
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	processors := runtime.GOMAXPROCS(0)
	back, err := Self([]int{cpu})
	if err != nil {
		t.Fatal(err)
	}
	if seen := affinities(t); len(seen) != 1 || !seen[*setOf([]int{cpu})] {
		t.Errorf("threads on %v, want all on CPU %d", seen, cpu)
	}
	if n := runtime.GOMAXPROCS(0); os.Getenv("GOMAXPROCS") == "" && n != 1 {
		t.Errorf("Go uses %d processors on one CPU", n)
	}
	if p, err := Here(&scenarios.Scenario{Pin: scenarios.PinAuto}); err != nil || p.Generator != nil || p.Note == "" {
		t.Errorf("a plan for one CPU: %+v, %v", p, err)
	}
	back()
	if seen := affinities(t); len(seen) != 1 || !seen[before] {
		t.Errorf("threads on %v afterwards, want all as before", seen)
	}
	if n := runtime.GOMAXPROCS(0); n != processors {
		t.Errorf("Go uses %d processors afterwards, %d before", n, processors)
	}
	if _, err := Self([]int{scenarios.MaxCPU}); err == nil {
		t.Error("a CPU that is not there is no error")
	}
	if seen := affinities(t); len(seen) != 1 || !seen[before] {
		t.Errorf("threads on %v after a set that is impossible", seen)
	}
}

// A process is where it should be before its first instruction, and its thread goes back.
func TestThread(t *testing.T) {
	cpu := last(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	back, err := Thread([]int{cpu})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", "grep Cpus_allowed_list /proc/self/status").Output()
	if fields := strings.Fields(string(out)); err != nil || len(fields) != 2 || fields[1] != strconv.Itoa(cpu) {
		t.Errorf("%q, %v, want CPU %d", out, err, cpu)
	}
	back()
	if seen := affinities(t); len(seen) != 1 {
		t.Errorf("threads on %v afterwards", seen)
	}
}

func TestHere(t *testing.T) {
	if p, err := Here(&scenarios.Scenario{}); p != nil || err != nil {
		t.Errorf("nothing asked for: %+v, %v", p, err)
	}
	if _, err := Here(&scenarios.Scenario{Pin: "0/1023"}); err == nil || !strings.Contains(err.Error(), "1023 is not among the CPUs") {
		t.Errorf("a CPU that is not there: %v", err)
	}
}
