package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"inflight/runner"
	"inflight/scenarios"
)

// maxSpread bounds the starts of --spread.
const maxSpread = 100

// spread is how far the rates of several starts of one broker lie apart.
type spread struct {
	Pin   string    `json:"pin"` // off, or what the CPUs are
	Rates []float64 `json:"throughput_per_s"`
}

// showSpread starts the target again and again, with and without CPUs of its own in turns, so that a machine that changes
// changes both.
func (f *calibrateFlags) showSpread(cmd *cobra.Command) error {
	if f.spread < 2 || f.spread > maxSpread {
		return usagef("flag --spread: %d is out of range, 2 to %d starts", f.spread, maxSpread)
	}
	other := f.pin
	if other == scenarios.PinOff {
		other = scenarios.PinAuto
	}
	all := []spread{{Pin: scenarios.PinOff}, {Pin: onePin(other)}}
	s := f.spreadScenario(all[1].Pin)
	if err := checkTargets(&s); err != nil {
		return err
	}
	e, err := runner.EnvironmentOf(&s)
	if err != nil {
		return usage(err)
	}
	if e.Pinning.Generator == "" {
		return fmt.Errorf("there is nothing to compare: %s", e.Pinning.Note)
	}
	dir, err := os.MkdirTemp("", "inflight-spread-")
	if err != nil {
		return fmt.Errorf("make a directory for the runs: %w", err)
	}
	defer os.RemoveAll(dir)
	for i := range f.spread {
		for k := range all {
			which := (i + k) % len(all)
			r, err := runBelow(cmd, dir, fmt.Sprintf("%d-%d", i+1, k+1), f.spreadScenario(all[which].Pin))
			if err != nil {
				return explain(cmd.Context(), err)
			}
			all[which].Rates = append(all[which].Rates, r.Cells[0].ThroughputPerS)
		}
	}
	all[1].Pin = fmt.Sprintf("generator %s, broker %s", e.Pinning.Generator, e.Pinning.Slots[0])
	return printSpread(cmd.OutOrStdout(), f.target, all, f.format)
}

// spreadScenario is one start of the target at window 1.
func (f *calibrateFlags) spreadScenario(pin string) scenarios.Scenario {
	s := scenarios.Scenario{
		Name: "spread", Arms: []scenarios.Arm{{Target: f.target}}, QoS: []int{2}, Windows: []int{1}, Nodes: nodesOf(f.target, 3),
		Duration: time.Second, Control: scenarios.None, Verify: scenarios.None, Passes: 1, Blocks: 1, Pin: pin,
	}
	if f.quick {
		s.Duration = 200 * time.Millisecond
	}
	return s.WithDefaults()
}

func printSpread(w io.Writer, target string, all []spread, format string) error {
	if format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(all)
	}
	if _, err := fmt.Fprintf(w, "%s, QoS 2, 1 connection, window 1: messages per second over %d starts\n", target, len(all[0].Rates)); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CPUs\tlowest\tmedian\thighest\thighest/lowest\tstandard deviation of the log")
	for _, s := range all {
		rates := slices.Sorted(slices.Values(s.Rates))
		n := len(rates)
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%.2f\t%.3f\n", s.Pin, rates[0], (rates[(n-1)/2]+rates[n/2])/2, rates[n-1], rates[n-1]/rates[0], deviation(rates))
	}
	return t.Flush()
}

// deviation is the standard deviation of the logarithms.
func deviation(rates []float64) float64 {
	var mean, squares float64
	for _, r := range rates {
		mean += math.Log(r) / float64(len(rates))
	}
	for _, r := range rates {
		squares += (math.Log(r) - mean) * (math.Log(r) - mean)
	}
	return math.Sqrt(squares / float64(len(rates)-1))
}
