package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"inflight/report"
	"inflight/report/stat"
	"inflight/runner/result"
)

func newReportCommand() *cobra.Command {
	format, out := formatTable, ""
	cmd := &cobra.Command{
		Use:   "report DIR...",
		Short: "Render a run again from result.json, or several side by side",
		Long: `Report reads DIR/result.json, judges it anew, makes report.md, report.html and
the charts again, and prints the table. It measures nothing, and its exit code
does not depend on what the run found.

Several directories are shown side by side, in the same charts and tables, in a
new directory (--out). Runs that were made one after the other are not paired,
so there is no verdict between them; how far one is from the first is compared
with how far they are apart at QoS 0, between two machines only after dividing
by it, and between two brokers not at all.`,
		Example: `  inflight report inflight-results/20260102T150405Z-qos2-pipeline
  inflight report DIR --format csv > cells.csv
  inflight report DIR --format benchfmt > run.txt && benchstat -col arm run.txt`,
		Args: arguments(1, report.MaxSideBySide, "one directory or several"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return sideBySide(cmd, args, out, format)
			}
			if out != "" {
				return usagef("--out is for several directories: one is rendered where it is")
			}
			dir := args[0]
			r, err := result.Read(dir)
			if err != nil {
				return err
			}
			if filepath.Base(dir) == result.FileName {
				dir = filepath.Dir(dir)
			}
			stat.Judge(r)
			if err := report.WriteDir(dir); err != nil {
				return err
			}
			if err := printResult(cmd.OutOrStdout(), r, format); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "inflight: the report is %s\n", filepath.Join(dir, "report.html"))
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "where the report of several runs goes, a new or empty `DIR` (default inflight-results/TIME-side-by-side)")
	cmd.Flags().Var(&format, "format", "what is printed: "+formatNames)
	return cmd
}

// sideBySide makes one report of several runs.
func sideBySide(cmd *cobra.Command, dirs []string, out string, format formatFlag) error {
	together, err := report.SideBySide(dirs)
	if err != nil {
		return err
	}
	dir, err := makeOutDir(out, "side-by-side", time.Now())
	if err != nil {
		return err
	}
	if err := together.WriteDir(dir); err != nil {
		return err
	}
	if err := printResult(cmd.OutOrStdout(), together.Result, format); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "inflight: the report is %s\n", filepath.Join(dir, "report.html"))
	return nil
}
