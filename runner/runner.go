package runner

import (
	"context"
	"errors"

	"inflight/runner/result"
	"inflight/scenarios"
)

// Config is one run.
type Config struct {
	Scenario    scenarios.Scenario // with its defaults, validated
	Self        string             // path of the inflight binary: it is the reference and the null broker
	OutDir      string             // existing directory of this run; logs/ and, while it runs, data/ are made below it
	CacheDir    string             // where programs that had to be built are kept
	Progress    func(Event)        // called from one goroutine; nil: none
	ToolVersion string
}

// Run executes the scenario. The Result is nil only if the run never began: the scenario cannot be planned, or a program
// cannot be found or built. Otherwise it holds every run that was finished, and with an error it is marked partial.
// Comparisons, control and warnings are not filled in; package report/stat does that.
func Run(ctx context.Context, cfg Config) (*result.Result, error) {
	return nil, errors.New("runner: not written yet")
}
