package report

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/report/hist"
	"inflight/report/page"
	"inflight/report/stat"
	"inflight/runner/result"
)

// curvesOf reads the histograms that the cells of r name, below dir, and merges those of the passes. A log that is missing
// or cannot be read leaves its curve to the percentiles that the result itself has, and trouble says so once.
func curvesOf(dir string, r *result.Result) (curves []page.Curve, trouble string) {
	type key struct {
		arm     string
		point   stat.Point
		latency string
	}
	merged := map[key]*hdrhistogram.Histogram{}
	struck := map[key]bool{}
	var order []key
	histograms := hist.Open(dir)
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Histograms == "" || c.Control {
			continue
		}
		logs, err := histograms.Of(c)
		if err != nil && trouble == "" {
			trouble = fmt.Sprintf("latency curves from a few percentiles only: %v", err)
		}
		for _, h := range logs {
			k := key{c.Arm, stat.PointOf(c), h.Tag()}
			struck[k] = struck[k] || c.Incorrect()
			if m := merged[k]; m != nil {
				m.Merge(h)
				continue
			}
			merged[k] = hdrhistogram.Import(h.Export())
			order = append(order, k)
		}
	}
	for _, k := range order {
		c := page.Curve{Arm: k.arm, Point: k.point, Latency: k.latency, Struck: struck[k]}
		for _, q := range page.Quantiles() {
			if hist.Enough(merged[k].TotalCount(), q) {
				c.At = append(c.At, page.Quantile{Q: q, NS: merged[k].ValueAtQuantile(100 * q)})
			}
		}
		if len(c.At) > 1 {
			curves = append(curves, c)
		}
	}
	return curves, trouble
}
