package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// newBrokerPlaceholder keeps the place of the reference broker's command until there is one.
func newBrokerPlaceholder() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "broker",
		Short:   "Serve the reference broker",
		Version: toolVersion(),
		RunE: func(*cobra.Command, []string) error {
			return errors.New("this build has no reference broker yet")
		},
	}
	cmd.SetVersionTemplate("inflight {{.Version}}\n")
	return cmd
}
