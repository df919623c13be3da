package hist

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/runner/result"
)

// MinBeyond is how many samples a percentile needs beyond itself; with fewer, it is a few samples' luck.
const MinBeyond = 10

// maxLog bounds the log of a cell's histograms; real ones have some kilobytes.
const maxLog = 4 << 20

// Dir is the directory of a run. A log is read once. It is not for several goroutines.
type Dir struct {
	path string
	logs map[string]logs
}

type logs struct {
	all []*hdrhistogram.Histogram
	err error
}

// Open takes the directory of a run, or the path of the result.json in it. Nothing is read yet.
func Open(path string) *Dir {
	if filepath.Base(path) == result.FileName {
		path = filepath.Dir(path)
	}
	return &Dir{path: path, logs: map[string]logs{}}
}

// Of returns the histograms of a cell, tagged as the latencies of result.json are named, in nanoseconds. Those that come with
// an error are what could be read. They belong to the Dir: copy one before changing it.
func (d *Dir) Of(c *result.Cell) ([]*hdrhistogram.Histogram, error) {
	if c.Histograms == "" {
		return nil, errors.New("the result names no histogram of this cell: it is of several runs side by side, or of an inflight that kept none")
	}
	l, ok := d.logs[c.Histograms]
	if !ok {
		l.all, l.err = read(d.path, c.Histograms)
		d.logs[c.Histograms] = l
	}
	return l.all, l.err
}

// Percentile returns the value below which the share q of a cell's samples of a latency is; ok is false where there are too
// few samples beyond it.
func (d *Dir) Percentile(c *result.Cell, latency string, q float64) (ns int64, ok bool, err error) {
	all, err := d.Of(c)
	if err != nil {
		return 0, false, err
	}
	i := slices.IndexFunc(all, func(h *hdrhistogram.Histogram) bool { return h.Tag() == latency })
	if i < 0 || !Enough(all[i].TotalCount(), q) {
		return 0, false, nil
	}
	return all[i].ValueAtPercentile(100 * q), true, nil
}

// Enough reports whether so many samples say where their quantile q is.
func Enough(samples int64, q float64) bool { return math.Round(float64(samples)*(1-q)) >= MinBeyond }

// read reads one log. Its name comes from a file and must stay below dir.
func read(dir, name string) ([]*hdrhistogram.Histogram, error) {
	path := filepath.FromSlash(name)
	if !filepath.IsLocal(path) {
		return nil, fmt.Errorf("%q is not below the run's directory", name)
	}
	f, err := os.Open(filepath.Join(dir, path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing: copy the run's directory as a whole", filepath.Join(dir, path))
	}
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
