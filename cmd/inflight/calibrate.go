package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"inflight/report/stat"
	"inflight/runner"
	"inflight/runner/machine"
	"inflight/runner/pin"
	"inflight/runner/result"
	"inflight/runner/target"
	"inflight/scenarios"
)

// calibrateFlags are those of the calibrate command.
type calibrateFlags struct {
	effect string
	target string
	quick  bool
	format string
	pin    string
	spread int
}

func newCalibrateCommand() *cobra.Command {
	f := calibrateFlags{effect: "5%", target: "reference", format: "table", pin: scenarios.PinOff}
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure the load generator, and how noisy this machine is",
		Long: `Calibrate measures, once for a machine: what the load generator reaches against
a broker that only acknowledges, at each QoS, window and number of connections;
how far a broker and itself are apart, in the comparison that "inflight compare"
makes; the clock, the loopback, and how long the generator waits for a
processor. It is stored in the user's cache directory, and every later run on
this machine quotes it: a rate near the generator's own is called
generator-limited.

With --spread it only shows how far so many starts of the target lie apart at
window 1, where rates are mostly a matter of where the scheduler puts the
processes: as it likes, and with CPUs of their own (--pin, auto unless set).
Nothing is stored.

It ends with exit code 5 when the machine is too noisy to tell the effect that
was asked for.`,
		Example: `  inflight calibrate
  inflight calibrate --quick --effect 10%
  inflight calibrate --target nats-server@v2.15.3
  inflight calibrate --pin auto
  inflight calibrate --spread 10 --target 'reference?store=memory'`,
		Args: arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.effect, "effect", f.effect, "the `PERCENT` that comparisons on this machine should tell from nothing")
	flags.StringVar(&f.target, "target", f.target, "the `TARGET` that is compared with itself")
	flags.BoolVar(&f.quick, "quick", false, "fewer and shorter blocks: the noise is that of quick runs")
	flags.StringVar(&f.pin, "pin", f.pin, "`CPUS` for generator and brokers, as of inflight compare: the calibration is that of runs with the same generator's CPUs")
	flags.IntVar(&f.spread, "spread", 0, "show how far `N` starts lie apart, with and without CPUs of their own, and nothing else")
	flags.StringVar(&f.format, "format", f.format, "`FORMAT` of what is printed: table or json")
	return cmd
}

func (f *calibrateFlags) run(cmd *cobra.Command) error {
	effect, err := strconv.ParseFloat(strings.TrimSuffix(f.effect, "%"), 64)
	switch {
	case err != nil || !(effect > 0 && effect <= 1000):
		return usagef("flag --effect: %q is not a percentage above 0", f.effect)
	case f.format != "table" && f.format != "json":
		return usagef("flag --format: unknown format %q (there are: table, json)", f.format)
	}
	if err := new(scenarios.Scenario).Set("pin", f.pin); err != nil {
		return usagef("flag --pin: %w", err)
	}
	if cmd.Flags().Changed("spread") {
		return f.showSpread(cmd)
	}
	noise := f.noiseScenario()
	if err := errors.Join(usage(noise.Validate()), checkTargets(&noise)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "inflight-calibrate-")
	if err != nil {
		return fmt.Errorf("make a directory for the calibration's runs: %w", err)
	}
	defer os.RemoveAll(dir)
	c, err := f.measure(cmd, dir, noise)
	if err != nil {
		return explain(cmd.Context(), err)
	}
	file, err := machine.Store(cacheDir(os.TempDir()), c)
	if err != nil {
		return err
	}
	if err := printCalibration(cmd.OutOrStdout(), c, f.format); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "inflight: stored in %s\n", file)
	if wanted := 1 + effect/100; c.NoiseEffect == nil || *c.NoiseEffect > wanted {
		return coded(exitInconclusive, fmt.Errorf("this machine is too noisy for an effect of %g %%: %s", effect, seen(c)))
	}
	return nil
}

// seen says what the machine can tell.
func seen(c *result.Calibration) string {
	if c.NoiseEffect == nil {
		return "there were too few blocks to say what it can tell"
	}
	return fmt.Sprintf("a comparison over all points finds %.3g %% in four runs of five; more blocks, or longer ones, find less", 100*(*c.NoiseEffect-1))
}

// ceilingScenario is the load generator against nothing, at the points of the built-in scenarios.
func (f *calibrateFlags) ceilingScenario() scenarios.Scenario {
	s := scenarios.Scenario{
		Name: "calibrate", Arms: []scenarios.Arm{{Target: "null"}},
		QoS: []int{0, 1, 2}, Windows: []int{1, 10, 20, 256}, Connections: []int{1, 10, 100}, Payloads: []int{256},
		Duration: 250 * time.Millisecond, Warmup: 50 * time.Millisecond, Control: scenarios.None, Verify: scenarios.None, Passes: 1, Blocks: 3,
	}
	if f.quick {
		s.Duration, s.Blocks = 100*time.Millisecond, 2
	}
	s.Pin = onePin(f.pin)
	return s.WithDefaults()
}

// onePin is a pin setting for a run of one arm: of a list the generator's set and that of the first slot.
func onePin(setting string) string {
	if pins, err := scenarios.ParsePins(setting); err == nil {
		return pin.Format(pins.Generator) + "/" + pin.Format(pins.Slots[0])
	}
	return setting
}

// noiseScenario is the main job with the target on both sides.
func (f *calibrateFlags) noiseScenario() scenarios.Scenario {
	s := mainScenario()
	if f.quick {
		s = s.Quicken()
	}
	s.Name, s.QuickForm, s.Replicas = "calibrate", nil, 0
	s.Arms = []scenarios.Arm{{Target: f.target}, {Target: f.target}}
	s.Pin, s.Nodes = f.pin, nodesOf(f.target, s.Nodes)
	return s.WithDefaults()
}

// nodesOf is as many nodes as wanted, or 1 of a target that there is no cluster of.
func nodesOf(name string, wanted int) int {
	spec, err := target.Parse(name)
	if err != nil {
		return wanted // which is said later
	}
	if _, _, err := spec.Topology(wanted, 0); err != nil {
		if _, _, err := spec.Topology(1, 0); err == nil {
			return 1
		}
	}
	return wanted
}

// measure does both runs below dir, and the rest.
func (f *calibrateFlags) measure(cmd *cobra.Command, dir string, noise scenarios.Scenario) (*result.Calibration, error) {
	loopback, err := machine.Loopback(cmd.Context())
	if err != nil {
		return nil, err
	}
	p50, p99 := loopback.ValueAtPercentile(50), loopback.ValueAtPercentile(99)
	ceilings, err := runBelow(cmd, dir, "ceilings", f.ceilingScenario())
	if err != nil {
		return nil, err
	}
	itself, err := runBelow(cmd, dir, "noise", noise)
	if err != nil {
		return nil, err
	}
	c := calibrationOf(ceilings, itself, f.target)
	c.ClockNS, c.LoopbackP50, c.LoopbackP99 = int64(machine.Clock()), &p50, &p99
	return c, nil
}

// calibrationOf is what the two runs say about the machine: the load generator against null, and target against itself.
func calibrationOf(ceilings, itself *result.Result, target string) *result.Calibration {
	c := &result.Calibration{Started: ceilings.Started, Tool: toolVersion(), Machine: machine.Key(&ceilings.Environment), NoiseTarget: target}
	for i := range ceilings.Cells {
		cell := &ceilings.Cells[i]
		k := result.Ceiling{QoS: cell.QoS, Window: cell.Window, Connections: cell.Connections, Payload: cell.Payload, ThroughputPerS: cell.ThroughputPerS}
		for _, b := range cell.Blocks {
			k.ThroughputPerS = max(k.ThroughputPerS, b.ThroughputPerS) // a ceiling is what was reached once
		}
		if cell.GeneratorCPU != nil && *cell.GeneratorCPU > 0 {
			per := float64(cell.Messages) / *cell.GeneratorCPU
			k.PerCPUSecond = &per
		}
		c.Ceilings = append(c.Ceilings, k)
	}
	for i := range itself.Cells {
		if p := itself.Cells[i].SchedLatencyP99; p != nil && (c.SchedLatencyP99 == nil || *p > *c.SchedLatencyP99) {
			c.SchedLatencyP99 = p
		}
	}
	for i := range itself.Comparisons {
		if k := &itself.Comparisons[i]; k.Metric == stat.Throughput {
			c.Noise = append(c.Noise, result.Noise{
				QoS: k.QoS, Window: k.Window, Connections: k.Connections, Payload: k.Payload,
				Ratio: k.Ratio, Low: k.Low, High: k.High, Effect: k.SmallestEffect, Blocks: k.Blocks,
			})
		}
	}
	if len(itself.Overall) > 0 {
		c.NoiseEffect = itself.Overall[0].SmallestEffect
	}
	return c
}

// runBelow runs a scenario in a directory of its own and judges it.
func runBelow(cmd *cobra.Command, dir, name string, s scenarios.Scenario) (*result.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, which is also the reference broker: %w", err)
	}
	below := filepath.Join(dir, name)
	if err := os.Mkdir(below, 0o755); err != nil {
		return nil, fmt.Errorf("make a directory for a run: %w", err)
	}
	progress := newProgress(cmd.ErrOrStderr(), &s)
	defer progress.close()
	r, err := runner.Run(cmd.Context(), runner.Config{
		Scenario: s, Self: self, OutDir: below, CacheDir: cacheDir(dir), Progress: progress.event, ToolVersion: toolVersion(),
	})
	if err != nil {
		return nil, err
	}
	stat.Judge(r)
	return r, verdict(r)
}

// quote is the calibration for a later run; without one, or when it cannot be read, the run goes on.
func quote(ctx context.Context, cache string, s *scenarios.Scenario, talk io.Writer) *result.Calibration {
	c, err := storedCalibration(cache, s)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(talk, "inflight: %v\n", err)
	}
	return c
}

func printCalibration(w io.Writer, c *result.Calibration, format string) error {
	if format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(c)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	var errs []error
	line := func(format string, args ...any) {
		_, err := fmt.Fprintf(t, format+"\n", args...)
		errs = append(errs, err)
	}
	section := func(format string, args ...any) {
		errs = append(errs, t.Flush())
		_, err := fmt.Fprintf(w, format+"\n", args...)
		errs = append(errs, err)
	}
	section("The load generator against null, 256-byte payloads")
	line("QoS\tin flight\tconnections\tmsg/s\tmsg/cpu-s\t")
	for _, k := range c.Ceilings {
		per := "~"
		if k.PerCPUSecond != nil {
			per = fmt.Sprintf("%.0f", *k.PerCPUSecond)
		}
		line("%d\t%d\t%d\t%.0f\t%s\t", k.QoS, k.Window, k.Connections, k.ThroughputPerS, per)
	}
	section("\n%s compared with itself", c.NoiseTarget)
	line("QoS\tin flight\tratio\t95 %% interval\tfound in 4 of 5\t")
	for _, n := range c.Noise {
		interval, found := "~", "~"
		if n.Low != nil && n.High != nil {
			interval = fmt.Sprintf("[%.2f, %.2f]", *n.Low, *n.High)
		}
		if n.Effect != nil {
			found = fmt.Sprintf("%.2f", *n.Effect)
		}
		line("%d\t%d\t%.2f\t%s\t%s\t", n.QoS, n.Window, n.Ratio, interval, found)
	}
	section("\n%s", seen(c))
	section("clock: steps of %v; loopback round trip: p50 %v, p99 %v; generator waiting for a processor: p99 %v",
		time.Duration(c.ClockNS), duration(c.LoopbackP50), duration(c.LoopbackP99), duration(c.SchedLatencyP99))
	return errors.Join(errs...)
}

func duration(ns *int64) string {
	if ns == nil {
		return "~"
	}
	return time.Duration(*ns).Round(100 * time.Nanosecond).String()
}
