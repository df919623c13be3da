package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inflight/scenarios"
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "inflight",
		Short: "Measure and judge what an MQTT broker does with a client's in-flight window",
		Long: `Inflight measures and judges what an MQTT broker does with a client's in-flight
window: throughput and latency against the window, two brokers compared in
crossover passes, and whether every message still arrives exactly once and in
order.

` + exitHelp,
		Example: `  inflight compare             # pipelined against stop-and-wait, under 4 minutes
  inflight compare --quick     # the same in under 45 seconds
  inflight compare nats-server@v2.14.10 nats-server@v2.15.3
  inflight sweep tcp://127.0.0.1:1883 --window 1,16,256`,
		Version:       toolVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetUsageTemplate(strings.NewReplacer(
		".LocalFlags.FlagUsages", ".LocalFlags.FlagUsagesWrapped 80",
		".InheritedFlags.FlagUsages", ".InheritedFlags.FlagUsagesWrapped 80",
	).Replace(root.UsageTemplate()))
	root.SetVersionTemplate("inflight {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(newHelpCommand())
	root.AddCommand(
		newCompareCommand(),
		newSweepCommand(),
		newCheckCommand(),
		newRunCommand(),
		newReportCommand(),
		newCalibrateCommand(),
		newDoctorCommand(),
		newGateCommand(),
		newHistoryCommand(),
		newInitCommand(),
		newScenariosCommand(),
		newTargetsCommand(),
		newBrokerCommand(),
		newNullCommand(),
		newVersionCommand(),
	)
	return root
}

// newHelpCommand replaces cobra's, which is content with a command that it does not know.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return usage(err)
			}
			if len(rest) > 0 && about.HasSubCommands() {
				return knownCommand(about, rest)
			}
			return about.Help()
		},
	}
}

// knownCommand refuses arguments of a command that only groups others: whatever is there was meant as a command.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := scenarios.DidYouMean(args[0], names)
	if hint == "" {
		hint = fmt.Sprintf(" (there are: %s)", strings.Join(names, ", "))
	}
	return usagef("unknown command %q%s", strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), "inflight")+" "+args[0]), hint)
}

// arguments wants between low and high arguments, which what describes.
func arguments(low, high int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= low && len(args) <= high {
			return nil
		}
		return usagef("%s takes %s, not %s (see: %s --help)", cmd.Name(), what, count(len(args), "argument"), cmd.CommandPath())
	}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// flagError words what the flag parser refuses.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		name, _, _ := strings.Cut(unknown.GetSpecifiedShortnames(), "=")
		if slices.Contains(names, name) {
			return usagef("unknown flag -%s: did you mean --%s?", name, name)
		}
		return usagef("unknown flag -%s%s", name, seeHelp(cmd))
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if meant := scenarios.Closest(name, names); meant != "" {
			return usagef("unknown flag --%s: did you mean --%s?", name, meant)
		}
		return usagef("unknown flag --%s%s", name, seeHelp(cmd))
	case errors.As(err, &value) && value.Unwrap() != nil:
		return usagef("flag --%s: %w", value.GetFlag().Name, value.Unwrap())
	}
	return usage(err)
}

func seeHelp(cmd *cobra.Command) string { return fmt.Sprintf(" (see: %s --help)", cmd.CommandPath()) }
