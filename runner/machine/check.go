package machine

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"inflight/runner/result"
)

// Status of a Finding.
const (
	OK   = "ok"
	Warn = "warn" // measurements are possible, and may be spoilt, or something is left out
	Fail = "fail" // measurements will fail
)

// Finding is what one check found.
type Finding struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Text   string `json:"text"`
	Hint   string `json:"hint,omitempty"` // what to do about it
}

// Limits of the checks.
const (
	leastFiles    = 1_024   // descriptors, for anything
	goodFiles     = 65_536  // for 10,000 connections and a broker's own
	leastDisk     = 1 << 30 // bytes
	goodDisk      = 5 << 30
	quietLoad     = 0.25 // of the cores, over a minute
	coarseClock   = time.Microsecond
	oldAfter      = 90 * 24 * time.Hour
	lookFor       = 5 * time.Second // for a program to say its version
	manyOfThePort = 10_000          // ports for 10,000 connections to one address
)

// facts are what the checks judge; negative or empty ones could not be read.
type facts struct {
	files    int64 // soft limit of open files
	load     float64
	cores    int
	governor string
	ports    int // ephemeral
	disk     []disk
}

type disk struct {
	dir  string
	free int64
}

// Check looks at everything that would spoil a measurement. dirs are where results and caches go; calibration is the one that
// is stored, nil without one.
func Check(ctx context.Context, dirs []string, calibration *result.Calibration, now time.Time) []Finding {
	f := readFacts(dirs)
	f.cores = runtime.NumCPU()
	all := f.judge()
	all = append(all, clock(Clock()), loopback(ctx), calibrated(calibration, now))
	return append(all, programs(ctx)...)
}

func (f *facts) judge() []Finding {
	var all []Finding
	add := func(name, status, hint, format string, args ...any) {
		if status == OK {
			hint = ""
		}
		all = append(all, Finding{Name: name, Status: status, Text: fmt.Sprintf(format, args...), Hint: hint})
	}
	grade := func(warn, fail bool) string {
		switch {
		case fail:
			return Fail
		case warn:
			return Warn
		}
		return OK
	}
	if f.files >= 0 {
		add("open files", grade(f.files < goodFiles, f.files < leastFiles), fmt.Sprintf("ulimit -n %d, before a run with thousands of connections", goodFiles), "at most %d", f.files)
	}
	if f.load >= 0 {
		add("other load", grade(f.load > quietLoad*float64(f.cores), false), "end what else runs: it is in every number", "%.2f of %d cores over the last minute", f.load, f.cores)
	}
	switch f.governor {
	case "":
		add("processor governor", OK, "", "not told by this system, as in most virtual machines")
	case "performance":
		add("processor governor", OK, "", "performance")
	default:
		add("processor governor", Warn, "cpupower frequency-set -g performance", "%s: the processor changes its speed with the load", f.governor)
	}
	if f.cores < 2 {
		add("cores", Warn, "the load generator and the broker take turns: only ratios mean anything", "%d", f.cores)
	} else {
		add("cores", OK, "", "%d, Go uses %d", f.cores, runtime.GOMAXPROCS(0))
	}
	if f.ports >= 0 {
		add("local ports", grade(f.ports < manyOfThePort, false), "sysctl net.ipv4.ip_local_port_range='1024 65535'", "%d for outgoing connections", f.ports)
	}
	for _, d := range f.disk {
		add("free disk", grade(d.free < goodDisk, d.free < leastDisk), "choose another directory with --out, or free some", "%.1f GiB at %s", float64(d.free)/(1<<30), d.dir)
	}
	return all
}

func clock(resolution time.Duration) Finding {
	f := Finding{Name: "clock", Status: OK, Text: fmt.Sprintf("steps of %v", resolution)}
	if resolution == 0 || resolution > coarseClock {
		f.Status, f.Hint = Warn, "latencies below a few of its steps mean nothing"
	}
	return f
}

func loopback(ctx context.Context) Finding {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return Finding{Name: "loopback", Status: Fail, Text: err.Error(), Hint: "brokers are started on 127.0.0.1"}
	}
	_ = l.Close()
	return Finding{Name: "loopback", Status: OK, Text: "127.0.0.1 has free ports"}
}

func calibrated(c *result.Calibration, now time.Time) Finding {
	switch {
	case c == nil:
		return Finding{Name: "calibration", Status: Warn, Text: "this machine has none", Hint: "inflight calibrate, once"}
	case now.Sub(c.Started) > oldAfter:
		return Finding{Name: "calibration", Status: Warn, Text: "of " + c.Started.Format(time.DateOnly), Hint: "inflight calibrate, again"}
	}
	return Finding{Name: "calibration", Status: OK, Text: "of " + c.Started.Format(time.DateOnly)}
}

// wanted is a program that some of inflight's targets, clients or tests use.
type wanted struct {
	names   []string // any of them
	version []string // arguments that make it say its version
	purpose string
	install string
}

func programs(ctx context.Context) []Finding {
	var all []Finding
	for _, w := range []wanted{
		{[]string{"go"}, []string{"version"}, "to build nats-server and mochi", "https://go.dev/dl"},
		{[]string{"mosquitto"}, []string{"-h"}, "the target mosquitto", "apt-get install mosquitto"},
		{[]string{"node"}, []string{"--version"}, "clients and brokers under Node", "apt-get install nodejs npm"},
		{[]string{"chromium", "chromium-browser", "google-chrome", "chrome"}, nil, "to look at reports, and for the tests of the page", "apt-get install chromium"},
	} {
		all = append(all, w.look(ctx))
	}
	return all
}

func (w *wanted) look(ctx context.Context) Finding {
	for _, name := range w.names {
		found, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		text := found
		if w.version != nil {
			ctx, cancel := context.WithTimeout(ctx, lookFor)
			out, _ := exec.CommandContext(ctx, found, w.version...).Output() // mosquitto says it and exits with an error
			cancel()
			if line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n"); line != "" {
				text = line
			}
		}
		return Finding{Name: w.names[0], Status: OK, Text: text}
	}
	return Finding{Name: w.names[0], Status: Warn, Text: "not found; it is for " + strings.TrimPrefix(w.purpose, "to "), Hint: w.install}
}
