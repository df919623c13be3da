package main

import (
	"github.com/spf13/cobra"

	"inflight/scenarios"
)

// mainJob is the scenario of compare without arguments, and where compare and sweep take their defaults from.
const mainJob = "qos2-pipeline"

func newCompareCommand() *cobra.Command {
	base := mainScenario()
	cmd := &cobra.Command{
		Use:   "compare [A B...]",
		Short: "Compare brokers window by window, in crossover passes",
		Long: `Compare starts two brokers, loads them in turn at each in-flight window, swaps
them, does it again, and prints throughput, p99 and the ratio B/A with its 95 %
interval. Without arguments it compares the reference broker waiting for its
storage on each packet with the same broker acknowledging from a pipeline. More
targets, up to six, are each compared with the first; as many passes as targets
put each in each slot.

A target is one of these (see: inflight targets list); quote it for the shell
when it has a ? or &:
  'reference?store=staged&pipeline=off'   nats-server@v2.15.3
  'null?delay=5ms'                        tcp://127.0.0.1:1883
With ?client=paho, paho3 or mqttjs its load goes through that client library
instead of inflight's own client.

` + runHelp,
		Example: `  inflight compare
  inflight compare --quick --window 1,64
  inflight compare nats-server@v2.14.10 nats-server@v2.15.3 --nodes 3
  inflight compare tcp://old:1883 tcp://new:1883 --qos 1,2 --format markdown`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 1:
				return usagef("compare takes two targets, or none for the built-in comparison: to measure one write inflight sweep %q", args[0])
			case len(args) > scenarios.MaxArms:
				return usagef("compare takes at most %d targets, not %d: all of them run at the same time", scenarios.MaxArms, len(args))
			}
			return nil
		},
	}
	flags := addRunFlags(cmd, &base)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := base
		if len(args) > 0 {
			s.Name = "compare"
			s.Question = "Which of the two is faster at each in-flight window, and by how much?"
			if len(args) > 2 {
				s.Question = "Which is faster at each in-flight window, and by how much?"
				s.Passes = len(args)
			}
			s.Arms = nil
			for _, target := range args {
				s.Arms = append(s.Arms, scenarios.Arm{Target: target})
			}
		}
		return measure(cmd, flags, s)
	}
	return cmd
}

// runHelp is the part of the help that every measuring command shares.
const runHelp = `The result directory holds result.json, the brokers' logs, and report.md,
report.html and charts made from result.json alone. The run fails with exit code
4 when an acknowledgement came out of order, or a message was lost, delivered
twice at QoS 2, or reordered.`

// mainScenario is the main job with its defaults. The built-in scenarios are part of the program and a test loads each, so
// it is there.
func mainScenario() scenarios.Scenario {
	s, err := scenarios.Builtin(mainJob)
	if err != nil {
		return scenarios.Scenario{Name: mainJob}.WithDefaults()
	}
	shown := s.WithDefaults()
	shown.Replicas = s.Replicas // follows nodes
	return shown
}
