package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"inflight/runner/null"
	"inflight/runner/result"
	"inflight/runner/target"
	"inflight/scenarios"
)

// TestMain lets the test binary be the null broker's process, the way the inflight binary is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "null":
			os.Exit(serveNull(os.Args[2:]))
		case "broker":
			fmt.Println("inflight 0.0-test")
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func serveNull(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("null", flag.ContinueOnError)
	listen := flags.String("listen", "", "")
	delay := flags.Duration("delay", 0, "")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	l, err := net.Listen("tcp", *listen)
	if err == nil {
		fmt.Fprintln(os.Stderr, "listening on", l.Addr())
		err = null.Serve(ctx, l, null.Config{Delay: *delay})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// against is a short run of two arms of the null broker, each a process.
func against(t *testing.T, change func(*scenarios.Scenario)) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Self:        self,
		OutDir:      t.TempDir(),
		CacheDir:    t.TempDir(),
		ToolVersion: "0.0-test",
		Scenario: scenario(func(s *scenarios.Scenario) {
			s.Arms[1].Target = "null?delay=1ms"
			s.Windows = []int{1, 20}
			s.Blocks = 1
			s.Duration, s.Warmup, s.Control = 100*time.Millisecond, 5*time.Millisecond, 80*time.Millisecond
			if change != nil {
				change(s)
			}
		}),
	}
}

// leftovers fails the test for what a run must not leave behind.
func leftovers(t *testing.T, cfg Config) {
	t.Helper()
	if data, _ := filepath.Glob(filepath.Join(cfg.OutDir, "data-*")); len(data) > 0 {
		t.Errorf("data directories left behind: %v", data)
	}
	if pids := children(t); len(pids) > 0 {
		t.Errorf("processes left behind: %v", pids)
	}
}

func TestRun(t *testing.T) {
	var events []Event
	cfg := against(t, nil)
	cfg.Progress = func(e Event) { events = append(events, e) }
	res, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	leftovers(t, cfg)
	for i := range res.Cells {
		if c := &res.Cells[i]; c.Histograms == "" {
			t.Errorf("no histograms of arm %s, pass %d, QoS %d", c.Arm, c.Pass, c.QoS)
		} else if _, err := os.Stat(filepath.Join(cfg.OutDir, c.Histograms)); err != nil {
			t.Error(err)
		}
	}
	if logs, _ := filepath.Glob(filepath.Join(cfg.OutDir, "logs", "*")); len(logs) == 0 {
		t.Error("no log of any broker is kept")
	}
	if res.Schema != result.Schema || res.Partial || res.Trouble != "" || res.DurationNS <= 0 || res.Tool.Version != "0.0-test" {
		t.Errorf("result %+v", res)
	}
	if a := res.Arms[1]; a.Name != "B" || a.Target != "null?delay=1ms" || a.Version != "0.0-test" || !slices.Contains(a.Command, "null") {
		t.Errorf("arm B %+v", a)
	}
	if e := res.Environment; e.Cores < 1 || e.Go == "" || e.GOMAXPROCS < 1 {
		t.Errorf("environment %+v", e)
	}
	checkCells(t, res)
	checkEvents(t, events)
}

func checkCells(t *testing.T, res *result.Result) {
	t.Helper()
	if len(res.Cells) != 2*2*2*2 {
		t.Errorf("%d cells, want 16: 2 arms, 2 passes, 2 windows, each with its control", len(res.Cells))
	}
	for i := range res.Cells {
		c := &res.Cells[i]
		name := fmt.Sprintf("arm %s, pass %d, QoS %d, window %d", c.Arm, c.Pass, c.QoS, c.Window)
		if want := 1 + (int(c.Arm[0]-'A')+c.Pass-1)%2; c.Slot != want {
			t.Errorf("%s: slot %d, want %d", name, c.Slot, want)
		}
		if c.Control != (c.QoS == 0) || (c.Latency.Fence != nil) != c.Control || (c.Latency.Release != nil) != (c.QoS == 2) {
			t.Errorf("%s: control %v, latencies %+v", name, c.Control, c.Latency)
		}
		if len(c.Blocks) != 2 {
			t.Errorf("%s: %d runs, want 2", name, len(c.Blocks))
		}
		if c.Messages == 0 || c.ThroughputPerS <= 0 || c.Order.Violations != 0 {
			t.Errorf("%s: %d messages, %f/s, order %+v", name, c.Messages, c.ThroughputPerS, c.Order)
		}
		if c.Ledger != nil {
			t.Errorf("%s: a ledger of a broker that delivers nothing", name)
		}
		if !c.Control && (c.InFlight.Requested != c.Window || c.InFlight.AchievedMean > float64(c.Window)+1e-9 || c.InFlight.AchievedMean < 0.5) {
			t.Errorf("%s: in flight %+v", name, c.InFlight)
		}
		if c.Arm == "B" && c.QoS == 2 && (c.Latency.AckService.Mean < int64(2*time.Millisecond) || c.ThroughputPerS > float64(c.Window)*500) {
			t.Errorf("%s: %f/s at twice a delay of 1 ms, mean %d ns", name, c.ThroughputPerS, c.Latency.AckService.Mean)
		}
		if measuresProcesses && (c.RSSPeak == nil || *c.RSSPeak < 1<<20 || c.CPUSeconds == nil || len(c.Nodes) != 1) {
			t.Errorf("%s: RSS %v, CPU %v, nodes %v", name, c.RSSPeak, c.CPUSeconds, c.Nodes)
		}
	}
}

func checkEvents(t *testing.T, events []Event) {
	t.Helper()
	kinds := map[Kind]int{}
	var last time.Duration
	for _, e := range events {
		kinds[e.Kind]++
		if e.Kind == Talk {
			continue
		}
		if e.Passes != 2 || e.Blocks != 1 || e.Done < last || e.Total < e.Done {
			t.Errorf("event %+v after %v", e, last)
		}
		last = e.Done
		if e.Kind == Running && (e.Arm == "" || e.Point.Window == 0 || e.Pass == 0 || e.Slot == 0) {
			t.Errorf("event %+v does not say what runs", e)
		}
		// Cells of a broker that delivers nothing are done all the same.
		if e.Kind == CellDone && (e.Cell == nil || e.Cell.Messages == 0) {
			t.Errorf("event %+v has no cell", e)
		}
	}
	for kind, want := range map[Kind]int{Preparing: 2, Starting: 2, CellDone: 16, PassDone: 2, Stopping: 2} {
		if kinds[kind] != want {
			t.Errorf("%d events %q, want %d", kinds[kind], kind, want)
		}
	}
}

func TestRunOfOneArm(t *testing.T) {
	cfg := against(t, func(s *scenarios.Scenario) {
		s.Arms, s.QoS, s.Windows, s.Passes = s.Arms[:1], []int{2}, []int{20}, 1
		s.Connections = []int{3}
		s.Verify = scenarios.None
	})
	res, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	leftovers(t, cfg)
	if len(res.Cells) != 2 || res.Cells[0].Connections != 3 || len(res.Cells[0].Blocks) != 1 {
		t.Errorf("cells %+v, want the measured one and its control", res.Cells)
	}
}

func TestRunIsCancelled(t *testing.T) {
	for name, when := range map[string]func(e Event) bool{
		"while the brokers start":        func(e Event) bool { return e.Kind == Starting },
		"in the first load":              func(e Event) bool { return e.Kind == Running && e.Block == 0 },
		"in the second pass":             func(e Event) bool { return e.Kind == Running && e.Pass == 2 && e.Block == 1 },
		"while the first pass is ending": func(e Event) bool { return e.Kind == Stopping && e.Pass == 1 },
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && strings.Contains(name, "first pass") {
				t.Skip("interrupts a second pass; run without -short")
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cfg := against(t, func(s *scenarios.Scenario) { s.QoS, s.Windows = []int{1}, []int{20} })
			cfg.Progress = func(e Event) {
				if when(e) {
					cancel()
				}
			}
			res, err := Run(ctx, cfg)
			leftovers(t, cfg)
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v, want it cancelled", err)
			}
			if !res.Partial || res.Trouble == "" {
				t.Errorf("partial %v, trouble %q", res.Partial, res.Trouble)
			}
			if strings.Contains(name, "pass") && len(res.Cells) < 4 {
				t.Errorf("%d cells, want those of the first pass kept", len(res.Cells))
			}
		})
	}
}

func TestBrokerDiesInTheMiddle(t *testing.T) {
	if !measuresProcesses {
		t.Skip("needs /proc, where the broker's process is found")
	}
	for name, when := range map[string]func(e Event) bool{
		"the loaded one": func(e Event) bool { return e.Kind == Running && e.Block == 2 && e.Arm == "B" && !e.Control },
		"the idle one":   func(e Event) bool { return e.Kind == Running && e.Block == 2 && e.Arm == "A" && !e.Control },
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "the idle one" {
				t.Skip("kills the idle arm as well; run without -short")
			}
			cfg := against(t, func(s *scenarios.Scenario) {
				s.QoS, s.Windows, s.Blocks = []int{1}, []int{20}, 2
				s.Duration = 150 * time.Millisecond
			})
			killed := false
			cfg.Progress = func(e Event) {
				if killed || !when(e) {
					return
				}
				killed = true
				for pid, command := range children(t) {
					if slices.ContainsFunc(command, func(arg string) bool { return strings.HasSuffix(arg, "delay=1ms") }) {
						kill(t, pid)
					}
				}
			}
			res, err := Run(t.Context(), cfg)
			leftovers(t, cfg)
			var dead *target.DeadError
			if !errors.As(err, &dead) {
				t.Fatalf("got %v, want the death of a broker", err)
			}
			for _, want := range []string{"pass 1", "arm B (null?delay=1ms)", "slot 2", "block 2", "killed", "listening on"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
			if !res.Partial || res.Trouble != err.Error() {
				t.Errorf("partial %v, trouble %q", res.Partial, res.Trouble)
			}
			if len(res.Cells) != 4 || len(res.Cells[0].Blocks) < 2 {
				t.Errorf("cells %+v: the first block of both arms was finished and must be kept", res.Cells)
			}
		})
	}
}

func TestRunThatCannotBegin(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"unknown target of the second arm": {func(c *Config) { c.Scenario.Arms[1].Target = "nul" }, `arm B: unknown target "nul"`},
		"no arm":                           {func(c *Config) { c.Scenario.Arms = nil }, "no arm"},
		"no program":                       {func(c *Config) { c.Self = filepath.Join(c.OutDir, "none") }, "arm A: "},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := against(t, nil)
			test.change(&cfg)
			res, err := Run(t.Context(), cfg)
			if res != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v, want an error that says %q", res, err, test.want)
			}
			leftovers(t, cfg)
		})
	}
}

func TestBrokerThatCannotStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	cfg := against(t, func(s *scenarios.Scenario) { s.Arms[1].Target = "tcp://" + nobody })
	res, err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "pass 1: start arm B (tcp://"+nobody+") in slot 2") {
		t.Errorf("got %v", err)
	}
	if res == nil || !res.Partial || len(res.Cells) != 0 {
		t.Errorf("result %+v", res)
	}
	leftovers(t, cfg)
}
