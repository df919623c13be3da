// Package result is what a run leaves behind: the schema of result.json, reading it and writing it. It is the only
// package that the runner and the reports share; it knows nothing of either.
//
// A run's directory holds result.json, logs/ with what the brokers printed, histograms/ with every latency of every cell
// as HdrHistogram logs, and renderings made from these alone.
// Times are integer nanoseconds, sizes are bytes, rates are messages per second. What could not be measured is absent,
// never zero: such fields are pointers.
package result
