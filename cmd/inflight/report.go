package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"inflight/report"
	"inflight/report/stat"
	"inflight/runner/result"
)

func newReportCommand() *cobra.Command {
	format := formatTable
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Render a run again from its result.json, and print its table",
		Long: `Report reads DIR/result.json, judges it anew, makes report.md, report.html and the charts again, and prints
the table. It measures nothing, and its exit code does not depend on what the run found.`,
		Example: `  inflight report inflight-results/20260102T150405Z-qos2-pipeline
  inflight report DIR --format csv > cells.csv
  inflight report DIR --format benchfmt > run.txt && benchstat -col arm run.txt`,
		Args: arguments(1, 1, "one directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
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
	cmd.Flags().Var(&format, "format", "what is printed: "+formatNames)
	return cmd
}
