package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"inflight/scenarios"
)

func newScenariosCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scenarios",
		Short: "List and show the built-in scenarios",
		Args:  knownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "list",
			Short: "List the built-in scenarios and the question that each asks",
			Args:  arguments(0, 0, "no argument"),
			RunE:  listScenarios,
		},
		&cobra.Command{
			Use:     "show NAME",
			Short:   "Print the file of a built-in scenario, to start one's own from",
			Example: "  inflight scenarios show qos2-pipeline > mine.yaml && inflight run mine.yaml",
			Args:    arguments(1, 1, "one name"),
			RunE: func(cmd *cobra.Command, args []string) error {
				data, err := scenarios.BuiltinFile(args[0])
				if err != nil {
					return usage(err)
				}
				_, err = cmd.OutOrStdout().Write(data)
				return err
			},
		},
	)
	return cmd
}

func listScenarios(cmd *cobra.Command, _ []string) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, name := range scenarios.BuiltinNames() {
		s, err := scenarios.Builtin(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\n", name, s.Question)
	}
	return w.Flush()
}
