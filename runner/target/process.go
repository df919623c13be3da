package target

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"inflight/runner/pin"
)

// stopGrace is what a process gets between being asked to end and being killed.
const stopGrace = 5 * time.Second

// killWait is how long a killed process may take to disappear: the kernel may have to finish its writes first.
const killWait = 20 * time.Second

// process is one child from before its start until it was reaped.
type process struct {
	name     string // of the node
	cmd      *exec.Cmd
	log      *os.File // what it prints goes here without passing through us; closed at the start of the child
	logPath  string
	logStart int64 // where its own part of the log begins, bytes

	expected bool // its end was asked for: it has not died; guarded by the broker's mu

	exited chan struct{} // closed once it was reaped; status is valid then
	status string
	onExit func(*process) // called once, before exited is closed

	mu     sync.Mutex
	reaped bool // its process id may be another's
	used   Usage
}

// newProcess makes a process that will print into the log at logPath, which is appended to: a slot is used several times.
func newProcess(name, logPath string, command []string) (*process, error) {
	if err := os.MkdirAll(filepath.Dir(logPath), 0o777); err != nil {
		return nil, fmt.Errorf("make the log directory: %w", err)
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("open the log of node %s: %w", name, err)
	}
	_, err = fmt.Fprintf(log, "--- inflight %s: %s\n", time.Now().UTC().Format(time.RFC3339), strings.Join(command, " "))
	info, statErr := log.Stat()
	if err := errors.Join(err, statErr); err != nil {
		return nil, errors.Join(fmt.Errorf("write the log of node %s: %w", name, err), log.Close())
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	ownGroup(cmd)
	dieWithThread(cmd)
	return &process{name: name, cmd: cmd, log: log, logPath: logPath, logStart: info.Size(), exited: make(chan struct{})}, nil
}

// startAll starts the processes from one thread, on cpus (none: on any), and returns how many it started; below
// len(processes) with an error.
//
// The kernel kills a child with the thread that forked it, and the runtime ends threads as it likes. So one goroutine
// starts them all and keeps its thread to itself until the last of them has been reaped.
func startAll(processes []*process, cpus []int) (int, error) {
	type outcome struct {
		n   int
		err error
	}
	started := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var alive sync.WaitGroup
		var o outcome
		back := func() {}
		if len(cpus) > 0 {
			var err error
			if back, err = pin.Thread(cpus); err != nil {
				o.err, back = err, func() {}
			}
		}
		for _, p := range processes {
			if o.err == nil {
				if err := p.cmd.Start(); err != nil {
					o.err = fmt.Errorf("start node %s: %w", p.name, err)
				} else {
					o.n++
					alive.Go(p.wait)
				}
			}
			p.log.Close() // the child has its own
		}
		back()
		started <- o
		alive.Wait()
	}()
	o := <-started
	return o.n, o.err
}

// wait reaps the process and ends what is left of its group.
func (p *process) wait() {
	zombie := awaitExit(p.cmd)
	if !zombie {
		p.cmd.Wait() // there is no other way to see the end here
	}
	// From here on nobody signals: as long as there is the zombie its id, which is its group's too, is not another's.
	p.mu.Lock()
	if zombie {
		killGroup(p.cmd)
		p.cmd.Wait()
	}
	p.reaped = true
	p.mu.Unlock()
	p.status = p.cmd.ProcessState.String()
	if p.onExit != nil {
		p.onExit(p)
	}
	close(p.exited)
}

// signal calls send unless the process was reaped.
func (p *process) signal(send func(*exec.Cmd) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		send(p.cmd) // an error means that it has just ended
	}
}

// stop ends the process: asked first, killed after grace; with a grace of 0 killed at once.
func (p *process) stop(grace time.Duration) error {
	if grace > 0 {
		p.signal(endGroup)
		if p.endsWithin(grace) {
			return nil
		}
	}
	p.signal(killGroup)
	if p.endsWithin(killWait) {
		return nil
	}
	return fmt.Errorf("node %s: process %d is still there %v after it was killed", p.name, p.cmd.Process.Pid, killWait)
}

// kill ends the process without a warning.
func (p *process) kill() error { return p.stop(0) }

func (p *process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// usage is what the process has used so far, once it has ended what it had used at the call before.
func (p *process) usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		usage(p.cmd.Process.Pid, &p.used)
	}
	p.used.Name = p.name
	return p.used
}

// pulse is not known once the process has ended.
func (p *process) pulse() (_ Pulse, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return Pulse{}, false
	}
	return pulse(p.cmd.Process.Pid)
}

func (p *process) resetPeak() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && resetPeak(p.cmd.Process.Pid)
}

// lastLines is the end of what the process printed.
func (p *process) lastLines() []string { return tail(p.logPath, p.logStart) }
