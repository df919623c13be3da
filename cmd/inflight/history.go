package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"inflight/report/history"
	"inflight/report/stat"
	"inflight/runner/result"
)

// defaultHistory is where a repository keeps its history.
const defaultHistory = ".inflight"

func newHistoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Keep the numbers of many runs, and find where they changed",
		Long: `History keeps the numbers of many runs in DIR/history.jsonl, a line of JSON for
each arm at each point, which a repository can hold. Runs on different machines,
of different scenarios or points are different series.`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newHistoryAddCommand(), newHistoryShowCommand())
	return cmd
}

func newHistoryAddCommand() *cobra.Command {
	store, commit := defaultHistory, ""
	cmd := &cobra.Command{
		Use:   "add DIR",
		Short: "Add a run to the history",
		Long: `Add appends the numbers of the run in DIR. The commit is --commit, or
GITHUB_SHA, or that of the working directory. A partial run, and one that is
there already, are refused.`,
		Example: `  inflight history add inflight-results/20260102T150405Z-compare && git add .inflight`,
		Args:    arguments(1, 1, "one directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := result.Read(args[0])
			if err != nil {
				return err
			}
			stat.Judge(r)
			entries, err := history.Of(r, cmp.Or(commit, os.Getenv("GITHUB_SHA"), headCommit()))
			if err != nil {
				return fmt.Errorf("add %s to the history: %w (--commit names a commit)", args[0], err)
			}
			if err := os.MkdirAll(store, 0o755); err != nil {
				return fmt.Errorf("make the directory of the history: %w", err)
			}
			path := filepath.Join(store, history.FileName)
			old, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("read the history: %w", err)
			}
			data, err := history.Append(old, entries)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := result.WriteFile(path, data); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "inflight: added %d lines to %s\n", len(entries), path)
			return nil
		},
	}
	cmd.Flags().StringVar(&store, "store", store, "`DIR` of the history")
	cmd.Flags().StringVar(&commit, "commit", "", "`NAME` of the commit that was measured")
	return cmd
}

// headCommit is that of the working directory's Git repository; empty without one.
func headCommit() string {
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func newHistoryShowCommand() *cobra.Command {
	store, only, chart, last := defaultHistory, "", "", 20
	metric := choiceValue{history.Throughput, history.Metrics()}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the history, as a table and a chart over commits, with its changes",
		Long: `Show prints every series of the history, and where it changed:
` + history.Method + `.
A change needs three runs on either side. Numbers of incorrect runs are struck
out and left out of the search.`,
		Example: `  inflight history show --metric p99 --only 'QoS 2, 256 in flight' --chart p99.svg`,
		Args:    arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := filepath.Join(store, history.FileName)
			data, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("no history in %s: inflight history add DIR begins one", store)
			}
			if err != nil {
				return fmt.Errorf("read the history: %w", err)
			}
			entries, err := history.Decode(data)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			var series []history.Series
			for _, s := range history.SeriesOf(entries, metric.value) {
				if strings.Contains(s.Name, only) {
					series = append(series, s)
				}
			}
			if len(series) == 0 {
				return fmt.Errorf("%s holds no %s of a series with %q in its name", path, metric.value, only)
			}
			if chart != "" {
				if err := result.WriteFile(chart, history.Chart(series, metric.value)); err != nil {
					return err
				}
			}
			return history.Table(cmd.OutOrStdout(), series, metric.value, last)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Var(&metric, "metric", "what is shown: throughput, p99 or rss")
	flags.StringVar(&only, "only", "", "only series with `TEXT` in their name")
	flags.IntVar(&last, "last", last, "the table has the last `N` runs of each series; 0: all")
	flags.StringVar(&chart, "chart", "", "also draw the series into `FILE`, an SVG")
	flags.StringVar(&store, "store", store, "`DIR` of the history")
	return cmd
}
