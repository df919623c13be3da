package main

import (
	"github.com/spf13/cobra"

	"inflight/scenarios"
)

func newSweepCommand() *cobra.Command {
	base := mainScenario()
	base.Name = "sweep"
	base.Question = "What does this broker do with a client's in-flight window?"
	cmd := &cobra.Command{
		Use:   "sweep TARGET",
		Short: "Measure one broker across in-flight windows",
		Long: `Sweep starts one broker and prints its throughput and p99 at each in-flight
window.

` + runHelp,
		Example: `  inflight sweep reference
  inflight sweep tcp://127.0.0.1:1883 --qos 1,2 --window 1,16,256
  inflight sweep reference --window 64 --find-max 'p99<20ms'  # the highest rate that it takes at that response time
  inflight sweep null --qos 1 --window 256 --duration 5s       # what the load generator itself can do`,
		Args: arguments(1, 1, "one target"),
	}
	flags := addRunFlags(cmd, &base)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := base
		s.Arms = []scenarios.Arm{{Target: args[0]}}
		return measure(cmd, flags, s)
	}
	return cmd
}
