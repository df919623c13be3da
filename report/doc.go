// Package report renders the result of a run: as a table for the terminal, as Markdown, CSV and JSON, and as the files
// that stand beside result.json in the run's directory. Everything is made from the result alone, so that an old
// directory can be rendered again, with the verdicts of today's package stat.
//
// SideBySide puts several runs into one report. Latency curves come from the histograms beside a result; where they are
// missing, from the percentiles that it has.
//
// The numbers are decided in report/stat, drawn in report/chart and put into words in report/page; this package puts
// them together and is what commands call.
package report
