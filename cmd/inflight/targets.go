package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"inflight/runner/target"
)

func newTargetsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "targets",
		Short: "List what can be measured",
		Args:  knownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the known brokers, as they are written on the command line",
		Args:  arguments(0, 0, "no argument"),
		RunE:  listTargets,
	})
	return cmd
}

func listTargets(cmd *cobra.Command, _ []string) error {
	kinds, err := target.Kinds()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, kind := range kinds {
		fmt.Fprintf(w, "%s\t%s\n", kind[0], kind[1])
	}
	return w.Flush()
}
