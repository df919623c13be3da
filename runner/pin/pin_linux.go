package pin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"inflight/scenarios"
)

// allowed are the CPUs that this process may run on now.
func allowed() ([]CPU, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("%w: read the CPUs of this process: %w", ErrImpossible, err)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil { // what it is already: a sandbox that forbids the call says so here
		return nil, fmt.Errorf("%w: set the CPUs of this process: %w", ErrImpossible, err)
	}
	var cpus []CPU
	for n := 0; n <= scenarios.MaxCPU; n++ {
		if set.IsSet(n) {
			cpus = append(cpus, CPU{Number: n, Package: topology(n, "physical_package_id", 0), Core: topology(n, "core_id", n)})
		}
	}
	return cpus, nil
}

// topology is a number that the kernel tells about a CPU, otherwise where it tells none.
func topology(cpu int, name string, otherwise int) int {
	text, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name))
	if err != nil {
		return otherwise
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 0 {
		return otherwise
	}
	return n
}

func setOf(cpus []int) *unix.CPUSet {
	var set unix.CPUSet
	for _, n := range cpus {
		set.Set(n)
	}
	return &set
}

// Thread pins the calling thread, which must be locked to its goroutine, and with it what it starts: a process inherits the
// CPUs of the thread that forks it, before its first instruction. The function returned puts the thread back.
func Thread(cpus []int) (back func(), err error) {
	var before unix.CPUSet
	err = unix.SchedGetaffinity(0, &before)
	if err == nil {
		err = unix.SchedSetaffinity(0, setOf(cpus))
	}
	if err != nil {
		return nil, fmt.Errorf("pin a process to CPU %s: %w", Format(cpus), err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil // it was so a moment ago
}

// Self pins every thread of this process, and gives Go as many processors as it has CPUs then, unless the environment says
// how many. The function returned undoes both.
func Self(cpus []int) (back func(), err error) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("pin the load generator to CPU %s: %w", Format(cpus), err)
	}
	if err := threads(setOf(cpus)); err != nil {
		return nil, errors.Join(fmt.Errorf("pin the load generator to CPU %s: %w", Format(cpus), err), threads(&before))
	}
	goProcessors()
	return func() {
		_ = threads(&before)
		goProcessors()
	}, nil
}

func goProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.SetDefaultGOMAXPROCS()
	}
}

// maxRounds bounds threads: a new thread inherits the CPUs of the one that makes it, so the second round is nearly always
// the last.
const maxRounds = 100

// threads pins every thread, until there is none that was not pinned: one may be made by another that is not yet.
func threads(set *unix.CPUSet) error {
	var done []int
	for range maxRounds {
		tasks, err := filepath.Glob("/proc/self/task/[0-9]*")
		if err != nil {
			return err
		}
		fresh := 0
		for _, task := range tasks {
			id, err := strconv.Atoi(filepath.Base(task))
			if err != nil || slices.Contains(done, id) {
				continue
			}
			if err := unix.SchedSetaffinity(id, set); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return err
			}
			done = append(done, id)
			fresh++
		}
		if fresh == 0 {
			return nil
		}
	}
	return errors.New("new threads appear as fast as they are pinned")
}
