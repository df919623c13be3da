// Package hist reads the histograms that a run left beside its result: HdrHistogram logs, one for each cell, below the
// run's directory. It knows nothing of what is made of them.
package hist
