package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"inflight/runner/result"
)

//go:embed workflow.yml
var workflow string

// workflowFile is where GitHub looks for it.
var workflowFile = filepath.Join(".github", "workflows", "inflight.yml")

func newInitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write files to start from",
		Args:  knownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newInitCICommand())
	return cmd
}

func newInitCICommand() *cobra.Command {
	out := workflowFile
	cmd := &cobra.Command{
		Use:   "ci",
		Short: "Write a GitHub workflow that gates pull requests of a broker",
		Long: `Init ci writes a GitHub workflow into the current directory, the root of a
broker's repository. It builds the broker of the base branch and that of the
pull request, measures both in one job, fails on a regression, and checks
conformance. The lines marked EDIT say how your broker is built and started. A
file that is there already is not touched.`,
		Example: `  inflight init ci && git add .github`,
		Args:    arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := os.Lstat(out); err == nil {
				return usagef("%s is there already: move it away, or choose another file with --out", out)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("look for %s: %w", out, err)
			}
			if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
				return fmt.Errorf("make the directory of the workflow: %w", err)
			}
			if err := result.WriteFile(out, []byte(workflow)); err != nil {
				return err
			}
			stderr := cmd.ErrOrStderr()
			fmt.Fprintf(stderr, "inflight: wrote %s; edit these lines:\n", out)
			n := 0
			for line := range strings.Lines(workflow) {
				if n++; strings.Contains(line, "# EDIT") {
					fmt.Fprintf(stderr, "%4d: %s", n, strings.TrimLeft(line, " "))
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", out, "`FILE` to write")
	return cmd
}
