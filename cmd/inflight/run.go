package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inflight/scenarios"
)

func newRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run FILE|NAME",
		Short: "Run a scenario: a file, or a built-in one by its name",
		Long: `Run measures what a scenario file describes; a flag replaces the file's value. A
file has the keys that are the flags below, and name, question, arms (a list of
one target, or of several to compare with the first) and quick (what --quick
changes). A name without a dot or a slash is a built-in scenario, unless there
is such a file.

` + runHelp,
		Example: `  inflight run qos2-pipeline --quick
  inflight scenarios show qos2-pipeline > mine.yaml && inflight run mine.yaml`,
		Args: arguments(1, 1, "one scenario"),
	}
	flags := addRunFlags(cmd, nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := loadScenario(args[0])
		if err != nil {
			return err
		}
		return measure(cmd, flags, *s)
	}
	return cmd
}

// loadScenario reads a scenario file, or a built-in scenario where there is no such file and the name is one of theirs.
func loadScenario(name string) (*scenarios.Scenario, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if !strings.ContainsAny(name, `./\`) || slices.Contains(scenarios.BuiltinNames(), name) {
			s, err := scenarios.Builtin(name)
			if err != nil {
				return nil, usagef("%w, and no file of that name", err)
			}
			return s, nil
		}
		return nil, usagef("no scenario file %s (built-in scenarios: %s)", name, strings.Join(scenarios.BuiltinNames(), ", "))
	}
	if err != nil {
		return nil, usagef("read the scenario: %w", err)
	}
	defer f.Close()
	// Load refuses what is too large; a device or a pipe without an end must not be read to find out.
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, usagef("read the scenario: %w", err)
	}
	s, err := scenarios.Load(name, data)
	if err != nil {
		return nil, usage(err)
	}
	if s.Name == "" {
		s.Name = "run"
	}
	return s, nil
}
