package runner

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/runner/result"
)

// histogramsDir is the directory of the cells' histograms, below that of the run.
const histogramsDir = "histograms"

// saveHistograms writes a log for each cell below dir and notes its name in the cell. started is the start of the run.
func (c *cells) saveHistograms(dir string, started time.Time) error {
	if err := os.MkdirAll(filepath.Join(dir, histogramsDir), 0o755); err != nil {
		return fmt.Errorf("make the directory of the histograms: %w", err)
	}
	var all []*cell
	for _, cell := range c.byKey {
		if len(cell.Blocks) > 0 {
			all = append(all, cell)
		}
	}
	slices.SortFunc(all, func(a, b *cell) int { return cmp.Compare(a.Blocks[0].StartedNS, b.Blocks[0].StartedNS) })
	used := map[string]int{}
	for _, cell := range all {
		name := cell.logName()
		if used[name]++; used[name] > 1 {
			name += fmt.Sprintf("-%d", used[name]) // they differ in what the name does not say
		}
		name += ".hlog"
		data, err := cell.log(started)
		if err == nil {
			err = result.WriteFile(filepath.Join(dir, histogramsDir, name), data)
		}
		if err != nil {
			return fmt.Errorf("write the histograms of a cell: %w", err)
		}
		cell.Histograms = path.Join(histogramsDir, name)
	}
	return nil
}

// logName tells the cell from others of the run, for people. Names of arms are fit for a file's.
func (c *cell) logName() string {
	name := fmt.Sprintf("pass%d-%s-qos%d-window%d-connections%d-payload%d", c.Pass, c.Arm, c.QoS, c.Window, c.Connections, c.Payload)
	if c.RatePerS > 0 {
		name += fmt.Sprintf("-rate%.0f", c.RatePerS)
	}
	if c.Control {
		name += "-control"
	}
	return name
}

// log is the cell's HdrHistogram log: one line for each latency, tagged with its name in result.json. Each line covers all
// of the cell's blocks, so its interval holds the runs of other cells between them as well.
func (c *cell) log(started time.Time) ([]byte, error) {
	first, last := c.Blocks[0], c.Blocks[len(c.Blocks)-1]
	from := started.Add(time.Duration(first.StartedNS))
	to := started.Add(time.Duration(last.StartedNS + last.DurationNS))
	var b bytes.Buffer
	w := hdrhistogram.NewHistogramLogWriter(&b)
	lines := []func() error{
		w.OutputLogFormatVersion,
		func() error {
			return w.OutputComment(fmt.Sprintf("arm %s, pass %d, QoS %d, window %d, connections %d, payload %d bytes; values are nanoseconds, Interval_Max milliseconds",
				c.Arm, c.Pass, c.QoS, c.Window, c.Connections, c.Payload))
		},
		func() error { return w.OutputStartTime(from.UnixMilli()) },
		w.OutputLegend,
	}
	for _, h := range c.histograms() {
		if h.Histogram == nil || h.TotalCount() == 0 {
			continue
		}
		lines = append(lines, func() error {
			h.SetTag(h.name)
			h.SetStartTimeMs(from.UnixMilli())
			h.SetEndTimeMs(to.UnixMilli())
			return w.OutputIntervalHistogram(h.Histogram)
		})
	}
	for _, line := range lines {
		if err := line(); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// named is a histogram with its name in result.json.
type named struct {
	name string
	*hdrhistogram.Histogram
}

// histograms are those that the cell's latencies are taken from; nil where the cell has none.
func (c *cell) histograms() []named {
	return []named{
		{"ack_service", c.ackService},
		{"publish_to_pubrec", c.receive},
		{"pubrel_to_pubcomp", c.release},
		{"fence", c.fence},
		{"ack_response", c.ackResponse},
		{"end_to_end", c.endToEnd},
	}
}
