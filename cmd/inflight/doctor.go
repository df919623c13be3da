package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inflight/runner"
	"inflight/runner/machine"
	"inflight/runner/result"
	"inflight/scenarios"
)

func newDoctorCommand() *cobra.Command {
	format := "table"
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what would spoil a measurement on this machine",
		Long: `Doctor looks at this machine: the limit of open files, what else runs, how the
processor changes its speed, free disk, ports, the clock, and which programs are
there that targets and clients need. It changes nothing.

It ends with exit code 1 if something would make measurements fail; warnings do
not change the exit code.`,
		Example: `  inflight doctor
  inflight doctor --format json`,
		Args: arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return usagef("flag --format: unknown format %q (there are: table, json)", format)
			}
			cache := cacheDir(os.TempDir())
			calibration, err := storedCalibration(cache, &scenarios.Scenario{})
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "inflight: %v\n", err)
			}
			here, err := os.Getwd()
			if err != nil {
				return fmt.Errorf("find the directory that results go to: %w", err)
			}
			findings := machine.Check(cmd.Context(), []string{here, cache}, calibration, time.Now())
			if err := printFindings(cmd.OutOrStdout(), findings, format); err != nil {
				return err
			}
			failed := 0
			for _, f := range findings {
				if f.Status == machine.Fail {
					failed++
				}
			}
			if failed > 0 {
				return fmt.Errorf("%s of this machine would make measurements fail", count(failed, "fault"))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&format, "format", format, "`FORMAT` of what is printed: table or json")
	return cmd
}

// storedCalibration is that of this machine as a run of s finds it, nil if there is none.
func storedCalibration(cache string, s *scenarios.Scenario) (*result.Calibration, error) {
	e, err := runner.EnvironmentOf(s)
	if err != nil {
		return nil, err
	}
	return machine.Load(cache, machine.Key(&e))
}

func printFindings(w io.Writer, findings []machine.Finding, format string) error {
	if format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(findings)
	}
	wide := 0
	for _, f := range findings {
		wide = max(wide, len(f.Name))
	}
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-4s  %-*s  %s\n", f.Status, wide, f.Name, f.Text)
		if f.Hint != "" {
			fmt.Fprintf(&b, "      %-*s  -> %s\n", wide, "", f.Hint)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
