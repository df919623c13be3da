package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/report/page"
	"inflight/report/stat"
	"inflight/runner/result"
)

// maxLog bounds the log of a cell's histograms; real ones have some kilobytes.
const maxLog = 4 << 20

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
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Histograms == "" || c.Control {
			continue
		}
		logs, err := readLog(dir, c.Histograms)
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
			merged[k] = h
			order = append(order, k)
		}
	}
	for _, k := range order {
		c := page.Curve{Arm: k.arm, Point: k.point, Latency: k.latency, Struck: struck[k]}
		total := float64(merged[k].TotalCount())
		for _, q := range page.Quantiles() {
			if math.Round(total*(1-q)) >= page.MinBeyond { // else the tail is a few samples' luck
				c.At = append(c.At, page.Quantile{Q: q, NS: merged[k].ValueAtQuantile(100 * q)})
			}
		}
		if len(c.At) > 1 {
			curves = append(curves, c)
		}
	}
	return curves, trouble
}

// readLog reads one log. Its name comes from a file and must stay below dir.
func readLog(dir, name string) ([]*hdrhistogram.Histogram, error) {
	path := filepath.FromSlash(name)
	if !filepath.IsLocal(path) {
		return nil, fmt.Errorf("%q is not below the run's directory", name)
	}
	f, err := os.Open(filepath.Join(dir, path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxLog+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxLog {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, maxLog>>20)
	}
	reader := hdrhistogram.NewHistogramLogReader(bytes.NewReader(data))
	var out []*hdrhistogram.Histogram
	for {
		h, err := reader.NextIntervalHistogram()
		if err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
		if h == nil {
			return out, nil
		}
		out = append(out, h)
	}
}
