package main

import (
	"fmt"
	"io"
	"os"

	"inflight/report"
	"inflight/runner/result"
)

// logWidth is the width of a table that does not go to a terminal.
const logWidth = 120

// printResult writes the result in one of the formats.
func printResult(w io.Writer, r *result.Result, format formatFlag) error {
	err := func() error {
		switch format {
		case formatMarkdown:
			return report.Markdown(w, r)
		case formatCSV:
			return report.CSV(w, r)
		case formatJSON:
			return report.JSON(w, r)
		case formatGoBench:
			return report.GoBench(w, r)
		case formatProm:
			return report.Prometheus(w, r)
		}
		width := terminalWidth(w)
		if width == nil {
			return report.Table(w, r, logWidth, false)
		}
		return report.Table(w, r, width(), os.Getenv("NO_COLOR") == "")
	}()
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}
