package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inflight/scenarios"
)

// runFlags are the flags of every command that measures: what changes the scenario, and where the result goes.
type runFlags struct {
	settings []*settingFlag
	tlsFlags
	quick  bool
	out    string
	format formatFlag
	gate   gateFlags
	all    *pflag.FlagSet
}

// addRunFlags puts the flags on cmd. base is where help takes the defaults from; nil leaves them to the scenario file.
func addRunFlags(cmd *cobra.Command, base *scenarios.Scenario) *runFlags {
	flags := cmd.Flags()
	f := &runFlags{format: formatTable, all: flags}
	flags.SortFlags = false
	for _, k := range scenarios.Keys() {
		value := &settingFlag{key: k}
		f.settings = append(f.settings, value)
		flag := flags.VarPF(value, k.Name, "", k.Help)
		if base != nil {
			flag.DefValue = base.Get(k.Name)
		}
	}
	flags.BoolVar(&f.quick, "quick", false, "fewer and shorter blocks, for a first look (see: scenarios show)")
	f.add(flags)
	flags.StringVar(&f.out, "out", "", "where the result goes, a new or empty `DIR` (default inflight-results/TIME-NAME)")
	flags.Var(&f.format, "format", "what is printed: "+formatNames)
	f.gate.add(flags, true)
	return f
}

// apply returns base with the flags' changes: first the short form, then every flag that was given.
func (f *runFlags) apply(base scenarios.Scenario) (scenarios.Scenario, error) {
	s := base
	if f.quick {
		s = base.Quicken()
	}
	s.QuickForm = nil
	if err := f.gate.validate(f.all, true); err != nil {
		return s, err
	}
	if len(f.gate.rules) > 0 {
		s.Gate = f.gate.rules
	}
	var problems []error
	for _, flag := range f.settings {
		if flag.values != nil {
			problems = append(problems, s.Set(flag.key.Name, flag.values...))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return s, usage(err)
	}
	err := s.Validate() // of what was asked for: the defaults take the clients out of the target strings
	return s.WithDefaults(), usage(err)
}

// settingFlag is the flag of one scenario setting. It keeps the text, which the scenario reads as it reads a file's.
type settingFlag struct {
	key    scenarios.Key
	values []string
}

// Set takes a value, or several separated by commas where the setting is a list. Giving the flag again adds to a list.
func (f *settingFlag) Set(text string) error {
	values := []string{text}
	if f.key.List {
		values = strings.Split(text, ",")
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		values = append(f.values, values...)
	}
	var trial scenarios.Scenario
	if err := trial.Set(f.key.Name, values...); err != nil {
		return err
	}
	f.values = values
	return nil
}

func (f *settingFlag) String() string { return strings.Join(f.values, ",") }

// Type is what help shows as the value.
func (f *settingFlag) Type() string {
	switch {
	case f.key.List:
		return "N,..."
	case f.key.Span:
		return "TIME"
	case f.key.Word:
		return "WORD"
	}
	return "N"
}

// formatFlag is what goes to standard output.
type formatFlag string

const (
	formatTable    formatFlag = "table"
	formatMarkdown formatFlag = "markdown"
	formatCSV      formatFlag = "csv"
	formatJSON     formatFlag = "json"
	formatGoBench  formatFlag = "benchfmt"
	formatProm     formatFlag = "prometheus"
)

// formatNames is the list of them for a flag's help.
const formatNames = "table, markdown, csv, json, benchfmt (for benchstat) or prometheus"

func (f *formatFlag) Set(text string) error {
	known := []string{string(formatTable), string(formatMarkdown), string(formatCSV), string(formatJSON), string(formatGoBench), string(formatProm)}
	for _, k := range known {
		if text == k {
			*f = formatFlag(text)
			return nil
		}
	}
	hint := scenarios.DidYouMean(text, known)
	if hint == "" {
		hint = " (there are: " + strings.Join(known, ", ") + ")"
	}
	return fmt.Errorf("unknown format %q%s", text, hint)
}

func (f *formatFlag) String() string { return string(*f) }

func (f *formatFlag) Type() string { return "FORMAT" }
